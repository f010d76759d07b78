"""Many classes: a row's rivals are replaced by a few that stand for all, docs/math.md (29) to (31).

The rivals enter the integral only through sums of a smooth function of their margins, so they may
be moved to the Chebyshev points of a few segments, with weights that keep such sums for
polynomials on each segment. What is left is a row with a few dozen rivals. The slope is one smooth
function of the margin; known at the points, it is a polynomial on each segment.

Three kernels: `compress` streams the logits and finds the weights, `integrate_few` does the
integral, `expand` streams the logits once more and writes the gradient.
"""

import triton
import triton.language as tl

from hitrate.kernels.integral import integrate, interval

FARTHEST: tl.constexpr = tl.constexpr(5e3)
LOWEST: tl.constexpr = tl.constexpr(-1e15)
# Points per segment, and segments.
POINTS: tl.constexpr = tl.constexpr(14)
SEGMENTS: tl.constexpr = tl.constexpr(9)
# Room for the weights of a row.
ROOM: tl.constexpr = tl.constexpr(128)
# Segments at most this wide where log Phi bends; behind, they double, as its smoothness does.
FINE: tl.constexpr = tl.constexpr(6)
WIDTH: tl.constexpr = tl.constexpr(4.0)
# A rival this far below the target's noisy score adds nothing.
BEATEN: tl.constexpr = tl.constexpr(7.0)
# What is kept of a row beside its weights.
FACTS: tl.constexpr = tl.constexpr(7)


@triton.jit
def segment_ends(s, reach, closest):
    """Left and right end of segment s, counted from the farthest margin that matters."""
    # Ahead, the slope falls by exp(-closest / 2) per unit.
    widest = tl.minimum(WIDTH, 20.0 / tl.maximum(closest, 1.0))
    # A little more than equal parts, so that the last part surely ends to the left of 0.
    width = tl.minimum(widest, 1.0001 * reach / tl.ceil(reach / widest))
    power = tl.exp2(tl.maximum(s - FINE, 0).to(tl.float32))
    right = reach - width * (tl.minimum(s, FINE).to(tl.float32) + 2.0 * (power - 1.0))
    left = right - tl.where(s < FINE, width, 2.0 * width * power)
    left = tl.where(s == SEGMENTS - 1, tl.minimum(left, 0.0), left)
    # The closest margin is at 0: nothing lies to its left.
    return tl.where(left < 0.0, tl.minimum(0.0, right - 0.25 * width), left), right


@triton.jit
def scaled_margin(z, own, scale, margin, HAS_MARGIN: tl.constexpr):
    """(mu_y - mu_i) / sigma, clipped."""
    distance = own - z
    if HAS_MARGIN:
        # A class at -inf is no rival, and the margin does not make it one.
        distance = tl.where(z == float("-inf"), FARTHEST / scale, tl.minimum(distance, margin))
    return tl.minimum(tl.maximum(distance * scale, LOWEST), FARTHEST)


@triton.jit
def compress(
    logits,
    target,
    sigma,
    cosines,
    weights,
    facts,
    classes,
    stride_row,
    stride_class,
    stride_sigma,
    margin,
    log_classes,
    HAS_MARGIN: tl.constexpr,
    BLOCK: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """Weights of the Chebyshev points that stand for a row's rivals."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    here = logits + row * stride_row
    y = tl.load(target + row)
    own = tl.load(here + y * stride_class).to(tl.float32)
    scale = 1.0 / tl.load(sigma + row * stride_sigma).to(tl.float32)

    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = tl.load(here + i.to(tl.int64) * stride_class, mask=i < classes, other=float("-inf"))
        z = tl.where(i == y, float("-inf"), z.to(tl.float32))
        # Unlike maximum, keeps a NaN.
        best = tl.where((best > z) | (best != best), best, z)
    wrong = tl.max((best != best).to(tl.int32), 0) > 0
    top = tl.max(tl.where(best == best, best, float("-inf")), 0)
    undefined = wrong | (top == float("inf")) | (own == float("inf")) | (own != own)
    undefined = undefined | ((own == float("-inf")) & (top == float("-inf")))
    # A target at -inf cannot win; without a rival above -inf it has won.
    decided = (own == float("-inf")) | (top == float("-inf"))
    closest = scaled_margin(top, own, scale, margin, HAS_MARGIN)
    closest = tl.where(undefined | decided, 0.0, closest)

    # How many are within 2 of the closest, and how many the margin clips.
    near = tl.zeros([BLOCK], tl.float32)
    clipped = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = tl.load(here + i.to(tl.int64) * stride_class, mask=i < classes, other=float("-inf"))
        z = tl.where(i == y, float("-inf"), z.to(tl.float32))
        near += tl.where((own - z) * scale < closest + 2.0, 1.0, 0.0)
        if HAS_MARGIN:
            # Padding and the target are at -inf here.
            clipped += tl.where((own - z >= margin) & (z != float("-inf")), 1.0, 0.0)

    # These alone bound the interval from the left, and so the margins that matter.
    lane = tl.arange(0, 16)
    few = closest + tl.where(lane == 0, 0.0, 2.0)
    others = tl.maximum(tl.sum(near, 0) - 1.0, 0.0)
    count = tl.where(lane == 0, 1.0, tl.where(lane == 1, others, 0.0))
    at = tl.zeros([1], tl.float32) + closest
    left, _, _, _, _, _, _ = interval(few[None, :], count[None, :], at, log_classes, SEARCH)
    reach = tl.maximum(BEATEN - (tl.max(left, 0) + closest), 0.5)

    point = tl.arange(0, 16)
    s = tl.full((), 0, tl.int32)
    remaining = reach
    while (s < SEGMENTS) & (remaining > 0.0):
        left_end, right_end = segment_ends(s, reach, closest)
        slant = 2.0 / (right_end - left_end)
        # Beyond its ends a segment has nothing, but the last one takes all that is left.
        low = tl.where(s == SEGMENTS - 1, -1e30, left_end)
        # Sums of T_0 ... T_7, and of the products of T_7 with T_1 ... T_6.
        m0 = tl.zeros([BLOCK], tl.float32)
        m1 = tl.zeros([BLOCK], tl.float32)
        m2 = tl.zeros([BLOCK], tl.float32)
        m3 = tl.zeros([BLOCK], tl.float32)
        m4 = tl.zeros([BLOCK], tl.float32)
        m5 = tl.zeros([BLOCK], tl.float32)
        m6 = tl.zeros([BLOCK], tl.float32)
        m7 = tl.zeros([BLOCK], tl.float32)
        p1 = tl.zeros([BLOCK], tl.float32)
        p2 = tl.zeros([BLOCK], tl.float32)
        p3 = tl.zeros([BLOCK], tl.float32)
        p4 = tl.zeros([BLOCK], tl.float32)
        p5 = tl.zeros([BLOCK], tl.float32)
        p6 = tl.zeros([BLOCK], tl.float32)
        for start in range(0, classes, BLOCK):
            i = start + column
            z = tl.load(here + i.to(tl.int64) * stride_class, mask=i < classes, other=float("-inf"))
            z = z.to(tl.float32)
            a = scaled_margin(z, own, scale, margin, HAS_MARGIN) - closest
            inside = (a < right_end) & (a >= low) & (i != y) & (i < classes)
            if HAS_MARGIN:
                # The clipped ones share one place, and need no points to stand for them.
                inside = inside & (own - z < margin)
            t0 = tl.where(inside, 1.0, 0.0)
            t1 = tl.where(inside, (a - left_end) * slant - 1.0, 0.0)
            double = 2.0 * t1
            t2 = double * t1 - t0
            t3 = double * t2 - t1
            t4 = double * t3 - t2
            t5 = double * t4 - t3
            t6 = double * t5 - t4
            t7 = double * t6 - t5
            m0 += t0
            m1 += t1
            m2 += t2
            m3 += t3
            m4 += t4
            m5 += t5
            m6 += t6
            m7 += t7
            p1 += t7 * t1
            p2 += t7 * t2
            p3 += t7 * t3
            p4 += t7 * t4
            p5 += t7 * t5
            p6 += t7 * t6
        s0 = tl.sum(m0, 0)
        s1 = tl.sum(m1, 0)
        s2 = tl.sum(m2, 0)
        s3 = tl.sum(m3, 0)
        s4 = tl.sum(m4, 0)
        s5 = tl.sum(m5, 0)
        s6 = tl.sum(m6, 0)
        s7 = tl.sum(m7, 0)
        # 2 T_7 T_k = T_(7+k) + T_(7-k).
        found = tl.load(cosines + point) * s0
        found += tl.load(cosines + 16 + point) * s1
        found += tl.load(cosines + 32 + point) * s2
        found += tl.load(cosines + 48 + point) * s3
        found += tl.load(cosines + 64 + point) * s4
        found += tl.load(cosines + 80 + point) * s5
        found += tl.load(cosines + 96 + point) * s6
        found += tl.load(cosines + 112 + point) * s7
        found += tl.load(cosines + 128 + point) * (2.0 * tl.sum(p1, 0) - s6)
        found += tl.load(cosines + 144 + point) * (2.0 * tl.sum(p2, 0) - s5)
        found += tl.load(cosines + 160 + point) * (2.0 * tl.sum(p3, 0) - s4)
        found += tl.load(cosines + 176 + point) * (2.0 * tl.sum(p4, 0) - s3)
        found += tl.load(cosines + 192 + point) * (2.0 * tl.sum(p5, 0) - s2)
        found += tl.load(cosines + 208 + point) * (2.0 * tl.sum(p6, 0) - s1)
        tl.store(weights + row * ROOM + s * POINTS + point, found, mask=point < POINTS)
        remaining = left_end
        s += 1

    factor = tl.where(undefined, float("nan"), tl.where(decided, 0.0, -scale))
    value = tl.where(own == float("-inf"), float("-inf"), 0.0)
    tl.store(facts + row * FACTS + 0, closest)
    tl.store(facts + row * FACTS + 1, reach)
    tl.store(facts + row * FACTS + 2, factor)
    tl.store(facts + row * FACTS + 3, tl.where(decided, value, float("nan")))
    tl.store(facts + row * FACTS + 4, s.to(tl.float32))
    tl.store(facts + row * FACTS + 5, tl.sum(clipped, 0))
    tl.store(facts + row * FACTS + 6, tl.minimum(margin * scale, FARTHEST))


@triton.jit
def few_of_row(
    weights,
    cosines,
    row,
    closest,
    reach,
    segments,
    clipped,
    rim,
    log_classes,
    P: tl.constexpr,
    NODES: tl.constexpr,
    GROUP: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """log p and the sums for a row's other gradients; overwrites weights by coefficients."""
    lane = tl.arange(0, P)
    s = lane // POINTS
    q = lane % POINTS
    used = s < segments
    weight = tl.load(weights + row * ROOM + lane, mask=used, other=0.0)
    left_end, right_end = segment_ends(s, reach, closest)
    place = left_end + 0.5 * (right_end - left_end) * (1.0 + tl.load(cosines + 256 + q))
    a = tl.where(used, place + closest, 1e4)
    # The last place is never used by a segment: it is for the rivals that the margin clips.
    last = lane == P - 1
    weight = tl.where(last, clipped, weight)
    a = tl.where(last, tl.where(clipped > 0.0, rim, 1e4), a)
    at = tl.zeros([1], tl.float32) + closest
    log_p, slope, _ = integrate(a[None, :], weight[None, :], at, log_classes, NODES, GROUP, SEARCH)
    slope = tl.where(used | last, tl.max(slope, 0), 0.0)
    turning = tl.sum(tl.where(weight != 0.0, weight * slope * a, 0.0), 0)
    pull = tl.sum(tl.where(used, weight * slope, 0.0), 0)
    # The slope's Chebyshev coefficients on each segment.
    waves = tl.load(cosines + q[None, :] * 16 + q[:, None])
    waves = tl.where(s[None, :] == s[:, None], waves, 0.0)
    coefficient = tl.sum(waves * slope[:, None], 0)
    tl.debug_barrier()
    tl.store(weights + row * ROOM + lane, coefficient, mask=used)
    return tl.max(log_p, 0), pull, turning


@triton.jit
def integrate_few(
    weights,
    cosines,
    facts,
    log_p,
    to_sigma,
    log_classes,
    NODES: tl.constexpr,
    GROUP: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """log p of rows that are a few weights each."""
    row = tl.program_id(0).to(tl.int64)
    closest = tl.load(facts + row * FACTS + 0)
    reach = tl.load(facts + row * FACTS + 1)
    factor = tl.load(facts + row * FACTS + 2)
    decided = tl.load(facts + row * FACTS + 3)
    segments = tl.load(facts + row * FACTS + 4).to(tl.int32)
    clipped = tl.load(facts + row * FACTS + 5)
    rim = tl.load(facts + row * FACTS + 6)
    if segments <= 2:
        value, pull, turning = few_of_row(
            weights,
            cosines,
            row,
            closest,
            reach,
            segments,
            clipped,
            rim,
            log_classes,
            32,
            NODES,
            GROUP,
            SEARCH,
        )
    else:
        if segments <= 4:
            value, pull, turning = few_of_row(
                weights,
                cosines,
                row,
                closest,
                reach,
                segments,
                clipped,
                rim,
                log_classes,
                64,
                NODES,
                GROUP,
                SEARCH,
            )
        else:
            value, pull, turning = few_of_row(
                weights,
                cosines,
                row,
                closest,
                reach,
                segments,
                clipped,
                rim,
                log_classes,
                128,
                NODES,
                GROUP,
                SEARCH,
            )
    value = tl.where(decided == decided, decided, value)
    value = tl.where(factor != factor, float("nan"), value)
    tl.store(log_p + row, value)
    tl.store(to_sigma + row, factor * turning)
    tl.store(facts + row * FACTS + 3, pull)


@triton.jit
def slope_at(x, coefficients):
    """A segment's polynomial at x in [-1, 1], by Clenshaw's recurrence."""
    one = tl.zeros_like(x)
    two = tl.zeros_like(x)
    double = 2.0 * x
    for j in tl.static_range(POINTS - 1):
        c = tl.load(coefficients + (POINTS - 1 - j))
        one, two = double * one + (c - two), one
    return x * one + (tl.load(coefficients) - two)


@triton.jit
def expand(
    logits,
    target,
    sigma,
    facts,
    coefficients,
    upstream,
    gradient,
    classes,
    stride_row,
    stride_class,
    stride_sigma,
    stride_upstream,
    margin,
    HAS_MARGIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient in logits, times the row's upstream."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = logits + row * stride_row
    y = tl.load(target + row)
    own = tl.load(here + y * stride_class).to(tl.float32)
    scale = 1.0 / tl.load(sigma + row * stride_sigma).to(tl.float32)
    closest = tl.load(facts + row * FACTS + 0)
    reach = tl.load(facts + row * FACTS + 1)
    factor = tl.load(facts + row * FACTS + 2) * tl.load(upstream + row * stride_upstream)
    pull = tl.load(facts + row * FACTS + 3)
    segments = tl.load(facts + row * FACTS + 4).to(tl.int32)

    z = tl.load(here + i.to(tl.int64) * stride_class, mask=i < classes, other=0.0).to(tl.float32)
    a = scaled_margin(z, own, scale, margin, HAS_MARGIN) - closest
    slope = tl.zeros([BLOCK], tl.float32)
    for s in range(segments):
        left_end, right_end = segment_ends(s, reach, closest)
        slant = 2.0 / (right_end - left_end)
        low = tl.where(s == SEGMENTS - 1, -1e30, left_end)
        here_too = coefficients + row * ROOM + s * POINTS
        inside = (a < right_end) & (a >= low)
        x = tl.where(inside, (a - left_end) * slant - 1.0, 0.0)
        slope = tl.where(inside, slope_at(x, here_too), slope)
    if HAS_MARGIN:
        slope = tl.where(own - z < margin, slope, 0.0)
    slope = tl.where(i == y, -pull, slope)
    # A decided row has no gradient, although its pull is not a number.
    slope = tl.where(factor == 0.0, 0.0, factor * slope)
    out = gradient + row * classes + i
    tl.store(out, slope.to(gradient.dtype.element_ty), mask=i < classes)
