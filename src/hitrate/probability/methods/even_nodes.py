"""Where even nodes of top-k integrals are, for the noises of the package, docs/math.md (45), (46).

A row whose k-th closest rival is not far away needs no search for its nodes and no logs: F, 1 - F
and f are numbers of a usual size at every node that counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from hitrate.probability import normal as normal_distribution
from hitrate.probability.normal import SQRT_2PI, SQRT_HALF

# How far the log of an integrand falls before the nodes end.
DROP = 16.0
# Distance of normal noise's nodes, in widths of the k-th highest of all rivals' noises; and what a
# sum over nodes of the others may miss.
NORMAL_SPACING, MISSED = 1.15, 1e-6


class EvenNodes(NamedTuple):
    """Even nodes for one noise.

    Attributes
    ----------
    noise : str
    bands : tuple of (float, float)
        The k-th closest margins of rows that are served here, from and to; the rows of a band have
        one distance of nodes.
    won : float
        From here on 1 - p is no number of float32.
    log_density : callable
        t -> log f(t).
    tails : callable
        x (n, C, K) in float32 -> F, 1 - F and f there; it may write over x.
    ends : callable
        k-th closest margins (N, 1), C, k -> ends of the interval that holds the integrands of p, of
        1 - p and of the slopes.
    spacing : callable
        C, k, the band's lowest margin -> distance of the nodes.
    reach : (float, float)
        The k-th closest margins of rows that are served with rivals as moments, in float64.
    fading, lowest : float
        For rivals as moments: how fast they fade with their distance, math (59), and where the
        closest of them is so far ahead that nodes to the left do not count.
    """

    noise: str
    bands: tuple[tuple[float, float], ...]
    won: float
    log_density: Callable[[Tensor], Tensor]
    tails: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    ends: Callable[[Tensor, int, int], tuple[Tensor, Tensor]]
    spacing: Callable[[int, int, float], float]
    reach: tuple[float, float]
    fading: float
    lowest: float


def _normal_tails(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z = x.clamp_(-40.0, 40.0).mul_(SQRT_HALF)
    ahead = torch.erfc(z).mul_(0.5)
    density = z.square().neg_().exp_().mul_(1.0 / SQRT_2PI)
    return torch.erfc(z.neg_()).mul_(0.5), ahead, density


def _normal_ends(kth: Tensor, classes: int, k: int) -> tuple[Tensor, Tensor]:
    crowd = _quantile(classes, k)
    to_left = (kth * kth + 2 * DROP + 1.4 * k).sqrt()
    half = 0.5 * kth
    more = math.log(k) + 0.5 * crowd * crowd
    low = torch.where(kth > 0, -to_left, -half - (DROP + more + half * half).sqrt())
    # All but one of the k may be far ahead.
    best = _quantile(classes, 1)
    high = ((best - kth).clamp_min(0.0) ** 2 + 2 * DROP + 2).sqrt()
    share = (k - 1) / (k + 1)
    surely = -half + (DROP + math.log(classes) + share * half * half).sqrt()
    return low, torch.where(kth > best + 1, surely, high)


@functools.cache
def _normal_spacing(classes: int, k: int, lowest: float) -> float:
    k = min(k, classes // 2)
    # The k-th highest of as many draws as there are classes: its standard deviation.
    place = NormalDist().inv_cdf(1 - k / (classes + 1))
    density = NormalDist().pdf(place)
    width = math.sqrt(k * (classes + 1 - k) / (classes + 2)) / (classes + 1) / density
    return NORMAL_SPACING * min(width, _width_behind(classes, k, lowest), 0.5)


def _width_behind(classes: int, k: int, margin: float) -> float:
    """The integrand's peak where all rivals are level at this margin, by its highest curvature."""
    t = torch.linspace(0.0, 4.0 - margin, 4000, dtype=torch.float64)
    ahead = torch.arange(k, dtype=t.dtype)[:, None]
    behind = classes - 1 - ahead
    ways = math.lgamma(classes) - torch.lgamma(ahead + 1) - torch.lgamma(behind + 1)
    lose, win = torch.special.log_ndtr(t + margin), torch.special.log_ndtr(-t - margin)
    log_integrand = torch.logsumexp(ways + ahead * win + behind * lose, 0) - 0.5 * t * t
    curvature = -log_integrand.diff().diff() / (t[1] - t[0]) ** 2
    near = log_integrand[1:-1] > log_integrand.max() - 2.0
    return 1 / math.sqrt(float(curvature[near].max()))


@functools.cache
def _quantile(classes: int, k: int) -> float:
    """Where about k of as many rivals as there are classes are ahead, all at the same margin."""
    return max(0.0, NormalDist().inv_cdf(1 - k / (classes + 1)))


def _logistic_tails(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    lose = torch.sigmoid(x)
    ahead = torch.sigmoid(x.neg_())
    return lose, ahead, lose * ahead


def _logistic_log_density(t: Tensor) -> Tensor:
    return -t.abs() - 2.0 * torch.log1p(torch.exp(-t.abs()))


def _logistic_ends(kth: Tensor, classes: int, k: int) -> tuple[Tensor, Tensor]:
    crowd = math.log(classes / k)
    low = torch.where(
        kth > 0, -kth - DROP - 0.7 * k, kth.new_tensor(-0.5 * (DROP + math.log(k)) - 2)
    )
    return low, (crowd - kth).clamp_min(0.0) + DROP + 1


def _gumbel_tails(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rate = x.clamp_(min=-80.0).neg_().exp_()
    lose = torch.exp(-rate)
    return lose, -torch.expm1(-rate), rate * lose


def _gumbel_log_density(t: Tensor) -> Tensor:
    return -t - torch.exp(-t)


def _gumbel_ends(kth: Tensor, classes: int, k: int) -> tuple[Tensor, Tensor]:
    crowd = math.log(classes / k)
    lowest = -math.log(DROP + 4 + 2.3 * (k + 1))
    low = (-kth - math.log(DROP + 4 + math.log(classes))).clamp_min(lowest)
    return torch.where(kth > 0, lowest, low), (crowd - kth).clamp_min(0.0) + DROP + 1


@functools.cache
def _gumbel_spacing(classes: int, k: int, lowest: float) -> float:
    """By the Fourier transform of the k-th and (k + 1)-th highest of many draws, math (46)."""
    spacing = 0.7
    while True:
        y = 2 * math.pi / spacing
        log_missed = 0.5 * (math.log(2 * math.pi * y) - math.pi * y)
        log_missed += sum(0.5 * math.log1p((y / j) ** 2) for j in range(1, k + 1))
        if log_missed < math.log(MISSED):
            return spacing
        spacing *= 0.97


NORMAL = EvenNodes(
    noise="normal",
    bands=((-3.0, 21.0), (-8.0, -3.0), (-16.0, -8.0)),
    won=21.0,
    log_density=normal_distribution.log_density,
    tails=_normal_tails,
    ends=_normal_ends,
    spacing=_normal_spacing,
    reach=(-21.0, 21.0),
    fading=0.5,
    lowest=-4.0,
)
LOGISTIC = EvenNodes(
    noise="logistic",
    bands=((-25.0, 25.0),),
    won=110.0,
    log_density=_logistic_log_density,
    tails=_logistic_tails,
    ends=_logistic_ends,
    spacing=_gumbel_spacing,
    reach=(-300.0, 110.0),
    fading=0.5,
    lowest=-4.0,
)
GUMBEL = EvenNodes(
    noise="gumbel",
    bands=((-1e4, 75.0),),
    won=110.0,
    log_density=_gumbel_log_density,
    tails=_gumbel_tails,
    ends=_gumbel_ends,
    spacing=_gumbel_spacing,
    reach=(-1e4, 110.0),
    fading=1.0,
    lowest=-2.0,
)
