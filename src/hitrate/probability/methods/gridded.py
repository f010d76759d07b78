"""log p for many classes at O(C): margins spread on a grid, docs/math.md, equations (13) to (16).

The rivals enter only through sum_i log Phi(a_i + t). Spreading each margin over the six grid
points around it (Lagrange weights) replaces C rivals by a few dozen grid points, measured from
the row's closest margin. So log Phi and h are needed on one table of grid x nodes for all rows,
and both sums over the grid are matrix products. The slope is one smooth function
of the margin, read back from its table by the same weights.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from hitrate.probability import normal
from hitrate.probability.execution import blocks
from hitrate.probability.methods.quadrature import quadrature
from hitrate.probability.normal import LOG_SQRT_2PI

# Points that carry one margin: the error falls with the sixth power of the grid's spacing.
ORDER = 6
# Left neighbours of a margin; a margin in cell j is spread over points j - 2 ... j + 3.
BEHIND = ORDER // 2 - 1
# Grid points, and nodes of the integral, per unit of the scaled margin.
POINTS = {torch.float32: 10, torch.float64: 16}
NODES = {torch.float32: 6, torch.float64: 12}
DROP = 16.0
# Closest margins for which one grid serves: below, the peak is too narrow for it; above, 1 - p is
# below 1e-12 C, and falls faster over a cell than six points follow.
NEAR = (-12.0, 10.0)


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
    if a.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        # Matrix products have been told to round to fewer bits than float32 has.
        log_p, slope = gridded(a.double(), nodes=nodes)
        return log_p.float(), slope.float()
    # Thousands of rivals side by side make the peak narrower.
    nodes = nodes or NODES[a.dtype] * (2 if a.shape[1] > 2000 else 1)
    closest = a.amin(1)
    undefined = closest.isnan()
    if bool(undefined.any()):
        # NaN has no place on a grid.
        a = a.masked_fill(undefined[:, None], 0.0)
    far = ~((closest >= NEAR[0]) & (closest <= NEAR[1]))
    near = closest.masked_fill(far, 0.0)
    behind, ahead = near.aminmax()
    # Whole numbers, so that few tables are ever made.
    ends = math.floor(behind.clamp_max(0.0)), math.ceil(ahead.clamp_min(0.0))
    rule = _rule(*ends, a.shape[1], nodes, a.dtype, a.device)

    log_p, slope = torch.empty_like(closest), torch.empty_like(a)
    parts = blocks(a, max(len(rule[0]), a.shape[1]))
    # Eight buffers for the margins' places and weights, shared by all blocks: fresh memory costs
    # more than the arithmetic on it.
    buffers = torch.empty(8, *a[parts[0]].shape, dtype=a.dtype, device=a.device)
    for part in parts:
        inner = buffers[:, : len(a[part])]
        log_p[part] = _gridded(a[part], near[part], nodes, *rule, slope[part], inner)
    if bool(far.any()):
        log_p[far], slope[far] = quadrature(a[far])
        log_p[undefined] = torch.nan
    return log_p, slope


@functools.lru_cache(maxsize=64)
def _rule(
    behind: int, ahead: int, classes: int, nodes: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes u (K,) of t + closest, and log Phi and h at grid point + node (G, K), math (16)."""
    log_classes = math.log(classes)
    spread = math.sqrt(DROP + log_classes)
    low = math.floor(0.5 * behind - spread)
    high = math.ceil(
        max(math.sqrt(2.0 * log_classes) + math.sqrt(2.0 * DROP + 2.0), 0.5 * ahead + spread)
    )
    # Margins so large that C of them add nothing even at the lowest node.
    last = math.ceil(math.sqrt(2.0 * (12.0 + log_classes)) - low)
    points = torch.arange(-BEHIND, last * POINTS[dtype] + ORDER - BEHIND, dtype=torch.float64)
    u = torch.arange(low * nodes, high * nodes + 1, dtype=torch.float64) / nodes
    log_cdf, hazard = normal.log_cdf_and_hazard(points[:, None] / POINTS[dtype] + u)
    return u.to(device, dtype), log_cdf.to(device, dtype), hazard.to(device, dtype)


def _gridded(
    a: Tensor,
    closest: Tensor,
    nodes: int,
    u: Tensor,
    log_cdf: Tensor,
    hazard: Tensor,
    slope: Tensor,
    buffers: Tensor,
) -> Tensor:
    """Write the slope, return log p."""
    # Spread: each margin's weights on its six neighbours. Margins beyond the grid count as its
    # end, where they add nothing. Rows of `far` margins are clamped too; their result is replaced.
    last = len(log_cdf) - ORDER
    closest = closest[:, None]
    place = torch.sub(a, closest, out=buffers[6]).mul_(POINTS[a.dtype]).clamp_(0, last)
    cell = place.long()  # (N, C)
    weights = _lagrange(place.frac_(), buffers)
    mass = torch.zeros(len(a), len(log_cdf), dtype=a.dtype, device=a.device)
    for k, weight in enumerate(weights):
        mass[:, k:].scatter_add_(1, cell, weight)

    height = mass @ log_cdf  # (N, K)
    log_density = (u - closest).square_().mul_(-0.5).sub_(LOG_SQRT_2PI)
    weight = height + log_density
    reference = weight.amax(1, keepdim=True)
    weight.sub_(reference).exp_()
    scale = reference[:, 0] - math.log(nodes)
    log_p = weight.sum(1).log_() + scale
    missed = height.expm1_().mul_(log_density.exp_()).sum(1).div_(-nodes)
    # Surely ahead, where the nodes hold all of 1 - p but not all of p; or ahead by the result.
    sure = closest[:, 0] > math.sqrt(4.0 * math.log(2.0 * a.shape[1])) + 0.5
    ahead = sure | (log_p > -math.log(2.0))
    log_p = torch.where(ahead, torch.log1p(-missed), log_p)

    # The slope as a function of the margin, tabulated on the grid and read back at each margin.
    table = torch.matmul(weight.mul_((scale - log_p).exp_()[:, None]), hazard.T, out=mass)
    torch.mul(torch.gather(table, 1, cell, out=buffers[7]), weights[0], out=slope)
    for k in range(1, ORDER):
        slope.addcmul_(torch.gather(table[:, k:], 1, cell, out=buffers[7]), weights[k])
    return log_p


def _lagrange(u: Tensor, buffers: Tensor) -> Tensor:
    """Weights of the six points -2 ... 3 for a place u in [0, 1), in the first six buffers.

    About the middle s = u - 1/2 the points are -5/2 ... 5/2, and points at -r and r share the
    product of s^2 - r'^2 over the other two r'.
    """
    s = u.sub_(0.5)
    square = torch.mul(s, s, out=buffers[7])
    for k, r in enumerate((0.5, 1.5, 2.5)):
        torch.sub(square, r * r, out=buffers[k])
    torch.mul(buffers[0], buffers[1], out=buffers[5])
    torch.mul(buffers[0], buffers[2], out=buffers[4])
    torch.mul(buffers[1], buffers[2], out=buffers[3])
    for k, (r, scale) in enumerate(((0.5, 12.0), (1.5, -24.0), (2.5, 120.0))):
        shared = buffers[3 + k].mul_(1 / scale)
        torch.sub(r, s, out=buffers[2 - k]).mul_(shared)
        shared.mul_(torch.add(s, r, out=square))
    return buffers[:6]
