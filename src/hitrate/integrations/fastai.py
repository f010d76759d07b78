"""A leaf: train for accuracy in fastai; needs ``hitrate[fastai]``.

A whole program::

    import torch
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner
    from fastai.metrics import accuracy
    from hitrate.integrations.fastai import AccuracyCallback

    x = torch.randn(256, 20)
    data = torch.utils.data.TensorDataset(x, x[:, :10].argmax(1))
    loaders = DataLoaders(
        torch.utils.data.DataLoader(data, batch_size=32, shuffle=True),
        torch.utils.data.DataLoader(data, batch_size=32),
    )
    annealed = AccuracyCallback("annealed")
    model = torch.nn.Linear(20, 10)
    learn = Learner(loaders, model, annealed.loss_func, metrics=accuracy, cbs=annealed)
    learn.fit(2)
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hitrate import recipes

try:
    from fastai.callback.core import Callback
    from fastai.losses import BaseLoss
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.fastai needs fastai: pip install 'hitrate[fastai]'"
    ) from error

__all__ = ["AccuracyCallback", "LossFlat"]


def plain(x: Tensor) -> Tensor:
    """Without fastai's own kind of tensor around it, which kernels would not know."""
    return x.as_subclass(Tensor)


class LossFlat(BaseLoss):  # type: ignore[misc]
    """A loss of hitrate as one of fastai: with an activation, and decoded predictions.

    Parameters
    ----------
    loss : ClassificationLoss
    axis : int
        Of the classes in the model's output: -1, or 1 for images.
    """

    y_int = True

    def __init__(self, loss: nn.CrossEntropyLoss, *, axis: int = -1) -> None:
        # Not fastai's own, which looks for the names of annotations in its own module.
        self.func = self.loss = loss
        self.axis, self.flatten, self.floatify, self.is_2d = axis, False, False, True

    def __call__(self, inp: Tensor, targ: Tensor, **options: Any) -> Tensor:
        """The loss of a model's output."""
        logits, target = plain(inp), plain(targ)
        if target.shape == logits.shape:
            target = target.movedim(self.axis, 1)
        found: Tensor = self.loss(logits.movedim(self.axis, 1), target, **options)
        return found

    def activation(self, x: Tensor) -> Tensor:
        """The loss's own probabilities."""
        found: Tensor = self.loss.probabilities(plain(x).movedim(self.axis, 1))  # type: ignore[operator]
        return found.movedim(1, self.axis)

    def decodes(self, x: Tensor) -> Tensor:
        """The most likely class."""
        return x.argmax(dim=self.axis)


class AccuracyCallback(Callback):  # type: ignore[misc]
    """A recipe as a Learner's loss, whose numbers move with the training batches.

    Give the Learner its `loss_func`, unless fastai finds one by itself, whose place it takes.
    Where it is follows from epoch and batch, so a training that resumes with ``start_epoch=`` is
    right. In validation the loss is in evaluation mode; `get_preds` gives the loss's own
    probabilities, also after training.

    Parameters
    ----------
    recipe : str
        A name for `hitrate.recipe`. One that normalises gradients needs an optimizer of torch's:
        ``opt_func=partial(OptimWrapper, opt=torch.optim.SGD)``.
    axis : int
        Of the classes in the model's output: -1, or 1 for images.
    **changes
        As for `hitrate.recipe`.

    Attributes
    ----------
    loss_func : LossFlat
    plan : Plan
    """

    order = -5  # Before what looks at the loss, such as MixUp.

    def __init__(self, recipe: str, *, axis: int = -1, **changes: Any) -> None:
        super().__init__()
        self.plan = recipes.recipe(recipe, **changes)
        self.loss_func = LossFlat(self.plan.loss, axis=axis)

    def after_create(self) -> None:
        """Give the Learner its loss."""
        self.learn.loss_func = self.loss_func

    def before_fit(self) -> None:
        """Begin."""
        optimizer = self.learn.opt if self.plan.normalize_gradient else None
        self.plan.loss.to(next(self.learn.model.parameters()).device)
        self.plan.begin(self.n_epoch * len(self.dls.train), optimizer)

    def before_train(self) -> None:
        """Begin an epoch, maybe not with the first one."""
        self.plan.train().goto(self.epoch * len(self.dls.train))

    def after_batch(self) -> None:
        """Move on."""
        if self.training:
            self.plan.goto(self.epoch * len(self.dls.train) + self.iter + 1)

    def before_validate(self) -> None:
        """Read as what the loss is called."""
        self.plan.eval()
