"""The integral of `hitrate.probability.methods.quadrature` as device functions, in float32.

    log p = log int phi(t) prod_i Phi(a_i + t)^(w_i) dt

for rows of margins a (R, P) with weights w (R, P): 1 for a rival, 0 for padding, and any number
for a margin that stands for many. Plain arithmetic only, so that the same code runs in Triton's
interpreter. The numbers in brackets are equations of docs/math.md.
"""

import triton
import triton.language as tl

LOG_SQRT_2PI: tl.constexpr = tl.constexpr(0.9189385332046727)
INV_SQRT_2PI: tl.constexpr = tl.constexpr(0.3989422804014327)
SQRT_2_OVER_PI: tl.constexpr = tl.constexpr(0.7978845608028654)
SQRT_HALF: tl.constexpr = tl.constexpr(0.7071067811865476)
# Log of what may be left outside an interval.
DROP: tl.constexpr = tl.constexpr(15.0)
# Rows whose sum of log Phi(a_i) exceeds log 0.75 integrate 1 - p.
AHEAD: tl.constexpr = tl.constexpr(-0.2876820724517809)
# Places of the peak beyond which Laplace's formula serves.
REMOTE: tl.constexpr = tl.constexpr(5e3)
TINY: tl.constexpr = tl.constexpr(1.1754944e-38)


@triton.jit
def erfcx(z):
    """exp(z^2) erfc(z) for z >= 0: a polynomial in 1 / (1 + 0.4 z), relative error 4e-7."""
    t = 1.0 / (1.0 + 0.4 * z)
    p = -0.02921544559
    p = p * t + 0.1404483997
    p = p * t - 0.2355309425
    p = p * t + 0.1375659124
    p = p * t - 0.04689852423
    p = p * t + 0.08391796707
    p = p * t + 0.1190078478
    p = p * t + 0.1717393617
    p = p * t + 0.2076137222
    p = p * t + 0.2256758604
    p = p * t + 0.2256758348
    return p * t


@triton.jit
def log1m(q):
    """log(1 - q) for 0 <= q <= 1/2: -q times a polynomial, relative error near rounding."""
    p = 1.44105088
    p = p * q - 1.69569782
    p = p * q + 1.25757698
    p = p * q - 0.203499659
    p = p * q + 0.269603538
    p = p * q + 0.242806252
    p = p * q + 0.333700541
    p = p * q + 0.499992854
    p = p * q + 1.0
    return -q * p


@triton.jit
def log_cdf_and_hazard(x):
    """log Phi and h = phi / Phi for any finite x; and log(erfcx / 2), log Phi + x^2 / 2 if x < 0.

    erfcx gives both tails: Phi itself behind, 1 - Phi ahead.
    """
    half = 0.5 * x * x
    scaled = erfcx(tl.abs(x) * SQRT_HALF)
    bell = tl.exp(-half)
    tail = tl.minimum(0.5 * scaled * bell, 0.5)
    behind = x < 0
    flat = tl.log(0.5 * scaled)
    log_cdf = tl.where(behind, flat - half, log1m(tail))
    over = tl.where(behind, SQRT_2_OVER_PI, bell * INV_SQRT_2PI)
    hazard = over / tl.where(behind, scaled, 1.0 - tail)
    return log_cdf, hazard, flat


@triton.jit
def look(a, w, t):
    """Sum of log Phi(a + t), its derivative A, and -(its second derivative) / A: each (R,).

    Also what they are made of, (R, P) each.
    """
    x = a + t[:, None]
    log_cdf, hazard, flat = log_cdf_and_hazard(x)
    # h (x + h) tends to 1, and x + h to 0 by cancellation, far behind.
    inverse = 1.0 / tl.maximum(x * x, 1.0)
    second = tl.where(x < -8.0, 1.0 - inverse + 6.0 * inverse * inverse, hazard * (x + hazard))
    height = tl.sum(w * log_cdf, 1)
    first = tl.maximum(tl.sum(w * hazard, 1), TINY)
    bend = tl.maximum(tl.sum(w * second, 1) / first, 1e-30)
    return height, first, bend, log_cdf, hazard, flat


@triton.jit
def any_of(truths):
    """Whether one is true."""
    return tl.max(truths.to(tl.int32), 0) > 0


@triton.jit
def nearer_the_peak(t, first, bend, ahead, low, high):
    """The search's next place."""
    sag = 1.0 - tl.exp(-0.7 * bend * bend)
    # Behind: log A(t + s) = log(t + s), with log A a parabola in s (8).
    behind = tl.where(ahead, 1.0, t)
    s = tl.zeros_like(t)
    for _ in range(2):
        gap = tl.log(first / (behind + s)) - s * (bend + 0.5 * sag * s)
        s = tl.maximum(s + gap / (bend + sag * s + 1.0 / (behind + s)), -0.9 * behind)
    step = t + s
    step = tl.where(step < high, step, 0.5 * (low + high))
    # Ahead: t = A - bend (10).
    newton = t + (first - bend - t) / (1.0 + sag + first * bend)
    return tl.where(ahead, newton, step)


@triton.jit
def interval(a, w, closest, start, log_classes, SEARCH: tl.constexpr):
    """Ends of the interval of t that holds all but exp(-DROP) of the integrand, (8) to (11).

    Also the integrand's log near its peak, whether the row is ahead, Laplace's formula, and each
    rival's log Phi near the peak and its slope, with another sign. The search begins at start
    where the row is behind.
    """
    t = tl.zeros_like(closest)
    height, first, bend = tl.zeros_like(t), tl.zeros_like(t), tl.zeros_like(t)
    low = tl.zeros_like(t)
    high = tl.full(t.shape, float("inf"), tl.float32)
    ahead = t > 0.0
    log_cdf, hazard, flat = tl.zeros_like(a), tl.zeros_like(a), tl.zeros_like(a)
    # The first look, at 0, tells whether a row is ahead.
    turns = -1
    while turns < SEARCH:
        height, first, bend, log_cdf, hazard, flat = look(a, w, t)
        if turns < 0:
            ahead = height > AHEAD
            t = tl.maximum(start, first / (1.0 + first * bend))
            # Further ahead no float32 is as small as 1 - p.
            t = tl.where(ahead, tl.where(closest < 26.0, -0.5 * closest, 0.0), t)
            turns += 1
        else:
            # Half a standard deviation from the peak is near enough.
            gap = first - t - tl.where(ahead, bend, 0.0)
            off = (gap * gap > 0.25 * (1.0 + first * bend)) & ((first > TINY) | (ahead == 0))
            turns = tl.where(any_of(off) & (turns < SEARCH - 1), turns + 1, SEARCH)
            if turns < SEARCH:
                low, high = tl.where(first > t, t, low), tl.where(first > t, high, t)
                t = nearer_the_peak(t, first, bend, ahead, low, high)

    # Behind (9).
    tilt = first - t
    curvature = 1.0 + first * bend
    right = tl.minimum(
        tl.sqrt(t * t - 2.0 * height + 2.0 * DROP),
        t + tilt + tl.sqrt(tilt * tilt + 2.0 * DROP),
    )
    left = t - (tl.sqrt(tilt * tilt + 2.0 * curvature * (DROP + 2.0)) - tilt) / curvature
    # Ahead (11).
    if any_of(ahead):
        level = DROP + log_classes + tl.log(1.0 + tl.abs(t))
        level = level + 0.5 * t * t - height - tl.log(first)
        radius = tl.sqrt(tl.maximum(level - LOG_SQRT_2PI - 0.25 * closest * closest, 1.0))
        middle = -0.5 * closest
        beyond = tl.sqrt(2.0 * level) - closest
        nearest = middle - radius
        # To the left of any place log prod Phi lies under its tangent parabola there: half way
        # down, where many rivals have begun to catch up, that parabola is steep.
        halfway = 0.5 * (t + nearest)
        lower, falling, bending, _, _, _ = look(a, w, halfway)
        needed = tl.maximum(lower + level + 2.0, 0.0)
        steep = falling * bending
        further = (tl.sqrt(falling * falling + 2.0 * steep * needed) - falling) / tl.maximum(
            steep, TINY
        )
        nearest = tl.maximum(nearest, halfway - further)
        left = tl.where(ahead, nearest, left)
        right = tl.where(ahead, tl.where(radius > -middle, beyond, middle + radius), right)
    # The integrand is measured from its value at t, the linear parts of all rivals together: far
    # behind, heights of thousands would leave no digits for their differences (31).
    x = a + t[:, None]
    far = x < -8.0
    inverse = 1.0 / tl.maximum(x * x, 1.0)
    excess = (1.0 - inverse * (2.0 - 10.0 * inverse)) / tl.where(far, x, 1.0)
    base = tl.where(far, flat, log_cdf)
    linear = tl.where(far, excess, -hazard)
    return left, right, t, height, tilt, curvature, ahead, base, linear


@triton.jit
def lower_tail(x):
    """Phi."""
    tail = 0.5 * erfcx(tl.abs(x) * SQRT_HALF) * tl.exp(-0.5 * x * x)
    return tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def sums_over_nodes(
    a,
    w,
    base,
    linear,
    left,
    step,
    middle,
    height,
    tilt,
    is_ahead,
    turns,
    stride,
    is_one,
    ONE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sums over nodes of the integrand (R,), of that of 1 - p (R,), and of slopes (R, P).

    GROUP nodes at a time, the next ones `stride` further. If ONE and `is_one`, all rows are parts
    of one, with the same nodes.
    """
    base, linear = base[:, None, :], linear[:, None, :]
    bow = tl.where(a + middle[:, None] < -8.0, 0.5, 0.0)[:, None, :]
    # Sums are taken for each place in a group, and put together at the end.
    within = tl.arange(0, GROUP)
    first = left[:, None] + step[:, None] * within.to(tl.float32)[None, :]  # (R, GROUP)
    totals = tl.zeros_like(first)
    misses = tl.zeros_like(first)
    slopes = tl.zeros_like(first[:, :, None] + a[:, None, :])  # (R, GROUP, P)
    for turn in range(turns):
        t = first + (step * (turn * stride))[:, None]
        x = a[:, None, :] + t[:, :, None]
        log_cdf, hazard, flat = log_cdf_and_hazard(x)
        # What was far behind at the middle is measured by log Phi + x^2 / 2, ahead or not.
        d = t - middle[:, None]
        e = d[:, :, None]
        flat = tl.where(x < 0.0, flat, log_cdf + 0.5 * x * x)
        bend = tl.where(bow > 0.0, flat, log_cdf) - base + e * (linear - bow * e)
        bent = tl.sum(w[:, None, :] * bend, 2)  # (R, GROUP)
        if ONE:
            bent = tl.where(is_one, tl.sum(bent, 0)[None, :], bent)
        weight = tl.exp(d * (tilt[:, None] - 0.5 * d) + bent)
        totals += weight
        slopes += hazard * weight[:, :, None]
        if is_ahead:
            # By parts: 1 - p = int Phi(t) d(prod Phi), a sum of positive terms.
            hazards = tl.sum(w[:, None, :] * hazard, 2)
            if ONE:
                hazards = tl.where(is_one, tl.sum(hazards, 0)[None, :], hazards)
            level = height[:, None] + (tilt + middle)[:, None] * d + bent
            misses += lower_tail(t) * tl.exp(tl.minimum(level, 0.0)) * hazards
    return tl.sum(totals, 1), tl.sum(misses, 1), tl.sum(slopes, 1)


@triton.jit
def log_p_and_slope(a, total, missed, slope, step, middle, height, tilt, curvature, ahead):
    """log p (R,) and its slope (R, P) in margins of weight one, from sums over nodes."""
    reference = height - 0.5 * middle * middle
    scale = reference + tl.log(step) - LOG_SQRT_2PI
    missed = tl.minimum(missed * step, 1.0)
    log_p = tl.where(
        ahead,
        tl.where(missed < 0.5, log1m(tl.minimum(missed, 0.5)), tl.log(1.0 - missed)),
        tl.log(total) + scale,
    )
    share = tl.where(ahead, tl.exp(tl.minimum(scale - log_p, 80.0)), 1.0 / total)
    slope *= share[:, None]
    peak = middle + tilt / curvature
    remote = peak > REMOTE
    if any_of(remote):
        laplace = reference + 0.5 * (tilt * tilt / curvature - tl.log(curvature))
        _, at_peak, _ = log_cdf_and_hazard(a + tl.where(remote, peak, 0.0)[:, None])
        slope = tl.where(remote[:, None], at_peak, slope)
        log_p = tl.where(remote, laplace, log_p)
    return log_p, slope


@triton.jit
def nodes_for(log_classes):
    """As many as bring the rule's error near float32's rounding."""
    return tl.maximum(4 * tl.ceil(3.0 + 0.9 * log_classes).to(tl.int32), 16)


@triton.jit
def integrate(a, w, closest, classes, GROUP: tl.constexpr, SEARCH: tl.constexpr):
    """log p (R,), and its slope (R, P) in margins of weight one."""
    log_classes = tl.log(classes + 0.0)
    nodes = nodes_for(log_classes)
    left, right, middle, height, tilt, curvature, ahead, base, linear = interval(
        a, w, closest, tl.zeros_like(closest), log_classes, SEARCH
    )
    step = (right - left) / (nodes - 1)
    total, missed, slope = sums_over_nodes(
        a,
        w,
        base,
        linear,
        left,
        step,
        middle,
        height,
        tilt,
        any_of(ahead),
        tl.cdiv(nodes, GROUP),
        GROUP,
        False,
        False,
        GROUP,
    )
    return log_p_and_slope(a, total, missed, slope, step, middle, height, tilt, curvature, ahead)
