"""Closed forms: two classes with normal noise. Gumbel noise is torch's log-softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from hitrate.probability.noises import NORMAL, SQRT_HALF


def two_classes(a: Tensor) -> tuple[Tensor, Tensor]:
    """log p = log Phi(a / sqrt 2) for the one rival of each row, docs/math.md (6).

    Parameters
    ----------
    a : Tensor, shape (N, 2)
        Scaled margins; the target's own column holds `margins.ABSENT`.

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope : Tensor, shape (N, 2)
        d log p / d a, zero in the target's column.
    """
    rival, column = a.min(1, keepdim=True)
    log_p, hazard = NORMAL.log_cdf_and_hazard(rival * SQRT_HALF)
    return log_p[:, 0], torch.zeros_like(a).scatter(1, column, hazard * SQRT_HALF)


def log_softmax_of_target(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None, *, learned: bool
) -> Tensor:
    """log p for Gumbel noise: the target's log softmax of logits / sigma.

    A margin r lifts every rival to at least r below the target, which clips mu_y - mu_i at r.
    `learned` says whether sigma may want a gradient.
    """
    target = target[:, None]
    if margin is None and not learned:
        return torch.log_softmax(logits / sigma, 1).gather(1, target)[:, 0]
    # A class at -inf is out whatever sigma and margin are: it must not give them a NaN gradient,
    # nor become a rival at the margin.
    out = torch.isneginf(logits)
    scores = logits.masked_fill(out, 0.0)
    if margin is not None:
        scores = torch.maximum(scores, scores.gather(1, target) - margin)
    scores = (scores / sigma).masked_fill(out, -torch.inf)
    return torch.log_softmax(scores, 1).gather(1, target)[:, 0]
