"""Long rows, in three kernels: one streams logits, one integrates, one writes the gradient.

The last runs in the backward pass, with many programs per row; between them a row is a few numbers.
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.chebyshev import (
    FACTS,
    PLACES,
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
from hitrate.kernels.parts.epilogue import ANY_NUMBER, ANYWHERE, WAVES, number_of, sigma_of
from hitrate.kernels.parts.row_io import FARTHEST, conclude, finish_row, read, read_row


@triton.jit
def place():
    """Where a row's weights are kept, (8, 16)."""
    block = tl.arange(0, PLACES // POINTS)
    return block[:, None] * POINTS + tl.arange(0, POINTS)[None, :]


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def compress(
    logits,
    target,
    sigma,
    weight,
    margin_at,
    kept,
    table,
    classes,
    noise,
    margin,
    ignore_index,
    SIGMAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    HAS_MARGIN: tl.constexpr,
    MOVING: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For long rows, the first of three kernels: the weights, and the facts, of one row."""
    margin = number_of(margin_at, margin, MOVING & 1)
    row = tl.program_id(0).to(tl.int64)
    here = logits + row * classes
    own, y, _, scale, astray = read_row(
        logits, target, sigma, weight, row, classes, noise, ignore_index, SIGMAS, WEIGHTS
    )
    top, closest, reach, start, clipped, undefined, decided = survey(
        here, own, y, scale, margin, classes, HAS_MARGIN, BLOCK
    )
    cosines = table + WAVES
    points = tl.load(cosines + POINT + tl.arange(0, POINTS))
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
    facts = kept + row * (FACTS + PLACES)
    tl.store(facts + 0, closest)
    tl.store(facts + 1, reach)
    tl.store(facts + 2, tl.where(undefined | astray, 2.0, tl.where(decided, 1.0, 0.0)))
    tl.store(facts + 3, clipped)
    tl.store(facts + 4, segments.to(tl.float32))
    tl.store(facts + 5, top)
    tl.store(facts + 6, start)
    tl.store(facts + FACTS + place(), weights)


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def integrate_kept(
    logits,
    target,
    sigma,
    weight,
    margin_at,
    a_at,
    b_at,
    loss,
    kept,
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
    SEARCH: tl.constexpr,
):
    """The second: a row's loss; puts coefficients of the slope in the place of the weights.

    They are of a polynomial in powers, by way of Chebyshev polynomials: the slope is smooth enough
    for powers not to grow, and they take half the operations.
    """
    margin = number_of(margin_at, margin, MOVING & 1)
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    row = tl.program_id(0).to(tl.int64)
    cosines = table + WAVES
    points = tl.load(cosines + POINT + tl.arange(0, POINTS))
    own, _, part, scale, _ = read_row(
        logits, target, sigma, weight, row, classes, noise, ignore_index, SIGMAS, WEIGHTS
    )
    facts = kept + row * (FACTS + PLACES)
    closest = tl.load(facts + 0)
    reach = tl.load(facts + 1)
    state = tl.load(facts + 2)
    clipped = tl.load(facts + 3)
    segments = tl.load(facts + 4).to(tl.int32)
    start = tl.load(facts + 6)
    weights = tl.load(facts + FACTS + place())
    rim = tl.minimum(margin * scale, FARTHEST)
    log_p, slopes, pull, turning = log_p_of_weights(
        weights, points, reach, closest, start, clipped, rim, segments, classes, HAS_MARGIN, SEARCH
    )
    value, factor = conclude(
        log_p, own, scale, part, state == 2.0, state == 1.0, link_a, link_b, LINK
    )
    # All lanes have read their weights before any of them is written over.
    tl.debug_barrier()
    if GRADIENT:
        m = tl.arange(0, POINTS)
        for s in range(segments):
            found = product(cosines + POWERS, coefficients_of(slopes, cosines, s))
            # A row without part in the loss, or decided, has no gradient, whatever its slopes.
            found = tl.where(factor == 0.0, 0.0, factor * found)
            tl.store(facts + FACTS + s * POINTS + m, found)
        tl.store(facts + 2, factor)
        tl.store(facts + 3, tl.where(factor == 0.0, 0.0, -factor * pull))
    finish_row(loss, work, table, row, value, part, turning, factor, LEARNED, REDUCTION)


@triton.jit
def slope_at(x, coefficients):
    """A segment's polynomial at x in [-1, 1], by Horner's rule."""
    found = tl.zeros_like(x)
    for j in tl.static_range(POINTS):
        found = found * x + tl.load(coefficients + (POINTS - 1 - j))
    return found


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def expand(
    logits,
    target,
    sigma,
    margin_at,
    kept,
    work,
    upstream,
    gradient,
    classes,
    stride_upstream,
    noise,
    margin,
    SIGMAS: tl.constexpr,
    HAS_MARGIN: tl.constexpr,
    MOVING: tl.constexpr,
    PER_ROW: tl.constexpr,
    EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The third, in the backward pass: the gradient in logits, times what comes from above."""
    margin = number_of(margin_at, margin, MOVING & 1)
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = logits + row * classes
    facts = kept + row * (FACTS + PLACES)
    one = tl.zeros([1], tl.int64) + row
    scale = 1.0 / tl.max(sigma_of(sigma, one, one >= 0, noise, SIGMAS), 0)
    closest = tl.load(facts + 0)
    reach = tl.load(facts + 1)
    factor = tl.load(facts + 2)
    at_target = tl.load(facts + 3)
    segments = tl.load(facts + 4).to(tl.int32)
    top = tl.load(facts + 5)
    if PER_ROW:
        from_above = tl.load(upstream + row * stride_upstream).to(tl.float32)
    else:
        from_above = tl.load(upstream).to(tl.float32) * tl.load(work)
    from_above = tl.where(factor == 0.0, 0.0, from_above)
    y = tl.load(target + row).to(tl.int64)
    y = tl.where((y < 0) | (y >= classes), -1, y).to(tl.int32)

    z = read(here, i, classes, EVEN)
    below = top - z
    # An undefined row is so in all places.
    slope = tl.zeros([BLOCK], tl.float32) + 0.0 * factor
    for s in range(segments):
        slant, shift, near, far = map_of_segment(s, reach, closest, scale)
        inside = (below < far) & (below >= near)
        x = tl.where(inside, below * slant + shift, 0.0)
        slope = tl.where(inside, slope_at(x, facts + FACTS + s * POINTS), slope)
    if HAS_MARGIN:
        own = tl.load(here + tl.maximum(y, 0)).to(tl.float32)
        slope = tl.where(own - z < margin, slope, 0.0 * factor)
    slope = tl.where(i == y, at_target, slope) * from_above
    out = gradient + row * classes + i
    if EVEN:
        tl.store(out, slope.to(gradient.dtype.element_ty))
    else:
        tl.store(out, slope.to(gradient.dtype.element_ty), mask=i < classes)
