"""A row's classes as few places: Chebyshev points on segments of its logits, math (29), (30), (37).

Distances `below` are measured from the row's highest class, in sigmas.
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.row_io import FARTHEST, read

# Places that are worked on at once; the points of a segment.
POINTS: tl.constexpr = tl.constexpr(16)
# Segments at most this wide, down to where they end; two wide ones serve classes below that.
WIDTH: tl.constexpr = tl.constexpr(6.0)
EDGE: tl.constexpr = tl.constexpr(42.0)
SEGMENTS: tl.constexpr = tl.constexpr(9)
# Most that is damped from a segment's middle to its end, as a log.
DAMPED: tl.constexpr = tl.constexpr(4.0)
# Numbers of a place: where it is, its weight and two polynomials' coefficients (or a class's own
# part of its gradient).
PITCH: tl.constexpr = tl.constexpr(144)
KEPT: tl.constexpr = tl.constexpr(4 * 144)


@triton.jit
def survey(here, scale, classes, BLOCK: tl.constexpr):
    """The highest class and its logit; distances of the next and of the lowest; what is undefined.

    A class at -inf is out of the game, and has no distance.
    """
    column = tl.arange(0, BLOCK)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    at = tl.zeros([BLOCK], tl.int32)
    wrong = tl.zeros([BLOCK], tl.int32)
    for start in range(0, classes, BLOCK):
        z = read(here, start + column, classes, False)
        wrong = tl.where(z == z, wrong, 1)
        at = tl.where(z > best, start + column, at)
        best = tl.where(z > best, z, best)
    top = tl.max(best, 0)
    highest = tl.min(tl.where(best == top, at, classes), 0)
    undefined = (tl.max(wrong, 0) > 0) | (top == float("inf")) | (top == float("-inf"))
    nearest = tl.full([BLOCK], FARTHEST, tl.float32)
    lowest = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = read(here, i, classes, False)
        below = tl.minimum((top - z) * scale, FARTHEST)
        plays = (z != float("-inf")) & (i != highest)
        nearest = tl.minimum(nearest, tl.where(plays, below, FARTHEST))
        lowest = tl.maximum(lowest, tl.where(plays, below, 0.0))
    lowest = tl.where(undefined, 0.0, tl.max(lowest, 0))
    return top, highest, tl.minimum(tl.min(nearest, 0), lowest), lowest, undefined


@triton.jit
def segments_of(nearest, lowest):
    """How many segments a row has: even ones, and all."""
    edge = nearest + EDGE
    even = tl.ceil((tl.minimum(lowest, edge) - nearest) / WIDTH)
    even = tl.minimum(tl.maximum(even, 1.0), SEGMENTS - 2)
    return even, even.to(tl.int32) + tl.where(lowest > edge, 2, 0)


@triton.jit
def segment_edge(s, even, nearest, lowest):
    """Where segment s begins."""
    edge = nearest + EDGE
    width = tl.maximum((tl.minimum(lowest, edge) - nearest) / even, 1e-3)
    s = s + 0.0
    deep = tl.where(s > even + 1.0, lowest, tl.sqrt(lowest * edge))
    return tl.where(s > even, deep, nearest + width * s)


@triton.jit
def segment_of(s, even, segments, nearest, lowest):
    """A segment's middle and half its width, and the distances of the classes that it takes."""
    left = segment_edge(s, even, nearest, lowest)
    right = segment_edge(s + 1, even, nearest, lowest)
    takes_from = tl.where(s == 0, -1.0, left)
    takes_to = tl.where(s == segments - 1, 2.0 * FARTHEST, right)
    return 0.5 * (left + right), 0.5 * (right - left), takes_from, takes_to


@triton.jit
def waves_of(waves):
    """What makes coefficients of values and weights of sums, (29) and (30): (points, j)."""
    at = tl.arange(0, POINTS)[:, None] * POINTS + tl.arange(0, POINTS)[None, :]
    return tl.load(waves + at)


@triton.jit
def moments(x, f):
    """Sums over classes of f T_j(x), for all j."""
    double = 2.0 * x
    t0 = f
    t1 = x * f
    t2 = double * t1 - t0
    t3 = double * t2 - t1
    t4 = double * t3 - t2
    t5 = double * t4 - t3
    t6 = double * t5 - t4
    t7 = double * t6 - t5
    t8 = double * t7 - t6
    t9 = double * t8 - t7
    t10 = double * t9 - t8
    t11 = double * t10 - t9
    t12 = double * t11 - t10
    t13 = double * t12 - t11
    t14 = double * t13 - t12
    t15 = double * t14 - t13
    # All at once, so that threads meet once. Each join adds the next lower bit of j.
    even = tl.join(
        tl.join(tl.join(t0, t8), tl.join(t4, t12)), tl.join(tl.join(t2, t10), tl.join(t6, t14))
    )
    odd = tl.join(
        tl.join(tl.join(t1, t9), tl.join(t5, t13)), tl.join(tl.join(t3, t11), tl.join(t7, t15))
    )
    return tl.sum(tl.reshape(tl.join(even, odd), (x.shape[0], POINTS)), 0)


@triton.jit
def coefficients_of(values, waves):
    """Chebyshev coefficients of a function from its values at the points (30)."""
    return tl.sum(waves_of(waves) * values[:, None], 0)


@triton.jit
def weights_of(sums, waves):
    """Weights of the points from sums of Chebyshev polynomials (29)."""
    return tl.sum(waves_of(waves) * sums[None, :], 1)


@triton.jit
def polynomial(coefficients, x):
    """A sum of Chebyshev polynomials, by Clenshaw's recurrence."""
    now = tl.zeros_like(x) + tl.load(coefficients + POINTS - 1)
    before = tl.zeros_like(x)
    for k in range(2, POINTS):
        now, before = tl.load(coefficients + POINTS - k) + 2.0 * x * now - before, now
    return tl.load(coefficients) + x * now - before


@triton.jit
def three_polynomials(coefficients, x):
    """The same for three of them, whose coefficients lie PITCH apart."""
    double = 2.0 * x
    last = coefficients + POINTS - 1
    a = tl.zeros_like(x) + tl.load(last)
    b = tl.zeros_like(x) + tl.load(last + PITCH)
    c = tl.zeros_like(x) + tl.load(last + 2 * PITCH)
    a_before = tl.zeros_like(x)
    b_before = tl.zeros_like(x)
    c_before = tl.zeros_like(x)
    for k in range(2, POINTS):
        at = coefficients + POINTS - k
        a, a_before = tl.load(at) + double * a - a_before, a
        b, b_before = tl.load(at + PITCH) + double * b - b_before, b
        c, c_before = tl.load(at + 2 * PITCH) + double * c - c_before, c
    a = tl.load(coefficients) + x * a - a_before
    b = tl.load(coefficients + PITCH) + x * b - b_before
    return a, b, tl.load(coefficients + 2 * PITCH) + x * c - c_before


@triton.jit
def in_segment(here, i, top, scale, classes, middle, half, begin, end):
    """Logits of classes i, where they are on a segment from -1 to 1, and which are on it.

    Classes at -inf count as the lowest.
    """
    z = read(here, i, classes, False)
    below = tl.minimum((top - z) * scale, FARTHEST)
    inside = (below >= begin) & (below < end)
    x = tl.where(inside & (z != float("-inf")), (below - middle) / half, 0.0)
    return z, x, inside & (i < classes)


@triton.jit
def weigh_segments(
    here,
    kept,
    waves,
    top,
    highest,
    scale,
    classes,
    even,
    segments,
    nearest,
    lowest,
    BLOCK: tl.constexpr,
):
    """Keep where the points of all segments are, and their weights (29)."""
    lane = tl.arange(0, POINTS)
    point = tl.load(waves + POINTS * POINTS + lane)
    column = tl.arange(0, BLOCK)
    for s in range(segments):
        middle, half, begin, end = segment_of(s, even, segments, nearest, lowest)
        # The many further down must not round to more than the few that matter; points take the
        # damping back.
        damping = tl.minimum(1.5 * half, DAMPED)
        sums = tl.zeros([POINTS], tl.float32)
        for start in range(0, classes, BLOCK):
            i = start + column
            z, x, inside = in_segment(here, i, top, scale, classes, middle, half, begin, end)
            plays = inside & (z != float("-inf")) & (i != highest)
            sums += moments(x, tl.where(plays, tl.exp(-damping * x), 0.0))
        at = kept + s * POINTS + lane
        tl.store(at, middle + half * point)
        tl.store(at + PITCH, weights_of(sums, waves) * tl.exp(damping * point))


@triton.jit
def places_at(here, kept, i, count, top, highest, scale, classes, FEW: tl.constexpr):
    """Distances of places i, and their weights; 0 beyond the last."""
    if FEW:
        z = read(here, i, classes, False)
        below = tl.minimum((top - z) * scale, FARTHEST)
        plays = (z != float("-inf")) & (i != highest)
        below, weight = tl.where(plays, below, 0.0), tl.where(plays, 1.0, 0.0)
    else:
        below = tl.load(kept + i, mask=i < count, other=0.0)
        weight = tl.load(kept + PITCH + i, mask=i < count, other=0.0)
    return below, weight
