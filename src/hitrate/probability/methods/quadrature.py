"""log p by one-dimensional quadrature, for normal noise: docs/math.md, equations (3) to (12).

    p = int phi(t) prod_i Phi(a_i + t) dt

Each row gets its own interval of t, found from a few evaluations of the integrand and proved to
hold all but exp(-drop) of it; equally spaced nodes on that interval converge geometrically.
Rows that are ahead (p near 1) integrate 1 - p instead, so log p keeps its relative accuracy at
both ends. Work goes through buffers of fixed size, and only the slope, of the margins' size, is
kept: nothing of size rows x classes x nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hitrate.probability import normal
from hitrate.probability.execution import (
    block_size,
    blocks,
    double,
    is_eager_cpu,
    parts_of_row,
    row_parts,
)
from hitrate.probability.normal import LOG_SQRT_2PI, SQRT_HALF

# Most steps of the search for a row's peak; one is enough unless thousands of rivals are ahead.
STEPS = 20
# Places of the peak beyond which log p < -10^7 is left to Laplace's formula.
REMOTE = 5e3
# Classes above which float32 is computed in float64.
MANY = 256
# Rows whose sum of log Phi(a_i) exceeds this integrate 1 - p.
AHEAD = math.log(0.75)

Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]


class Interval(NamedTuple):
    """Where a row's integrand lives; each field has shape (N,).

    `reference` is the log of its height near the peak, `ahead` says which rows integrate 1 - p,
    `peak` and `laplace` are the peak's place and Laplace's formula for log p there.
    """

    left: Tensor
    right: Tensor
    reference: Tensor
    ahead: Tensor
    peak: Tensor
    laplace: Tensor


def default_nodes(classes: int, dtype: torch.dtype) -> int:
    """Nodes for which the rule's error is near rounding (float32) or below 1e-10 (float64)."""
    doublings = math.log2(max(classes, 2))
    return math.ceil(11 + 3.3 * doublings if dtype == torch.float32 else 15 + 7 * doublings)


def quadrature(a: Tensor, *, nodes: int | None = None) -> tuple[Tensor, Tensor]:
    """Value and slope of log p in the scaled margins.

    Parameters
    ----------
    a : Tensor, shape (N, C)
        Scaled margins (mu_y - mu_i) / sigma; the target's own column holds `margins.ABSENT`.
    nodes : int, optional
        Number of nodes per row; by default enough for the dtype's accuracy.

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope : Tensor, shape (N, C)
        d log p / d a, zero in the target's column.
    """
    nodes = nodes or default_nodes(a.shape[1], a.dtype)
    drop = 18.0 if a.dtype == torch.float32 else 25.0
    evaluate, dtype, closest = _anywhere, a.dtype, a.amin(1)
    if is_eager_cpu(a):
        # A NaN row compares false: it may not decide for the others.
        single = a.dtype == torch.float32
        far = bool((closest < (-12.0 if single else -35.0)).any())
        kept = _contenders(a, closest, drop) if far else None
        if kept is not None:
            log_p, slope = quadrature(a.gather(1, kept), nodes=nodes)
            return log_p, torch.zeros_like(a).scatter_(1, kept, slope)
        # Far tails need float64: log p alone has more than seven digits. So do many classes,
        # whose roundings of Phi near 1 add up.
        if single and (far or a.shape[1] > MANY):
            dtype, closest = torch.float64, closest.double()
        # The short formula is good while erfc does not underflow at the closest margin.
        evaluate = _anywhere if bool((closest < -35.0).any()) else _nearby
    else:
        # Where values cannot be looked at, any row may be far.
        closest = double(closest)
        dtype = closest.dtype

    log_p, slope = torch.empty_like(a[:, 0]), torch.zeros_like(a)
    for part in row_parts(a, a.shape[1]):
        z = a[part].to(dtype) * -SQRT_HALF
        interval = _interval(z, closest[part], evaluate, drop)
        for inner in blocks(z, z.shape[1] * nodes):
            where = Interval(*(field[inner] for field in interval))
            own = torch.zeros_like(z[inner])
            log_p[part][inner] = _integrate(z[inner], own, where, evaluate, nodes)
            slope[part][inner] = own
    return log_p, slope


def _contenders(a: Tensor, closest: Tensor, drop: float) -> Tensor | None:
    """Columns (N, M) of the rivals that can win anywhere in their row's interval, if M << C."""
    # The integral lies above t = -closest / 2 - sqrt(drop + log C), math (16).
    spread = math.sqrt(drop + math.log(a.shape[1])) + math.sqrt(2 * drop + 2 * math.log(a.shape[1]))
    most = max(2, int((a < 0.5 * closest[:, None] + spread).sum(1).max()))
    return a.topk(most, 1, largest=False).indices if 2 * most < a.shape[1] else None


def _integrate(
    z: Tensor, slope: Tensor, interval: Interval, evaluate: Evaluate, nodes: int
) -> Tensor:
    """Sum over the nodes: writes the slope, returns log p."""
    left, right, reference, ahead, peak, laplace = interval
    step = (right - left) / (nodes - 1)
    t = left[:, None] + step[:, None] * torch.arange(nodes, dtype=z.dtype, device=z.device)
    group = _nodes_at_once(z, nodes)
    heights, hazards = [], []
    for u in torch.split(t, group, dim=1):  # (rows, group)
        log_cdf, hazard = evaluate(z[:, None, :] + (u * -SQRT_HALF)[:, :, None])
        heights.append(log_cdf.sum(2))
        hazards.append(hazard.sum(2))
        weight = (heights[-1] - 0.5 * u * u - reference[:, None]).exp_()
        # Not a matrix product: those may be told to round to fewer bits than float32 has.
        slope += hazard.mul_(weight[:, :, None]).sum(1)

    height, hazard = torch.cat(heights, 1), torch.cat(hazards, 1)  # (rows, nodes)
    scale = reference + step.log() - LOG_SQRT_2PI
    total = (height - 0.5 * t * t - reference[:, None]).exp_().sum(1)
    log_p = total.log() + scale
    # Integration by parts: 1 - p = int F(t) d(prod F), a sum of positive terms.
    missed = (torch.erfc(t * -SQRT_HALF) * 0.5 * height.exp() * hazard).sum(1) * step
    log_p = torch.where(ahead, torch.log1p(-missed), log_p)
    slope *= torch.where(ahead, (scale - log_p).exp_(), 1 / total)[:, None]

    # So far behind that differences along the peak are below rounding, Laplace's formula serves:
    # the peak, less half the log of its curvature.
    remote = peak > REMOTE
    if not is_eager_cpu(z) or bool(remote.any()):
        log_p = torch.where(remote, laplace, log_p)
        hazard = evaluate(z + (peak * -SQRT_HALF)[:, None])[1]
        slope.copy_(torch.where(remote[:, None], hazard, slope))
    return log_p


def _nodes_at_once(z: Tensor, nodes: int) -> int:
    """As many as a block holds; all for a compiler, which fuses them; one by one on a GPU."""
    if torch.compiler.is_compiling():
        return nodes
    if not is_eager_cpu(z):
        return 1
    some = parts_of_row(nodes, z.numel(), z)[0]
    return block_size() // z.numel() or 1 if len(z) > 1 else some.stop


def _nearby(z: Tensor) -> tuple[Tensor, Tensor]:
    """log Phi and h at x = -sqrt(2) z while erfc does not underflow; overwrites z."""
    cdf = torch.erfc(z).mul_(0.5)
    hazard = z.mul_(z).add_(LOG_SQRT_2PI).neg_().exp_().div_(cdf)
    return cdf.log_(), hazard


def _anywhere(z: Tensor) -> tuple[Tensor, Tensor]:
    """log Phi and h at x = -sqrt(2) z for any finite z."""
    return normal.log_cdf_and_hazard(z * (-1.0 / SQRT_HALF))


def _interval(z: Tensor, closest: Tensor, evaluate: Evaluate, drop: float) -> Interval:
    """Find the interval of t that holds all but exp(-drop) of the integrand."""
    tiny = torch.finfo(z.dtype).tiny

    def look(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sum of log Phi, its first derivative A, and -(its second derivative) / A."""
        x = z + (t * -SQRT_HALF)[:, None]
        log_cdf, hazard = evaluate(x.clone())
        height, first = log_cdf.sum(1), hazard.sum(1).clamp_min_(tiny)
        x.mul_(-1.0 / SQRT_HALF)
        if evaluate is _nearby:
            second = x.add_(hazard).mul_(hazard).sum(1)
        else:
            second = -normal.hazard_slope(x).sum(1)
        return height, first, (second / first).clamp_min_(1e-30)

    # Start at t = 0, the peak of the noise alone. Behind: the peak solves t = A(t) > 0, math (8).
    # Ahead: the peak of the slope's integrand solves t = A - bend < 0, math (10).
    height, first, bend = look(torch.zeros_like(closest))
    ahead = height > AHEAD
    t = torch.where(ahead, -0.5 * closest, first / (1 + first * bend))
    height, first, bend = look(t)
    low, high = torch.zeros_like(t), torch.full_like(t, torch.inf)
    for _ in range(STEPS if is_eager_cpu(z) else 4):
        # Behind, A(t) - t falls: a step past a point known to be too far is halved instead.
        low, high = torch.where(first > t, t, low), torch.where(first > t, high, t)
        step = t + _step_behind(t, first, bend)
        step = torch.where(step < high, step, 0.5 * (low + high))
        t = torch.where(ahead, t + _step_ahead(t, first, bend), step)
        height, first, bend = look(t)
        # Half a standard deviation from the peak is near enough: the bounds below hold anywhere.
        gap = first - t - bend * ahead
        off = (gap.square() > 0.25 * (1 + first * bend)) & ((first > tiny) | ~ahead)
        if is_eager_cpu(z) and not bool(off.any()):
            break

    # Behind, math (9): to the right the integrand lies under the noise and under its tangent
    # parabola of curvature 1; to the left, under the tangent parabola of its own curvature.
    tilt = first - t
    curvature = 1 + first * bend
    right = torch.minimum(
        (t * t - 2 * height + 2 * drop).sqrt(), t + tilt + (tilt * tilt + 2 * drop).sqrt()
    )
    # The slope's integrand has one more factor h, hence the extra 2.
    left = t - ((tilt * tilt + 2 * curvature * (drop + 2)).sqrt() - tilt) / curvature

    # Ahead, math (11): under C phi(t) phi(closest + t), a Gaussian around -closest / 2.
    level = drop + math.log(z.shape[1]) + torch.log1p(t.abs())
    level = level + 0.5 * t * t - height - first.log()
    radius = (level - LOG_SQRT_2PI - 0.25 * closest * closest).clamp_min(1.0).sqrt()
    middle = -0.5 * closest
    beyond = (2 * level).sqrt() - closest
    left = torch.where(ahead, middle - radius, left)
    right = torch.where(ahead, torch.where(radius > -middle, beyond, middle + radius), right)
    # Laplace's formula at the peak, one Newton step from here.
    place = t + tilt / curvature
    reference = height - 0.5 * t * t
    laplace = reference + 0.5 * (tilt * tilt / curvature - curvature.log())
    return Interval(left, right, reference, ahead, place, laplace)


def _step_behind(t: Tensor, first: Tensor, bend: Tensor) -> Tensor:
    """Solve log A(t + s) = log(t + s) with log A taken as a parabola in s, math (8)."""
    sag = -torch.expm1(-0.7 * bend * bend)
    s = torch.zeros_like(t)
    for _ in range(2):
        gap = (first / (t + s)).log() - s * (bend + 0.5 * sag * s)
        s = torch.maximum(s + gap / (bend + sag * s + 1 / (t + s)), -0.9 * t)
    return s


def _step_ahead(t: Tensor, first: Tensor, bend: Tensor) -> Tensor:
    """One Newton step for t = A - bend, math (10)."""
    sag = -torch.expm1(-0.7 * bend * bend)
    return (first - bend - t) / (1 + sag + first * bend)
