"""Gumbel noise: losses of the softmax, by one kernel for the value and one for the gradient.

With T = sum_i exp((z_i - top) / sigma) over the rivals, log p = log sigmoid((z_y - top) / sigma -
log T): neither the value nor the gradient subtracts p from 1. Between the kernels a row is four
numbers; the second reads the logits again, which takes less than writing and reading softmaxes.
"""

import triton
import triton.language as tl

from hitrate.kernels.logistic import log_sigmoid, sigmoid
from hitrate.kernels.parts.epilogue import (
    ANY_NUMBER,
    ANYWHERE,
    classify,
    finish,
    number_of,
    sigma_of,
)

# What a row costs: by its class, by its class with smoothing, by probabilities of all classes.
INDEX: tl.constexpr = tl.constexpr(0)
SMOOTHED: tl.constexpr = tl.constexpr(1)
SOFT: tl.constexpr = tl.constexpr(2)
# Numbers kept of a row: the highest rival, log T, and two factors of its gradient.
KEPT: tl.constexpr = tl.constexpr(4)
# In the place of -inf where differences are taken.
LOW: tl.constexpr = tl.constexpr(-3.4028234e38)


@triton.jit
def rows_of(rows, classes, ACROSS: tl.constexpr, R: tl.constexpr):
    """R rows: which, whether they are there, and where their logits begin.

    Rows lie one after the other; or ACROSS, as in (N, C, D), next to each other within each n.
    """
    blocks = tl.cdiv(rows, R)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    inner = (tl.program_id(0) % blocks) * R + tl.arange(0, R)
    there = inner < rows
    row = outer * rows + inner
    if ACROSS:
        here = outer * rows * classes + inner
    else:
        here = row * classes
    return row, there, here


@triton.jit
def work_of(kept, rows, R: tl.constexpr):
    """Where the factor of the mean is: behind what is kept of all rows."""
    outer = (tl.num_programs(0) // tl.cdiv(rows, R)).to(tl.int64)
    return kept + outer * rows * KEPT


@triton.jit
def tile(logits, here, there, c, classes, pitch):
    """Logits (R, P) of rows at classes c, -inf where there are none."""
    inside = there[:, None] & (c < classes)[None, :]
    at = here[:, None] + (c * pitch)[None, :]
    return tl.load(logits + at, mask=inside, other=float("-inf")).to(tl.float32)


@triton.jit
def rivals(z, c, y, own, margin, TARGETS: tl.constexpr, HAS_MARGIN: tl.constexpr):
    """What is summed over, the margin's floor applied; all classes where all are targets."""
    v = z
    if TARGETS == INDEX:
        v = tl.where(c[None, :] == y[:, None], float("-inf"), z)
        if HAS_MARGIN:
            v = tl.where(v == float("-inf"), v, tl.maximum(v, (own - margin)[:, None]))
    return v


@triton.jit
def free_of(v, own, margin):
    """Rivals that the margin does not hold."""
    return v > (own - margin)[:, None]


@triton.jit
def probabilities(
    target, weight, here, there, c, y, classes, pitch, smoothing,
    TARGETS: tl.constexpr, WEIGHTS: tl.constexpr,
):  # fmt: skip
    """Target probabilities (R, P), smoothed, times the weights of classes."""
    inside = there[:, None] & (c < classes)[None, :]
    if TARGETS == SOFT:
        at = here[:, None] + (c * pitch)[None, :]
        q = tl.load(target + at, mask=inside, other=0.0).to(tl.float32)
    else:
        q = tl.where(c[None, :] == y[:, None], 1.0, 0.0)
    q = tl.where(inside, q * (1.0 - smoothing) + smoothing / classes, 0.0)
    if WEIGHTS:
        w = tl.load(weight + c, mask=c < classes, other=0.0).to(tl.float32)
        q = q * w[None, :]
    return q


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def softmax_value(
    logits,
    target,
    sigma,
    weight,
    margin_at,
    a_at,
    b_at,
    smoothing_at,
    loss,
    kept,
    table,
    rows,
    classes,
    pitch,
    noise,
    margin,
    ignore_index,
    link_a,
    link_b,
    smoothing,
    SIGMAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    HAS_MARGIN: tl.constexpr,
    MOVING: tl.constexpr,
    TARGETS: tl.constexpr,
    LINK: tl.constexpr,
    REDUCTION: tl.constexpr,
    ACROSS: tl.constexpr,
    WHOLE: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
):
    """Loss of R rows, P classes at a time: all at once (WHOLE), or one row in steps."""
    margin = number_of(margin_at, margin, MOVING & 1)
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    smoothing = number_of(smoothing_at, smoothing, MOVING & 8)
    row, there, here = rows_of(rows, classes, ACROSS, R)
    scale = 1.0 / sigma_of(sigma, row, there, noise, SIGMAS)
    c = tl.arange(0, P)
    if TARGETS == SOFT:
        y = tl.zeros([R], tl.int32)
        part = tl.where(there, 1.0, 0.0)
        astray = there == 0
        own = part
    else:
        label = tl.load(target + row, mask=there, other=0)
        y, part, astray = classify(label, there, weight, classes, ignore_index, WEIGHTS)
        own = tl.load(logits + here + y * pitch, mask=there, other=0.0).to(tl.float32)
        y = y.to(tl.int32)

    free = tl.zeros([R], tl.float32)
    if WHOLE:
        z = tile(logits, here, there, c, classes, pitch)
        v = rivals(z, c, y, own, margin, TARGETS, HAS_MARGIN)
        top = tl.maximum(tl.max(v, 1), LOW)
        e = tl.exp((v - top[:, None]) * scale[:, None])
        total = tl.sum(e, 1)
        if HAS_MARGIN:
            free = tl.sum(tl.where(free_of(v, own, margin), e, 0.0), 1)
    else:
        # Each lane has its own highest so far: lanes meet only at the end.
        best = tl.full([R, P], LOW, tl.float32)
        sums = tl.zeros([R, P], tl.float32)
        free_sums = tl.zeros([R, P], tl.float32)
        for start in range(0, classes, 4 * P):
            z0 = tile(logits, here, there, start + c, classes, pitch)
            z1 = tile(logits, here, there, start + P + c, classes, pitch)
            z2 = tile(logits, here, there, start + 2 * P + c, classes, pitch)
            z3 = tile(logits, here, there, start + 3 * P + c, classes, pitch)
            z0 = rivals(z0, start + c, y, own, margin, TARGETS, HAS_MARGIN)
            z1 = rivals(z1, start + P + c, y, own, margin, TARGETS, HAS_MARGIN)
            z2 = rivals(z2, start + 2 * P + c, y, own, margin, TARGETS, HAS_MARGIN)
            z3 = rivals(z3, start + 3 * P + c, y, own, margin, TARGETS, HAS_MARGIN)
            better = tl.maximum(tl.maximum(z0, z1), tl.maximum(z2, z3))
            better = tl.maximum(better, best)
            shrink = tl.exp((best - better) * scale[:, None])
            e0 = tl.exp((z0 - better) * scale[:, None])
            e1 = tl.exp((z1 - better) * scale[:, None])
            e2 = tl.exp((z2 - better) * scale[:, None])
            e3 = tl.exp((z3 - better) * scale[:, None])
            sums = sums * shrink + ((e0 + e1) + (e2 + e3))
            if HAS_MARGIN:
                free_sums = free_sums * shrink + tl.where(free_of(z0, own, margin), e0, 0.0)
                free_sums += tl.where(free_of(z1, own, margin), e1, 0.0)
                free_sums += tl.where(free_of(z2, own, margin), e2, 0.0)
                free_sums += tl.where(free_of(z3, own, margin), e3, 0.0)
            best = better
        top = tl.max(best, 1)
        shrink = tl.exp((best - top[:, None]) * scale[:, None])
        total = tl.sum(sums * shrink, 1)
        if HAS_MARGIN:
            free = tl.sum(free_sums * shrink, 1)
    log_total = tl.log(total)

    if TARGETS == INDEX:
        t = (own - top) * scale - log_total
        # A NaN, a logit of +inf, or none above -inf leaves log p undefined.
        undefined = (t != t) | (own == float("inf")) | astray
        decided = (own == float("-inf")) | (total == 0.0)
        value, steep = LINK(log_sigmoid(t), link_a, link_b)
        value = tl.where(undefined, float("nan"), value)
        value = tl.where(part == 0.0, 0.0, part * value)
        push = part * steep * sigmoid(-t) * scale
        push = tl.where(undefined, float("nan"), tl.where(decided, 0.0, push))
        push = tl.where(part == 0.0, 0.0, push)
        pull = push
        if HAS_MARGIN:
            pull = tl.where(push == 0.0, 0.0, push * (free / total))
    else:
        push = tl.zeros([R], tl.float32)
        value = tl.zeros([R], tl.float32)
        if WHOLE:
            log_p = (z - top[:, None]) * scale[:, None] - log_total[:, None]
            q = probabilities(
                target, weight, here, there, c, y, classes, pitch, smoothing, TARGETS, WEIGHTS
            )
            terms, steep = LINK(log_p, link_a, link_b)
            value = tl.sum(tl.where(q == 0.0, 0.0, q * terms), 1)
            push = tl.sum(tl.where(q == 0.0, 0.0, q * steep), 1)
        else:
            for start in range(0, classes, P):
                z = tile(logits, here, there, start + c, classes, pitch)
                log_p = (z - top[:, None]) * scale[:, None] - log_total[:, None]
                q = probabilities(
                    target,
                    weight,
                    here,
                    there,
                    start + c,
                    y,
                    classes,
                    pitch,
                    smoothing,
                    TARGETS,
                    WEIGHTS,
                )
                terms, steep = LINK(log_p, link_a, link_b)
                value += tl.sum(tl.where(q == 0.0, 0.0, q * terms), 1)
                push += tl.sum(tl.where(q == 0.0, 0.0, q * steep), 1)
        undefined = (log_total != log_total) | (total == 0.0)
        if TARGETS == SMOOTHED:
            undefined = undefined | astray
            # The weight of a row's class counts in the mean; the row is there, unless ignored.
            is_there = label != ignore_index
        else:
            is_there = there
        undefined = undefined & there & is_there
        value = tl.where(undefined, float("nan"), tl.where(is_there & there, value, 0.0))
        push = tl.where(undefined, float("nan"), push)
        pull = tl.where(is_there & there, 1.0, 0.0)

    facts = kept + row * KEPT
    tl.store(facts + 0, top, mask=there)
    tl.store(facts + 1, log_total, mask=there)
    tl.store(facts + 2, push, mask=there)
    tl.store(facts + 3, pull, mask=there)
    finish(loss, work_of(kept, rows, R), table, row, value, part, there, REDUCTION)


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def softmax_gradient(
    logits,
    target,
    sigma,
    weight,
    margin_at,
    a_at,
    b_at,
    smoothing_at,
    kept,
    upstream,
    gradient,
    rows,
    classes,
    pitch,
    stride_upstream,
    noise,
    margin,
    link_a,
    link_b,
    smoothing,
    SIGMAS: tl.constexpr,
    WEIGHTS: tl.constexpr,
    HAS_MARGIN: tl.constexpr,
    MOVING: tl.constexpr,
    TARGETS: tl.constexpr,
    LINK: tl.constexpr,
    PER_ROW: tl.constexpr,
    ACROSS: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
):
    """Gradient in R rows at P classes, times what comes from above."""
    margin = number_of(margin_at, margin, MOVING & 1)
    link_a = number_of(a_at, link_a, MOVING & 2)
    link_b = number_of(b_at, link_b, MOVING & 4)
    smoothing = number_of(smoothing_at, smoothing, MOVING & 8)
    row, there, here = rows_of(rows, classes, ACROSS, R)
    scale = 1.0 / sigma_of(sigma, row, there, noise, SIGMAS)
    c = tl.program_id(1) * P + tl.arange(0, P)
    facts = kept + row * KEPT
    top = tl.load(facts + 0, mask=there, other=0.0)
    log_total = tl.load(facts + 1, mask=there, other=0.0)
    push = tl.load(facts + 2, mask=there, other=0.0)
    pull = tl.load(facts + 3, mask=there, other=0.0)
    if PER_ROW:
        above = tl.load(upstream + row * stride_upstream, mask=there, other=0.0).to(tl.float32)
    else:
        above = tl.zeros([R], tl.float32) + tl.load(upstream).to(tl.float32)
        above *= tl.load(work_of(kept, rows, R))

    z = tile(logits, here, there, c, classes, pitch)
    log_share = (z - top[:, None]) * scale[:, None] - log_total[:, None]
    y = tl.zeros([R], tl.int32) - 1
    if TARGETS != SOFT:
        label = tl.load(target + row, mask=there, other=0).to(tl.int64)
        y = tl.where((label < 0) | (label >= classes), -1, label).to(tl.int32)
    if TARGETS == INDEX:
        # A row without part in the loss, or decided, has no gradient, whatever comes from above.
        above = tl.where(push == 0.0, 0.0, above)
        found = -push[:, None] * tl.exp(log_share)
        found = tl.where((push == 0.0)[:, None], 0.0, found)
        if HAS_MARGIN:
            own = tl.load(logits + here + tl.maximum(y, 0) * pitch, mask=there, other=0.0)
            held = z <= (own.to(tl.float32) - margin)[:, None]
            found = tl.where(held, 0.0 * push[:, None], found)
        found = tl.where(c[None, :] == y[:, None], pull[:, None], found)
    else:
        above = tl.where(pull == 0.0, 0.0, above)
        q = probabilities(
            target, weight, here, there, c, y, classes, pitch, smoothing, TARGETS, WEIGHTS
        )
        _, steep = LINK(log_share, link_a, link_b)
        steep = tl.where(q == 0.0, 0.0, q * steep)
        found = scale[:, None] * (steep - tl.exp(log_share) * push[:, None])
        found = tl.where((pull == 0.0)[:, None], 0.0, found)
    at = here[:, None] + (c * pitch)[None, :]
    inside = there[:, None] & (c < classes)[None, :]
    found = (found * above[:, None]).to(gradient.dtype.element_ty)
    tl.store(gradient + at, found, mask=inside)
