"""Few classes: rows of logits in registers, several per program."""

import triton
import triton.language as tl

from hitrate.kernels.parts.epilogue import (
    ANY_NUMBER,
    ANYWHERE,
    classify,
    finish,
    number_of,
    sigma_of,
    turning_at,
)
from hitrate.kernels.parts.integral import integrate
from hitrate.kernels.parts.row_io import FARTHEST, LOWEST

ABSENT: tl.constexpr = tl.constexpr(1e4)


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def few_classes_kernel(
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
    rows,
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
    R: tl.constexpr,
    P: tl.constexpr,
    GROUP: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """Loss of R rows, with its gradient in logits and sigma."""
    margin = number_of(margin_at, margin, MOVING & 1)
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    column = tl.arange(0, P)
    there = row < rows
    inside = there[:, None] & (column < classes)[None, :]
    place = row[:, None] * classes + column[None, :]
    z = tl.load(logits + place, mask=inside, other=float("-inf")).to(tl.float32)
    y, part, astray = classify(
        tl.load(target + row, mask=there, other=0), there, weight, classes, ignore_index, WEIGHTS
    )
    is_own = column[None, :] == y[:, None]
    own = tl.sum(tl.where(is_own, z, 0.0), 1)
    scale = sigma_of(sigma, row, there, noise, SIGMAS)

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
    log_p, slope = integrate(a, w, closest, classes, GROUP, SEARCH)

    # A NaN, a logit of +inf, or none above -inf leaves log p undefined; a target at -inf cannot
    # win.
    top = tl.max(z, 1)
    wrong = tl.max(tl.where(z == z, 0, 1), 1) > 0
    undefined = wrong | (top == float("inf")) | (top == float("-inf")) | astray
    lost = (own == float("-inf")) & (undefined == 0)
    log_p = tl.where(undefined, float("nan"), tl.where(lost, float("-inf"), log_p))
    slope = tl.where(rival & (lost[:, None] == 0), slope, 0.0)

    value, steep = LINK(log_p, link_a, link_b)
    # What has no part in the loss adds nothing, be it infinite or not a number.
    value = tl.where(part == 0.0, 0.0, part * value)
    steep = tl.where(part == 0.0, 0.0, tl.where(lost, 0.0, part * steep))
    falling = tl.where(part[:, None] == 0.0, 0.0, slope * (steep / -scale)[:, None])
    if LEARNED:
        turning = tl.sum(tl.where(rival, falling * a, 0.0), 1)
        turning = tl.where(undefined & (part != 0.0), float("nan"), turning)
        tl.store(turning_at(work, row), turning, mask=there)
    if GRADIENT:
        falling = tl.where(free, falling, 0.0)
        falling = tl.where(is_own, -tl.sum(falling, 1)[:, None], falling)
        falling = tl.where((undefined & (part != 0.0))[:, None], float("nan"), falling)
        tl.store(gradient + place, falling.to(gradient.dtype.element_ty), mask=inside)
    finish(loss, work, table, row, value, part, there, REDUCTION)
