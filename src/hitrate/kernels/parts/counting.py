"""How many rivals are ahead, as device functions: docs/math.md (41), (42), (56), (57).

B_j, the probability that exactly j are ahead, has a variable of its own for each j < 10, b0 to b9,
of which the first K count. All are for the nodes t (NODES,) of one row, and tilted: odds are
divided by e^theta, and what that multiplies all B_j by is kept as a logarithm.
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.integral import LOG_SQRT_2PI, SQRT_2_OVER_PI, SQRT_HALF, erfcx, log1m
from hitrate.kernels.parts.link_code import one_minus_exp

# Noises by number.
NORMAL: tl.constexpr = tl.constexpr(0)
LOGISTIC: tl.constexpr = tl.constexpr(1)
GUMBEL: tl.constexpr = tl.constexpr(2)
# Places for the rivals that are counted one by one.
HARDEST: tl.constexpr = tl.constexpr(16)


@triton.jit
def log1p_of(e):
    """log(1 + e) for 0 <= e <= 1, with relative accuracy."""
    return tl.where(e < 0.02, e * (1.0 - e * (0.5 - e * (0.33333334 - 0.25 * e))), tl.log(1.0 + e))


@triton.jit
def tails(x, NOISE: tl.constexpr):
    """log F, log(1 - F) and h at x, which is in float64: only what grows with x needs it."""
    z = x.to(tl.float32)
    if NOISE == NORMAL:
        half = 0.5 * x * x
        scaled = erfcx(tl.abs(z) * SQRT_HALF)
        flat = tl.log(0.5 * scaled)
        tail = tl.minimum(tl.exp(flat - half.to(tl.float32)), 0.5)
        rest = log1m(tail)
        behind = z < 0.0
        log_cdf = tl.where(behind, flat - half, rest)
        log_ahead = tl.where(behind, rest, flat - half)
        ahead = tl.exp(-half.to(tl.float32) - rest - LOG_SQRT_2PI)
        hazard = tl.where(behind, SQRT_2_OVER_PI / scaled, ahead)
    elif NOISE == LOGISTIC:
        e = tl.exp(-tl.abs(z))
        log_cdf = tl.minimum(x, 0.0) - log1p_of(e)
        log_ahead = tl.minimum(-x, 0.0) - log1p_of(e)
        hazard = tl.where(z < 0.0, 1.0, e) / (1.0 + e)
    else:
        hazard = tl.exp(tl.minimum(-z, 80.0))
        log_cdf = -hazard.to(tl.float64)
        near = tl.log(one_minus_exp(-tl.maximum(hazard, 1e-4)))
        log_ahead = tl.where(z > 8.0, -0.5 * hazard - x, near)
    return log_cdf, log_ahead, hazard


@triton.jit
def log_density(t, NOISE: tl.constexpr):
    """log f(t) in float64."""
    z = t.to(tl.float32)
    if NOISE == NORMAL:
        found = -0.5 * t * t - LOG_SQRT_2PI
    elif NOISE == LOGISTIC:
        found = -tl.abs(t) - 2.0 * log1p_of(tl.exp(-tl.abs(z)))
    else:
        found = -t - tl.exp(tl.minimum(-z, 80.0))
    return found


@triton.jit
def tilted(x, theta, NOISE: tl.constexpr):
    """Tilted probabilities of a rival to lose and to be ahead, what they are short of, and h."""
    log_cdf, log_ahead, hazard = tails(x, NOISE)
    d = log_ahead - log_cdf - theta
    e = tl.exp(-tl.abs(d).to(tl.float32))
    large = 1.0 / (1.0 + e)
    lose = tl.where(d > 0.0, e * large, large)
    ahead = tl.where(d > 0.0, large, e * large)
    # By the larger of both: theta must not be lost beside the odds of a rival that is far ahead.
    short = tl.where(d > 0.0, log_ahead - theta, log_cdf) + log1p_of(e)
    # Without a tilt they are the true ones.
    return lose, ahead, tl.where(theta > 0.0, short, 0.0), hazard


@triton.jit
def pick(numbers, j):
    """The j-th of the numbers."""
    return tl.sum(tl.where(tl.arange(0, HARDEST) == j, numbers, 0.0), 0)


@triton.jit
def count_hard(
    b0,
    b1,
    b2,
    b3,
    b4,
    b5,
    b6,
    b7,
    b8,
    b9,
    hard,
    first,
    number,
    gap,
    width,
    t,
    theta,
    NOISE: tl.constexpr,
):
    """So many of the hardest rivals (HARDEST,), from the first on, join those counted in b (41).

    At the gap so many of them are passed over. Also the log by which all fall short.
    """
    short = tl.zeros_like(t)
    for n in range(number):
        j = first + n
        j += tl.where(j >= gap, width, 0)
        lose, ahead, less, _hazard = tilted(pick(hard, j) + t, theta, NOISE)
        short += less
        b9 = lose * b9 + ahead * b8
        b8 = lose * b8 + ahead * b7
        b7 = lose * b7 + ahead * b6
        b6 = lose * b6 + ahead * b5
        b5 = lose * b5 + ahead * b4
        b4 = lose * b4 + ahead * b3
        b3 = lose * b3 + ahead * b2
        b2 = lose * b2 + ahead * b1
        b1 = lose * b1 + ahead * b0
        b0 = lose * b0
    return b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, short


@triton.jit
def newton(p1, p2, p3, p4, p5, p6, p7, p8, p9):
    """Elementary symmetric polynomials of odds from their power sums (56)."""
    e1 = p1
    e2 = (p1 * e1 - p2) / 2.0
    e3 = (p1 * e2 - p2 * e1 + p3) / 3.0
    e4 = (p1 * e3 - p2 * e2 + p3 * e1 - p4) / 4.0
    e5 = (p1 * e4 - p2 * e3 + p3 * e2 - p4 * e1 + p5) / 5.0
    e6 = (p1 * e5 - p2 * e4 + p3 * e3 - p4 * e2 + p5 * e1 - p6) / 6.0
    e7 = (p1 * e6 - p2 * e5 + p3 * e4 - p4 * e3 + p5 * e2 - p6 * e1 + p7) / 7.0
    e8 = p1 * e7 - p2 * e6 + p3 * e5 - p4 * e4 + p5 * e3 - p6 * e2 + p7 * e1 - p8
    e8 = e8 / 8.0
    e9 = p1 * e8 - p2 * e7 + p3 * e6 - p4 * e5 + p5 * e4 - p6 * e3 + p7 * e2 - p8 * e1 + p9
    return e1, e2, e3, e4, e5, e6, e7, e8, e9 / 9.0


@triton.jit
def polynomial(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, r, K: tl.constexpr):
    """The sum of r^l B_(K - 1 - l) over l < K, by Horner's rule."""
    found = b1 + r * b0
    if K > 2:
        found = b2 + r * found
    if K > 3:
        found = b3 + r * found
    if K > 4:
        found = b4 + r * found
    if K > 5:
        found = b5 + r * found
    if K > 6:
        found = b6 + r * found
    if K > 7:
        found = b7 + r * found
    if K > 8:
        found = b8 + r * found
    if K > 9:
        found = b9 + r * found
    return found


@triton.jit
def untilted(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, theta, K: tl.constexpr):
    """P(fewer than K ahead), but for e^((K - 1) theta) and what all fall short by (42)."""
    shrink = tl.exp(-theta.to(tl.float32))
    found = polynomial(b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, shrink, K)
    return tl.maximum(found, 1e-37)
