"""Up to a few thousand classes: a row at a time, its value and gradient by one program."""

import triton
import triton.language as tl

from hitrate.kernels.chebyshev import (
    PLACES,
    POINTS,
    coefficient,
    log_p_of_weights,
    map_of_segment,
    survey,
    weights_of_row,
)
from hitrate.kernels.epilogue import ANY_NUMBER, ANYWHERE, WAVES, number_of
from hitrate.kernels.row_io import FARTHEST, conclude, finish_row, read, read_row


@triton.jit
def gradient_of_segment(
    here,
    out,
    top,
    own,
    y,
    scale,
    margin,
    classes,
    slope,
    wave,
    is_here,
    s,
    reach,
    closest,
    factor,
    pull,
    HAS_MARGIN: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient of the rivals in segment s; with the first also all that is in none."""
    column = tl.arange(0, BLOCK)
    slant, shift, near, far = map_of_segment(s, reach, closest, scale)
    c0 = coefficient(slope, wave, is_here, 0)
    c1 = coefficient(slope, wave, is_here, 1)
    c2 = coefficient(slope, wave, is_here, 2)
    c3 = coefficient(slope, wave, is_here, 3)
    c4 = coefficient(slope, wave, is_here, 4)
    c5 = coefficient(slope, wave, is_here, 5)
    c6 = coefficient(slope, wave, is_here, 6)
    c7 = coefficient(slope, wave, is_here, 7)
    c8 = coefficient(slope, wave, is_here, 8)
    c9 = coefficient(slope, wave, is_here, 9)
    c10 = coefficient(slope, wave, is_here, 10)
    c11 = coefficient(slope, wave, is_here, 11)
    c12 = coefficient(slope, wave, is_here, 12)
    c13 = coefficient(slope, wave, is_here, 13)
    c14 = coefficient(slope, wave, is_here, 14)
    c15 = coefficient(slope, wave, is_here, 15)
    c16 = coefficient(slope, wave, is_here, 16)
    c17 = coefficient(slope, wave, is_here, 17)
    c18 = coefficient(slope, wave, is_here, 18)
    c19 = coefficient(slope, wave, is_here, 19)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = read(here, i, classes, EVEN)
        below = top - z
        inside = (below < far) & (below >= near)
        x = tl.where(inside, below * slant + shift, 0.0)
        # Clenshaw's recurrence, its two names taking turns.
        double = 2.0 * x
        even = double * c19 + c18
        odd = double * even + (c17 - c19)
        even = double * odd + (c16 - even)
        odd = double * even + (c15 - odd)
        even = double * odd + (c14 - even)
        odd = double * even + (c13 - odd)
        even = double * odd + (c12 - even)
        odd = double * even + (c11 - odd)
        even = double * odd + (c10 - even)
        odd = double * even + (c9 - odd)
        even = double * odd + (c8 - even)
        odd = double * even + (c7 - odd)
        even = double * odd + (c6 - even)
        odd = double * even + (c5 - odd)
        even = double * odd + (c4 - even)
        odd = double * even + (c3 - odd)
        even = double * odd + (c2 - even)
        odd = double * even + (c1 - odd)
        mine = inside
        if HAS_MARGIN:
            mine = mine & (own - z < margin)
        found = tl.where(mine, x * odd + (c0 - even), 0.0)
        found = factor * tl.where(i == y, -pull, found)
        # A row without part in the loss, or decided, has no gradient.
        found = tl.where(factor == 0.0, 0.0, found)
        written = (inside | (s == 0)) & (i < classes)
        tl.store(out + i, found.to(out.dtype.element_ty), mask=written & ((s == 0) | (i != y)))


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def per_row_kernel(
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
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """Loss and gradient of one row."""
    margin = number_of(margin_at, margin, MOVING & 1)
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * classes
    cosines = table + WAVES
    own, y, part, scale, astray = read_row(
        logits, target, sigma, weight, row, classes, noise, ignore_index, SIGMAS, WEIGHTS
    )
    top, closest, reach, clipped, undefined, decided = survey(
        here, own, y, scale, margin, classes, HAS_MARGIN, BLOCK, SEARCH
    )
    segments, weights = weights_of_row(
        here, top, own, y, scale, margin, classes, cosines, reach, closest, HAS_MARGIN, EVEN, BLOCK
    )
    rim = tl.minimum(margin * scale, FARTHEST)
    log_p, slopes, pull, turning = log_p_of_weights(
        weights, cosines, reach, closest, clipped, rim, segments, classes, HAS_MARGIN, SEARCH
    )
    value, factor = conclude(
        log_p, own, scale, part, undefined | astray, decided, link_a, link_b, LINK
    )
    if GRADIENT:
        lane = tl.arange(0, PLACES)
        for s in range(segments):
            gradient_of_segment(
                here,
                gradient + row * classes,
                top,
                own,
                y,
                scale,
                margin,
                classes,
                slopes,
                cosines + lane % POINTS,
                lane // POINTS == s,
                s,
                reach,
                closest,
                factor,
                pull,
                HAS_MARGIN,
                EVEN,
                BLOCK,
            )
    finish_row(loss, work, table, row, value, part, turning, factor, LEARNED, REDUCTION)
