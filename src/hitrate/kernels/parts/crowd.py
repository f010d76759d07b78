"""A row's rivals: the hardest, and the crowd of all others by power sums, docs/math.md (56)."""

import triton
import triton.language as tl

from hitrate.kernels.parts.counting import HARDEST, newton, tails
from hitrate.kernels.parts.row_io import LOWEST, read

# Margins from here on are of rivals that always lose.
FARTHEST: tl.constexpr = tl.constexpr(5e3)


@triton.jit
def scaled_margin(z, own, scale, margin, HAS_MARGIN: tl.constexpr):
    """(mu_y - mu_i) / sigma in float64, clipped; far ahead of a class at -inf."""
    distance = own.to(tl.float64) - z
    if HAS_MARGIN:
        distance = tl.minimum(distance, margin)
    a = tl.minimum(tl.maximum(distance * scale, LOWEST), FARTHEST)
    return tl.where(z == float("-inf"), FARTHEST, a)


@triton.jit
def hardest_rivals(here, y, hardest, classes, BLOCK: tl.constexpr):
    """The highest rivals' logits and classes, (HARDEST,) each, the highest first.

    Also whether a logit is no number below infinity.
    """
    slot = tl.arange(0, HARDEST)
    column = tl.arange(0, BLOCK)
    highest = tl.full([HARDEST], float("-inf"), tl.float32)
    who = tl.full([HARDEST], -1, tl.int32)
    wrong = tl.zeros([BLOCK], tl.int32)
    last = tl.full((), float("inf"), tl.float32)
    last_class = tl.full((), -1, tl.int32)
    for m in range(hardest):
        best = tl.full([BLOCK], float("-inf"), tl.float32)
        place = tl.zeros([BLOCK], tl.int32) + classes
        for start in range(0, classes, BLOCK):
            i = start + column
            z = read(here, i, classes, False)
            wrong = wrong | tl.where((z == z) & (z < float("inf")), 0, 1)
            z = tl.where(i == y, float("-inf"), z)
            # Those that come after the last one; of equals the first in order.
            better = (z > best) & ((z < last) | ((z == last) & (i > last_class)))
            best = tl.where(better, z, best)
            place = tl.where(better, i, place)
        last = tl.max(best, 0)
        last_class = tl.min(tl.where(best == last, place, classes), 0)
        highest = tl.where(slot == m, last, highest)
        who = tl.where(slot == m, last_class, who)
    return highest, who, last, last_class, tl.max(wrong, 0) > 0


@triton.jit
def crowd(here, i, y, last, last_class, classes):
    """Logits of classes i, and which of them are rivals that come after the last hard one."""
    z = read(here, i, classes, False)
    z = tl.where(i == y, float("-inf"), z)
    after = (z < last) | ((z == last) & (i > last_class))
    return z, after & (z != float("-inf"))


@triton.jit
def count_crowd(
    here,
    own,
    y,
    scale,
    margin,
    last,
    last_class,
    classes,
    t,
    theta,
    HAS_MARGIN: tl.constexpr,
    NOISE: tl.constexpr,
    K: tl.constexpr,
    TILE: tl.constexpr,
    NODES: tl.constexpr,
):
    """The sum of log F over the crowd, and e_1 to e_9 of its tilted odds, at the nodes (56)."""
    nobody = tl.zeros([TILE, NODES], tl.float64)
    s1 = tl.zeros([TILE, NODES], tl.float32)
    s2 = tl.zeros([TILE, NODES], tl.float32)
    s3 = tl.zeros([TILE, NODES], tl.float32)
    s4 = tl.zeros([TILE, NODES], tl.float32)
    s5 = tl.zeros([TILE, NODES], tl.float32)
    s6 = tl.zeros([TILE, NODES], tl.float32)
    s7 = tl.zeros([TILE, NODES], tl.float32)
    s8 = tl.zeros([TILE, NODES], tl.float32)
    s9 = tl.zeros([TILE, NODES], tl.float32)
    for start in range(0, classes, TILE):
        i = start + tl.arange(0, TILE)
        z, plays = crowd(here, i, y, last, last_class, classes)
        a = scaled_margin(z, own, scale, margin, HAS_MARGIN)
        log_cdf, log_ahead, _hazard = tails(a[:, None] + t[None, :], NOISE)
        log_odds = log_ahead - log_cdf
        r = tl.exp(tl.minimum(log_odds - theta[None, :], 0.0).to(tl.float32))
        r = tl.where(plays[:, None], r, 0.0)
        nobody += tl.where(plays[:, None], log_cdf, 0.0)
        s1 += r
        power = r
        if K > 2:
            power = power * r
            s2 += power
        if K > 3:
            power = power * r
            s3 += power
        if K > 4:
            power = power * r
            s4 += power
        if K > 5:
            power = power * r
            s5 += power
        if K > 6:
            power = power * r
            s6 += power
        if K > 7:
            power = power * r
            s7 += power
        if K > 8:
            power = power * r
            s8 += power
        if K > 9:
            power = power * r
            s9 += power
    e1, e2, e3, e4, e5, e6, e7, e8, e9 = newton(
        tl.sum(s1, 0),
        tl.sum(s2, 0),
        tl.sum(s3, 0),
        tl.sum(s4, 0),
        tl.sum(s5, 0),
        tl.sum(s6, 0),
        tl.sum(s7, 0),
        tl.sum(s8, 0),
        tl.sum(s9, 0),
    )
    return tl.sum(nobody, 0), e1, e2, e3, e4, e5, e6, e7, e8, e9
