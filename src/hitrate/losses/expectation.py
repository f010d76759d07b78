"""Expectation loss: Gumbel noise and the error link."""

from __future__ import annotations

from torch import Tensor

from hitrate.links import Error
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Options


def expectation_loss(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Expected error of a prediction drawn from the softmax.

    .. math::

        L = 1 - p_y

    The first-order approximation of cross entropy at p = 1; half the mean absolute error.

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
    >>> hitrate.expectation_loss(logits, torch.tensor([0, 0]))
    tensor(0.6224)

    References
    ----------
    Battash, Hazan, Wolf. Mixing between the Cross Entropy and the Expectation Loss Terms. 2021.
    """
    return family_loss(
        "expectation_loss()",
        logits,
        target,
        noise="gumbel",
        link=Error(),
        options=Options(weight, ignore_index, reduction, label_smoothing),
    )


class ExpectationLoss(ClassificationLoss):
    """Expectation loss as a Module; see `expectation_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        return expectation_loss(input, target, **self.options)
