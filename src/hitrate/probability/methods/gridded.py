"""log p for many classes at O(C): rivals as moments, one grid of nodes, docs/math.md (13) to (16).

The rivals enter only through sum_i log Phi(a_i + t). Measured from the row's closest margin, log
Phi is one polynomial of the margin for each node of the integral: some two dozen moments of a row's
margins stand for all of them. So log Phi and h are needed on one table of moments x nodes for all
rows, and both sums over the rivals are matrix products. The slope is one smooth function of the
margin, a polynomial too.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hitrate.probability import normal
from hitrate.probability.execution import (
    ROOM,
    double,
    has_values,
    is_quick_in_numpy,
    rows_at_once,
)
from hitrate.probability.methods.moments import BESIDE, WIDTH, Factors, interpolation
from hitrate.probability.methods.quadrature import quadrature
from hitrate.probability.normal import LOG_SQRT_2PI, SQRT_HALF

# Nodes of the integral per width of its narrowest peak, and more for one that leans to a side.
NODES, LEANING = {torch.float32: 0.85, torch.float64: 2.0}, 0.6
# Nodes end where the log of the integrand has fallen by so much.
DROP = {torch.float32: 14.0, torch.float64: 28.0}
# Terms of the polynomials beyond those that the interval asks for.
TERMS = {torch.float32: 2.8, torch.float64: 12.0}
# Exponents of weights end here: processors are slow with the smallest numbers.
LEAST = -400.0
# Farther than rivals ever matter.
FARTHEST = 40.0
# Multiplications of a product of matrices up to which OpenBLAS keeps to one thread.
ONE_THREAD = 2**18
# Closest margins for which one grid serves: below, the peak is too narrow for it; above, 1 - p is
# below 1e-12 C, and the interval would only grow.
NEAR = (-12.0, 10.0)
# Rows that are more likely to win than this have log p from 1 - p.
AHEAD = 0.75


def gridded(a: Tensor, *, nodes: int | None = None) -> tuple[Tensor, Tensor]:
    """Value and slope of log p in the scaled margins, for normal noise.

    Looks at values, so it cannot be traced. Rows far behind or far ahead go to `quadrature`.

    Parameters
    ----------
    a : Tensor, shape (N, C)
        Scaled margins (mu_y - mu_i) / sigma; the target's own column holds `margins.ABSENT`.
    nodes : int, optional
        Nodes of the integral per unit of the scaled margin.

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope : Tensor, shape (N, C)
    """
    if not has_values(a):
        return quadrature(a)
    closest, target = a.amin(1, keepdim=True), a.argmax(1, keepdim=True)
    near = ((closest >= NEAR[0]) & (closest <= NEAR[1]))[:, 0]
    if bool(near.all()):
        log_p, slope = _near(a.scatter(1, target, closest), closest[:, 0], nodes)
        return log_p, slope.scatter_(1, target, 0.0)
    log_p, slope = torch.empty_like(a[:, 0]), torch.empty_like(a)
    if bool(near.any()):
        log_p[near], slope[near] = gridded(a[near], nodes=nodes)
    # NaN has no place on a grid, and none among other rows.
    undefined, far = closest.isnan(), ~near
    log_p[far], slope[far] = quadrature(a.masked_fill(undefined, 0.0)[far])
    return log_p.masked_fill_(undefined[:, 0], torch.nan), slope


def _near(a: Tensor, closest: Tensor, nodes: int | None) -> tuple[Tensor, Tensor]:
    """The same for closest margins (N,) in `NEAR`, which stand in the targets' columns too.

    There the slope is that of the closest rival.
    """
    xp: Any = np if is_quick_in_numpy(a) else torch
    lowest, highest = map(float, closest.aminmax())
    reach = float((a.amax(1) - closest).max())
    device = None if xp is np else a.device
    rule = rule_for(lowest, highest, reach, a.shape[1], a.dtype, nodes=nodes, device=device)
    slope = torch.empty_like(a)
    if xp is np:
        arrays = (tensor.numpy() for tensor in (a, double(closest), slope))
        log_p, total = map(torch.from_numpy, on_grid(np, rule, *arrays))
    else:
        log_p, total = on_grid(torch, rule, a, double(closest), slope)
    return log_p.to(a.dtype), slope.div_(total[:, None])


@functools.cache
def default_nodes(behind: int, classes: int, dtype: torch.dtype) -> float:
    """Nodes per unit for closest margins from `behind` on, where no peak is narrower, math (12).

    That of all rivals side by side is: its place x past them solves C h(x) = x - behind, and its
    curvature there is 1 + (x - behind) (x + h(x)).
    """

    def hazard(x: float) -> float:
        return math.exp(-0.5 * x * x - LOG_SQRT_2PI) / (0.5 * math.erfc(-SQRT_HALF * x))

    low, high = float(behind), 40.0
    for _ in range(60):
        x = 0.5 * (low + high)
        low, high = (x, high) if classes * hazard(x) > x - behind else (low, x)
    first, bend = low - behind, low + hazard(low)
    return (NODES[dtype] + LEANING * math.sqrt(bend / first)) * math.sqrt(1.0 + first * bend)


class Rule(NamedTuple):
    """What all rows share: K nodes u of t + closest, and log Phi and h there by moments, math (14).

    The tables have one group of four more than there are moments: in `exponent` (4 D + 4, K) it is
    for the row's closest margin, which meets u, and for 1; in `hazard` (K, 4 D + 4) for the sum of
    the weights.
    """

    half: float
    degree: int
    # Of the integral of a standard normal density by its nodes.
    log_scale: float
    # Rows are ahead from here on, whatever their rivals are; and whether there may be such rows.
    sure: float
    is_sure: bool
    # Whether rivals may lie beyond the interval.
    is_cut: bool
    end: Any
    least: Any
    u: Any
    # log Phi(u), which the target adds where it stands with the closest rival.
    alone: Any
    log_cdf: Any
    exponent: Any
    hazard: Any


def rule_for(
    lowest: float,
    highest: float,
    reach: float,
    classes: int,
    dtype: torch.dtype,
    *,
    nodes: int | None = None,
    device: torch.device | None = None,
) -> Rule:
    """The rule for closest margins between two, and rivals no further than `reach` beyond them."""
    # Whole numbers, and halves, so that few tables are ever made.
    behind, ahead = math.floor(min(lowest, 0.0)), math.ceil(max(highest, 0.0))
    reach = 0.5 * math.ceil(2.0 * min(reach, FARTHEST))
    per_unit = nodes or default_nodes(behind, classes, dtype)
    return _rule(behind, ahead, reach, classes, per_unit, dtype, device)


@functools.lru_cache(maxsize=128)
def _rule(
    behind: int,
    ahead: int,
    reach: float,
    classes: int,
    nodes: float,
    dtype: torch.dtype,
    device: torch.device | None,
) -> Rule:
    """The nodes of (16), and log Phi and h as polynomials of the margin; no device is numpy."""
    drop, log_classes = DROP[dtype], math.log(classes)
    spread = math.sqrt(drop + log_classes)
    low = 0.5 * behind - spread
    high = max(math.sqrt(2.0 * log_classes) + math.sqrt(2.0 * drop + 2.0), 0.5 * ahead + spread)
    # Margins so large that C of them add nothing even at the lowest node.
    last = math.sqrt(2.0 * (drop - 2.0 + log_classes)) - low
    half = 0.5 * max(min(last, reach), 1.0)
    terms = TERMS[dtype] + 4.36 * half + 0.5 * ahead + 0.3 * log_classes
    degree = math.ceil(terms / WIDTH)

    count = math.ceil((high - low) * nodes) + 1
    u = low + torch.arange(count, dtype=torch.float64, device="cpu") / nodes
    x, to_coefficients = interpolation(degree, half)
    log_cdf, hazard = (
        to_coefficients @ values for values in normal.log_cdf_and_hazard(x[:, None] + half + u)
    )
    alone = normal.log_cdf_and_hazard(u)[0]
    exponent, sums = (torch.nn.functional.pad(t, (0, 0, 0, WIDTH)) for t in (log_cdf, hazard))
    exponent[-WIDTH] = u
    exponent[-WIDTH + 1] = -alone - 0.5 * u * u
    sums[-WIDTH] = 1.0
    end, least = torch.tensor([half, LEAST], dtype=torch.float64, device="cpu")
    tables = end, least, u, alone, log_cdf, exponent, sums.T.contiguous()
    log_scale = LOG_SQRT_2PI + math.log(nodes)
    sure = math.sqrt(4.0 * math.log(2.0 * classes)) + 0.5
    fixed = (half, degree, log_scale, sure, ahead > sure, reach > 2.0 * half)
    if device is None:
        return Rule(*fixed, *(table.numpy() for table in tables))
    to = torch.float32 if device.type == "mps" else torch.float64
    return Rule(*fixed, *(table.to(device, to) for table in tables))


class Space(NamedTuple):
    """Memory for so many rows at once: their rivals' factors, and arrays of a row's moments.

    `mass` (N, D + 1, 4) has the moments, and beside them the closest margin and 1, and is `flat`
    as (N, 4 D + 4); `weight` (N, K) is for the nodes, `found` (N, 4 D + 4) for the sums over them,
    among which are the slope's `coefficients` (N, 4, D).
    """

    factors: Factors
    mass: Any
    flat: Any
    weight: Any
    found: Any
    coefficients: Any

    @classmethod
    def of(cls, space: Any, mass: Any, weight: Any, found: Any) -> Space:
        """Made of uninitialised memory."""
        mass[:, -1] = 0.0
        mass[:, -1, 1] = 1.0
        coefficients = found.reshape(mass.shape)[:, :-1].swapaxes(1, 2)
        return cls(Factors(space), mass, mass.reshape(found.shape), weight, found, coefficients)


def on_grid(xp: Any, rule: Rule, a: Any, closest: Any, slope: Any) -> tuple[Any, Any]:
    """log p (N,) in float64, and a factor (N,) times which the slope (N, C) is written.

    In numpy or in torch. The closest margins (N,), in float64, stand in the targets' columns too,
    and there the slope is that of the closest rival. It may take the place of the margins.
    """
    count, classes = slope.shape
    most = rows_at_once("numpy" if xp is np else slope.device.type, count, classes, len(rule.u))
    # What turns p into a sum of weights: the row's own factor, and the distance of the nodes.
    scale = xp.exp(0.5 * closest * closest + rule.log_scale)
    limit = AHEAD * scale
    if rule.is_sure:
        # The nodes hold all of 1 - p, but not all of p.
        limit[closest > rule.sure] = 0.0
    total, missed = xp.empty_like(closest), xp.zeros_like(closest)
    arrays = a, closest, limit, slope, total, missed
    for start in range(0, count, most):
        part = slice(start, start + most)
        _write(xp, rule, *(array[part] for array in arrays))
    log_p = xp.log(total / scale)
    if xp.count_nonzero(missed):
        log_p = xp.where(missed > 0, xp.log1p(-missed), log_p)
        total = xp.where(missed > 0, scale * (1.0 - missed), total)
    return log_p, total


def _write(
    xp: Any, rule: Rule, a: Any, closest: Any, limit: Any, slope: Any, total: Any, missed: Any
) -> None:
    """Write slope and total of some rows, and of those with a total above a limit 1 - p."""
    factors, mass, flat, weight, found, coefficients = _space(xp, rule, *slope.shape)
    xp.subtract(a, (closest + rule.half)[:, None], out=factors.x)
    factors.write(xp, rule.half, rule.end if rule.is_cut else None)
    factors.moments(xp, mass[:, :-1])
    mass[:, -1, 0] = closest
    _product(xp, flat, rule.exponent, weight)
    xp.maximum(weight, rule.least, out=weight)
    xp.exp(weight, out=weight)
    _product(xp, weight, rule.hazard, found)
    slope[...] = factors.read(xp, coefficients)
    total[...] = found[:, -WIDTH]
    ahead = total > limit
    if xp.count_nonzero(ahead):
        missed[ahead] = _missed(xp, rule, flat[ahead], closest[ahead])


def _product(xp: Any, a: Any, b: Any, out: Any) -> None:
    """Write a product of matrices, by parts so small that numpy's BLAS starts no threads."""
    most = len(a) if xp is torch else max(8, ONE_THREAD // b.size // 8 * 8)
    for start in range(0, len(a), most):
        part = slice(start, start + most)
        xp.matmul(a[part], b, out=out[part])


def _space(xp: Any, rule: Rule, rows: int, classes: int) -> Space:
    """Memory for so many rows: what the thread keeps for numpy, new for torch."""
    groups = rule.degree + 1
    shapes = (
        (rule.degree + BESIDE, rows, classes),
        (rows, groups, WIDTH),
        (rows, len(rule.u)),
        (rows, groups * WIDTH),
    )
    return ROOM.of(Space.of, shapes) if xp is np else Space.of(*map(rule.u.new_empty, shapes))


def _missed(xp: Any, rule: Rule, mass: Any, closest: Any) -> Any:
    """1 - p of rows that are ahead (N,), from the integral of 1 - e^L."""
    height = mass[:, :-WIDTH] @ rule.log_cdf - rule.alone
    bell = xp.exp(-0.5 * (rule.u - closest[:, None]) ** 2 - rule.log_scale)
    return -(xp.expm1(height) * bell).sum(1)
