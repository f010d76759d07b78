"""log p of being among the k highest for normal noise in float32, by even nodes, math (45).

A row whose k-th closest rival is within a few sigma needs no search for its nodes and no logs:
Phi, 1 - Phi and phi are numbers of a usual size at every node that counts.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import torch
from torch import Tensor

from hitrate.probability.execution import parts
from hitrate.probability.methods.poisson_binomial import Count
from hitrate.probability.methods.top_k import top_k as general_top_k
from hitrate.probability.normal import LOG_SQRT_2PI, SQRT_2PI, SQRT_HALF

# How far the log of an integrand falls before the nodes end.
DROP = 16.0
# Distance of the nodes, in widths of the k-th highest of all rivals' noises.
SPACING = 1.15
# The k-th closest margins of rows that are served here. Further ahead float32 knows no 1 - p.
LOWEST, HIGHEST = -8.0, 21.0
# Logs of weights end here: where they are larger, what they multiply is nothing.
LARGEST = 80.0


def top_k(a: Tensor, b: None, *, k: int) -> tuple[Tensor, Tensor, None]:
    """Value and slopes of log p, with the accuracy of float32; looks at values.

    Parameters
    ----------
    a : Tensor, shape (N, C)
        Scaled margins, of `Margins.of` with ``anywhere=True``.
    b : None
        One sigma per row.
    k : int

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope : Tensor, shape (N, C)
    None
        In the place of slopes in b.
    """
    kth = a.topk(k, 1, largest=False).values[:, -1:]
    near, beyond = ((kth >= LOWEST) & (kth <= HIGHEST))[:, 0], (kth > HIGHEST)[:, 0]
    log_p, slope = torch.zeros_like(a[:, 0]), torch.zeros_like(a)
    if bool(near.all()):
        _near(a, kth, k, log_p, slope)
        return log_p, slope, None
    if bool(near.any()):
        log_p[near], slope[near], _ = top_k(a[near], b, k=k)
    rest = ~(near | beyond)
    if bool(rest.any()):
        from hitrate.probability.noises import NORMAL

        log_p[rest], slope[rest], _ = general_top_k(a[rest], None, NORMAL, k=k, dtype=torch.float32)
    return log_p, slope, None


def _near(a: Tensor, kth: Tensor, k: int, log_p: Tensor, slope: Tensor) -> None:
    """Write value and slopes of rows that are served here."""
    if not len(a):
        return
    classes = a.shape[1]
    low, high = _ends(kth, classes, k)
    count = math.ceil(float((high - low).max()) / spacing(classes, k)) + 1
    step = (high - low) / (count - 1)
    even = torch.arange(count, dtype=a.dtype)
    for part in parts(a, classes * count // 2 + 1):
        t = low[part] + step[part] * even  # (n, K)
        x = a[part].clamp_max(40.0).float()[:, :, None] + t.float()[:, None, :]
        z = x * SQRT_HALF
        ahead = torch.erfc(z).mul_(0.5)
        density = z.square().neg_().exp_().mul_(1.0 / SQRT_2PI)
        lose = torch.erfc(z.neg_()).mul_(0.5)
        counted = Count(lose, ahead, k)
        log_weight = -0.5 * t * t - LOG_SQRT_2PI + step[part].log()
        missed = (log_weight.exp() * counted.more).sum(1)
        behind = torch.logsumexp(log_weight + counted.log_fewer, 1)
        is_ahead = (kth[part, 0] > 0) & (missed < 0.5)
        found = torch.where(is_ahead, torch.log1p(-missed.clamp_max(0.5)), behind)
        log_p[part] = found
        # Weights are measured from that where the integrand is highest, for float32 to hold them.
        log_share = torch.where(is_ahead[:, None], counted.more.log(), counted.log_fewer)
        peak = (log_weight + log_share).argmax(1, keepdim=True)
        scale = log_weight.gather(1, peak)
        weight = (log_weight - scale).clamp_max(LARGEST).exp().float()
        sums = torch.bmm(density.mul_(counted.others()), weight[:, :, None])[:, :, 0]
        slope[part] = sums * (scale - found[:, None]).exp()


def _ends(kth: Tensor, classes: int, k: int) -> tuple[Tensor, Tensor]:
    """Ends (N, 1) of the interval that holds the integrands of p, of 1 - p and of the slopes."""
    crowd = _quantile(classes, k)
    to_left = (kth * kth + 2 * DROP + 1.4 * k).sqrt()
    half = 0.5 * kth
    more = math.log(k) + 0.5 * crowd * crowd
    low = torch.where(kth > 0, -to_left, -half - (DROP + more + half * half).sqrt())
    high = ((crowd - kth).clamp_min(0.0) ** 2 + 2 * DROP + 2).sqrt()
    share = (k - 1) / (k + 1)
    surely = -half + (DROP + math.log(classes) + share * half * half).sqrt()
    return low, torch.where(kth > crowd + 1, surely, high)


@functools.cache
def spacing(classes: int, k: int) -> float:
    """Distance of the nodes."""
    k = min(k, classes // 2)
    # The k-th highest of as many draws as there are classes: its standard deviation.
    place = NormalDist().inv_cdf(1 - k / (classes + 1))
    density = NormalDist().pdf(place)
    width = math.sqrt(k * (classes + 1 - k) / (classes + 2)) / (classes + 1) / density
    # Far behind all rivals have to lose: the width of (8)'s peak, if they are level.
    first = _quantile(classes, 1)
    behind = 1.25 / math.sqrt(1 + (first - LOWEST) * (first + 0.3))
    return SPACING * min(width, behind, 0.5)


@functools.cache
def _quantile(classes: int, k: int) -> float:
    """Where about k of as many rivals as there are classes are ahead, all at the same margin."""
    return max(0.0, NormalDist().inv_cdf(1 - k / (classes + 1)))
