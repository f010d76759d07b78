"""A row of logits in registers, several rows per program: up to about a hundred classes."""

import triton
import triton.language as tl

from hitrate.kernels.integral import integrate

FARTHEST: tl.constexpr = tl.constexpr(5e3)
LOWEST: tl.constexpr = tl.constexpr(-1e15)
ABSENT: tl.constexpr = tl.constexpr(1e4)


@triton.jit
def rows_kernel(
    logits,
    target,
    sigma,
    log_p,
    to_logits,
    to_sigma,
    rows,
    classes,
    stride_row,
    stride_class,
    stride_sigma,
    margin,
    log_classes,
    HAS_MARGIN: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
    NODES: tl.constexpr,
    GROUP: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """log p of R rows, with its gradient in logits and sigma."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.arange(0, P)
    there = row < rows
    inside = there[:, None] & (column < classes)[None, :]
    place = row[:, None] * stride_row + column[None, :].to(tl.int64) * stride_class
    z = tl.load(logits + place, mask=inside, other=float("-inf")).to(tl.float32)
    y = tl.load(target + row, mask=there, other=0)
    is_own = column[None, :] == y[:, None]
    own = tl.sum(tl.where(is_own, z, 0.0), 1)
    scale = tl.load(sigma + row * stride_sigma, mask=there, other=1.0).to(tl.float32)

    # A class at -inf is no rival, and the margin does not make it one.
    rival = inside & (column[None, :] != y[:, None]) & (z != float("-inf"))
    distance = own[:, None] - z
    free = rival
    if HAS_MARGIN:
        free = rival & (distance < margin)
        distance = tl.minimum(distance, margin)
    a = tl.minimum(tl.maximum(distance / scale[:, None], LOWEST), FARTHEST)
    a = tl.where(rival, a, ABSENT)
    closest = tl.min(a, 1)
    w = tl.where(rival, 1.0, 0.0)
    value, slope, _ = integrate(a, w, closest, log_classes, NODES, GROUP, SEARCH)

    # A NaN, a logit of +inf, or none above -inf leaves log p undefined; a target at -inf cannot
    # win.
    top = tl.max(z, 1)
    wrong = tl.max(tl.where(z == z, 0, 1), 1) > 0
    undefined = wrong | (top == float("inf")) | (top == float("-inf"))
    lost = (own == float("-inf")) & (undefined == 0)
    value = tl.where(undefined, float("nan"), tl.where(lost, float("-inf"), value))
    slope = tl.where(rival & (lost[:, None] == 0), slope, 0.0)

    falling = slope / -scale[:, None]
    turning = tl.sum(tl.where(rival, falling * a, 0.0), 1)
    tl.store(to_sigma + row, tl.where(undefined, float("nan"), turning), mask=there)
    falling = tl.where(free, falling, 0.0)
    falling = tl.where(is_own, -tl.sum(falling, 1)[:, None], falling)
    falling = tl.where(undefined[:, None], float("nan"), falling)
    out = row[:, None] * classes + column[None, :]
    tl.store(to_logits + out, falling.to(to_logits.dtype.element_ty), mask=inside)
    tl.store(log_p + row, value, mask=there)
