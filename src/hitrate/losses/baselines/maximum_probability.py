"""Cross entropy weighted by how far the target's probability is from the highest (MPCE)."""

from __future__ import annotations

import torch
from torch import Tensor

from hitrate.losses.base import ClassificationLoss
from hitrate.losses.reduction import Batch, Options


def maximum_probability_cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy times the gap between the highest probability and the target's.

    .. math::

        L = -(\max_j p_j - p_y) \log p_y

    Zero as soon as the target is the first choice, however narrowly; and near zero where all
    probabilities are about 1/C, as at the start of training with many classes.

    Parameters
    ----------
    logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
    target : Tensor
        Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.functional.cross_entropy`.

    Returns
    -------
    Tensor
        A number, or with ``reduction="none"`` one per target.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.maximum_probability_cross_entropy_loss(
    ...     logits, torch.tensor([0, 0]), reduction="none"
    ... )
    tensor([0.0000, 1.3848])

    References
    ----------
    Zhou, Wang, Zhang, Zhu, Zheng, Wu. MPCE: A Maximum Probability Based Cross Entropy Loss Function
    for Neural Network Classification. 2019.
    """
    call = "maximum_probability_cross_entropy_loss()"
    options = Options(weight, ignore_index, reduction, label_smoothing)
    batch = Batch.of(logits, target, options, call)

    def of_classes(rows: Tensor) -> Tensor:
        log_p = rows.log_softmax(1)
        top = log_p.amax(1, keepdim=True)
        # A class at -inf costs infinity, with no gradient to speak of.
        lost = torch.isneginf(log_p)
        log_p = log_p.masked_fill(lost, 0.0)
        gap = -top.exp() * torch.expm1(log_p - top)
        return (-gap * log_p).masked_fill(lost, torch.inf)

    def of_target(rows: Tensor, y: Tensor) -> Tensor:
        return of_classes(rows).gather(1, y[:, None])[:, 0]

    return batch.loss(of_target, of_classes)


class MaximumProbabilityCrossEntropyLoss(ClassificationLoss):
    """MPCE as a Module; see `maximum_probability_cross_entropy_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        return maximum_probability_cross_entropy_loss(input, target, **self.options)
