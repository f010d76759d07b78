"""log p by quadrature for any noise and any slopes: the slow, obvious twin of `quadrature`.

    p = int f(t) prod_i F(a_i + b_i t) dt,      1 - p = int f(t) (1 - prod_i F(a_i + b_i t)) dt

The interval of t is found by looking: a coarse row of points over all of the noise's reach, kept
where either integrand or the slope's is not negligible, three times over. Equally spaced nodes
follow. Also home of the second derivative, which every method shares.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hitrate.probability.execution import blocks
from hitrate.probability.margins import FARTHEST
from hitrate.probability.methods.quadrature import AHEAD
from hitrate.probability.noises import Noise

# Points of one look at the integrand, and how often to look.
POINTS = 48
LOOKS = 3


def default_nodes(noise: Noise, classes: int, dtype: torch.dtype) -> int:
    """Nodes for which the rule's error is near rounding while |log p| is below about 40."""
    doublings = math.log2(max(classes, 2))
    if noise.name == "normal":
        return math.ceil(24 + 4 * doublings if dtype == torch.float32 else 40 + 9 * doublings)
    return math.ceil(64 + 4 * doublings if dtype == torch.float32 else 128 + 8 * doublings)


def general_quadrature(
    a: Tensor, b: Tensor | None, noise: Noise, *, nodes: int | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Value and slopes of log p in a (and in b, where given).

    Parameters
    ----------
    a : Tensor, shape (N, C)
        Scaled margins; the target's own column holds `margins.ABSENT`.
    b : Tensor, shape (N, C), optional
        Slopes in t; 1 by default, 0 in the target's column.
    noise : Noise
    nodes : int, optional

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope_a : Tensor, shape (N, C)
    slope_b : Tensor, shape (N, C), or None
    """
    nodes = nodes or default_nodes(noise, a.shape[1], a.dtype)
    if b is not None:
        nodes = 2 * nodes  # a small sigma among large ones sharpens the integrand
    log_p, slope_a = torch.empty_like(a[:, 0]), torch.empty_like(a)
    slope_b = None if b is None else torch.empty_like(a)
    for part in blocks(a, a.shape[1]):
        inner = None if b is None else b[part]
        t, *rule = _nodes(a[part], inner, noise, nodes)
        log_p[part], weights = _weigh(a[part], inner, noise, t, *rule)
        slope_a[part] = _expect(a[part], inner, noise, t, weights)
        if slope_b is not None:
            slope_b[part] = _expect(a[part], inner, noise, t, weights * t)
    return log_p, slope_a, slope_b


def hessian_product(
    a: Tensor,
    b: Tensor | None,
    noise: Noise,
    along_a: Tensor,
    along_b: Tensor | None,
    *,
    nodes: int | None = None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Slopes of log p in (a, b), and its Hessian times a direction, docs/math.md (17).

    With r_i = along_a_i + along_b_i t, rho = sum_i h_i r_i and E the mean under the integrand,
    the product in a_i is E[h'_i r_i] + E[h_i rho] - E[h_i] E[rho]; in b_i the same with a factor t.
    """
    nodes = 2 * (nodes or default_nodes(noise, a.shape[1], a.dtype))
    t, *rule = _nodes(a, b, noise, nodes)
    _, weights = _weigh(a, b, noise, t, *rule)
    # Out of place: under vmap the direction may be mapped while the margins are not.
    mean_rho = torch.zeros_like(weights[:, :1])
    means = [torch.zeros_like(a)] * 6
    for u, weight in zip(t.T[..., None], weights.T[..., None], strict=True):  # (N, 1) each
        x = _at(a, b, u)
        r = along_a if along_b is None else along_a + along_b * u
        hazard = noise.log_cdf_and_hazard(x)[1]
        rho = (hazard * r).sum(1, keepdim=True)
        parts = [hazard, hazard * rho, noise.hazard_slope(x) * r]
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


def _nodes(a: Tensor, b: Tensor | None, noise: Noise, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes t (N, K) and their step (N, 1) where the integrands are, and which rows are ahead."""
    drop = 20.0 if a.dtype == torch.float32 else 34.0
    # Where the closest rival ties with the target; the absent one never does.
    tie = (
        (-a if b is None else -a / b.clamp_min(1e-30)).masked_fill(a >= FARTHEST, -math.inf).amax(1)
    )
    tie = tie.clamp_min(-FARTHEST)
    before, after = noise.reach(drop)
    low, high = tie.clamp_max(0.0) - before, tie.clamp_min(0.0) + after
    ahead = noise.log_cdf_and_hazard(a)[0].sum(1, keepdim=True) > AHEAD
    grid = torch.linspace(0.0, 1.0, POINTS, dtype=a.dtype, device=a.device)
    for _ in range(LOOKS):
        t = low[:, None] + (high - low)[:, None] * grid  # (N, POINTS)
        height, hazard = _sums(a, b, noise, t)
        log_density = noise.log_density(t)
        value = log_density + torch.where(ahead, (-torch.expm1(height)).log(), height)
        kept = _not_negligible(value, drop) | _not_negligible(
            log_density + height + hazard.log(), drop
        )
        first = (kept.to(a.dtype).argmax(1) - 1).clamp_min(0)
        last = (POINTS - kept.flip(1).to(a.dtype).argmax(1)).clamp_max(POINTS - 1)
        low, high = t.gather(1, first[:, None])[:, 0], t.gather(1, last[:, None])[:, 0]
    step = ((high - low) / (nodes - 1))[:, None]
    t = low[:, None] + step * torch.arange(nodes, dtype=a.dtype, device=a.device)
    return t, step, ahead[:, 0]


def _at(a: Tensor, b: Tensor | None, t: Tensor) -> Tensor:
    """Where the rays are at t (N, 1)."""
    return a + t if b is None else a + b * t


def _not_negligible(log_integrand: Tensor, drop: float) -> Tensor:
    return log_integrand > log_integrand.nan_to_num(-math.inf).amax(1, keepdim=True) - drop


def _sums(a: Tensor, b: Tensor | None, noise: Noise, t: Tensor) -> tuple[Tensor, Tensor]:
    """sum_i log F(a_i + b_i t) and its derivative in t, for each of t (N, K)."""
    heights, hazards = [], []
    for u in t.T[..., None]:
        log_cdf, hazard = noise.log_cdf_and_hazard(_at(a, b, u))
        heights.append(log_cdf.sum(1))
        hazards.append((hazard if b is None else hazard * b).sum(1))
    return torch.stack(heights, 1), torch.stack(hazards, 1)


def _weigh(
    a: Tensor, b: Tensor | None, noise: Noise, t: Tensor, step: Tensor, ahead: Tensor
) -> tuple[Tensor, Tensor]:
    """log p (N,) and the integrand of p over p at the nodes, times the step (N, K)."""
    height, _ = _sums(a, b, noise, t)
    log_density = noise.log_density(t)
    log_weight = log_density + height + step.log()
    missed = (log_density.exp() * -torch.expm1(height) * step).sum(1)
    log_p = torch.where(ahead, torch.log1p(-missed), torch.logsumexp(log_weight, 1))
    return log_p, (log_weight - log_p[:, None]).exp()


def _expect(a: Tensor, b: Tensor | None, noise: Noise, t: Tensor, weights: Tensor) -> Tensor:
    """sum_k weights_k h(a + b t_k), shape (N, C)."""
    total = torch.zeros_like(a)
    for u, weight in zip(t.T[..., None], weights.T[..., None], strict=True):
        x = _at(a, b, u)
        total += weight * noise.log_cdf_and_hazard(x)[1]
    return total
