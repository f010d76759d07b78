"""log p for any noise and any slopes: the slow, obvious way, and the one that is always right.

    p = int f(t) prod_i F(a_i + b_i t) dt,      1 - p = int f(t) (1 - prod_i F(a_i + b_i t)) dt

The integrand bends where the target's own noise has its peak, and where a rival ties with the
target; there as sharply as that rival's sigma is small. So panels of Gauss-Legendre nodes are dealt
out along t with a density that is high around those places and falls off beside them,
docs/math.md (33) to (36). The ends of t are found by looking. Everything is computed in float64.
Also home of the second derivative, which every method shares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hitrate.probability.execution import is_eager_cpu, parts, parts_of_row
from hitrate.probability.margins import FARTHEST_ANYWHERE

if TYPE_CHECKING:
    from hitrate.probability.noises import Noise

# Looks at the integrand, and points of a look around each of three places.
LOOKS, POINTS = 3, 16
# How far the log of an integrand falls before the nodes end.
DROP = 36.0
# Within so many widths of a place panels are equally wide; beyond, as wide as they are far.
EVEN = 4.0
# Nodes of a panel, and its width in widths of what it has to follow: less with every doubling of
# the classes, since the best of many rivals is narrower than one.
PANEL_NODES = 8
GAUSS_LEGENDRE = [part.tolist() for part in np.polynomial.legendre.leggauss(PANEL_NODES)]
PANEL_WIDTH = {torch.float32: 2.2, torch.float64: 1.4}
NARROWING = 0.16
# Panels where values cannot be looked at: with one sigma per row, and with one per class.
PANELS, PANELS_PER_CLASS = 24, 48
MOST_PANELS = 1024
# Logs of integrands are taken as no lower than minus this.
LOWEST = 1e30


class Rule(NamedTuple):
    """Nodes t (N, K), their weights (N, K), and which rows are ahead (N,)."""

    t: Tensor
    weight: Tensor
    ahead: Tensor


def general_quadrature(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
    *,
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
    # What a row takes: its looks, or its nodes, of which there are about as many.
    for part in parts(a, 4 * POINTS * a.shape[1]):
        inner = None if b is None else b[part]
        rule = rule_of(a[part], inner, noise, nodes=nodes, dtype=dtype)
        log_p[part], slope_a[part], found_b = _integrate(a[part], inner, noise, rule)
        if slope_b is not None and found_b is not None:
            slope_b[part] = found_b
    # Without a rival the integrand of 1 - p is nowhere, and the target has won.
    won = without_rival(a)
    log_p = log_p.masked_fill(won, 0.0)
    slope_a = slope_a.masked_fill(won[:, None], 0.0)
    if slope_b is not None:
        slope_b = slope_b.masked_fill(won[:, None], 0.0)
    return log_p, slope_a, slope_b


def _integrate(
    a: Tensor, b: Tensor | None, noise: Noise, rule: Rule
) -> tuple[Tensor, Tensor, Tensor | None]:
    """log p (n,), and its slopes (n, C) in a and b, by a rule, some nodes at a time."""
    slope_a = torch.zeros_like(a)
    slope_b = None if b is None else torch.zeros_like(a)
    # The sums are in units of e^top, the largest term so far.
    top = torch.full_like(a[:, :1], -math.inf)
    total, missed = torch.zeros_like(top), torch.zeros_like(top)
    for some in parts_of_row(rule.t.shape[1], a.numel(), a):
        t, weight = rule.t[:, some], rule.weight[:, some]
        log_cdf, log_hazard = noise.log_cdf_and_log_hazard(_at(a, b, t))  # (n, C, k)
        height, log_density = log_cdf.sum(1), noise.log_density(t)
        del log_cdf
        log_term = log_density + height + weight.log()
        higher = torch.maximum(top, log_term.amax(1, keepdim=True))
        # Without any term so far there is nothing to rescale.
        unit = higher.masked_fill(torch.isneginf(higher), 0.0)
        shrunk = (top - unit).exp()
        total = total * shrunk + (log_term - unit).exp().sum(1, keepdim=True)
        missed = missed + (log_density.exp() * -torch.expm1(height) * weight).sum(1, keepdim=True)
        slope = log_hazard.add_((log_term - unit)[:, None, :]).exp_()
        slope_a = slope_a.mul_(shrunk).add_(slope.sum(2))
        if slope_b is not None:
            slope_b = slope_b.mul_(shrunk).add_(slope.mul_(t[:, None, :]).sum(2))
        top = higher
    unit = top.masked_fill(torch.isneginf(top), 0.0)
    log_p = torch.where(rule.ahead[:, None], torch.log1p(-missed), total.log() + unit)
    scale = (unit - log_p).exp()
    slope_a = slope_a.mul_(scale)
    return log_p[:, 0], slope_a, None if slope_b is None else slope_b.mul_(scale)


def _heights(
    a: Tensor, b: Tensor | None, slant: Tensor, noise: Noise, t: Tensor
) -> tuple[Tensor, Tensor]:
    """Sum of log F over classes at t (n, K), and the largest log of their slopes in t."""
    height = steep = None
    for some in parts_of_row(a.shape[1], t.numel(), a):
        inner = None if b is None else b[:, some]
        log_cdf, log_hazard = noise.log_cdf_and_log_hazard(_at(a[:, some], inner, t))
        if b is not None:
            log_hazard = log_hazard + slant[:, some].log()[:, :, None]
        level, largest = log_cdf.sum(1), log_hazard.amax(1)
        height = level if height is None else height + level
        steep = largest if steep is None else torch.maximum(steep, largest)
    assert height is not None and steep is not None
    return height, steep


def nearest(t: Tensor, tie: Tensor, width: Tensor) -> Tensor:
    """The least square of a distance from t (n, K) to a tie, or its width where that is more."""
    least = None
    for some in parts_of_row(tie.shape[1], t.numel(), tie):
        near = ((t[:, None, :] - tie[:, some, None]) / EVEN).square_()
        own = near.add_(width[:, some].square()[:, :, None]).amin(1)
        least = own if least is None else torch.minimum(least, own)
    assert least is not None
    return least


def without_rival(a: Tensor) -> Tensor:
    """Rows (N,) whose margins are all so large that there is nobody to lose to."""
    return (a >= FARTHEST_ANYWHERE).all(1)


def hessian_product(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
    along_a: Tensor,
    along_b: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Slopes of log p in (a, b), and its Hessian times a direction, docs/math.md (17).

    With r_i = along_a_i + along_b_i t, rho = sum_i h_i r_i and E the mean under the integrand,
    the product in a_i is E[h'_i r_i] + E[h_i rho] - E[h_i] E[rho]; in b_i the same with a factor t.
    """
    rule = rule_of(a, b, noise)
    height = noise.log_cdf_and_log_hazard(_at(a, b, rule.t))[0].sum(1)
    share = _weigh(height, noise, rule)[1].exp()
    # Out of place: under vmap the direction may be mapped while the margins are not.
    mean_rho = torch.zeros_like(share[:, :1])
    means = [torch.zeros_like(a)] * 6
    for u, weight in zip(rule.t.T[..., None], share.T[..., None], strict=True):  # (N, 1) each
        x = a + u if b is None else a + b * u
        r = along_a if along_b is None else along_a + along_b * u
        # A rival that loses for certain here may have a hazard beyond all numbers.
        counted = weight > 0
        hazard = torch.where(counted, noise.log_cdf_and_hazard(x)[1], 0.0)
        bend = torch.where(counted, noise.hazard_slope(x), 0.0)
        rho = (hazard * r).sum(1, keepdim=True)
        parts = [hazard, hazard * rho, bend * r]
        if b is not None:
            parts += [u * part for part in parts]
        mean_rho = mean_rho + weight * rho
        means = [mean + weight * part for mean, part in zip(means, parts, strict=False)]
    slope_a, h_rho, bend = means[:3]
    product_a = bend + h_rho - slope_a * mean_rho
    if b is None:
        return slope_a, None, product_a, None
    slope_b, h_rho, bend = means[3:]
    return slope_a, slope_b, product_a, bend + h_rho - slope_b * mean_rho


def rule_of(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
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
    last, who = tie.max(1, keepdim=True)
    last = last.clamp_min(-FARTHEST_ANYWHERE)
    places = (
        (torch.full_like(last, scale.peak), torch.full_like(last, scale.width)),
        (last, width.gather(1, who).clamp_max(FARTHEST_ANYWHERE)),
    )
    before, after = noise.reach(DROP)
    low, high = last.clamp_max(scale.peak) - before, last.clamp_min(scale.peak) + after
    ahead = torch.zeros_like(never[:, :1])
    for look in range(LOOKS):
        t = _spread(low, high, (*places, _sharpest(tie, width, low, high)), POINTS)
        height, steepest = _heights(a, b, slant, noise, t)
        log_density = noise.log_density(t)
        if look == 0:
            ahead = _is_ahead(t, height, log_density)
        value = log_density + torch.where(ahead, (-torch.expm1(height)).log(), height)
        steep = log_density + height + steepest
        low, high = _ends(t, _not_negligible(value) | _not_negligible(steep))
    # Where the integrand itself is narrower than what it is made of, as with many rivals.
    peaks = [peak_of(t, log_integrand, scale.width) for log_integrand in (value, steep)]
    t = _spread(low, high, (*places, _sharpest(tie, width, low, high)), 2 * POINTS)
    own = ((t - scale.peak) / EVEN).square() + scale.width**2
    density = torch.minimum(own, nearest(t, tie, width))
    for place, narrow in peaks:
        density = torch.minimum(density, ((t - place) / EVEN).square() + narrow.square())
    density = density.rsqrt()
    finest = PANEL_WIDTH[dtype] / (1 + NARROWING * math.log2(a.shape[1]))
    panels = PANELS if b is None else PANELS_PER_CLASS
    edges = equal_parts(t, density, finest, panels, nodes=nodes)
    if noise.kinks:
        kinks = [(kink - a) / slant for kink in noise.kinks]
        kinks += [torch.full_like(low, kink) for kink in noise.kinks]
        edges = _split(edges, torch.cat(kinks, 1))
    return Rule(*panel_nodes(edges), ahead[:, 0])


def panel_nodes(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights (N, K) of Gauss-Legendre rules between edges (N, P + 1)."""
    x, w = edges.new_tensor(GAUSS_LEGENDRE)
    half = 0.5 * torch.diff(edges, dim=1)[:, :, None]
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None]
    return (middle + half * x).flatten(1), (half * w).flatten(1)


def peak_of(t: Tensor, log_integrand: Tensor, widest: float) -> tuple[Tensor, Tensor]:
    """Where a function, known at t, is highest along the last axis, and how wide it is there.

    By a parabola through the highest of the points and its neighbours, which makes a narrow peak
    out as long as the function falls off on either side.
    """
    level = log_integrand.nan_to_num(-LOWEST).clamp(-LOWEST, LOWEST)
    best = level.argmax(-1, keepdim=True).clamp(1, level.shape[-1] - 2)
    before, at, after = (t.expand_as(level).gather(-1, best + k) for k in (-1, 0, 1))
    left, top, right = (level.gather(-1, best + k) for k in (-1, 0, 1))
    rise = (top - left) / (at - before).clamp_min(1e-30)
    fall = (top - right) / (after - at).clamp_min(1e-30)
    curvature = (2 * (rise + fall) / (after - before).clamp_min(1e-30)).clamp_min(1e-30)
    # The slope of the parabola halfway between the first two points leads to its highest.
    place = (0.5 * (before + at) + rise / curvature).clamp(before, after)
    return place, curvature.rsqrt().clamp_max(widest)


def equal_parts(
    t: Tensor, density: Tensor, finest: float, panels: int, *, nodes: int | None = None
) -> Tensor:
    """Edges (N, P + 1) with the same integral of a density, known at t, between any two.

    At most `finest` where values can be looked at; elsewhere there are so many `panels`.
    """
    slices = 0.5 * (density[:, 1:] + density[:, :-1]) * torch.diff(t, dim=1)
    total = torch.nn.functional.pad(slices.cumsum(1), (1, 0))  # (N, G)
    if nodes is not None:
        panels = -(-nodes // PANEL_NODES)
    elif is_eager_cpu(t):
        longest = float(total[:, -1].nan_to_num(0.0).amax()) if len(t) else 1.0
        panels = min(max(4, math.ceil(longest / finest)), MOST_PANELS)
    share = torch.linspace(0.0, 1.0, panels + 1, dtype=t.dtype, device=t.device)
    wanted = total[:, -1:] * share
    right = torch.searchsorted(total, wanted).clamp(1, t.shape[1] - 1)
    left = right - 1
    gap = (total.gather(1, right) - total.gather(1, left)).clamp_min(1e-300)
    part = ((wanted - total.gather(1, left)) / gap).clamp(0.0, 1.0)
    return torch.lerp(t.gather(1, left), t.gather(1, right), part)


def _at(a: Tensor, b: Tensor | None, t: Tensor) -> Tensor:
    """Where the rays are at t (N, K): (N, C, K)."""
    t = t[:, None, :]
    return a[:, :, None] + (t if b is None else b[:, :, None] * t)


def _spread(
    low: Tensor, high: Tensor, places: tuple[tuple[Tensor, Tensor], ...], points: int
) -> Tensor:
    """Points from low to high (N, 1), in order, dense around each place, by its width."""
    u = torch.linspace(0.0, 1.0, points, dtype=low.dtype, device=low.device)
    found = []
    for place, width in places:
        scale = EVEN * width.clamp_min(1e-30)
        first, last = torch.asinh((low - place) / scale), torch.asinh((high - place) / scale)
        found.append(place + scale * torch.sinh(first + (last - first) * u))
    return torch.cat(found, 1).clamp(low, high).sort(1)[0]


def _sharpest(tie: Tensor, width: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Place and width of the narrowest tie between the ends."""
    # Of several sharp ties the last decides, unless it lies within the others' widths.
    inside = (tie > low - 8 * width) & (tie < high + 8 * width)
    narrow, who = torch.where(inside, width, math.inf).min(1, keepdim=True)
    none = torch.isinf(narrow)
    place = torch.where(none, 0.5 * (low + high), tie.gather(1, who))
    return place, torch.where(none, high - low, narrow).clamp_max(FARTHEST_ANYWHERE)


def _is_ahead(t: Tensor, height: Tensor, log_density: Tensor) -> Tensor:
    """Whether p is above about a half (N, 1), by a coarse rule."""
    gaps = torch.diff(t, dim=1)
    difference = log_density.exp() * (height.exp() + torch.expm1(height))
    return (gaps * (difference[:, 1:] + difference[:, :-1])).sum(1, keepdim=True) > 0


def _not_negligible(log_integrand: Tensor) -> Tensor:
    return log_integrand > log_integrand.nan_to_num(-math.inf).amax(1, keepdim=True) - DROP


def _ends(t: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """One point more on either side than those that are kept."""
    last = t.shape[1] - 1
    kept = kept.to(t.dtype)
    first = (kept.argmax(1, keepdim=True) - 1).clamp_min(0)
    final = (last + 1 - kept.flip(1).argmax(1, keepdim=True)).clamp_max(last)
    return t.gather(1, first), t.gather(1, final)


def _split(edges: Tensor, kinks: Tensor) -> Tensor:
    """Edges at the kinks too; those outside become panels without width."""
    kinks = kinks.clamp(edges[:, :1], edges[:, -1:])
    whole = torch.cat([edges, kinks], 1).sort(1)[0]
    if is_eager_cpu(edges) and len(edges):
        # As many columns as the row with most kinks inside needs.
        inside = (whole > edges[:, :1]) & (whole < edges[:, -1:])
        most = int(inside.sum(1).max())
        outside = (whole <= edges[:, :1]).sum(1, keepdim=True) - 1
        columns = outside + torch.arange(most + 2, device=edges.device)
        whole = whole.gather(1, columns.clamp_max(whole.shape[1] - 1))
    return whole


def _weigh(height: Tensor, noise: Noise, rule: Rule) -> tuple[Tensor, Tensor]:
    """log p (N,), and the log of each node's share in p (N, K)."""
    log_density = noise.log_density(rule.t)
    log_share = log_density + height + rule.weight.log()
    missed = (log_density.exp() * -torch.expm1(height) * rule.weight).sum(1)
    log_p = torch.where(rule.ahead, torch.log1p(-missed), torch.logsumexp(log_share, 1))
    return log_p, log_share - log_p[:, None]
