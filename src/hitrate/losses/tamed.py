"""Tamed cross entropy: grows like a root, or a logarithm, of cross entropy."""

from __future__ import annotations

from torch import Tensor

from hitrate.links import Tamed
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Options


def tamed_cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    alpha: float = 0.5,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy that grows more slowly where it is large.

    .. math::

        L = \frac{(1 - \log p_y)^{1 - \alpha} - 1}{1 - \alpha}

    Zero at p = 1. (The formula as printed in the mixing paper, equation (4), differs from this one
    by a constant and has another value there.)

    Parameters
    ----------
    logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
    target : Tensor
        Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
    alpha : float
        0 is cross entropy; at 1 the loss is log(1 - log p); above 1 it is bounded.
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
    >>> hitrate.tamed_cross_entropy_loss(logits, torch.tensor([0, 0]))
    tensor(1.0324)

    References
    ----------
    Martinez, Stiefelhagen. Taming the Cross Entropy Loss. 2018.
    """
    return family_loss(
        f"tamed_cross_entropy_loss(alpha={alpha!r})",
        logits,
        target,
        noise="gumbel",
        link=Tamed(alpha),
        options=Options(weight, ignore_index, reduction, label_smoothing),
    )


class TamedCrossEntropyLoss(ClassificationLoss):
    """Tamed cross entropy as a Module; see `tamed_cross_entropy_loss`."""

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        self.alpha = alpha

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        return tamed_cross_entropy_loss(input, target, self.alpha, **self.options)
