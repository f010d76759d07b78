"""Ways to train that are compared: a recipe of hitrate's, by a name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hitrate import losses
from hitrate.links import Link
from hitrate.recipes import Plan, recipe


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
    >>> from hitrate_lab.training.batched import Variant
    >>> Variant("F=0-0.5", "mixed_gradual").plan(epochs=50).schedules
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
        if plan.loss.weight is not None or plan.loss.options.is_balanced:
            raise ValueError(f"{self}: class weights are not for many models at once")
        return plan


def softmax_link(loss: losses.ClassificationLoss) -> Link | None:
    """The link, as it stands now, of a loss that sees logits through the softmax alone."""
    if not isinstance(loss, losses.LinkLoss) or loss.options.is_smoothed or loss.noise != "gumbel":
        return None
    if isinstance(loss, losses.ExactLoss) and not (loss.sigma == 1.0 and loss.margin is None):
        return None
    link = loss.link.fixed()
    return link if link.formula is not None else None
