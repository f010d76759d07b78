"""Plain Monte Carlo with the log-derivative trick, for any noise: a reference, not the default."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hitrate.probability.margins import ABSENT

if TYPE_CHECKING:
    from hitrate.probability.noises import Noise


def monte_carlo(
    a: Tensor,
    noise: Noise,
    *,
    k: int = 1,
    samples: int = 16,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Estimate log p and its gradient by drawing the scores of all classes.

    With independent noise e, the target scores :math:`e_y` and rival i scores :math:`-a_i + e_i`.
    The density of the latter depends on :math:`a_i` through :math:`f(s_i + a_i)`, hence

    .. math::
        p = E[hit], \qquad
        \frac{\partial p}{\partial a_i} = E[hit \cdot (\log f)'(e_i)] = -E[hit \cdot \psi(e_i)],
        \qquad hit = 1(e_y > \max_i (e_i - a_i))

    with :math:`\psi = -(\log f)'`. For normal noise :math:`\psi(e_i)` gives way to
    :math:`e_i - \bar e`, the mean being over all C classes: that is the log-derivative of the
    distribution N(a, I + 1 1^T) of the differences of scores, the only thing p depends on, and
    it has less variance.

    ``exp(log_p)`` and ``exp(log_p) * slope`` are unbiased for p and its gradient; ``log_p`` and
    ``slope`` by themselves are not. Time and memory are O(S C) a row.

    Parameters
    ----------
    a : Tensor
        Scaled margins, shape (N, C), float32 or float64. The target's own column holds
        `margins.ABSENT`.
    noise : Noise
        The distribution of e.
    k : int
        A hit is that fewer than k rivals score higher than the target.
    samples : int
        Number S of draws of all C scores.
    generator : torch.Generator, optional
        Source of the noise; torch's default generator when omitted.

    Returns
    -------
    log_p : Tensor
        Logarithm of the share of hits, shape (N,); minus infinity without a hit.
    slope : Tensor
        Estimate of the gradient of p divided by the estimate of p, shape (N, C): the mean of the
        log-derivative over the hits, zero without a hit and in the target's column.

    References
    ----------
    R. J. Williams, "Simple statistical gradient-following algorithms for connectionist
    reinforcement learning", Machine Learning 8, 1992.

    I. Karpukhin, S. Dereka, S. Kolesnikov, "EXACT: How to Train Your Accuracy", Appendix C.
    """
    # A rival that always loses holds the same constant. Taking its column for the target's only
    # swaps two independent draws of one distribution, so the first such column will do.
    absent = a >= ABSENT
    target = absent.to(torch.uint8).argmax(dim=1)  # (N,)
    e = noise.sample((a.shape[0], samples, a.shape[1]), a.dtype, a.device, generator)  # (N, S, C)
    e_target = e.gather(2, target[:, None, None].expand(-1, samples, 1))  # (N, S, 1)
    # In the target's own column this reads ABSENT > 0, so that column needs no mask here.
    behind = a[:, None, :] + e_target - e > 0  # (N, S, C)
    hit = behind.all(dim=2) if k == 1 else (~behind).sum(dim=2) < k  # (N, S)
    psi = noise.weight_of_draws(e)
    hits = hit.sum(dim=1)  # (N,)
    log_p = hits.to(a.dtype).log() - math.log(samples)
    # where, not a product: a miss must not turn an infinite score into NaN.
    total = torch.where(hit[:, :, None], -psi, 0.0).sum(dim=1)  # (N, C)
    slope = (total / hits.clamp(min=1)[:, None]).masked_fill(absent, 0.0)
    # A NaN compares as a miss; a row that holds one must not pass for a row without hits.
    poisoned = a.isnan().any(dim=1)
    return log_p.masked_fill(poisoned, math.nan), slope.masked_fill(poisoned[:, None], math.nan)
