"""Among the k highest, k <= 10, one program per row: docs/math.md (40) to (44), (56) to (58).

As `hitrate.probability.methods.top_k_by_moments` does, the hardest rivals are counted one by one,
and all others by power sums; but these are taken over all rivals at each node, which serves rivals
anywhere. What grows with margins, and may have no digits left in float32, is in float64.
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.counting import (
    HARDEST,
    LOGISTIC,
    NORMAL,
    count_hard,
    log_density,
    pick,
    polynomial,
    tails,
    tilted,
    untilted,
)
from hitrate.kernels.parts.crowd import count_crowd, crowd, hardest_rivals, scaled_margin
from hitrate.kernels.parts.epilogue import ANY_NUMBER, ANYWHERE, EACH, number_of
from hitrate.kernels.parts.integral import log1m
from hitrate.kernels.parts.link_code import one_minus_exp
from hitrate.kernels.parts.row_io import read_row

# Log of what may be left out, and how much more where nodes are looked for.
DROP: tl.constexpr = tl.constexpr(16.0)
SLACK: tl.constexpr = tl.constexpr(3.0)
# A look that leaves more than this of an interval is the last one.
ENOUGH: tl.constexpr = tl.constexpr(0.7)
# Most looks for the nodes of a row that is far behind.
LOOKS: tl.constexpr = tl.constexpr(24)
# Intervals that 128 nodes serve at once: for the noise whose density is the narrowest, and others.
NORMAL_WIDE: tl.constexpr = tl.constexpr(16.0)
WIDE: tl.constexpr = tl.constexpr(36.0)
# Sums of odds up to which their ninth power is a number.
CROWDED: tl.constexpr = tl.constexpr(1000.0)
# Leads from which on 1 - p is no number of float32.
NORMAL_WON: tl.constexpr = tl.constexpr(21.0)
WON: tl.constexpr = tl.constexpr(110.0)
# Of the hardest rivals, how many are left out one by one from what the others come to.
GROUP: tl.constexpr = tl.constexpr(4)
NO_CLASS: tl.constexpr = tl.constexpr(-(2**31))


@triton.jit
def interval(kth, classes, NOISE: tl.constexpr, K: tl.constexpr):
    """Ends of what holds the integrands of p, of 1 - p and of the slopes, docs/math.md after (44).

    In float64. `place` is where about K of all rivals are ahead, if all are level at 0.
    """
    log_classes = tl.log(classes + 0.0)
    log_k = tl.log(tl.full((), 1.0 * K, tl.float32))
    place = log_classes - log_k
    if NOISE == NORMAL:
        place = tl.sqrt(2.0 * place)
    ahead = kth > 0.0
    right = tl.maximum(place - kth, 0.0) + DROP + 1.0
    if NOISE == NORMAL:
        half = 0.5 * kth
        more = log_k + 0.5 * place * place
        left = -tl.where(
            ahead,
            tl.sqrt(kth * kth + 2.0 * DROP + 1.4 * K),
            half + tl.sqrt(half * half + more + DROP),
        )
        # All but one of the K may be far ahead.
        best = tl.sqrt(2.0 * log_classes)
        beyond = tl.maximum(best - kth, 0.0)
        share = (K - 1.0) / (K + 1.0)
        right = tl.where(
            kth > best + 1.0,
            tl.sqrt(share * half * half + log_classes + DROP) - half,
            tl.sqrt(beyond * beyond + 2.0 * DROP + 2.0),
        )
    elif NOISE == LOGISTIC:
        left = tl.where(ahead, -kth - DROP - 0.7 * K, -0.5 * (log_k + DROP) - 2.0)
    else:
        lowest = -tl.log(tl.full((), DROP + 4.0 + 2.3 * (K + 1.0), tl.float32))
        left = tl.maximum(-kth - tl.log(log_classes + DROP + 4.0), lowest)
        left = tl.where(ahead, lowest, left)
    return left, right


@triton.jit
def nodes_between(left, right, kth, classes, NOISE: tl.constexpr, NODES: tl.constexpr):
    """Even nodes (NODES,), their distance, and theta at each.

    Theta is the k-th closest rival's log odds, more for a great many, and no less than 0.
    """
    step = (right - left) / (NODES - 1)
    t = left + step * tl.arange(0, NODES)
    log_cdf, log_ahead, _hazard = tails(kth + t, NOISE)
    many = tl.maximum(tl.log(classes / CROWDED), 0.0)
    return t, step, tl.maximum(log_ahead - log_cdf + many, 0.0)


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def top_k_kernel(
    logits,
    target,
    sigma,
    margin_at,
    loss,
    gradient,
    work,
    classes,
    hardest,
    margin,
    HAS_MARGIN: tl.constexpr,
    MOVING: tl.constexpr,
    NOISE: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    NODES: tl.constexpr,
):
    """log p of one row, its gradient in logits, and that in sigma.

    `hardest` rivals are counted one by one.
    """
    margin = number_of(margin_at, margin, MOVING)
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * classes
    out = gradient + row * classes
    own, y, _, scale, astray = read_row(
        logits, target, sigma, logits, row, classes, 1.0, NO_CLASS, EACH, False
    )
    highest, who, last, last_class, wrong = hardest_rivals(here, y, hardest, classes, BLOCK)
    # A target at -inf cannot win, and has no finite margins.
    lost = own == float("-inf")
    own = tl.where(tl.abs(own) < float("inf"), own, 0.0)
    hard = scaled_margin(highest, own, scale, margin, HAS_MARGIN)
    kth = pick(hard, K - 1)
    undefined = wrong | astray | (lost & (tl.max(highest, 0) == float("-inf")))
    # Also where fewer than K rivals are left.
    won = kth > WON
    if NOISE == NORMAL:
        won = kth > NORMAL_WON
    settled = undefined | lost | won
    kth = tl.where(settled, 0.0, kth)
    # Without a crowd there is none to go through.
    end = tl.where(classes - 1 > hardest, classes, 0)

    left, right = interval(kth, classes, NOISE, K)
    wide = right - left > WIDE
    if NOISE == NORMAL:
        wide = right - left > NORMAL_WIDE
    turns = tl.where(wide & (kth < 0.0), 0, LOOKS)
    while turns < LOOKS:
        t, step, theta = nodes_between(left, right, kth, classes, NOISE, NODES)
        nobody, c1, c2, c3, c4, c5, c6, c7, c8, c9 = count_crowd(
            here,
            own,
            y,
            scale,
            margin,
            last,
            last_class,
            end,
            t,
            theta,
            HAS_MARGIN,
            NOISE,
            K,
            TILE,
            NODES,
        )
        c0 = tl.full([NODES], 1.0, tl.float32)
        b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, short = count_hard(
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
            c8,
            c9,
            hard,
            0,
            hardest,
            hardest,
            0,
            t,
            theta,
            NOISE,
        )
        fewer = untilted(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, theta, K)
        value = log_density(t, NOISE) + nobody + short + (K - 1) * theta + tl.log(fewer)
        there = value > tl.max(value, 0) - DROP - SLACK
        first = tl.maximum(tl.min(tl.where(there, t, right), 0) - step, left)
        final = tl.minimum(tl.max(tl.where(there, t, left), 0) + step, right)
        turns = tl.where(final - first > ENOUGH * (right - left), LOOKS, turns + 1)
        left, right = first, final

    t, step, theta = nodes_between(left, right, kth, classes, NOISE, NODES)
    nobody, c1, c2, c3, c4, c5, c6, c7, c8, c9 = count_crowd(
        here,
        own,
        y,
        scale,
        margin,
        last,
        last_class,
        end,
        t,
        theta,
        HAS_MARGIN,
        NOISE,
        K,
        TILE,
        NODES,
    )
    c0 = tl.full([NODES], 1.0, tl.float32)
    b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, short = count_hard(
        c0,
        c1,
        c2,
        c3,
        c4,
        c5,
        c6,
        c7,
        c8,
        c9,
        hard,
        0,
        hardest,
        hardest,
        0,
        t,
        theta,
        NOISE,
    )
    fewer = untilted(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, theta, K)
    log_fewer = tl.minimum(nobody + short + (K - 1) * theta + tl.log(fewer), 0.0)
    own_density = log_density(t, NOISE)
    value = own_density + log_fewer
    top = tl.max(value, 0)
    width = step.to(tl.float32)
    behind = top + tl.log(tl.sum(tl.exp((value - top).to(tl.float32)), 0) * width)
    # Ahead, nodes may end before f does; 1 - S is nothing there.
    beaten = one_minus_exp(log_fewer.to(tl.float32)) * tl.exp(own_density.to(tl.float32))
    missed = tl.sum(beaten, 0) * width
    log_p = tl.where((kth > 0.0) & (missed < 0.5), log1m(tl.minimum(missed, 0.5)), behind)
    # Each node's share in p, over what the B_j add up to.
    share = tl.exp((value - log_p).to(tl.float32)) * width / fewer
    # By parts (58), for 1 - p with all its digits: F(t) in the place of f(t).
    log_cdf, _log_ahead, _hazard = tails(t, NOISE)
    other = tl.exp((log_cdf + log_fewer).to(tl.float32)) * width / fewer

    # A row without a gradient writes zeros, an undefined one what is not a number.
    factor = tl.where(settled, 0.0, -scale)
    factor = tl.where(undefined, float("nan"), factor)
    pull = tl.zeros((), tl.float32)
    turning = tl.zeros((), tl.float64)
    density = tl.zeros([NODES], tl.float32)
    for start in range(0, classes, TILE):
        i = start + tl.arange(0, TILE)
        z, plays = crowd(here, i, y, last, last_class, classes)
        a = scaled_margin(z, own, scale, margin, HAS_MARGIN)
        log_lose, log_ahead, hazard = tails(a[:, None] + t[None, :], NOISE)
        r = log_ahead - log_lose - theta[None, :]
        r = tl.exp(tl.minimum(r, 0.0).to(tl.float32))
        decides = polynomial(
            b0[None, :],
            b1[None, :],
            b2[None, :],
            b3[None, :],
            b4[None, :],
            b5[None, :],
            b6[None, :],
            b7[None, :],
            b8[None, :],
            b9[None, :],
            -r,
            K,
        )
        # What rounds to less than nothing is nothing.
        decides = tl.where(plays[:, None], hazard * tl.maximum(decides, 0.0), 0.0)
        density += tl.sum(decides, 0)
        slope = tl.sum(decides * share[None, :], 1)
        turning += tl.sum(a * slope, 0)
        if HAS_MARGIN:
            slope = tl.where(own - z < margin, slope, 0.0)
        pull += tl.sum(slope, 0)
        slope = tl.where(factor == 0.0, 0.0, factor * slope)
        # All but the target and the hardest, whose turn is below.
        mine = (i < classes) & (i != y) & (plays | (z == float("-inf")) | (z != z))
        tl.store(out + i, slope.to(gradient.dtype.element_ty), mask=mine)

    # Each of the hardest has its turn; those that are not in its group are counted for all of it.
    for first in range(0, hardest, GROUP):
        size = tl.minimum(hardest - first, GROUP)
        g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, _rest = count_hard(
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
            c8,
            c9,
            hard,
            0,
            hardest - size,
            first,
            size,
            t,
            theta,
            NOISE,
        )
        for m in range(first, first + size):
            o0, o1, o2, o3, o4, o5, o6, o7, o8, o9, _less = count_hard(
                g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, hard, first, size - 1, m, 1, t, theta, NOISE
            )
            a = pick(hard, m)
            z = tl.max(tl.where(tl.arange(0, HARDEST) == m, highest, float("-inf")), 0)
            lose, _ahead, _short, hard_hazard = tilted(a + t, theta, NOISE)
            decides = polynomial(o0, o1, o2, o3, o4, o5, o6, o7, o8, o9, 0.0, K)
            decides = hard_hazard * lose * tl.maximum(decides, 0.0)
            density += decides
            slope = tl.sum(decides * share, 0)
            turning += a * slope
            if HAS_MARGIN:
                slope = tl.where(own - z < margin, slope, 0.0)
            pull += slope
            slope = tl.where(factor == 0.0, 0.0, factor * slope)
            at = out + tl.max(tl.where(tl.arange(0, HARDEST) == m, who, 0), 0)
            tl.store(at, slope.to(gradient.dtype.element_ty), mask=z != float("-inf"))
    pull = tl.where(factor == 0.0, 0.0, -factor * pull)
    tl.store(out + y, pull.to(gradient.dtype.element_ty))
    tl.store(work + row, tl.where(factor == 0.0, 0.0, factor * turning).to(tl.float32))

    missed = tl.minimum(tl.sum(density * other, 0), 1.0)
    near_one = log1m(tl.minimum(missed, 0.5))
    log_p = tl.where((kth > 0.0) & (missed < 0.5), near_one, tl.minimum(log_p, 0.0))
    log_p = tl.where(won, 0.0, log_p)
    log_p = tl.where(lost, float("-inf"), log_p)
    tl.store(loss + row, tl.where(undefined, float("nan"), log_p).to(tl.float32))
