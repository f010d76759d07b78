"""Nodes of u, the winning score, that serve all classes of a row at once, docs/math.md (28).

Each function takes the distances of the classes below the highest (N, C) and which of them are out
of the game, and returns nodes (N, K), measured from the highest logit, with the logs of their
weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from hitrate.probability import normal as normal_distribution
from hitrate.probability.execution import is_eager_cpu, parts, parts_of_row
from hitrate.probability.methods.general_quadrature import (
    EVEN,
    NARROWING,
    PANEL_WIDTH,
    equal_parts,
    nearest,
    panel_nodes,
    peak_of,
)

if TYPE_CHECKING:
    from hitrate.probability.noises import Noise

# How far the log of an integrand falls before the nodes end.
DROP = {torch.float32: 16.0, torch.float64: 28.0}
# Distance of equally spaced nodes: for normal noise in widths of the narrowest integrand.
NORMAL_SPACING = {torch.float32: 0.65, torch.float64: 0.4}
LOGISTIC_SPACING = {torch.float32: 0.6, torch.float64: 0.4}
# Down to classes this far below the highest the nodes are evenly spaced.
NEAR = 40.0
# Most nodes for the classes below that.
FAR_NODES = 48
# Points of a look at any other noise's integrands, those for classes further down included, and
# panels where values cannot be looked at.
GRID, FAR_GRID, PANELS = 128, 8, 96
# Evaluations in the search for the lowest peak.
LOOKS = 6


class Span(NamedTuple):
    """Where the integrands of a row live, for all classes up to `NEAR` below the highest."""

    high: float
    low: Tensor  # (N, 1)
    step: Tensor  # (N, 1), the distance of nodes that they need
    pace: Tensor | float  # a class this much further down moves the lower end by 1 at most
    nodes: int  # enough for all but contrived rows


def normal(below: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """For normal noise: from below the peak of the lowest class, the narrowest of all."""
    classes, drop = below.shape[1], DROP[below.dtype]
    high = math.sqrt(2 * (drop + math.log(classes)))
    depth = _depth(below, out)
    near = depth.clamp(max=NEAR)
    found = [_peak(below[part], near[part], high) for part in parts(below, classes)]
    peak, tilt, curvature = torch.split(torch.cat(found), 1, dim=1)
    # The bound to the left of math (9); the derivatives have one more factor h, hence the 2.
    low = peak - ((tilt * tilt + 2 * curvature * (drop + 2)).sqrt() - tilt) / curvature
    spacing = NORMAL_SPACING[below.dtype]
    nodes = math.ceil((42 + 3.2 * math.log2(classes)) / spacing)
    return _equally_spaced(depth, Span(high, low, spacing * curvature.rsqrt(), curvature, nodes))


def logistic(below: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    """For logistic noise: from below the lowest class, where all C factors fall."""
    classes, drop = below.shape[1], DROP[below.dtype]
    depth = _depth(below, out)
    near = depth.clamp(max=NEAR)
    high = drop + 2 + math.log(classes)
    before = (drop + (classes + 1) * math.log(2)) / classes
    spacing = LOGISTIC_SPACING[below.dtype]
    nodes = math.ceil((high + NEAR + before) / spacing)
    return _equally_spaced(
        depth, Span(high, -near - before, torch.full_like(near, spacing), 1.0, nodes)
    )


def any_noise(below: Tensor, out: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """For any noise: panels as narrow as the integrands of the classes that peak nearby."""
    found = [_panels(below[part], out[part], noise) for part in parts(below, 8 * below.shape[1])]
    most = max(edges.shape[1] for edges in found)
    # Rows with fewer edges end in panels without width.
    edges = torch.cat([torch.cat([e, e[:, -1:].expand(-1, most - e.shape[1])], 1) for e in found])
    u, weight = panel_nodes(edges)
    return u, weight.log()


def _panels(below: Tensor, out: Tensor, noise: Noise) -> Tensor:
    """Edges of panels from below the lowest class to above the highest."""
    before, after = noise.reach(DROP[below.dtype] + math.log(below.shape[1]))
    peak, width = noise.shape
    depth = _depth(below, out)
    near = depth.clamp(max=NEAR * width)
    low, high = peak - before - near, torch.full_like(depth, peak + after)
    even = torch.linspace(0.0, 1.0, GRID, dtype=below.dtype, device=below.device)
    # Points further down are each as many times further apart as reaches the lowest class.
    further = torch.linspace(1.0, 0.0, FAR_GRID + 1, dtype=below.dtype, device=below.device)
    deep = low + width - width * ((depth - near) / width + 1) ** further
    u = torch.cat([deep[:, :-1], low + (high - low) * even], 1)
    place, narrow = _peaks(below, out, noise, u)
    around = torch.linspace(-EVEN, EVEN, 5, dtype=below.dtype, device=below.device)
    more = (place[:, :, None] + narrow[:, :, None] * around).flatten(1)
    u = torch.cat([u, more.maximum(u[:, :1]).minimum(high)], 1).sort(1)[0]
    spread = nearest(u, place, narrow)
    density = spread.rsqrt().clamp_min(1 / width).masked_fill(u < low, 0.0)
    finest = PANEL_WIDTH[below.dtype] / (1 + NARROWING * math.log2(below.shape[1]))
    edges = torch.cat([deep[:, :-1], equal_parts(u, density, finest, PANELS)], 1)
    if noise.kinks:
        kinks = torch.cat([kink - below.masked_fill(out, 0.0) for kink in noise.kinks], 1)
        edges = torch.cat([edges, kinks.maximum(edges[:, :1]).minimum(high)], 1)
    return edges.sort(1)[0]


def _peaks(below: Tensor, out: Tensor, noise: Noise, u: Tensor) -> tuple[Tensor, Tensor]:
    """Where the integrand of each class is highest, and how wide it is there: (N, C)."""
    height: Tensor | float = 0.0
    some_classes = parts_of_row(below.shape[1], u.numel(), u)
    for some in some_classes:
        log_cdf, log_hazard = noise.log_cdf_and_log_hazard(below[:, some, None] + u[:, None, :])
        height = height + log_cdf.sum(1, keepdim=True)
    width = noise.shape.width
    found = []
    for some in some_classes:
        if len(some_classes) > 1:
            x = below[:, some, None] + u[:, None, :]
            log_hazard = noise.log_cdf_and_log_hazard(x)[1]
        found.append(peak_of(u[:, None, :], log_hazard + height, width))
    place, narrow = (torch.cat(each, 1)[:, :, 0] for each in zip(*found, strict=True))
    return place.masked_fill(out, 0.0), narrow.masked_fill(out, width)


def _depth(below: Tensor, out: Tensor) -> Tensor:
    """How far the lowest class that can win is below the highest (N, 1)."""
    return below.masked_fill(out, 0.0).amax(1, keepdim=True)


def _equally_spaced(depth: Tensor, span: Span) -> tuple[Tensor, Tensor]:
    """Nodes as far apart as they may be, and further apart for classes further down."""
    rest = (depth - depth.clamp(max=NEAR)) / span.pace
    near, far = span.nodes, FAR_NODES
    if is_eager_cpu(depth):
        near = min(4 * near, _most((span.high - span.low) / span.step))
        far = min(far, _most(rest / span.step))
    step = (span.high - span.low) / near
    # The classes further down share their nodes: a cubic leaves the even spacing smoothly, and
    # only where an even one would not reach, math (28).
    j = torch.arange(near + far + 1, dtype=depth.dtype, device=depth.device)
    after = (j - near).clamp(min=0.0)
    growth = (rest / step - far).clamp(min=0.0) / max(far, 1) ** 3
    u = span.high - step * (j + growth * after**3)
    return u, (step * (1 + 3 * growth * after**2)).log()


def _most(counts: Tensor) -> int:
    """The largest count, rounded up; NaN does not count."""
    return math.ceil(counts.nan_to_num(0.0).amax())


def _peak(below: Tensor, depth: Tensor, high: float) -> Tensor:
    """A place near the peak of a class at `depth`, math (8), slope and curvature there: (N, 3)."""
    # The peak lies above the middle between the class and the highest, since h(x) > -x.
    low = 0.01 - 0.5 * depth
    u = low + 0.5
    # The class itself is no rival of its own: what it adds is taken off again.
    columns = torch.cat([below, depth], 1)
    sign = torch.ones_like(columns[:1])
    sign[:, -1] = -1.0
    for look in range(LOOKS):
        own, x = u + depth, u + columns
        hazard = normal_distribution.log_cdf_and_log_hazard(x)[1].exp()
        first = (sign * hazard).sum(1, keepdim=True).clamp_min(1e-30)  # A, 0 without rivals
        second = (sign * hazard * (x + hazard)).sum(1, keepdim=True)  # -A'
        if look < LOOKS - 1:
            # Newton's step for log A = log own. As log A is concave, it comes back from above.
            step = (first / own).log() / (second / first + 1 / own)
            u = (u + step).clamp(max=high).maximum(low)
    return torch.cat([u, first - own, 1 + second], 1)
