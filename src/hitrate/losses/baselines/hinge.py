"""Multi-class hinge loss with a margin: the baseline of the EXACT paper."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from hitrate.losses.base import function_of
from hitrate.losses.row_loss import RowLoss, Rule
from hitrate.losses.ways.reduction import EachClass, LossOptions
from hitrate.probability.arguments import is_moving, is_number

__all__ = ["HingeLoss", "hinge_loss"]

RIVALS = ("max", "sum", "mean")


class HingeLoss(RowLoss):
    r"""What is missing from the margin to the rivals.

    .. math::

        L = \max_{i \ne y} \, \max(0, \, r - (\mu_y - \mu_i))

    Two classes with the first score at 0 give the binary hinge loss. The paper names the loss
    without saying how it treats several rivals, so there is a choice.

    Parameters
    ----------
    margin : float
        r. With r = 1 and the worst rival the loss is never below the 0-1 error.
    rivals : {"max", "sum", "mean"}
        The worst rival (Crammer and Singer), the sum over rivals (Weston and Watkins), or that sum
        divided by C, as in `torch.nn.MultiMarginLoss`. With probability targets or smoothing the
        last two cost C times as much.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.5, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.HingeLoss(reduction="none")(logits, torch.tensor([0, 0]))
    tensor([0.5000, 3.0000])

    References
    ----------
    Crammer, Singer. On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines.
    2001. Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. 2022.
    """

    moving = ("margin",)

    def __init__(
        self,
        margin: float | Tensor = 1.0,
        *,
        rivals: str = "max",
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__({"margin": margin, "rivals": rivals}, **options)

    @staticmethod
    def make_rule(margin: float | Tensor = 1.0, *, rivals: str = "max") -> Rule:
        """The rule for a margin and a way to count the rivals."""
        call = f"hinge_loss(rivals={rivals!r})"
        if rivals not in RIVALS:
            raise ValueError(f"{call}: rivals is not one of {', '.join(map(repr, RIVALS))}")
        if not is_moving(margin) and not (is_number(margin) and 0 <= margin < float("inf")):
            raise ValueError(f"{call}: margin must be a number >= 0; class weights go to weight=")

        def of_target(rows: Tensor, y: Tensor) -> Tensor:
            own = rows.gather(1, y[:, None])
            # A class at -inf is no rival, also where the target is at -inf itself.
            nobody = torch.isneginf(rows).scatter(1, y[:, None], True)
            missing = torch.relu(margin - (own - rows)).masked_fill(nobody, 0.0)
            if rivals == "max":
                return missing.amax(1)
            return missing.sum(1) if rivals == "sum" else missing.sum(1) / rows.shape[1]

        def of_classes(rows: Tensor) -> Tensor:
            # The worst rival is the highest class, for the highest itself the second.
            (first, second), (top, _) = (part.unbind(1) for part in rows.topk(2, 1))
            worst = first[:, None].expand_as(rows).scatter(1, top[:, None], second[:, None])
            return torch.relu(margin - (rows - worst)).masked_fill(torch.isneginf(worst), 0.0)

        return Rule(of_target, of_classes if rivals == "max" else EachClass(of_target))


hinge_loss = function_of(HingeLoss)
