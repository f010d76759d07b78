"""Cross entropy and expectation loss mixed, so that the gradient is largest where p = F."""

from __future__ import annotations

from torch import Tensor

from hitrate.links import Focused
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Options


def mixed_loss(
    logits: Tensor,
    target: Tensor,
    focus: float = 0.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy plus expectation loss, with the largest gradient at p = F.

    .. math::

        L = -\alpha \log p_y + \beta (1 - p_y), \qquad \alpha = 1, \ \beta = \frac{1}{1 - 2F}

    At F = 0.5, alpha = 0 and beta = 1: the expectation loss alone. For other mixtures:
    ``exact_loss(noise="gumbel", link=Mixed(alpha, beta))``.

    Parameters
    ----------
    logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
    target : Tensor
        Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
    focus : float
        F, from 0 to 0.5. The paper moves it during training: see `hitrate.schedules`.
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
    >>> hitrate.mixed_loss(logits, torch.tensor([0, 0]), focus=0.25)
    tensor(2.6523)

    References
    ----------
    Battash, Hazan, Wolf. Mixing between the Cross Entropy and the Expectation Loss Terms. 2021.
    """
    return family_loss(
        f"mixed_loss(focus={focus!r})",
        logits,
        target,
        noise="gumbel",
        link=Focused(focus),
        options=Options(weight, ignore_index, reduction, label_smoothing),
    )


class MixedLoss(ClassificationLoss):
    """Mixed loss as a Module; see `mixed_loss`. A `Schedule` can drive `focus`."""

    def __init__(
        self,
        focus: float = 0.0,
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
        self.focus = focus

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        return mixed_loss(input, target, self.focus, **self.options)
