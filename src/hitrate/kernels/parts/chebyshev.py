"""Many classes: a row's rivals are replaced by a few that stand for all, docs/math.md (29) to (31).

The rivals enter the integral only through sums of a smooth function of their margins, so they may
be moved to the Chebyshev points of a few segments, with weights that keep such sums for
polynomials on each segment. What is left is a row with a few dozen rivals. The slope is one smooth
function of the margin; known at the points, it is a polynomial on each segment.
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.integral import (
    any_of,
    interval,
    log_p_and_slope,
    look,
    nodes_for,
    sums_over_nodes,
)
from hitrate.kernels.parts.row_io import FARTHEST, LOWEST, read, top_of

# Points per segment, and segments.
POINTS: tl.constexpr = tl.constexpr(16)
SEGMENTS: tl.constexpr = tl.constexpr(7)
# Where the table has what after T_j at the points, (j, q): the same turned (q, j), coefficients of
# powers in each T_j, (j, m), and the points.
TURNED: tl.constexpr = tl.constexpr(256)
POWERS: tl.constexpr = tl.constexpr(512)
POINT: tl.constexpr = tl.constexpr(768)
# Places for the points of a row.
PLACES: tl.constexpr = tl.constexpr(128)
# Segments at most this wide where log Phi bends; behind, they double, as its smoothness does.
FINE: tl.constexpr = tl.constexpr(4)
WIDTH: tl.constexpr = tl.constexpr(6.4)
# A row that fits may be one segment this wide.
ALONE: tl.constexpr = tl.constexpr(7.0)
# What is kept of a row beside its weights, and later its coefficients.
FACTS: tl.constexpr = tl.constexpr(7)


@triton.jit
def segment_ends(s, reach, closest):
    """Left and right end of segment s, counted from the farthest margin that matters."""
    # Ahead, the slope falls by exp(-closest / 2) per unit.
    widest = tl.minimum(tl.where(reach < ALONE, ALONE, WIDTH), 32.0 / tl.maximum(closest, 1.0))
    # A little more than equal parts, so that the last part surely ends to the left of 0.
    width = tl.minimum(widest, 1.0001 * reach / tl.ceil(reach / widest))
    power = tl.exp2(tl.maximum(s - FINE, 0).to(tl.float32))
    right = reach - width * (tl.minimum(s, FINE).to(tl.float32) + 2.0 * (power - 1.0))
    left = right - tl.where(s < FINE, width, 2.0 * width * power)
    left = tl.where(s == SEGMENTS - 1, tl.minimum(left, 0.0), left)
    # The closest margin is at 0: nothing lies to its left.
    return tl.where(left < 0.0, tl.minimum(0.0, right - 0.25 * width), left), right


@triton.jit
def map_of_segment(s, reach, closest, scale):
    """x = slant * below + shift maps logits, from the top down, to [-1, 1]; and where it does."""
    left_end, right_end = segment_ends(s, reach, closest)
    slant = 2.0 / (right_end - left_end)
    # Beyond its ends a segment has nothing, but the last one takes all that is left.
    near = tl.where(s == SEGMENTS - 1, -1e30, left_end / scale)
    return slant * scale, -left_end * slant - 1.0, near, right_end / scale


@triton.jit
def scaled_margin(z, own, scale, margin, HAS_MARGIN: tl.constexpr):
    """(mu_y - mu_i) / sigma, clipped."""
    distance = own - z
    if HAS_MARGIN:
        # A class at -inf is no rival, and the margin does not make it one.
        distance = tl.where(z == float("-inf"), FARTHEST / scale, tl.minimum(distance, margin))
    return tl.minimum(tl.maximum(distance * scale, LOWEST), FARTHEST)


@triton.jit
def product(matrix, vector):
    """Sum over i of matrix (i, k) times vector (i): (16,)."""
    i = tl.arange(0, POINTS)
    return tl.sum(tl.load(matrix + i[:, None] * POINTS + i[None, :]) * vector[:, None], 0)


@triton.jit
def reach_of(few, closest, classes):
    """How far behind the closest rival others matter, and where to look for the peak.

    The few rivals whose margins are given, (32,), bound the peak from the left, and so the margins
    that matter.
    """
    few = few[None, :]
    ones = tl.full(few.shape, 1.0, tl.float32)
    t = tl.zeros([1], tl.float32)
    step = tl.zeros([1], tl.float32)
    curvature = tl.zeros([1], tl.float32)
    leads = tl.zeros([1], tl.int32)
    for turn in range(4):
        # Newton's steps from the left stay on the left.
        t += step
        _, first, bend, _, _, _ = look(few, ones, t)
        leads = tl.where(turn == 0, (first < 0.4).to(tl.int32), leads)
        curvature = 1.0 + first * bend
        step = tl.maximum(first - t, 0.0) / curvature
    log_classes = tl.log(classes + 0.0)
    # Behind: C rivals so far add nothing even where the target's noise is least against them.
    spread = 1.0 + 1.0 / curvature
    behind = tl.sqrt(2.0 * (log_classes + 14.5) * spread) - (closest + t)
    # Ahead: slopes fall like exp(-a^2 / 4), and matter in proportion to the largest.
    lead = tl.maximum(closest, 0.0)
    ahead = tl.sqrt(lead * lead + 4.0 * (log_classes + 12.5)) - lead
    return tl.maximum(tl.max(tl.where(leads > 0, ahead, behind), 0), 0.5), tl.max(t, 0)


@triton.jit
def survey(
    here,
    own,
    y,
    scale,
    margin,
    classes,
    HAS_MARGIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """First pass over a row: its closest margin, how far others matter, what the margin clips.

    Also where to look for the peak, whether log p is undefined, and whether it is decided (by an
    infinity).
    """
    # Little is kept of each, so that many may be on their way at once.
    column = tl.arange(0, 4 * BLOCK)
    best = tl.full([4 * BLOCK], float("-inf"), tl.float32)
    clipped = tl.zeros([4 * BLOCK], tl.float32)
    for start in range(0, classes, 4 * BLOCK):
        i = start + column
        z = read(here, i, classes, False)
        z = tl.where(i == y, float("-inf"), z)
        best = tl.maximum(best, z, propagate_nan=tl.PropagateNan.ALL)
        if HAS_MARGIN:
            # Padding and the target are at -inf here.
            clipped += tl.where((own - z >= margin) & (z != float("-inf")), 1.0, 0.0)
    top, undefined, decided = top_of(best, own)
    closest = scaled_margin(top, own, scale, margin, HAS_MARGIN)
    closest = tl.where(undefined | decided, 0.0, closest)

    # Each lane's best is a rival of its own.
    best = tl.where(best == best, best, float("-inf"))
    best = tl.max(tl.reshape(best, (BLOCK // 8, 32)), 0)
    few = scaled_margin(best, own, scale, margin, HAS_MARGIN)
    few = tl.where(undefined | decided, FARTHEST, few)
    reach, start = reach_of(few, closest, classes)
    return top, closest, reach, start, tl.sum(clipped, 0), undefined, decided


@triton.jit
def weights_of_segment(
    here,
    top,
    own,
    y,
    margin,
    classes,
    cosines,
    points,
    slant,
    shift,
    near,
    far,
    damping,
    HAS_MARGIN: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Weights of the points of a segment (16,): another pass, for sums of Chebyshev polynomials.

    Rivals are damped by a factor that the points take back.
    """
    column = tl.arange(0, BLOCK)
    fading = -1.4426950408889634 * damping
    # Sums of T_0 ... T_8, and of the products of T_8 with T_1 ... T_7.
    m0 = tl.zeros([BLOCK], tl.float32)
    m1 = tl.zeros([BLOCK], tl.float32)
    m2 = tl.zeros([BLOCK], tl.float32)
    m3 = tl.zeros([BLOCK], tl.float32)
    m4 = tl.zeros([BLOCK], tl.float32)
    m5 = tl.zeros([BLOCK], tl.float32)
    m6 = tl.zeros([BLOCK], tl.float32)
    m7 = tl.zeros([BLOCK], tl.float32)
    m8 = tl.zeros([BLOCK], tl.float32)
    p1 = tl.zeros([BLOCK], tl.float32)
    p2 = tl.zeros([BLOCK], tl.float32)
    p3 = tl.zeros([BLOCK], tl.float32)
    p4 = tl.zeros([BLOCK], tl.float32)
    p5 = tl.zeros([BLOCK], tl.float32)
    p6 = tl.zeros([BLOCK], tl.float32)
    p7 = tl.zeros([BLOCK], tl.float32)
    coming = read(here, column, classes, EVEN)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = tl.where(i == y, float("-inf"), coming)
        # Read while this block is worked on.
        coming = read(here, i + BLOCK, classes, False)
        below = top - z
        inside = (below < far) & (below >= near)
        if HAS_MARGIN:
            # The clipped ones share one place, and need no points to stand for them.
            inside = inside & (own - z < margin)
        x = tl.where(inside, below * slant + shift, 0.0)
        t0 = tl.where(inside, tl.exp2(fading * x), 0.0)
        t1 = x * t0
        double = 2.0 * x
        t2 = double * t1 - t0
        t3 = double * t2 - t1
        t4 = double * t3 - t2
        t5 = double * t4 - t3
        t6 = double * t5 - t4
        t7 = double * t6 - t5
        t8 = double * t7 - t6
        m0 += t0 * t0
        m1 += t0 * t1
        m2 += t0 * t2
        m3 += t0 * t3
        m4 += t0 * t4
        m5 += t0 * t5
        m6 += t0 * t6
        m7 += t0 * t7
        m8 += t0 * t8
        p1 += t8 * t1
        p2 += t8 * t2
        p3 += t8 * t3
        p4 += t8 * t4
        p5 += t8 * t5
        p6 += t8 * t6
        p7 += t8 * t7
    s1 = tl.sum(m1, 0)
    s2 = tl.sum(m2, 0)
    s3 = tl.sum(m3, 0)
    s4 = tl.sum(m4, 0)
    s5 = tl.sum(m5, 0)
    s6 = tl.sum(m6, 0)
    s7 = tl.sum(m7, 0)
    # 2 T_8 T_k = T_(8+k) + T_(8-k).
    j = tl.arange(0, POINTS)
    sums = tl.where(j == 0, tl.sum(m0, 0), tl.where(j == 8, tl.sum(m8, 0), 0.0))
    sums = tl.where(j == 1, s1, sums)
    sums = tl.where(j == 9, 2.0 * tl.sum(p1, 0) - s7, sums)
    sums = tl.where(j == 2, s2, sums)
    sums = tl.where(j == 10, 2.0 * tl.sum(p2, 0) - s6, sums)
    sums = tl.where(j == 3, s3, sums)
    sums = tl.where(j == 11, 2.0 * tl.sum(p3, 0) - s5, sums)
    sums = tl.where(j == 4, s4, sums)
    sums = tl.where(j == 12, 2.0 * tl.sum(p4, 0) - s4, sums)
    sums = tl.where(j == 5, s5, sums)
    sums = tl.where(j == 13, 2.0 * tl.sum(p5, 0) - s3, sums)
    sums = tl.where(j == 6, s6, sums)
    sums = tl.where(j == 14, 2.0 * tl.sum(p6, 0) - s2, sums)
    sums = tl.where(j == 7, s7, sums)
    sums = tl.where(j == 15, 2.0 * tl.sum(p7, 0) - s1, sums)
    found = product(cosines, sums)
    return found * tl.exp(2.0 * damping * points)


@triton.jit
def weights_of_row(
    here,
    top,
    own,
    y,
    scale,
    margin,
    classes,
    cosines,
    points,
    reach,
    closest,
    HAS_MARGIN: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """How many segments a row has, and the weights of their points (8, 16)."""
    segments = tl.full((), 0, tl.int32)
    remaining = reach
    while (segments < SEGMENTS) & (remaining > 0.0):
        remaining, _ = segment_ends(segments, reach, closest)
        segments += 1
    of = tl.arange(0, PLACES // POINTS)[:, None]
    weights = tl.zeros([PLACES // POINTS, POINTS], tl.float32)
    for s in range(segments):
        slant, shift, near, far = map_of_segment(s, reach, closest, scale)
        # In the first segments most rivals are far from winning: damped, their roundings do not
        # reach the points of those that are close.
        damping = tl.where(s <= 1, tl.minimum(0.3 * tl.log(classes + 0.0), 2.0), 0.0)
        found = weights_of_segment(
            here,
            top,
            own,
            y,
            margin,
            classes,
            cosines,
            points,
            slant,
            shift,
            near,
            far,
            damping,
            HAS_MARGIN,
            EVEN,
            BLOCK,
        )
        weights = tl.where((of == s) | (segments == 1), found[None, :], weights)
    return segments, weights


@triton.jit
def integrate_few(
    weights,
    points,
    reach,
    closest,
    start,
    clipped,
    rim,
    segments,
    classes,
    HAS_MARGIN: tl.constexpr,
    P: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """log p from the weights (8, 16) of which only P are used, the slope at their places (8, 16).

    Also the sums over all rivals of their slopes, and of slopes times margins.
    """
    blocks: tl.constexpr = P // POINTS
    group: tl.constexpr = PLACES // P
    # One segment alone is there twice or more, and each of its copies has nodes of its own; not
    # with a margin, whose clipped rivals need a place too.
    is_one = (segments > 1) | HAS_MARGIN
    lane = tl.arange(0, P)
    of = tl.where(is_one, lane // POINTS, 0)
    used = lane // POINTS < segments
    beginning = tl.arange(0, group)[:, None] == 0
    weight = tl.sum(tl.where(beginning, tl.reshape(weights, (group, P)), 0.0), 0)
    left_end, right_end = segment_ends(of, reach, closest)
    point = tl.reshape(tl.broadcast_to(points[None, :], (blocks, POINTS)), (P,))
    a = left_end + 0.5 * (right_end - left_end) * (1.0 + point) + closest
    a = tl.where(of < segments, a, 1e4)
    shared = tl.where(of < segments, weight, 0.0)
    weight = tl.where(used, weight, 0.0)
    if HAS_MARGIN:
        # The last place is never used by a segment: it is for the rivals that the margin clips.
        last = lane == P - 1
        weight = tl.where(last, clipped, weight)
        shared = weight
        a = tl.where(last, tl.where(clipped > 0.0, rim, 1e4), a)
    at = tl.zeros([1], tl.float32) + closest
    log_classes = tl.log(classes + 0.0)
    nodes = nodes_for(log_classes)
    left, right, middle, height, tilt, curvature, ahead, base, linear = interval(
        a[None, :], weight[None, :], at, at - closest + start, log_classes, SEARCH
    )
    step = (right - left) / (nodes - 1)
    further = tl.where(is_one, 0, group * tl.arange(0, blocks)).to(tl.float32)
    stride = tl.where(is_one, group, group * blocks)
    same = tl.zeros([blocks], tl.float32)
    total, missed, slope = sums_over_nodes(
        tl.reshape(a, (blocks, POINTS)),
        tl.reshape(shared, (blocks, POINTS)),
        tl.reshape(base, (blocks, POINTS)),
        tl.reshape(linear, (blocks, POINTS)),
        left + step * further,
        step + same,
        middle + same,
        height + same,
        tilt + same,
        any_of(ahead),
        tl.cdiv(nodes, stride),
        stride,
        is_one,
        True,
        group,
    )
    total = tl.where(is_one, tl.max(total, 0), tl.sum(total, 0))
    missed = tl.where(is_one, tl.max(missed, 0), tl.sum(missed, 0))
    slope = tl.where(is_one, slope, tl.sum(slope, 0)[None, :])
    log_p, slope = log_p_and_slope(
        a[None, :],
        total,
        missed,
        tl.reshape(slope, (1, P)),
        step,
        middle,
        height,
        tilt,
        curvature,
        ahead,
    )
    slope = tl.max(slope, 0)
    turning = tl.sum(tl.where(weight != 0.0, weight * slope * a, 0.0), 0)
    pull = tl.sum(tl.where(used, weight * slope, 0.0), 0)
    slopes = tl.reshape(tl.broadcast_to(slope[None, :], (group, P)), (PLACES // POINTS, POINTS))
    return tl.max(log_p, 0), slopes, pull, turning


@triton.jit
def log_p_of_weights(
    weights,
    points,
    reach,
    closest,
    start,
    clipped,
    rim,
    segments,
    classes,
    HAS_MARGIN: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """`integrate_few` with as few places as will do."""
    # With a margin the last place has to be free.
    if segments <= (1 if HAS_MARGIN else 2):
        log_p, slopes, pull, turning = integrate_few(
            weights,
            points,
            reach,
            closest,
            start,
            clipped,
            rim,
            segments,
            classes,
            HAS_MARGIN,
            32,
            SEARCH,
        )
    else:
        log_p, slopes, pull, turning = integrate_few(
            weights,
            points,
            reach,
            closest,
            start,
            clipped,
            rim,
            segments,
            classes,
            HAS_MARGIN,
            128,
            SEARCH,
        )
    return log_p, slopes, pull, turning


@triton.jit
def coefficients_of(slopes, cosines, s):
    """The Chebyshev coefficients (16,) of segment s, from the slopes at all points (8, 16)."""
    is_here = tl.arange(0, PLACES // POINTS)[:, None] == s
    return product(cosines + TURNED, tl.sum(tl.where(is_here, slopes, 0.0), 0))
