"""log p for many classes at O(C): margins sorted into cells, docs/math.md, equations (13) to (16).

The rivals enter only through sum_i log Phi(a_i + t). In each of a few dozen cells, measured from
the row's closest margin, log Phi is a polynomial of the margin: six moments of the margins in a
cell stand for all of them. So log Phi and h are needed on one table of cells x nodes for all rows,
and both sums over the cells are matrix products. The slope is one smooth function of the margin,
a polynomial in each cell too.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from hitrate.probability import normal
from hitrate.probability.execution import blocks, exp_, expm1_
from hitrate.probability.margins import ABSENT
from hitrate.probability.methods.quadrature import quadrature
from hitrate.probability.normal import LOG_SQRT_2PI, SQRT_2PI, SQRT_HALF

# Moments of a cell: the error falls with the sixth power of the cells' width.
ORDER = 6
# Cells per unit of the scaled margin.
CELLS = {torch.float32: 2.5, torch.float64: 4.0}
# Nodes of the integral per width of its narrowest peak.
NODES = {torch.float32: 1.25, torch.float64: 2.5}
DROP = 16.0
# More nodes than a batch ever has in float32, and farther than cells ever go.
MOST_NODES, FARTHEST = 128, 40.0
# Closest margins for which one grid serves: below, the peak is too narrow for it; above, 1 - p is
# below 1e-12 C, and falls faster over a cell than six moments follow.
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
    closest = near = a.amin(1)
    lowest, highest = map(float, closest.aminmax())
    far = None
    if not (NEAR[0] <= lowest and highest <= NEAR[1]):
        undefined = closest.isnan()
        # NaN has no place on a grid.
        a = a.masked_fill(undefined[:, None], 0.0)
        far = ~((closest >= NEAR[0]) & (closest <= NEAR[1]))
        near = closest.masked_fill(far, 0.0)
        lowest, highest = map(float, near.aminmax())
    # Whole numbers, so that few tables are ever made.
    ends = math.floor(min(lowest, 0.0)), math.ceil(max(highest, 0.0))
    nodes = nodes or default_nodes(ends[0], a.shape[1], a.dtype)
    parts = blocks(a, max(a.shape[1], MOST_NODES))
    log_p, slope = torch.empty_like(closest), torch.empty_like(a)
    # Buffers for the powers of the margins' places, shared by all blocks: fresh memory costs more
    # than the arithmetic on it.
    buffers = torch.empty(ORDER, *a[parts[0]].shape, dtype=a.dtype, device=a.device)
    buffers[0] = 1.0
    for part in parts:
        inner = buffers[:, : len(a[part])]
        log_p[part] = _gridded(a[part], near[part], ends, nodes, slope[part], inner)
    if far is not None:
        log_p[far], slope[far] = quadrature(a[far])
        log_p[undefined] = torch.nan
    return log_p, slope


@functools.cache
def default_nodes(behind: int, classes: int, dtype: torch.dtype) -> int:
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
    curvature = 1.0 + (low - behind) * (low + hazard(low))
    return math.ceil(NODES[dtype] * math.sqrt(curvature))


@functools.lru_cache(maxsize=64)
def _rule(
    behind: int,
    ahead: int,
    reach: int,
    classes: int,
    nodes: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes u (K,) of t + closest, and log Phi and h as polynomials in cells, math (16).

    Of each cell and node there are the coefficients of powers of s, the margin's place in its cell
    from -1/2 to 1/2: (ORDER G, K), cells of one power together. The last cell holds what adds
    nothing.
    """
    log_classes = math.log(classes)
    spread = math.sqrt(DROP + log_classes)
    low = math.floor(0.5 * behind - spread)
    high = math.ceil(
        max(math.sqrt(2.0 * log_classes) + math.sqrt(2.0 * DROP + 2.0), 0.5 * ahead + spread)
    )
    # Margins so large that C of them add nothing even at the lowest node.
    last = min(math.sqrt(2.0 * (12.0 + log_classes)) - low, reach + 1e-3)
    middles = torch.arange(math.ceil(last * CELLS[dtype]), dtype=torch.float64) + 0.5
    u = torch.arange(low * nodes, high * nodes + 1, dtype=torch.float64) / nodes
    # Chebyshev's points, at which a polynomial is nearest to a function in between too.
    s = 0.5 * torch.cos(math.pi * (torch.arange(ORDER, dtype=torch.float64) + 0.5) / ORDER)
    to_powers = torch.linalg.inv(torch.linalg.vander(s))  # (ORDER, ORDER)
    x = (middles[:, None] + s) / CELLS[dtype]  # (G, ORDER)
    found = [
        torch.nn.functional.pad(torch.einsum("ps,gsk->pgk", to_powers, values), (0, 0, 0, 1))
        for values in normal.log_cdf_and_hazard(x[:, :, None] + u)
    ]
    log_cdf, hazard = (table.flatten(0, 1).to(device, dtype) for table in found)
    return u.to(device, dtype), log_cdf, hazard


def _gridded(
    a: Tensor, closest: Tensor, ends: tuple[int, int], nodes: int, slope: Tensor, buffers: Tensor
) -> Tensor:
    """Write the slope, return log p."""
    closest, s = closest[:, None], buffers[1]
    torch.sub(a, closest, out=s)
    # How far the rivals reach, without the target's own margin; in whole numbers, and not too many.
    reach = math.ceil(torch.mul(s, a < ABSENT, out=buffers[2]).amax().clamp_(0.0, FARTHEST))
    u, log_cdf, hazard = _rule(*ends, reach, a.shape[1], nodes, a.dtype, a.device)

    # Sort: each margin's powers into its cell. Rows of `far` margins are clamped too; their result
    # is replaced.
    cells = len(log_cdf) // ORDER
    s.mul_(CELLS[a.dtype]).clamp_(0, cells - 1)
    cell = s.long()  # (N, C)
    s.frac_().sub_(0.5)
    for k in range(2, ORDER):
        torch.mul(buffers[k - 1], s, out=buffers[k])
    mass = torch.zeros(len(a), ORDER, cells, dtype=a.dtype, device=a.device)
    for k, power in enumerate(buffers):
        mass[:, k].scatter_add_(1, cell, power)
    mass = mass.flatten(1)

    height = mass @ log_cdf  # (N, K)
    half = (u - closest).square_().mul_(0.5)
    weight = height - half
    reference = weight.amax(1, keepdim=True)
    exp_(weight.sub_(reference))
    scale = reference[:, 0] - (math.log(nodes) + LOG_SQRT_2PI)
    log_p = weight.sum(1).log_().add_(scale)
    # Surely ahead, where the nodes hold all of 1 - p but not all of p; or ahead by the result.
    sure = math.sqrt(4.0 * math.log(2.0 * a.shape[1])) + 0.5
    ahead = (closest[:, 0] > sure).logical_or_(log_p > -math.log(2.0)).nonzero()[:, 0]
    if len(ahead):
        missed = expm1_(height[ahead]).mul_(exp_(half[ahead].neg_())).sum(1)
        log_p[ahead] = missed.div_(nodes * SQRT_2PI).log1p_()

    # The slope as a function of the margin, a polynomial in each cell, read at each margin.
    torch.matmul(weight.mul_((scale - log_p).exp_()[:, None]), hazard.T, out=mass)
    table, found = mass.view(-1, ORDER, cells), buffers[2]
    torch.gather(table[:, -1], 1, cell, out=slope)
    for k in reversed(range(ORDER - 1)):
        torch.addcmul(torch.gather(table[:, k], 1, cell, out=found), slope, s, out=slope)
    return log_p
