"""One row to a program: what is read of it, and what becomes of its log p."""

import triton
import triton.language as tl

from hitrate.kernels.parts.epilogue import classify, finish, sigma_of, turning_at

# Scaled margins are clipped to these.
FARTHEST: tl.constexpr = tl.constexpr(5e3)
LOWEST: tl.constexpr = tl.constexpr(-1e15)


@triton.jit
def read(here, i, classes, EVEN: tl.constexpr):
    """Logits of a row, -inf beyond its end; EVEN if all i are within."""
    if EVEN:
        z = tl.load(here + i)
    else:
        z = tl.load(here + i, mask=i < classes, other=float("-inf"))
    return z.to(tl.float32)


@triton.jit
def top_of(best, own):
    """The best rival of all; whether log p is undefined, and whether an infinity decides it."""
    wrong = tl.max((best != best).to(tl.int32), 0) > 0
    top = tl.max(tl.where(best == best, best, float("-inf")), 0)
    undefined = wrong | (top == float("inf")) | (own == float("inf")) | (own != own)
    undefined = undefined | ((own == float("-inf")) & (top == float("-inf")))
    # A target at -inf cannot win; without a rival above -inf it has won.
    return top, undefined, (own == float("-inf")) | (top == float("-inf"))


@triton.jit
def read_row(
    logits,
    target,
    sigma,
    weight,
    row,
    classes,
    noise,
    ignore_index,
    SIGMAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
):
    """A row's own logit, class, part in the loss, 1 / sigma; and whether its target is no class."""
    one = tl.zeros([1], tl.int64) + row
    y = tl.load(target + row).to(tl.int64) + 0 * one
    y, part, astray = classify(y, one >= 0, weight, classes, ignore_index, WEIGHTS)
    # Compared with every class, for which 32 bits are enough.
    y = tl.max(y, 0).to(tl.int32)
    own = tl.load(logits + row * classes + y).to(tl.float32)
    scale = 1.0 / tl.max(sigma_of(sigma, one, one >= 0, noise, SIGMAS), 0)
    return own, y, tl.max(part, 0), scale, tl.max(astray.to(tl.int32), 0) > 0


@triton.jit
def conclude(log_p, own, scale, part, undefined, decided, link_a, link_b, LINK: tl.constexpr):
    """A row's loss, and the factor of its slopes in its gradient."""
    known = tl.where(own == float("-inf"), float("-inf"), 0.0)
    log_p = tl.where(undefined, float("nan"), tl.where(decided, known, log_p))
    value, steep = LINK(log_p, link_a, link_b)
    steep = tl.where(undefined, float("nan"), tl.where(decided, 0.0, steep))
    # A row without part in the loss adds nothing, be it infinite or not a number.
    value = tl.where(part == 0.0, 0.0, part * value)
    return value, tl.where(part == 0.0, 0.0, -scale * part * steep)


@triton.jit
def finish_row(
    loss,
    work,
    table,
    row,
    value,
    part,
    turning,
    factor,
    LEARNED: tl.constexpr,
    REDUCTION: tl.constexpr,
):
    """`finish` for a program of one row, whose slope in sigma is `turning` before its factor."""
    if LEARNED:
        turning = tl.where(factor == 0.0, 0.0, factor * turning)
        tl.store(turning_at(work, row), turning)
    one = tl.zeros([1], tl.int64) + row
    nothing = tl.zeros([1], tl.float32)
    finish(loss, work, table, one, nothing + value, nothing + part, one >= 0, REDUCTION)
