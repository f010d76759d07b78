"""Up to a few thousand classes: a row at a time, its value and gradient by one program."""

import triton
import triton.language as tl

from hitrate.kernels.parts.chebyshev import (
    POINT,
    POINTS,
    POWERS,
    coefficients_of,
    log_p_of_weights,
    map_of_segment,
    product,
    survey,
    weights_of_row,
)
from hitrate.kernels.parts.epilogue import ANY_NUMBER, ANYWHERE, WAVES, number_of
from hitrate.kernels.parts.row_io import FARTHEST, conclude, finish_row, read, read_row


@triton.jit
def at(vector, j, BLOCK: tl.constexpr):
    """One number of a vector, BLOCK times."""
    return tl.gather(vector, tl.zeros([BLOCK], tl.int32) + j, 0)


@triton.jit
def gradient_of_segment(
    here,
    out,
    top,
    own,
    y,
    margin,
    classes,
    powers,
    s,
    slant,
    shift,
    near,
    far,
    factor,
    pull,
    HAS_MARGIN: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the gradient of the rivals in segment s; with the first also all that is in none."""
    column = tl.arange(0, BLOCK)
    c0 = at(powers, 0, BLOCK)
    c1 = at(powers, 1, BLOCK)
    c2 = at(powers, 2, BLOCK)
    c3 = at(powers, 3, BLOCK)
    c4 = at(powers, 4, BLOCK)
    c5 = at(powers, 5, BLOCK)
    c6 = at(powers, 6, BLOCK)
    c7 = at(powers, 7, BLOCK)
    c8 = at(powers, 8, BLOCK)
    c9 = at(powers, 9, BLOCK)
    c10 = at(powers, 10, BLOCK)
    c11 = at(powers, 11, BLOCK)
    c12 = at(powers, 12, BLOCK)
    c13 = at(powers, 13, BLOCK)
    c14 = at(powers, 14, BLOCK)
    c15 = at(powers, 15, BLOCK)
    for start in range(0, classes, BLOCK):
        i = start + column
        z = read(here, i, classes, EVEN)
        below = top - z
        inside = (below < far) & (below >= near)
        x = tl.where(inside, below * slant + shift, 0.0)
        found = c15 * x + c14
        found = found * x + c13
        found = found * x + c12
        found = found * x + c11
        found = found * x + c10
        found = found * x + c9
        found = found * x + c8
        found = found * x + c7
        found = found * x + c6
        found = found * x + c5
        found = found * x + c4
        found = found * x + c3
        found = found * x + c2
        found = found * x + c1
        found = found * x + c0
        mine = inside
        if HAS_MARGIN:
            mine = mine & (own - z < margin)
        found = tl.where(mine, found, 0.0)
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
    points = tl.load(cosines + POINT + tl.arange(0, POINTS))
    own, y, part, scale, astray = read_row(
        logits, target, sigma, weight, row, classes, noise, ignore_index, SIGMAS, WEIGHTS
    )
    top, closest, reach, start, clipped, undefined, decided = survey(
        here, own, y, scale, margin, classes, HAS_MARGIN, BLOCK
    )
    segments, weights = weights_of_row(
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
        HAS_MARGIN,
        EVEN,
        BLOCK,
    )
    rim = tl.minimum(margin * scale, FARTHEST)
    log_p, slopes, pull, turning = log_p_of_weights(
        weights, points, reach, closest, start, clipped, rim, segments, classes, HAS_MARGIN, SEARCH
    )
    value, factor = conclude(
        log_p, own, scale, part, undefined | astray, decided, link_a, link_b, LINK
    )
    if GRADIENT:
        for s in range(segments):
            slant, shift, near, far = map_of_segment(s, reach, closest, scale)
            gradient_of_segment(
                here,
                gradient + row * classes,
                top,
                own,
                y,
                margin,
                classes,
                product(cosines + POWERS, coefficients_of(slopes, cosines, s)),
                s,
                slant,
                shift,
                near,
                far,
                factor,
                pull,
                HAS_MARGIN,
                EVEN,
                BLOCK,
            )
    finish_row(loss, work, table, row, value, part, turning, factor, LEARNED, REDUCTION)
