"""Nodes that serve all classes of a row, and what happens at them: math (24) to (28).

Distances `below` are measured from the row's highest class, in sigmas.
"""

import triton
import triton.language as tl

from hitrate.kernels.logistic import log_sigmoid, sigmoid
from hitrate.kernels.parts.class_places import POINTS, places_at
from hitrate.kernels.parts.integral import LOG_SQRT_2PI, log1m, log_cdf_and_hazard

# Log of what may be left outside the nodes.
DROP: tl.constexpr = tl.constexpr(16.0)
# Down to classes this far below the highest the nodes are evenly spaced; at least so many are for
# those below.
NEAR: tl.constexpr = tl.constexpr(40.0)
FAR: tl.constexpr = tl.constexpr(32)
# Evaluations in the search for the lowest peak.
LOOKS: tl.constexpr = tl.constexpr(6)


@triton.jit
def log_cdf_of(x, LOGISTIC: tl.constexpr):
    """log F."""
    if LOGISTIC:
        found = log_sigmoid(x)
    else:
        found, _, _ = log_cdf_and_hazard(x)
    return found


@triton.jit
def log_hazard_of(x, LOGISTIC: tl.constexpr):
    """log h, h = f / F."""
    if LOGISTIC:
        found = log_sigmoid(-x)
    else:
        log_cdf, _, flat = log_cdf_and_hazard(x)
        found = -LOG_SQRT_2PI - tl.where(x < 0, flat, 0.5 * x * x + log_cdf)
    return found


@triton.jit
def hazard_of(x, LOGISTIC: tl.constexpr):
    """The hazard h itself."""
    if LOGISTIC:
        found = sigmoid(-x)
    else:
        _, found, _ = log_cdf_and_hazard(x)
    return found


@triton.jit
def span_of_nodes(
    here,
    kept,
    count,
    top,
    highest,
    scale,
    classes,
    lowest,
    LOGISTIC: tl.constexpr,
    FEW: tl.constexpr,
    PLACES: tl.constexpr,
):
    """From where to where nodes are evenly spaced, how closely at least, and how far beyond (28).

    The last is counted in the width of the peak there.
    """
    log_classes = tl.log(classes + 0.0)
    near = tl.minimum(lowest, NEAR)
    if LOGISTIC:
        high = log_classes + (DROP + 2.0)
        low = -near - ((classes + 1.0) * 0.6931471805599453 + DROP) / classes
        wanted = 0.6
        pace = 1.0
    else:
        high = tl.sqrt(2.0 * (log_classes + DROP))
        i = tl.arange(0, PLACES)
        below, weight = places_at(here, kept, i, count, top, highest, scale, classes, FEW)
        # The highest is a rival too. The class itself is not: what it adds is taken off again.
        below = tl.where(i == PLACES - 1, near, below)
        weight = tl.where(i == PLACES - 1, -1.0, tl.where(i == PLACES - 2, 1.0, weight))
        # The peak lies above the middle between the class and the highest, since h(x) > -x.
        least = 0.01 - 0.5 * near
        u = least + 0.5
        first = tl.zeros_like(u)
        second = tl.zeros_like(u)
        for look in range(LOOKS):
            x = below + u
            _, hazard, _ = log_cdf_and_hazard(x)
            # h (x + h) tends to 1, and x + h to 0 by cancellation, far behind.
            inverse = 1.0 / tl.maximum(x * x, 1.0)
            bend = tl.where(
                x < -8.0, 1.0 - inverse + 6.0 * inverse * inverse, hazard * (x + hazard)
            )
            first = tl.maximum(tl.sum(weight * hazard, 0), 1e-30)
            second = tl.maximum(tl.sum(weight * bend, 0), 0.0)
            # Newton's step for log A = log own. As log A is concave, it comes back from above.
            own = u + near
            step = tl.log(first / own) / (second / first + 1.0 / own)
            step = tl.where(look < LOOKS - 1, step, 0.0)
            u = tl.maximum(tl.minimum(u + step, high), least)
        tilt = first - (u + near)
        curvature = 1.0 + second
        # The bound to the left of (9); the derivatives have one more factor h, hence the 2.
        root = tl.sqrt(tilt * tilt + 2.0 * curvature * (DROP + 2.0))
        low = u - (root - tilt) / curvature
        wanted = 0.8 / tl.sqrt(curvature)
        pace = curvature
    return high, low, wanted, (lowest - near) / pace


@triton.jit
def nodes_of(j, count, high, low, wanted, rest):
    """Nodes j of u, of so many in all, and the logs of their distances (28)."""
    # Classes further down share nodes: a cubic leaves the even spacing smoothly.
    even = tl.minimum(tl.maximum(tl.ceil((high - low) / wanted), 16.0), count - 1.0 - FAR)
    even = tl.where(rest > 0.0, even, count - 1.0)
    step = (high - low) / even
    others = tl.maximum(count - 1.0 - even, 1.0)
    growth = tl.maximum(rest / step - others, 0.0) / (others * others * others)
    after = tl.maximum(j - even, 0.0)
    u = high - step * (j + growth * after * after * after)
    return u, tl.log(step * (1.0 + 3.0 * growth * after * after))


@triton.jit
def sums_at_nodes(
    here,
    kept,
    u,
    log_step,
    count,
    top,
    highest,
    scale,
    classes,
    LOGISTIC: tl.constexpr,
    FEW: tl.constexpr,
):
    """L of (24) with the logs of the nodes' distances; and H of (26), less the highest class."""
    lane = tl.arange(0, POINTS)
    level = log_cdf_of(u, LOGISTIC) + log_step
    others = tl.zeros_like(u)
    for s in range(0, tl.cdiv(count, POINTS)):
        i = lane + s * POINTS
        below, share = places_at(here, kept, i, count, top, highest, scale, classes, FEW)
        x = below[:, None] + u[None, :]
        level += tl.sum(share[:, None] * log_cdf_of(x, LOGISTIC), 0)
        others += tl.sum(share[:, None] * hazard_of(x, LOGISTIC), 0)
    return level, others


@triton.jit
def log_p_of_highest(u, level, others, v, level_more, others_more, LOGISTIC: tl.constexpr):
    """Its log p: what the others leave where that keeps more digits (27)."""
    terms = log_hazard_of(u, LOGISTIC) + level
    more = log_hazard_of(v, LOGISTIC) + level_more
    most = tl.maximum(tl.max(terms, 0), tl.max(more, 0))
    total = tl.sum(tl.exp(terms - most), 0) + tl.sum(tl.exp(more - most), 0)
    missed = tl.sum(tl.exp(level) * others, 0) + tl.sum(tl.exp(level_more) * others_more, 0)
    missed = tl.maximum(missed, 0.0)
    log_p = tl.log(total) + most
    return tl.minimum(tl.where(missed < 0.5, log1m(tl.minimum(missed, 0.5)), log_p), 0.0)


@triton.jit
def log_terms_of(below, u, level, LOGISTIC: tl.constexpr):
    """Logs of what nodes add to the p of places (24): (places, nodes)."""
    return log_hazard_of(below[:, None] + u[None, :], LOGISTIC) + level[None, :]
