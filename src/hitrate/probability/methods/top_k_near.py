"""log p of being among the k highest with the accuracy of float32, by even nodes.

`even_nodes` says where they are. Here all rivals are counted, in torch; `top_k_by_moments` counts a
few of them, and is taken where it serves.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from hitrate.probability.execution import is_quick_in_numpy, parts
from hitrate.probability.methods.even_nodes import GUMBEL, LOGISTIC, NORMAL, EvenNodes
from hitrate.probability.methods.poisson_binomial import Count
from hitrate.probability.methods.top_k import top_k as general_top_k
from hitrate.probability.methods.top_k_by_moments import MOST, by_moments

# Logs of weights end here: where they are larger, what they multiply is nothing.
LARGEST = 80.0


def near_top_k(a: Tensor, b: None, *, k: int, near: EvenNodes) -> tuple[Tensor, Tensor, None]:
    """Value and slopes of log p, with the accuracy of float32; looks at values.

    Parameters
    ----------
    a : Tensor, shape (N, C)
        Scaled margins, of `Margins.of` with ``anywhere=True``.
    b : None
        One sigma per row.
    k : int
    near : EvenNodes
        Rows that it does not serve go the general way.

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope : Tensor, shape (N, C)
    None
        In the place of slopes in b.
    """
    serve, bands = functools.partial(by_counts, k=k, near=near), near.bands
    if k <= MOST and is_quick_in_numpy(a):
        serve, bands = functools.partial(by_moments, k=k, near=near), (near.reach,)
    kth = a.topk(k, 1, largest=False).values[:, -1]
    if len(a) and bool((kth >= bands[0][0]).all()) and bool((kth <= bands[0][1]).all()):
        return *serve(a), None
    log_p, slope = torch.zeros_like(a[:, 0]), torch.zeros_like(a)
    rest = ~(kth > near.won)
    for lowest, highest in bands:
        served = (kth >= lowest) & (kth <= highest) & rest
        if bool(served.any()):
            log_p[served], slope[served] = serve(a[served])
            rest = rest & ~served
    if bool(rest.any()):
        from hitrate.probability.noises import NOISES

        noise = NOISES[near.noise]
        log_p[rest], slope[rest], _ = general_top_k(a[rest], None, noise, k=k, dtype=torch.float32)
    return log_p, slope, None


def by_counts(a: Tensor, k: int, near: EvenNodes) -> tuple[Tensor, Tensor]:
    """Value and slopes of rows that one band of nodes serves: all rivals are counted."""
    log_p, slope, classes = torch.empty_like(a[:, 0]), torch.empty_like(a), a.shape[1]
    kth = a.topk(k, 1, largest=False).values[:, -1:]
    lowest = next(band[0] for band in near.bands if band[0] <= float(kth.min()))
    low, high = near.ends(kth, classes, k)
    count = math.ceil(float((high - low).max()) / near.spacing(classes, k, lowest)) + 1
    step = (high - low) / (count - 1)
    even = torch.arange(count, dtype=a.dtype)
    for part in parts(a, classes * count // 2 + 1):
        middle = kth[part]
        t = low[part] + step[part] * even  # (n, K)
        # From the k-th closest margin: large numbers would leave float32 few digits.
        beyond = (a[part] - middle).clamp(-80.0, 200.0).float()
        x = beyond[:, :, None] + (t + middle).float()[:, None, :]
        lose, ahead, density = near.tails(x)
        counted = Count(lose, ahead, k)
        log_weight = near.log_density(t) + step[part].log()
        missed = (log_weight.exp() * counted.more).sum(1)
        behind = torch.logsumexp(log_weight + counted.log_fewer, 1)
        is_ahead = (middle[:, 0] > 0) & (missed < 0.5)
        found = torch.where(is_ahead, torch.log1p(-missed.clamp_max(0.5)), behind)
        log_p[part] = found
        # Weights are measured from that where the integrand is highest, for float32 to hold them.
        log_share = torch.where(is_ahead[:, None], counted.more.log(), counted.log_fewer)
        peak = (log_weight + log_share).argmax(1, keepdim=True)
        scale = log_weight.gather(1, peak)
        weight = (log_weight - scale).clamp_max(LARGEST).exp().float()
        sums = torch.bmm(density.mul_(counted.others()), weight[:, :, None])[:, :, 0]
        slope[part] = sums * (scale - found[:, None]).exp()
    return log_p, slope


normal, logistic, gumbel = (
    functools.partial(near_top_k, near=near) for near in (NORMAL, LOGISTIC, GUMBEL)
)
