"""Logistic noise: every rival at every node, one program per row, docs/math.md (32).

The sigmoid's tails are exponential, so the interval that holds the integrand is known from the
closest margin alone, and there is nothing to search for.
"""

import triton
import triton.language as tl

from hitrate.kernels.epilogue import ANY_NUMBER, ANYWHERE, number_of
from hitrate.kernels.integral import log1m
from hitrate.kernels.link_code import one_minus_exp
from hitrate.kernels.row_io import LOWEST, conclude, finish_row, read, read_row, top_of

# Nodes, enough while the target is less than about forty sigma behind.
NODES: tl.constexpr = tl.constexpr(128)
# Log of what may be left outside the interval.
DROP: tl.constexpr = tl.constexpr(18.0)
# A target further ahead than this has won, to float32.
WON: tl.constexpr = tl.constexpr(60.0)


@triton.jit
def log1p_of_exp(x):
    """log(1 + e^x) for x <= 0, with relative accuracy."""
    e = tl.exp(x)
    return tl.where(e < 0.02, e * (1.0 - e * (0.5 - e * (0.33333334 - 0.25 * e))), tl.log(1.0 + e))


@triton.jit
def log_sigmoid(x):
    """log of 1 / (1 + e^-x)."""
    return tl.minimum(x, 0.0) - log1p_of_exp(-tl.abs(x))


@triton.jit
def sigmoid(x):
    """1 / (1 + e^-x) with relative accuracy on both sides."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, e, 1.0) / (1.0 + e)


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def logistic_kernel(
    logits,
    target,
    sigma,
    weight,
    margin_at,
    a_at,
    b_at,
    loss,
    gradient,
    work,
    table,
    classes,
    noise,
    margin,
    ignore_index,
    link_a,
    link_b,
    SIGMAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    HAS_MARGIN: tl.constexpr,
    MOVING: tl.constexpr,
    LEARNED: tl.constexpr,
    GRADIENT: tl.constexpr,
    LINK: tl.constexpr,
    REDUCTION: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Loss and gradient of one row."""
    margin = number_of(margin_at, margin, MOVING & 1)
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * classes
    own, y, part, scale, astray = read_row(
        logits, target, sigma, weight, row, classes, noise, ignore_index, SIGMAS, WEIGHTS
    )
    column = tl.arange(0, WIDE)
    best = tl.full([WIDE], float("-inf"), tl.float32)
    for start in range(0, classes, WIDE):
        i = start + column
        z = tl.where(i == y, float("-inf"), read(here, i, classes, False))
        best = tl.maximum(best, z, propagate_nan=tl.PropagateNan.ALL)
    top, undefined, decided = top_of(best, own)
    undefined = undefined | astray
    distance = own - top
    if HAS_MARGIN:
        distance = tl.minimum(distance, margin)
    closest = tl.where(undefined | decided, 0.0, tl.maximum(distance * scale, LOWEST))

    log_classes = tl.log(classes + 0.0)
    behind = closest < 0.0
    left = tl.where(behind, -0.5 * (DROP + log_classes), -tl.minimum(closest, WON) - DROP)
    right = tl.where(behind, log_classes - closest, 0.0) + DROP
    step = (right - left) / (NODES - 1)
    t = left + step * tl.arange(0, NODES).to(tl.float32)
    column = tl.arange(0, BLOCK)
    height = tl.zeros([NODES], tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = tl.where(i == y, float("-inf"), read(here, i, classes, False))
        a = own - z
        if HAS_MARGIN:
            a = tl.minimum(a, margin)
        x = tl.maximum(a * scale, LOWEST)[:, None] + t[None, :]
        # A class at -inf is no rival, and the margin does not make it one.
        beaten = tl.where((z != float("-inf"))[:, None], log_sigmoid(x), 0.0)
        height += tl.sum(beaten, 0)
    density = -tl.abs(t) - 2.0 * log1p_of_exp(-tl.abs(t))
    level = density + height
    peak = tl.max(level, 0)
    weights = tl.exp(level - peak)
    total = tl.sum(weights, 0)
    # Where p is near 1, 1 - p is a sum of positive terms.
    missed = tl.sum(tl.exp(density) * one_minus_exp(height), 0) * step
    log_p = tl.where(
        missed < 0.5, log1m(tl.minimum(missed, 0.5)), tl.log(total) + peak + tl.log(step)
    )
    weights *= step * tl.exp(peak - log_p)
    value, factor = conclude(log_p, own, scale, part, undefined, decided, link_a, link_b, LINK)

    pulls = tl.zeros([BLOCK], tl.float32)
    turns = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = tl.where(i == y, float("-inf"), read(here, i, classes, False))
        a = own - z
        free = z != float("-inf")
        if HAS_MARGIN:
            free = free & (a < margin)
            a = tl.minimum(a, margin)
        a = tl.maximum(a * scale, LOWEST)
        slope = tl.sum(weights[None, :] * sigmoid(-a[:, None] - t[None, :]), 1)
        slope = tl.where(z != float("-inf"), slope, 0.0)
        turns += tl.where(slope != 0.0, slope * a, 0.0)
        slope = tl.where(free, slope, 0.0)
        pulls += slope
        if GRADIENT:
            found = tl.where(factor == 0.0, 0.0, factor * slope)
            out = gradient + row * classes + i
            tl.store(out, found.to(gradient.dtype.element_ty), mask=(i < classes) & (i != y))
    if GRADIENT:
        pull = tl.where(factor == 0.0, 0.0, -factor * tl.sum(pulls, 0))
        tl.store(gradient + row * classes + y, pull.to(gradient.dtype.element_ty))
    finish_row(loss, work, table, row, value, part, tl.sum(turns, 0), factor, LEARNED, REDUCTION)
