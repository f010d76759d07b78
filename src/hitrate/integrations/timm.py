"""A leaf: losses and a scheduler for training with timm; needs ``hitrate[timm]``.

A whole program::

    import timm
    import torch
    from timm.data import Mixup
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2
    from timm.task import ClassificationTask
    from hitrate.integrations.timm import AccuracyScheduler, create_loss

    model = timm.create_model("resnet10t", num_classes=10)
    optimizer = create_optimizer_v2(model, "sgd", lr=0.01)
    mixup = Mixup(mixup_alpha=0.2, label_smoothing=0.1, num_classes=10)
    train_loss, validate_loss = create_loss("annealed", smoothing=0.1, mixup=True)
    task = ClassificationTask(model, train_loss)
    updates = 2
    scheduler, epochs = create_scheduler_v2(optimizer, num_epochs=2, updates_per_epoch=updates)
    scheduler = AccuracyScheduler(scheduler, train_loss, epochs, updates)
    for epoch in range(epochs):
        for update in range(updates):
            x, target = mixup(torch.randn(8, 3, 32, 32), torch.randint(10, (8,)))
            task(x, target)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step_update(epoch * updates + update + 1)
        scheduler.step(epoch + 1)
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from hitrate import recipes
from hitrate.losses import ClassificationLoss
from hitrate.recipes import Plan

try:
    import timm as _timm  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.timm needs timm: pip install 'hitrate[timm]'"
    ) from error

__all__ = ["AccuracyScheduler", "create_loss"]


def create_loss(
    name: str, smoothing: float = 0.0, mixup: bool = False, **changes: Any
) -> tuple[ClassificationLoss, nn.CrossEntropyLoss]:
    """Losses for training and validation, as timm's own training makes them.

    Parameters
    ----------
    name : str
        A name for `hitrate.recipe`.
    smoothing : float
        Label smoothing. With mixup timm smooths the targets itself, so the loss does not.
    mixup : bool
        Whether mixup or cutmix make probabilities of the targets. The loss takes these as well as
        class indices; see what they mean under each link in the documentation.
    **changes
        As for `hitrate.recipe`.

    Returns
    -------
    train : ClassificationLoss
        Its plan, for what moves, is `train.plan`.
    validation : CrossEntropyLoss
        Torch's, as timm has it: the same number whatever one trains with.
    """
    if smoothing and not mixup:
        changes = {"label_smoothing": smoothing, **changes}
    plan = recipes.recipe(name, **changes)
    # The plan holds the loss; a Module may have attributes that are none.
    plan.loss.plan = plan
    return plan.loss, nn.CrossEntropyLoss()


class AccuracyScheduler:
    """A scheduler of timm's that moves a loss's numbers along with the learning rate.

    Numbers go by updates of the optimizer, as the training loop counts them: accumulated batches
    are one. A training that resumes says where it is by ``step(epoch)``, or ``step_update``, as
    timm's does.

    Parameters
    ----------
    scheduler : Scheduler or None
        Timm's, for the learning rate; everything else that is asked of this one is asked of it.
    loss : ClassificationLoss
        Of `create_loss`.
    epochs, updates_per_epoch : int
        Of the whole training.
    optimizer : Optimizer, optional
        Needed if the recipe normalises gradients; by default the scheduler's.
    """

    def __init__(
        self,
        scheduler: Any,
        loss: ClassificationLoss,
        epochs: int,
        updates_per_epoch: int,
        optimizer: Optimizer | None = None,
    ) -> None:
        plan = getattr(loss, "plan", None)
        if not isinstance(plan, Plan):
            raise ValueError("AccuracyScheduler: takes the training loss that create_loss made")
        self.scheduler = scheduler
        self.plan = plan
        self.updates_per_epoch = updates_per_epoch
        optimizer = optimizer or getattr(scheduler, "optimizer", None)
        self.plan.begin(epochs * updates_per_epoch, optimizer)

    def step_update(self, num_updates: int, metric: float | None = None) -> None:
        """After an update of the optimizer: so many have been made."""
        self.plan.goto(num_updates)
        if self.scheduler is not None:
            self.scheduler.step_update(num_updates, metric)

    def step(self, epoch: int, metric: float | None = None) -> None:
        """After an epoch, so many of which have been made."""
        self.plan.goto(epoch * self.updates_per_epoch)
        if self.scheduler is not None:
            self.scheduler.step(epoch, metric)

    def state_dict(self) -> dict[str, Any]:
        """Where both stand."""
        own = None if self.scheduler is None else self.scheduler.state_dict()
        return {"scheduler": own, "plan": self.plan.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state_dict["scheduler"])
        self.plan.load_state_dict(state_dict["plan"])

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)
