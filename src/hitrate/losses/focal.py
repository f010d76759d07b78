"""Focal loss: cross entropy that turns away from what is already right."""

from __future__ import annotations

from torch import Tensor

from hitrate.links import Focal
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Options


def focal_loss(
    logits: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy with less weight on rows that are already right.

    .. math::

        L = -(1 - p_y)^\gamma \log p_y

    The factor alpha that some give it is a constant; put it into `weight`.

    Parameters
    ----------
    logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
    target : Tensor
        Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
    gamma : float
        At 0 this is cross entropy.
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
    >>> hitrate.focal_loss(logits, torch.tensor([0, 0]))
    tensor(1.0196)

    References
    ----------
    Lin, Goyal, Girshick, He, Dollár. Focal Loss for Dense Object Detection. 2017.
    """
    return family_loss(
        f"focal_loss(gamma={gamma!r})",
        logits,
        target,
        noise="gumbel",
        link=Focal(gamma),
        options=Options(weight, ignore_index, reduction, label_smoothing),
    )


class FocalLoss(ClassificationLoss):
    """Focal loss as a Module; see `focal_loss`."""

    def __init__(
        self,
        gamma: float = 2.0,
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
        self.gamma = gamma

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        return focal_loss(input, target, self.gamma, **self.options)
