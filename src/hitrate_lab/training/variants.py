"""Ways to train that are compared: a recipe of hitrate's, by a name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hitrate import losses
from hitrate.links import GCE, Error, Focal, Focused, Link, Log, Mixed
from hitrate.recipes import Plan, recipe

# Links whose slope needs p alone; others need log p where p underflows.
STEEP = (Error, Focal, Focused, GCE, Log, Mixed)


@dataclass(frozen=True)
class Variant:
    """A loss with what moves during training.

    Parameters
    ----------
    name : str
        What tables call it.
    recipe : str
        A name of `hitrate.recipes.RECIPES` or `hitrate.losses.LOSSES`.
    settings : mapping
        Changes to the recipe, as for `hitrate.recipe`.
    factor : float
        The loss is multiplied by it, such as by the alpha of focal loss.

    Examples
    --------
    >>> from hitrate_lab.training import Variant
    >>> Variant("F=0-0.5", "mixed-gradual").plan(epochs=50).schedules
    [Schedule(MixedLoss, 'focus', phases([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]), total_steps=50)]
    """

    name: str
    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    factor: float = 1.0

    def plan(self, epochs: int) -> Plan:
        """The loss, to be stepped once per epoch; gradients are not normalised.

        Values are those of rows: copies share a call, so a mean must be taken copy by copy.
        """
        plan = recipe(
            self.recipe,
            total_steps=epochs,
            normalize_gradient=False,
            **{**self.settings, "reduction": "none"},
        )
        link = getattr(plan.loss, "link", None)
        if getattr(plan.loss, "normalize", False) or getattr(link, "of_batch", False):
            raise ValueError(
                f"{self}: many models are trained at once, and this loss is not a mean over rows"
            )
        if plan.loss.weight is not None:
            raise ValueError(f"{self}: class weights are not for many models at once")
        return plan


def softmax_link(loss: losses.ClassificationLoss) -> Link | None:
    """The link, as it stands now, of a loss that sees logits through the softmax alone."""
    if loss.label_smoothing:
        return None
    match loss:
        case losses.CrossEntropyLoss():
            return Log()
        case losses.ExpectationLoss():
            return Error()
        case losses.MixedLoss():
            return Focused(loss.focus)
        case losses.FocalLoss():
            return Focal(loss.gamma)
        case losses.GeneralizedCrossEntropyLoss():
            return GCE(loss.q, loss.threshold)
        case losses.ExactLoss(noise="gumbel", sigma=1.0, margin=None):
            return loss.link if isinstance(loss.link, STEEP) else None
    return None


def mixture_of(link: Link) -> Mixed | None:
    """The link as alpha and beta, where it is a sum of log and error."""
    if isinstance(link, Log):
        return Mixed(1.0, 0.0)
    if isinstance(link, Error):
        return Mixed(0.0, 1.0)
    if isinstance(link, Focused):
        return link.mixture
    return link if isinstance(link, Mixed) else None


def steepness(link: Link, p: Tensor) -> Tensor:
    """-d link / d log p, in closed form.

    Parameters
    ----------
    link : Link
        One of `STEEP`.
    p : Tensor
        From 0 to 1.
    """
    if mixture := mixture_of(link):
        return mixture.alpha + mixture.beta * p
    if isinstance(link, GCE):
        steep = p**link.q
        return steep if link.threshold is None else steep * (p > link.threshold)
    assert isinstance(link, Focal)
    # p log p is 0 at p = 0.
    x = -p.clamp(min=torch.finfo(p.dtype).tiny).log()
    error = 1 - p
    return error**link.gamma + link.gamma * x * p * error ** (link.gamma - 1)
