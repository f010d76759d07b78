"""Cross entropy: Gumbel noise and the log link."""

from __future__ import annotations

from torch import Tensor

from hitrate.links import Log
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Options


def cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy, as a point of the family.

    .. math::

        L = -\log p_y

    The value and gradient of `torch.nn.functional.cross_entropy`, by the family's own path: studies
    treat it like the others.

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
    >>> hitrate.cross_entropy_loss(logits, torch.tensor([0, 0]))
    tensor(1.4076)

    References
    ----------
    Bridle. Probabilistic interpretation of feedforward classification network outputs. 1990.
    """
    return family_loss(
        "cross_entropy_loss()",
        logits,
        target,
        noise="gumbel",
        link=Log(),
        options=Options(weight, ignore_index, reduction, label_smoothing),
    )


class CrossEntropyLoss(ClassificationLoss):
    """Cross entropy as a Module; see `cross_entropy_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        return cross_entropy_loss(input, target, **self.options)
