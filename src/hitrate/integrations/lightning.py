"""A leaf: train for accuracy in Lightning; needs ``hitrate[lightning]``.

A whole program::

    import torch
    from lightning import LightningModule, Trainer
    from torch import nn
    from hitrate.integrations.lightning import AccuracyCallback


    class Classifier(LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(20, 10)
            self.loss = nn.CrossEntropyLoss()

        def training_step(self, batch, _):
            x, target = batch
            return self.loss(self.layer(x), target)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)


    data = torch.utils.data.TensorDataset(torch.randn(256, 20), torch.randint(10, (256,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    trainer = Trainer(max_epochs=3, accelerator="auto", callbacks=[AccuracyCallback("annealed")])
    trainer.fit(Classifier(), loader)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from hitrate import recipes
from hitrate.losses import ClassificationLoss
from hitrate.recipes import Plan

try:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.lightning needs Lightning: pip install 'hitrate[lightning]'"
    ) from error

__all__ = ["AccuracyCallback"]


class AccuracyCallback(Callback):  # type: ignore[misc]
    """A recipe in the place of a LightningModule's loss, or curves for the numbers of its own.

    Everything goes by the Trainer's own count of steps of the optimizer, so gradient accumulation
    and resuming are right by themselves; the mean norm of recipes that normalise gradients is in
    the optimizer's state, which Lightning saves. In a fit's validation the loss is in evaluation
    mode; outside of fits the module has its own. Standardised logits are of all processes together,
    as batches in SyncBatchNorm are.

    Parameters
    ----------
    recipe : str, optional
        A name for `hitrate.recipe`, whose loss takes the place of the module's attribute while it
        is trained. It is no part of the module: checkpoints have the keys that they had. Without
        it the attribute has to be a loss of hitrate, which is part of the module and saved with it.
    loss : str
        The attribute, with dots where it is that of a part: "loss" or "head.criterion".
    **curves
        With a recipe, its changes. Without, functions of progress for numbers of the loss, such as
        ``sigma=schedules.geometric(10.0, 1.0)``.

    Notes
    -----
    ASAM takes two steps, which Lightning's automatic optimisation has no place for: set
    ``automatic_optimization = False``, and make them in `training_step` as `hitrate.optim.ASAM`
    shows, with `manual_backward`. The callback counts these steps too.
    """

    def __init__(self, recipe: str | None = None, *, loss: str = "loss", **curves: Any) -> None:
        self.recipe = recipe
        self.loss = loss
        self.curves = curves
        self.plan: Plan | None = None
        self._own: Any = None
        # A mistake is told where it is made, and not when training begins.
        if recipe is not None:
            recipes.recipe(recipe, **curves)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put the recipe's loss into its place."""
        if stage != "fit":
            return
        owner, name = self._place(pl_module)
        current = getattr(owner, name, None)
        if self.recipe is not None:
            self.plan = recipes.recipe(self.recipe, **self.curves)
            self._own = vars(owner).get(name)
            # Not as a part of the module, whose checkpoints would have other keys.
            vars(owner)[name] = self.plan.loss
        elif not isinstance(current, ClassificationLoss):
            where = f"{type(pl_module).__name__}.{self.loss}"
            raise ValueError(
                f"AccuracyCallback: without a recipe, {where} has to be a loss of hitrate, and is "
                f"{type(current).__name__}"
            )
        else:
            curves: dict[str, Callable[[float], float]] = self.curves
            self.plan = Plan(current, curves, normalize_gradient=False)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin, or go on, where the Trainer is."""
        plan = self._planned()
        steps = trainer.estimated_stepping_batches
        if not math.isfinite(steps):
            raise ValueError("AccuracyCallback: how many steps? Give the Trainer max_steps=")
        if plan.normalize_gradient and len(trainer.optimizers) != 1:
            raise ValueError(
                f"AccuracyCallback: {self.recipe!r} normalises the gradients of one optimizer, and "
                f"there are {len(trainer.optimizers)}; say normalize_gradient=False"
            )
        plan.loss.to(pl_module.device)
        plan.begin(int(steps), trainer.optimizers[0] if trainer.optimizers else None)
        plan.train().goto(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        """Move on with the Trainer."""
        self._planned().goto(trainer.global_step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Read as what the loss is called; without a fit it is the module's own."""
        if self.plan is not None:
            self.plan.eval()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Go on with training."""
        if self.plan is not None:
            self.plan.train()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put the module's own loss back."""
        if stage != "fit" or self.recipe is None:
            return
        owner, name = self._place(pl_module)
        vars(owner).pop(name, None)
        if self._own is not None:
            vars(owner)[name] = self._own

    def _place(self, module: nn.Module) -> tuple[Any, str]:
        """Whose attribute the loss is, and its name there."""
        *path, name = self.loss.split(".")
        owner: Any = module
        for part in path:
            owner = getattr(owner, part)
        return owner, name

    def _planned(self) -> Plan:
        assert self.plan is not None, "setup comes first"
        return self.plan
