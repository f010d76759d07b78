"""Cross entropy weighted by how far the target's probability is from the highest (MPCE)."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from hitrate.losses.base import function_of
from hitrate.losses.row_loss import RowLoss, Rule
from hitrate.losses.ways.reduction import LossOptions

__all__ = ["MaximumProbabilityCrossEntropyLoss", "maximum_probability_cross_entropy_loss"]


class MaximumProbabilityCrossEntropyLoss(RowLoss):
    r"""Cross entropy times the gap between the highest probability and the target's.

    .. math::

        L = -(\max_j p_j - p_y) \log p_y

    Zero as soon as the target is the first choice, however narrowly; and near zero where all
    probabilities are about 1/C, as at the start of training with many classes.

    Parameters
    ----------
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> loss = hitrate.MaximumProbabilityCrossEntropyLoss(reduction="none")
    >>> loss(logits, torch.tensor([0, 0]))
    tensor([0.0000, 1.3848])

    References
    ----------
    Zhou, Wang, Zhang, Zhu, Zheng, Wu. MPCE: A Maximum Probability Based Cross Entropy Loss Function
    for Neural Network Classification. 2019.
    """

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__({}, **options)

    @staticmethod
    def make_rule() -> Rule:
        """The rule."""
        return Rule(lambda rows, y: _of_classes(rows).gather(1, y[:, None])[:, 0], _of_classes)


def _of_classes(rows: Tensor) -> Tensor:
    log_p = rows.log_softmax(1)
    top = log_p.amax(1, keepdim=True)
    # A class at -inf costs infinity, with no gradient to speak of.
    lost = torch.isneginf(log_p)
    log_p = log_p.masked_fill(lost, 0.0)
    gap = -top.exp() * torch.expm1(log_p - top)
    return (-gap * log_p).masked_fill(lost, torch.inf)


maximum_probability_cross_entropy_loss = function_of(MaximumProbabilityCrossEntropyLoss)
