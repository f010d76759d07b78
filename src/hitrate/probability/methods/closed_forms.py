"""Closed forms: normal noise with two classes, and Gumbel noise, whose p is the softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from hitrate.probability import normal
from hitrate.probability.margins import scaled_down
from hitrate.probability.normal import SQRT_HALF


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
    log_p, hazard = normal.log_cdf_and_hazard_of_few(rival * SQRT_HALF)
    return log_p[:, 0], torch.zeros_like(a).scatter(1, column, hazard * SQRT_HALF)


def log_softmax_of_target(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | Tensor | None, *, learned: bool
) -> Tensor:
    """log p (N,) for Gumbel noise: the target's log softmax of logits / sigma.

    A margin r lifts every rival to at least r below the target, which clips mu_y - mu_i at r.
    `learned` says whether sigma may want a gradient. The rivals' sum is taken without the target:
    of p near 1 the digits of 1 - p are kept.
    """
    target = target[:, None]
    # Only differences count, and those from the highest are no larger than they have to be.
    top = logits.detach().amax(1, keepdim=True)
    # A class at -inf is out whatever sigma and margin are: it must not give them a NaN gradient,
    # nor become a rival at the margin. A row with nothing else is undefined.
    out = torch.isneginf(logits) & ~torch.isneginf(top)
    lowest = torch.finfo(logits.dtype).min
    scores = (logits.masked_fill(out, 0.0) - top).clamp(min=lowest).masked_fill(out, 0.0)
    if margin is not None:
        scores = torch.maximum(scores, scores.gather(1, target) - margin)
    scores = scaled_down(scores, sigma, learned=learned).masked_fill(out, -torch.inf)
    return _log_softmax_at(scores, target)[:, 0]


def log_softmax_of_classes(scores: Tensor) -> Tensor:
    """log p_c (N, C) for Gumbel noise; the highest class keeps the digits of 1 - p."""
    top = scores.argmax(1, keepdim=True)
    return torch.log_softmax(scores, 1).scatter(1, top, _log_softmax_at(scores, top))


def _log_softmax_at(scores: Tensor, column: Tensor) -> Tensor:
    """The log softmax (N, 1) in one column of each row: log sigmoid(own - logsumexp(others)).

    Neither its value nor its gradient subtracts p from 1.
    """
    own = scores.gather(1, column)
    rivals = scores.scatter(1, column, -torch.inf)
    best = rivals.detach().amax(1, keepdim=True)
    nobody = torch.isneginf(best)
    best = best.masked_fill(nobody, 0.0)
    total = (rivals - best).exp().sum(1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
    log_p = torch.nn.functional.logsigmoid((own - best) - total.log())
    # Without a rival the target has won; a logit of +inf, or none above -inf, leaves log p
    # undefined, as in cross entropy.
    undefined = ~(own < torch.inf) | (nobody & torch.isneginf(own))
    return log_p.masked_fill(nobody, 0.0).masked_fill(undefined, torch.nan)
