"""A leaf: a plan in a training loop with accelerate; needs ``hitrate[accelerate]``.

A whole program::

    import torch
    import hitrate
    from accelerate import Accelerator
    from hitrate.integrations.accelerate import prepare

    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = torch.nn.Linear(20, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(256, 20), torch.randint(10, (256,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    plan = hitrate.recipe("annealed", total_steps=3 * len(loader) // 2, optimizer=optimizer)
    plan = prepare(plan, accelerator)
    for _ in range(3):
        for x, target in loader:
            with accelerator.accumulate(model):
                accelerator.backward(plan.loss(model(x), target))
                optimizer.step()
                optimizer.zero_grad()
                plan.step()
    accelerator.save_state("out")
"""

from __future__ import annotations

from typing import Any

from hitrate.recipes import Plan

try:
    from accelerate import Accelerator
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.accelerate needs accelerate: pip install 'hitrate[accelerate]'"
    ) from error

__all__ = ["AcceleratedPlan", "prepare"]


class AcceleratedPlan(Plan):
    """A plan that moves on with the optimizer, and goes where the accelerator saves.

    `step` may be called for every part of a batch: it counts only where gradients were
    synchronised and the optimizer made its step, as accelerate's schedulers of the learning rate
    do. `total_steps` are steps of the optimizer, in each process. `prepare` makes one of a
    `hitrate.recipes.Plan`, whose parameters it has.
    """

    accelerator: Accelerator

    def step(self) -> None:
        """Move every schedule on, if the optimizer has moved on."""
        accelerator = self.accelerator
        if accelerator.sync_gradients and not accelerator.optimizer_step_was_skipped:
            super().step()


def prepare(plan: Plan, accelerator: Any) -> AcceleratedPlan:
    """Let a plan step with the optimizer, and be part of ``accelerator.save_state``.

    Parameters
    ----------
    plan : Plan
        Of `hitrate.recipe`, with its `total_steps`, and with the optimizer if it normalises
        gradients, before or after ``accelerator.prepare``.
    accelerator : Accelerator

    Returns
    -------
    AcceleratedPlan
        In the place of the plan, on the accelerator's device.
    """
    prepared = AcceleratedPlan.__new__(AcceleratedPlan)
    vars(prepared).update(vars(plan))
    prepared.accelerator = accelerator
    prepared.loss.to(accelerator.device)
    accelerator.register_for_checkpointing(prepared)
    return prepared
