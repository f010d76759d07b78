"""log p of being among the k highest, for any noise and any slopes, docs/math.md (40) to (44).

    p = int f(t) P(fewer than k ahead | t) dt,      1 - p = int f(t) P(k or more ahead | t) dt

The nodes are those of `general_quadrature`, laid around where the k-th of the rivals ties with the
target: the k - 1 that tie later may stay ahead. Everything is computed in float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hitrate.probability.execution import is_eager_cpu, parts, parts_of_row
from hitrate.probability.margins import FARTHEST_ANYWHERE
from hitrate.probability.methods import general_quadrature as general
from hitrate.probability.methods.general_quadrature import Rule
from hitrate.probability.methods.poisson_binomial import LOWEST, Count, tilt_of

if TYPE_CHECKING:
    from hitrate.probability.noises import Noise

# Below this the largest log of an integrand is not trusted without a tilt: numbers end at -700.
SAFE = -300.0
# Panels where values cannot be looked at.
PANELS, PANELS_PER_CLASS = 32, 64
# Points of a look may coincide where their three places do: every third is another.
APART = 3
# Logs of factors of a slope end here.
LARGEST = 600.0


def top_k(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
    *,
    k: int,
    nodes: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Value and slopes of log p in a (and in b, where given).

    Parameters
    ----------
    a : Tensor, shape (N, C)
        Scaled margins, of `Margins.of` with ``anywhere=True``.
    b : Tensor, shape (N, C), optional
        Slopes in t; 1 by default, 0 in the target's column.
    noise : Noise
    k : int
        At least 2, and fewer than C.
    nodes : int, optional
        Nodes per row; by default enough for the dtype.
    dtype : torch.dtype
        Whose accuracy is wanted.

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope_a : Tensor, shape (N, C)
    slope_b : Tensor, shape (N, C), or None
    """
    log_p, slope_a = torch.empty_like(a[:, 0]), torch.empty_like(a)
    slope_b = None if b is None else torch.empty_like(a)
    # Beside rivals at all nodes there are groups of them, several for each.
    width = (2 if a.device.type == "cpu" else 16) * general.POINTS * a.shape[1]
    for part in parts(a, width):
        inner = None if b is None else b[part]
        rule = rule_of(a[part], inner, noise, k, nodes=nodes, dtype=dtype)
        log_p[part], slope_a[part], slopes = _by_rows(a[part], inner, noise, k, rule)
        if slope_b is not None and slopes is not None:
            slope_b[part] = slopes
    # With fewer than k rivals there is nobody to lose to.
    won = without_k_rivals(a, k)
    log_p = log_p.masked_fill(won, 0.0)
    slope_a = slope_a.masked_fill(won[:, None], 0.0)
    if slope_b is not None:
        slope_b = slope_b.masked_fill(won[:, None], 0.0)
    return log_p, slope_a, slope_b


def without_k_rivals(a: Tensor, k: int) -> Tensor:
    """Rows (N,) in which fewer than k margins are such that their rivals can be ahead."""
    return (a >= FARTHEST_ANYWHERE).sum(1) > a.shape[1] - k


def _by_rows(
    a: Tensor, b: Tensor | None, noise: Noise, k: int, rule: Rule
) -> tuple[Tensor, Tensor, Tensor | None]:
    """`value_and_slopes` of some rows at a time: there may be far more nodes than a look has."""
    found = []
    for rows in parts(a, rule.t.shape[1] * a.shape[1] // 2):
        inner = None if b is None else b[rows]
        own = Rule(rule.t[rows], rule.weight[rows], rule.ahead[rows])
        found.append(value_and_slopes(a[rows], inner, noise, k, own))
    if len(found) == 1:
        return found[0]
    log_p, slope_a, slope_b = zip(*found, strict=True)
    return torch.cat(log_p), torch.cat(slope_a), None if b is None else torch.cat(slope_b)


def value_and_slopes(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
    k: int,
    rule: Rule,
    tilt: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """log p and its slopes by given nodes; torch differentiates this, with a tilt."""
    slope_a = torch.zeros_like(a)
    slope_b = None if b is None else slope_a
    # The sums are in units of e^top, the largest term so far.
    top = torch.full_like(a[:, :1], -math.inf)
    total, missed = torch.zeros_like(top), torch.zeros_like(top)
    for some in _some_nodes(a, rule.t, k):
        t, weight = rule.t[:, some], rule.weight[:, some]
        log_cdf, log_hazard = noise.log_cdf_and_log_hazard(general._at(a, b, t))  # (n, C, K)
        log_cdf, log_density = log_cdf.clamp_min(-LOWEST), noise.log_density(t)
        if tilt is None:
            count = _counted(log_cdf, k, log_density)
        else:
            count = Count.of(log_cdf, k, tilt[:, some])
        log_term = log_density + count.log_fewer + weight.log()
        missed = missed + (log_density.exp() * count.more * weight).sum(1, keepdim=True)
        higher = torch.maximum(top, log_term.amax(1, keepdim=True))
        # Without any term so far there is nothing to rescale.
        unit = higher.masked_fill(torch.isneginf(higher), 0.0)
        shrunk = (top - unit).exp()
        total = total * shrunk + (log_term - unit).exp().sum(1, keepdim=True)
        # The hazard of a rival that is ahead for certain may be beyond all numbers; it decides
        # nothing.
        log_slope = log_hazard + (log_term - unit)[:, None, :]
        slope = log_slope.clamp_max(LARGEST).exp() * count.decides()
        slope_a = slope_a * shrunk + slope.sum(2)
        if slope_b is not None:
            slope_b = slope_b * shrunk + (slope * t[:, None, :]).sum(2)
        top = higher
    unit = top.masked_fill(torch.isneginf(top), 0.0)
    near_one = torch.log1p(-missed.clamp_max(1.0))
    log_p = torch.where(rule.ahead[:, None], near_one, total.log() + unit)
    scale = (unit - log_p).exp()
    return log_p[:, 0], slope_a * scale, None if slope_b is None else slope_b * scale


def _some_nodes(a: Tensor, t: Tensor, k: int) -> list[slice]:
    """Slices of nodes: a count holds about two tensors for each time that k can be halved."""
    return parts_of_row(t.shape[1], a.numel() * max(2, k.bit_length() - 1), a)


def hessian_product(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
    k: int,
    along_a: Tensor,
    along_b: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Slopes of log p in (a, b), and its Hessian times a direction: see `general_quadrature`.

    The slopes by their nodes are differentiated once more by torch, in forward mode.
    """
    rule = rule_of(a, b, noise, k)
    log_cdf = noise.log_cdf_and_log_hazard(general._at(a, b, rule.t))[0].clamp_min(-LOWEST)
    tilt = tilt_of(log_cdf, k)
    won = without_k_rivals(a, k)[:, None]

    def slopes(*margins: Tensor) -> tuple[Tensor, ...]:
        inner = None if b is None else margins[1]
        _, slope, slope_b = value_and_slopes(margins[0], inner, noise, k, rule, tilt)
        return (slope,) if slope_b is None else (slope, slope_b)

    at = (a,) if b is None else (a, b)
    along = (along_a,) if b is None or along_b is None else (along_a, along_b)
    both = torch.func.jvp(slopes, at, along)
    found, products = ([torch.where(won, 0.0, each) for each in both[i]] for i in (0, 1))
    if b is None:
        return found[0], None, products[0], None
    return found[0], found[1], products[0], products[1]


def rule_of(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
    k: int,
    *,
    nodes: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> Rule:
    """Nodes where the integrands of p (or 1 - p, ahead) and of its slopes are."""
    scale = noise.shape
    slant = torch.ones_like(a) if b is None else b.clamp_min(1e-30)
    # A rival that is always behind ties nowhere.
    never = a >= FARTHEST_ANYWHERE
    tie = ((scale.peak - a) / slant).masked_fill(never, -math.inf)  # (N, C)
    width = (scale.width / slant).masked_fill(never, math.inf)
    # The k-th last tie decides.
    last, who = (found[:, -1:] for found in tie.topk(k, 1))
    last = last.clamp_min(-FARTHEST_ANYWHERE)
    places = (
        (torch.full_like(last, scale.peak), torch.full_like(last, scale.width)),
        (last, width.gather(1, who).clamp_max(FARTHEST_ANYWHERE)),
    )
    before, after = noise.reach(general.DROP)
    low, high = last.clamp_max(scale.peak) - before, last.clamp_min(scale.peak) + after
    ahead = torch.zeros_like(never[:, :1])
    for look in range(general.LOOKS):
        t = general._spread(
            low, high, (*places, general._sharpest(tie, width, low, high)), general.POINTS
        )
        log_density = noise.log_density(t)
        log_fewer, more = _fewer_and_more(a, b, noise, k, t)
        if look == 0:
            ahead = general._is_ahead(t, log_fewer, log_density)
        value = log_density + torch.where(ahead, more.log(), log_fewer)
        middle, steep = _steepness(t, log_fewer, more, log_density)
        here, there = general._not_negligible(value), general._not_negligible(steep)
        low, high = general._ends(t[:, ::APART], _kept(here, there))
    # Where the integrand itself is narrower than what it is made of, as with many rivals.
    peaks = [
        general.peak_of(t[:, ::APART], value[:, ::APART], scale.width),
        general.peak_of(middle, steep, scale.width),
    ]
    t = general._spread(
        low, high, (*places, general._sharpest(tie, width, low, high)), 2 * general.POINTS
    )
    own = ((t - scale.peak) / general.EVEN).square() + scale.width**2
    density = torch.minimum(own, general.nearest(t, tie, width))
    for place, narrow in peaks:
        density = torch.minimum(density, ((t - place) / general.EVEN).square() + narrow.square())
    density = density.rsqrt()
    finest = general.PANEL_WIDTH[dtype] / (1 + general.NARROWING * math.log2(a.shape[1]))
    panels = PANELS if b is None else PANELS_PER_CLASS
    edges = general.equal_parts(t, density, finest, panels, nodes=nodes)
    if noise.kinks:
        kinks = [(kink - a) / slant for kink in noise.kinks]
        kinks += [torch.full_like(low, kink) for kink in noise.kinks]
        edges = general._split(edges, torch.cat(kinks, 1))
    return Rule(*general.panel_nodes(edges), ahead[:, 0])


def _fewer_and_more(
    a: Tensor, b: Tensor | None, noise: Noise, k: int, t: Tensor
) -> tuple[Tensor, Tensor]:
    """log P(fewer than k ahead), and P(k or more ahead), at t (n, K)."""
    log_fewer, more = [], []
    for some in _some_nodes(a, t, k):
        log_cdf = noise.log_cdf_and_log_hazard(general._at(a, b, t[:, some]))[0]
        count = _counted(log_cdf.clamp_min(-LOWEST), k, noise.log_density(t[:, some]))
        log_fewer.append(count.log_fewer)
        more.append(count.more)
    return torch.cat(log_fewer, 1), torch.cat(more, 1)


def _counted(log_cdf: Tensor, k: int, log_density: Tensor) -> Count:
    """The rivals ahead; with a tilt unless a look says that all numbers are large enough."""
    if is_eager_cpu(log_cdf):
        count = Count.of(log_cdf, k)
        if bool(((log_density + count.log_fewer).amax(1) > SAFE).all()):
            return count
    return Count.of(log_cdf, k, tilt_of(log_cdf, k))


def _kept(here: Tensor, there: Tensor) -> Tensor:
    """Every third point: whether it or one next to it is kept, or a slope on either side."""
    pad, pool = torch.nn.functional.pad, torch.nn.functional.max_pool1d
    near = pool(here.float()[:, None], 2 * APART - 1, stride=APART, padding=APART - 1)[:, 0] > 0
    return near | pad(there, (0, 1)) | pad(there, (1, 0))


def _steepness(
    t: Tensor, log_fewer: Tensor, more: Tensor, log_density: Tensor
) -> tuple[Tensor, Tensor]:
    """Between points t, the log of the target's density times the slope in t of P(fewer ahead)."""
    heights, more = log_fewer[:, ::APART], more[:, ::APART]
    t, log_density = t[:, ::APART], log_density[:, ::APART]
    before, after = heights[:, :-1], heights[:, 1:]
    by_logs = after + (-torch.expm1((before - after).clamp_max(0.0))).log()
    by_rest = (more[:, :-1] - more[:, 1:]).clamp_min(0.0).log()
    rise = torch.where(after < math.log(0.5), by_logs, by_rest)
    gap = torch.diff(t, dim=1)
    middle = 0.5 * (t[:, 1:] + t[:, :-1])
    density = 0.5 * (log_density[:, 1:] + log_density[:, :-1])
    return middle, (density + rise - gap.log()).masked_fill(gap <= 0, -math.inf)
