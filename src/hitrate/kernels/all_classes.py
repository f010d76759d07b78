"""All classes of a row as targets, by nodes that serve them all: docs/math.md (24) to (28), (37).

The rivals enter through sums over classes of functions of u, the winning score, and what a class
needs is one smooth function of its logit. So the work at the nodes is done for few *places*: the
classes themselves where they are few, and else Chebyshev points on segments of the logits, whose
weights keep sums over classes (29), and through which class by class is read off again (30).

Distances `below` are measured from the row's highest class, in sigmas. That class is no place: its
p is what the others leave (27).
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.class_nodes import (
    hazard_of,
    log_p_of_highest,
    log_terms_of,
    nodes_of,
    span_of_nodes,
    sums_at_nodes,
)
from hitrate.kernels.parts.class_places import (
    KEPT,
    PITCH,
    POINTS,
    coefficients_of,
    in_segment,
    moments,
    places_at,
    polynomial,
    segment_of,
    segments_of,
    survey,
    three_polynomials,
    weigh_segments,
    weights_of,
)
from hitrate.kernels.parts.epilogue import (
    ANY_NUMBER,
    ANYWHERE,
    NONE,
    classify,
    finish,
    number_of,
    sigma_of,
)
from hitrate.kernels.parts.row_io import read
from hitrate.kernels.softmax import SMOOTHED, SOFT

# What is written: the loss, the loss with its gradient, log p of every class, or its p.
VALUE: tl.constexpr = tl.constexpr(0)
GRADIENT: tl.constexpr = tl.constexpr(1)
LOG_P: tl.constexpr = tl.constexpr(2)
P: tl.constexpr = tl.constexpr(3)
# Weights (N, C), which are each row's own.
OF_ROWS: tl.constexpr = tl.constexpr(2)


@triton.jit
def target_at(
    target, weight, row, i, y, classes, smoothing, TARGETS: tl.constexpr, WEIGHTS: tl.constexpr
):
    """Target probabilities of classes i, smoothed, times the weights of classes."""
    inside = i < classes
    if TARGETS == SOFT:
        q = tl.load(target + row * classes + i, mask=inside, other=0.0).to(tl.float32)
    else:
        q = tl.where(i == y, 1.0, 0.0)
    q = tl.where(inside, q * (1.0 - smoothing) + smoothing / classes, 0.0)
    if WEIGHTS == OF_ROWS:
        weight += row * classes
    if WEIGHTS:
        q *= tl.load(weight + i, mask=inside, other=0.0).to(tl.float32)
    return q


@triton.jit
def linked(log_p, q, link_a, link_b, LINK: tl.constexpr):
    """What classes add to the loss, and its slopes in their log p."""
    value, steep = LINK(log_p, link_a, link_b)
    value = tl.where(q == 0.0, 0.0, q * value)
    # What cannot win has no slope, and what has no part adds nothing, be it infinite.
    return value, tl.where((q == 0.0) | (log_p == float("-inf")), 0.0, q * steep)


@triton.jit
def classes_below(
    log_p,
    z,
    i,
    highest,
    log_p_top,
    slope_top,
    target,
    weight,
    place,
    y,
    classes,
    link_a,
    link_b,
    smoothing,
    TARGETS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    LINK: tl.constexpr,
):
    """What classes add to the loss, and v of (27); nothing for the highest."""
    log_p = tl.where(z == float("-inf"), float("-inf"), log_p)
    q = target_at(target, weight, place, i, y, classes, smoothing, TARGETS, WEIGHTS)
    q = tl.where(i == highest, 0.0, q)
    value, slope = linked(log_p, q, link_a, link_b, LINK)
    slope -= slope_top * tl.exp(log_p - log_p_top)
    return value, tl.where((z == float("-inf")) | (i == highest), 0.0, slope)


@triton.jit
def one_row(
    logits,
    target,
    sigma,
    weight,
    found,
    kept,
    waves,
    row,
    classes,
    noise,
    ignore_index,
    link_a,
    link_b,
    smoothing,
    SIGMAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    TARGETS: tl.constexpr,
    OUTPUT: tl.constexpr,
    LINK: tl.constexpr,
    LOGISTIC: tl.constexpr,
    FEW: tl.constexpr,
    BLOCK: tl.constexpr,
    PLACES: tl.constexpr,
    NODES: tl.constexpr,
):
    """A row's loss and its part in the mean, both (1,); the rest is written."""
    place = tl.max(row, 0)
    here = logits + place * classes
    out = found + place * classes
    scale = tl.max(1.0 / sigma_of(sigma, row, row >= 0, noise, SIGMAS), 0)
    y = tl.full((), -1, tl.int32)
    part = tl.zeros([1], tl.float32) + 1.0
    is_there = row >= 0
    astray = row < 0
    if TARGETS == SMOOTHED:
        label = tl.load(target + row)
        known, part, astray = classify(label, is_there, weight, classes, ignore_index, WEIGHTS)
        y = tl.max(known, 0).to(tl.int32)
        is_there = label != ignore_index
    counts = tl.max(is_there.to(tl.int32), 0) > 0
    top, highest, nearest, lowest, undefined = survey(here, scale, classes, BLOCK)
    undefined = undefined | (tl.max(astray.to(tl.int32), 0) > 0)
    even, segments = segments_of(nearest, lowest)
    if FEW:
        count = classes
    else:
        count = segments * POINTS
        weigh_segments(
            here, kept, waves, top, highest, scale, classes, even, segments, nearest, lowest, BLOCK
        )
        tl.debug_barrier()
    high, low, wanted, rest = span_of_nodes(
        here, kept, count, top, highest, scale, classes, lowest, LOGISTIC, FEW, PLACES
    )
    # One batch of nodes serves most rows: those without a class far down. Others have two.
    j = tl.arange(0, NODES).to(tl.float32)
    has_more = (rest > 0.0) | (high - low > (NODES - 1) * wanted)
    nodes = tl.where(has_more, 2.0 * NODES, 1.0 * NODES)
    u, log_step = nodes_of(j, nodes, high, low, wanted, rest)
    v, log_step_more = nodes_of(j + NODES, nodes, high, low, wanted, rest)
    level = tl.zeros_like(u)
    others = tl.zeros_like(u)
    level_more = tl.zeros_like(u) + float("-inf")
    others_more = tl.zeros_like(u)
    for turn in range(tl.where(has_more, 2, 1)):
        found_level, found_others = sums_at_nodes(
            here,
            kept,
            tl.where(turn == 0, u, v),
            tl.where(turn == 0, log_step, log_step_more),
            count,
            top,
            highest,
            scale,
            classes,
            LOGISTIC,
            FEW,
        )
        level = tl.where(turn == 0, found_level, level)
        others = tl.where(turn == 0, found_others, others)
        level_more = tl.where(turn == 0, level_more, found_level)
        others_more = tl.where(turn == 0, others_more, found_others)
    hazard_top = hazard_of(u, LOGISTIC)
    hazard_top_more = hazard_of(v, LOGISTIC)
    log_p_top = log_p_of_highest(u, level, others, v, level_more, others_more, LOGISTIC)
    first = tl.zeros([1], tl.int32) + highest
    value = tl.zeros([1], tl.float32)
    slope_top = 0.0
    if OUTPUT >= LOG_P:
        write_log_p(out, first, value + log_p_top, value, undefined, first < classes, OUTPUT)
    else:
        q = target_at(target, weight, place, first, y, classes, smoothing, TARGETS, WEIGHTS)
        value, steep = linked(value + log_p_top, q, link_a, link_b, LINK)
        slope_top = tl.max(steep, 0)

    # log p of the others, and what their slopes add up to at the nodes.
    lane = tl.arange(0, POINTS)
    column = tl.arange(0, BLOCK)
    pulls = tl.zeros_like(u)
    pulls_more = tl.zeros_like(u)
    for s in range(0, tl.cdiv(count, POINTS)):
        i = lane + s * POINTS
        below, _share = places_at(here, kept, i, count, top, highest, scale, classes, FEW)
        # log p (24), at which nodes they win (25), and what a class's own logit does to it (26).
        log_terms = log_terms_of(below, u, level, LOGISTIC)
        most = tl.max(log_terms, 1)
        total = tl.zeros([POINTS], tl.float32)
        own = tl.zeros([POINTS], tl.float32)
        if has_more:
            more = log_terms_of(below, v, level_more, LOGISTIC)
            most = tl.maximum(most, tl.max(more, 1))
            more = tl.exp(more - most[:, None])
            total = tl.sum(more, 1)
            own = tl.sum(more * (others_more + hazard_top_more)[None, :], 1)
        chances = tl.exp(log_terms - most[:, None])
        total += tl.sum(chances, 1)
        own = (own + tl.sum(chances * (others + hazard_top)[None, :], 1)) / total
        log_p = tl.log(total) + most
        slopes = tl.zeros([POINTS], tl.float32)
        if FEW:
            z = read(here, i, classes, False)
            if OUTPUT >= LOG_P:
                write_log_p(out, i, log_p, z, undefined, (i < classes) & (i != highest), OUTPUT)
            else:
                terms, slope = classes_below(
                    log_p,
                    z,
                    i,
                    highest,
                    log_p_top,
                    slope_top,
                    target,
                    weight,
                    place,
                    y,
                    classes,
                    link_a,
                    link_b,
                    smoothing,
                    TARGETS,
                    WEIGHTS,
                    LINK,
                )
                value += tl.sum(terms, 0)
                slopes = slope
                tl.store(kept + 2 * PITCH + i, slope * own, mask=i < classes)
        else:
            at = kept + s * POINTS
            tl.store(at + 2 * PITCH + lane, coefficients_of(log_p, waves))
            tl.store(at + 3 * PITCH + lane, coefficients_of(own, waves))
            tl.debug_barrier()
            middle, half, begin, end = segment_of(s, even, segments, nearest, lowest)
            sums = tl.zeros([POINTS], tl.float32)
            for start in range(0, classes, BLOCK):
                c = start + column
                z, x, inside = in_segment(here, c, top, scale, classes, middle, half, begin, end)
                log_p_of_class = tl.minimum(polynomial(at + 2 * PITCH, x), 0.0)
                if OUTPUT >= LOG_P:
                    mask = inside & (c != highest)
                    write_log_p(out, c, log_p_of_class, z, undefined, mask, OUTPUT)
                else:
                    terms, slope = classes_below(
                        log_p_of_class,
                        z,
                        c,
                        highest,
                        log_p_top,
                        slope_top,
                        target,
                        weight,
                        place,
                        y,
                        classes,
                        link_a,
                        link_b,
                        smoothing,
                        TARGETS,
                        WEIGHTS,
                        LINK,
                    )
                    value += tl.sum(tl.where(inside, terms, 0.0), 0)
                    if OUTPUT == GRADIENT:
                        sums += moments(x, tl.where(inside, slope, 0.0))
            if OUTPUT == GRADIENT:
                slopes = weights_of(sums, waves)
        if OUTPUT == GRADIENT:
            pulls += tl.sum((slopes / total)[:, None] * chances, 0)
            if has_more:
                more = log_terms_of(below, v, level_more, LOGISTIC)
                pulls_more += tl.sum(slopes[:, None] * tl.exp(more - log_p[:, None]), 0)

    if OUTPUT == P:
        normalise(out, classes, BLOCK)
    if OUTPUT == GRADIENT:
        # A row that is undefined, or has no part in the loss, is so as a whole.
        factor = tl.where(undefined, float("nan"), scale)
        tl.debug_barrier()
        for s in range(0, tl.cdiv(count, POINTS)):
            i = lane + s * POINTS
            below, _share = places_at(here, kept, i, count, top, highest, scale, classes, FEW)
            pull = tl.zeros([POINTS], tl.float32)
            for turn in range(tl.where(has_more, 2, 1)):
                hazard = hazard_of(below[:, None] + tl.where(turn == 0, u, v)[None, :], LOGISTIC)
                pull += tl.sum(hazard * tl.where(turn == 0, pulls, pulls_more)[None, :], 1)
            if FEW:
                z = read(here, i, classes, False)
                own = tl.load(kept + 2 * PITCH + i, mask=i < classes, other=0.0)
                write_slope(out, i, own - pull, z, factor, counts, (i < classes) & (i != highest))
            else:
                at = kept + s * POINTS
                tl.store(at + PITCH + lane, coefficients_of(pull, waves))
                tl.debug_barrier()
                middle, half, begin, end = segment_of(s, even, segments, nearest, lowest)
                for start in range(0, classes, BLOCK):
                    c = start + column
                    z, x, inside = in_segment(
                        here, c, top, scale, classes, middle, half, begin, end
                    )
                    pull_of_class, log_p_of_class, own_of_class = three_polynomials(at + PITCH, x)
                    terms, slope = classes_below(
                        tl.minimum(log_p_of_class, 0.0),
                        z,
                        c,
                        highest,
                        log_p_top,
                        slope_top,
                        target,
                        weight,
                        place,
                        y,
                        classes,
                        link_a,
                        link_b,
                        smoothing,
                        TARGETS,
                        WEIGHTS,
                        LINK,
                    )
                    slope = slope * own_of_class - pull_of_class
                    write_slope(out, c, slope, z, factor, counts, inside & (c != highest))
        last = tl.sum(hazard_top * pulls, 0) + tl.sum(hazard_top_more * pulls_more, 0)
        last = tl.zeros([1], tl.float32) - last
        write_slope(out, first, last, last, factor, counts, first < classes)
    value = tl.where(undefined, float("nan"), value)
    return tl.where(counts, value, 0.0), part


@triton.jit
def write_log_p(out, i, log_p, z, undefined, mask, OUTPUT: tl.constexpr):
    """Store log p of classes i with logits z, or p."""
    found = tl.where(z == float("-inf"), float("-inf"), log_p)
    if OUTPUT == P:
        found = tl.exp(found)
    tl.store(out + i, tl.where(undefined, float("nan"), found), mask=mask)


@triton.jit
def normalise(out, classes, BLOCK: tl.constexpr):
    """Divide a row's p by their sum, which differs from 1 by the error of the rule."""
    # What other threads have written.
    tl.debug_barrier()
    column = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, classes, BLOCK):
        i = start + column
        sums += tl.load(out + i, mask=i < classes, other=0.0)
    total = tl.sum(sums, 0)
    for start in range(0, classes, BLOCK):
        i = start + column
        p = tl.load(out + i, mask=i < classes, other=0.0)
        tl.store(out + i, p / total, mask=i < classes)


@triton.jit
def write_slope(out, i, slope, z, factor, counts, mask):
    """Store a gradient at classes i; there is none for those at -inf, or in rows that count not."""
    slope = tl.where(counts, factor * tl.where(z == float("-inf"), 0.0, slope), 0.0)
    tl.store(out + i, slope.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def all_classes_kernel(
    logits,
    target,
    sigma,
    weight,
    a_at,
    b_at,
    smoothing_at,
    loss,
    found,
    kept,
    work,
    table,
    waves,
    rows,
    classes,
    noise,
    ignore_index,
    link_a,
    link_b,
    smoothing,
    SIGMAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    MOVING: tl.constexpr,
    TARGETS: tl.constexpr,
    OUTPUT: tl.constexpr,
    LINK: tl.constexpr,
    REDUCTION: tl.constexpr,
    LOGISTIC: tl.constexpr,
    FEW: tl.constexpr,
    BLOCK: tl.constexpr,
    PLACES: tl.constexpr,
    NODES: tl.constexpr,
):
    """Losses of rows, one after the other, with gradients; or log p, or p, of their classes."""
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    smoothing = number_of(smoothing_at, smoothing, MOVING & 8)
    total = tl.zeros([1], tl.float32)
    parts = tl.zeros([1], tl.float32)
    kept += tl.program_id(0).to(tl.int64) * KEPT
    for index in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.zeros([1], tl.int64) + index
        value, part = one_row(
            logits,
            target,
            sigma,
            weight,
            found,
            kept,
            waves,
            row,
            classes,
            noise,
            ignore_index,
            link_a,
            link_b,
            smoothing,
            SIGMAS,
            WEIGHTS,
            TARGETS,
            OUTPUT,
            LINK,
            LOGISTIC,
            FEW,
            BLOCK,
            PLACES,
            NODES,
        )
        if (REDUCTION == NONE) & (OUTPUT < LOG_P):
            tl.store(loss + row, value)
        total += value
        parts += part
        # Nobody needs any longer what was kept of this row.
        tl.debug_barrier()
    if REDUCTION != NONE:
        one = tl.zeros([1], tl.int64)
        finish(loss, work, table, one, total, parts, one == 0, REDUCTION)
