"""Mean absolute error between the softmax and the target."""

from __future__ import annotations

from torch import Tensor

from hitrate.links import Mixed
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Options


def mean_absolute_error_loss(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Absolute difference of softmax and one-hot target, summed over classes.

    .. math::

        L = \lVert e_y - p \rVert_1 = 2 (1 - p_y)

    Probability targets q cost :math:`\sum_c q_c \, 2 (1 - p_c)`, the mean over targets from q.

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
    >>> hitrate.mean_absolute_error_loss(logits, torch.tensor([0, 0]))
    tensor(1.2447)

    References
    ----------
    Ghosh, Kumar, Sastry. Robust Loss Functions under Label Noise for Deep Neural Networks. 2017.
    """
    return family_loss(
        "mean_absolute_error_loss()",
        logits,
        target,
        noise="gumbel",
        link=Mixed(0.0, 2.0),
        options=Options(weight, ignore_index, reduction, label_smoothing),
    )


class MeanAbsoluteErrorLoss(ClassificationLoss):
    """Mean absolute error as a Module; see `mean_absolute_error_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        return mean_absolute_error_loss(input, target, **self.options)
