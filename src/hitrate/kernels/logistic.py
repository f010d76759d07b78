"""Logistic noise, one program per row: docs/math.md (32), (39).

The tails of the sigmoid are exponential, so the best two rivals and a sum of exponentials tell
where the integrand is, and which rivals matter. Few rivals are looked at at every node. For many,
points stand (29), on segments that begin where a rival is: rivals may lie in groups far apart.
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.chebyshev import (
    POINT,
    POINTS,
    POWERS,
    TURNED,
    product,
    weights_of_segment,
)
from hitrate.kernels.parts.epilogue import ANY_NUMBER, ANYWHERE, WAVES, number_of
from hitrate.kernels.parts.integral import log1m
from hitrate.kernels.parts.row_io import (
    FARTHEST,
    LOWEST,
    conclude,
    finish_row,
    read,
    read_row,
    top_of,
)
from hitrate.kernels.per_row import gradient_of_segment

# Log of what may be left out.
DROP: tl.constexpr = tl.constexpr(16.0)
# A target further ahead than this has won, to float32.
WON: tl.constexpr = tl.constexpr(60.0)
# Where the integrand is flat for more than this, nodes may be further apart; how soon they are.
FLAT: tl.constexpr = tl.constexpr(32.0)
BEND: tl.constexpr = tl.constexpr(1.5)
# Steps of the search for the left end.
STEPS: tl.constexpr = tl.constexpr(8)
# Segments of many rivals: more than a row ever has, how wide they are, and their damping.
SEGMENTS: tl.constexpr = tl.constexpr(16)
WIDTH: tl.constexpr = tl.constexpr(7.6)
DAMPING: tl.constexpr = tl.constexpr(1.0)
# Where the best rival is further ahead all points count alike, and times that distance: what
# damping adds to the roundings of their weights would show.
BEHIND: tl.constexpr = tl.constexpr(-8.0)


@triton.jit
def log1p_of(e):
    """log(1 + e) for 0 <= e <= 1, with relative accuracy."""
    return tl.where(e < 0.02, e * (1.0 - e * (0.5 - e * (0.33333334 - 0.25 * e))), tl.log(1.0 + e))


@triton.jit
def log_sigmoid(x):
    """log of 1 / (1 + e^-x)."""
    return tl.minimum(x, 0.0) - log1p_of(tl.exp(-tl.abs(x)))


@triton.jit
def sigmoid(x):
    """1 / (1 + e^-x) with relative accuracy on both sides."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, e, 1.0) / (1.0 + e)


@triton.jit
def log_sigmoid_and_slope(x):
    """log F and its derivative 1 - F."""
    e = tl.exp(-tl.abs(x))
    return tl.minimum(x, 0.0) - log1p_of(e), tl.where(x < 0.0, 1.0, e) / (1.0 + e)


@triton.jit
def best_two(best, second, other, other_second):
    """The two highest of four, each two in order."""
    rest = tl.maximum(tl.minimum(best, other), tl.maximum(second, other_second))
    return tl.maximum(best, other), rest


@triton.jit
def scaled_margin(z, own, scale, margin, HAS_MARGIN: tl.constexpr):
    """(mu_y - mu_i) / sigma, clipped at the margin; far ahead of a class at -inf."""
    a = own - z
    if HAS_MARGIN:
        a = tl.minimum(a, margin)
    return tl.where(z == float("-inf"), FARTHEST, tl.maximum(a * scale, LOWEST))


@triton.jit
def survey(here, own, y, scale, margin, classes, HAS_MARGIN: tl.constexpr, BLOCK: tl.constexpr):
    """Two passes over a row: what `interval` and `segments_of` ask for.

    The best rival, margins of the best two, K of (32), how far behind the best the last one is, how
    many the margin clips; whether log p is undefined, and whether an infinity decides it.
    """
    column = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    second = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = tl.where(i == y, float("-inf"), read(here, i, classes, False))
        second = tl.maximum(second, tl.minimum(best, z))
        best = tl.maximum(best, z, propagate_nan=tl.PropagateNan.ALL)
    top, undefined, decided = top_of(best, own)
    _, after = tl.reduce((best, second), 0, best_two)
    settled = undefined | decided
    closest = tl.where(settled, 0.0, scaled_margin(top, own, scale, margin, HAS_MARGIN))
    next_one = tl.where(settled, FARTHEST, scaled_margin(after, own, scale, margin, HAS_MARGIN))

    weight = tl.zeros([BLOCK], tl.float32)
    lowest = tl.zeros([BLOCK], tl.float32)
    clipped = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = tl.where(i == y, float("-inf"), read(here, i, classes, False))
        plays = z != float("-inf")
        a = scaled_margin(z, own, scale, margin, HAS_MARGIN)
        weight += tl.where(plays, tl.exp(tl.minimum(next_one - a, 0.0)), 0.0)
        lowest = tl.maximum(lowest, tl.where(plays, top - z, 0.0))
        if HAS_MARGIN:
            clipped += tl.where(plays & (own - z >= margin), 1.0, 0.0)
    # The best one is in the sum with 1.
    others = tl.where(settled, 0.0, tl.maximum(tl.sum(weight, 0) - 1.0, 0.0))
    lowest = tl.where(settled, 0.0, tl.max(lowest, 0))
    return top, closest, next_one, others, lowest, tl.sum(clipped, 0), undefined, decided


@triton.jit
def ceiling(t, closest, next_one, others):
    """What the integrand's log cannot exceed (32), and the slope of that."""
    log_cdf, upper = log_sigmoid_and_slope(t)
    first, slope = log_sigmoid_and_slope(closest + t)
    rest, steep = log_sigmoid_and_slope(next_one + t)
    return 2.0 * log_cdf - t + first + others * rest, 2.0 * upper - 1.0 + slope + others * steep


@triton.jit
def interval(closest, next_one, others, classes, NODES: tl.constexpr):
    """Nodes, their distances, and how far behind the best rival others matter: (32), (39)."""
    closest = tl.minimum(closest, WON)
    next_one = tl.maximum(next_one, closest)
    one, rest = -closest, tl.log(tl.maximum(others, 1e-30)) - next_one
    log_sum = tl.maximum(one, rest) + log1p_of(tl.exp(-tl.abs(one - rest)))
    floor = -DROP - tl.abs(log_sum)
    right = DROP + tl.maximum(log_sum, 0.0)
    left = floor
    for _ in range(STEPS):
        # The ceiling is concave: Newton's steps from the left stay on the left.
        height, slope = ceiling(left, closest, next_one, others)
        left += tl.maximum(floor - height, 0.0) / tl.maximum(slope, 1e-3)
    # Behind the best rival alone: flat from where all others are beaten to where it is.
    edge = tl.maximum(rest, 0.0)
    longer = tl.maximum(one - edge - FLAT, 0.0)
    right -= longer
    left = tl.minimum(left, right - 1.0)
    step = (right - left) / (NODES - 1)
    t = left + step * tl.arange(0, NODES).to(tl.float32)
    beyond = sigmoid((t - edge - 0.5 * FLAT) / BEND)
    t += longer * beyond
    step *= 1.0 + longer / BEND * beyond * (1.0 - beyond)
    height, _ = ceiling(t, closest, next_one, others)
    reach = tl.max(height - t, 0) + tl.abs(log_sum) + tl.log(classes + 0.0) + DROP - closest
    return t, step, reach


@triton.jit
def segments_of(
    here,
    own,
    y,
    top,
    margin,
    classes,
    width,
    reach,
    HAS_MARGIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Where segments begin (16,), and how many there are: distances from the best rival."""
    column = tl.arange(0, BLOCK)
    order = tl.arange(0, SEGMENTS)
    begins = tl.zeros([SEGMENTS], tl.float32)
    count = tl.full((), 1, tl.int32)
    end = width
    while (count < SEGMENTS) & (end <= reach):
        nearest = tl.full([BLOCK], float("inf"), tl.float32)
        for start in range(0, classes, BLOCK):
            i = start + column
            z = tl.where(i == y, float("-inf"), read(here, i, classes, False))
            beyond = top - z >= end
            if HAS_MARGIN:
                beyond = beyond & (own - z < margin)
            nearest = tl.minimum(nearest, tl.where(beyond, top - z, float("inf")))
        begin = tl.min(nearest, 0)
        begins = tl.where(order == count, begin, begins)
        count = tl.where(begin <= reach, count + 1, count)
        end = begin + width
    return begins, count


@triton.jit
def few_rivals(here, own, y, s, scale, margin, classes, HAS_MARGIN: tl.constexpr):
    """Classes s * 16 and on, their margins, and which of them are rivals that no margin clips."""
    i = s * POINTS + tl.arange(0, POINTS)
    z = read(here, i, classes, False)
    plays = (z != float("-inf")) & (i != y)
    if HAS_MARGIN:
        plays = plays & (own - z < margin)
    return i, scaled_margin(z, own, scale, margin, HAS_MARGIN), plays


@triton.jit
def points_of(begins, s, closest, scale, points):
    """Where segment s begins, and the margins of its points."""
    begin = tl.max(tl.where(tl.arange(0, SEGMENTS) == s, begins, 0.0), 0)
    return begin, closest + begin * scale + (0.5 * WIDTH) * (1.0 + points)


@triton.jit
def sums_at_nodes(a, w, t, LEARNED: tl.constexpr):
    """Sums over places with margins a and weights w: of log F, of its slopes, of those times a."""
    log_cdf, slope = log_sigmoid_and_slope(a[:, None] + t[None, :])
    slope = w[:, None] * slope
    turns = tl.zeros_like(t)
    if LEARNED:
        turns = tl.sum(a[:, None] * slope, 0)
    return tl.sum(w[:, None] * log_cdf, 0), tl.sum(slope, 0), turns


@triton.jit
def log_p_and_weights(t, step, height, slopes):
    """log p, and the nodes' shares in slopes, from sums of log F and its slopes over rivals."""
    log_cdf, upper = log_sigmoid_and_slope(t)
    level = 2.0 * log_cdf - t + height
    peak = tl.max(level, 0)
    weights = tl.exp(level - peak) * step
    # By parts: 1 - p = int F(t) d(prod F), a sum of positive terms.
    missed = tl.sum((1.0 - upper) * tl.exp(height) * slopes * step, 0)
    missed = tl.maximum(missed, 0.0)
    total = tl.sum(weights, 0)
    likely = missed < 0.5
    log_p = tl.where(likely, log1m(tl.minimum(missed, 0.5)), tl.log(total) + peak)
    return log_p, weights * tl.where(likely, tl.exp(peak - log_p), 1.0 / total)


@triton.jit
def slope_at(a, t, weights):
    """The slope of log p in margins a, from the nodes' shares."""
    return tl.sum(weights[None, :] * sigmoid(-a[:, None] - t[None, :]), 1)


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
    FEW: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    NODES: tl.constexpr,
):
    """Loss and gradient of one row."""
    margin = number_of(margin_at, margin, MOVING & 1)
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * classes
    out = gradient + row * classes
    own, y, part, scale, astray = read_row(
        logits, target, sigma, weight, row, classes, noise, ignore_index, SIGMAS, WEIGHTS
    )
    top, closest, next_one, others, lowest, clipped, undefined, decided = survey(
        here, own, y, scale, margin, classes, HAS_MARGIN, BLOCK
    )
    t, step, reach = interval(closest, next_one, others, classes, NODES)

    cosines = table + WAVES
    points = tl.load(cosines + POINT + tl.arange(0, POINTS))
    width = WIDTH / scale
    slant = 2.0 / width
    damping = tl.minimum(0.3 * tl.log(classes + 0.0), DAMPING)
    damping *= tl.where(closest < BEHIND, 0.5, 1.0)
    groups = tl.cdiv(classes, POINTS)
    begins = tl.zeros([SEGMENTS], tl.float32)
    if not FEW:
        reach = tl.minimum(reach / scale, lowest)
        begins, groups = segments_of(
            here, own, y, top, margin, classes, width, reach, HAS_MARGIN, BLOCK
        )
    height = tl.zeros_like(t)
    free = tl.zeros_like(t)
    turns = tl.zeros_like(t)
    for s in range(groups):
        if FEW:
            _, a, plays = few_rivals(here, own, y, s, scale, margin, classes, HAS_MARGIN)
            w = tl.where(plays, 1.0, 0.0)
        else:
            begin, a = points_of(begins, s, closest, scale, points)
            w = weights_of_segment(
                here,
                top,
                own,
                y,
                margin,
                classes,
                cosines,
                points,
                slant,
                -begin * slant - 1.0,
                begin,
                begin + width,
                damping,
                HAS_MARGIN,
                EVEN,
                BLOCK,
            )
        higher, steeper, turning = sums_at_nodes(a, w, t, LEARNED)
        height += higher
        free += steeper
        turns += turning
    slopes = free
    if HAS_MARGIN:
        # Those that the margin clips share one place, and have no slope in their logits.
        rim = tl.zeros([1], tl.float32) + margin * scale
        higher, steeper, turning = sums_at_nodes(rim, 0.0 * rim + clipped, t, LEARNED)
        height += higher
        slopes += steeper
        turns += turning
    log_p, weights = log_p_and_weights(t, step, height, slopes)
    value, factor = conclude(
        log_p, own, scale, part, undefined | astray, decided, link_a, link_b, LINK
    )
    if GRADIENT:
        pull = tl.sum(weights * free, 0)
        for s in range(groups):
            if FEW:
                i, a, plays = few_rivals(here, own, y, s, scale, margin, classes, HAS_MARGIN)
                slope = tl.where(plays, slope_at(a, t, weights), 0.0)
                found = factor * tl.where(i == y, -pull, slope)
                # A row without part in the loss, or decided, has no gradient.
                found = tl.where(factor == 0.0, 0.0, found)
                tl.store(out + i, found.to(gradient.dtype.element_ty), mask=i < classes)
            else:
                begin, a = points_of(begins, s, closest, scale, points)
                coefficients = product(cosines + TURNED, slope_at(a, t, weights))
                gradient_of_segment(
                    here,
                    out,
                    top,
                    own,
                    y,
                    margin,
                    classes,
                    product(cosines + POWERS, coefficients),
                    s,
                    slant,
                    -begin * slant - 1.0,
                    begin,
                    begin + width,
                    factor,
                    pull,
                    HAS_MARGIN,
                    EVEN,
                    BLOCK,
                )
    turning = tl.sum(weights * turns, 0)
    finish_row(loss, work, table, row, value, part, turning, factor, LEARNED, REDUCTION)
