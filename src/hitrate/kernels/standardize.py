"""Logits of one mean and one spread: what they are, and the gradient that flows through them.

A loss of differences of logits, divided by sigma, is the same for standardised logits as for these
with sigma, and a margin, times their spread. So nothing is standardised: the statistics are one
pass over the logits, and their part of the gradient is a sum and a correction, docs/math.md (38).
"""

import triton
import triton.language as tl

from hitrate.kernels.parts.epilogue import ANY_NUMBER, ANYWHERE

# What the facts are, in their order; then come parts of programs, up to three of each.
COUNT: tl.constexpr = tl.constexpr(0)
MEAN: tl.constexpr = tl.constexpr(1)
SQUARES: tl.constexpr = tl.constexpr(2)
SPREAD: tl.constexpr = tl.constexpr(3)
SIGMA: tl.constexpr = tl.constexpr(4)
MARGIN: tl.constexpr = tl.constexpr(5)
PULL: tl.constexpr = tl.constexpr(6)
FACTS: tl.constexpr = tl.constexpr(8)
# What a gradient is multiplied by before: nothing, one number, or one per row.
AS_IT_IS: tl.constexpr = tl.constexpr(0)
ONE_FACTOR: tl.constexpr = tl.constexpr(1)
PER_ROW: tl.constexpr = tl.constexpr(2)
# Most programs; the last of them adds all up.
PROGRAMS: tl.constexpr = tl.constexpr(2048)


@triton.jit
def counted_rows(target, row, rows, ignore_index, INDEX: tl.constexpr):
    """Whether rows are there, and not ignored."""
    there = row < rows
    if INDEX:
        y = tl.load(target + row, mask=there, other=0).to(tl.int64)
        there = there & (y != ignore_index)
    return there


@triton.jit
def is_finite(z):
    """Neither infinite nor NaN."""
    return tl.abs(z) < float("inf")


@triton.jit
def is_last(table):
    """Whether this program is the last to come here; the count is left at 0 then."""
    # Every store of this program comes before its ticket.
    tl.debug_barrier()
    drawn = tl.atomic_add(table, 1.0, sem="acq_rel")
    last = drawn == tl.num_programs(0) - 1
    if last:
        tl.store(table, 0.0)
    return last


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=(*ANYWHERE, "sigma_at"))
def statistics_kernel(
    logits,
    target,
    sigma_at,
    margin_at,
    facts,
    table,
    rows,
    classes,
    sigma,
    margin,
    epsilon,
    ignore_index,
    MOVING: tl.constexpr,
    INDEX: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
):
    """Count, mean and squared distances of finite logits of rows that count; the spread.

    Also sigma and margin in its units. Bits of MOVING tell which of the two is in memory.
    """
    count = 0.0
    mean = 0.0
    squares = 0.0
    column = tl.arange(0, P)
    for start in range(tl.program_id(0) * R, rows, tl.num_programs(0) * R):
        row = (start + tl.arange(0, R)).to(tl.int64)
        there = counted_rows(target, row, rows, ignore_index, INDEX)
        for first in range(0, classes, P):
            c = first + column
            inside = there[:, None] & (c < classes)[None, :]
            at = row[:, None] * classes + c[None, :]
            z = tl.load(logits + at, mask=inside, other=float("nan")).to(tl.float32)
            finite = is_finite(z)
            n = tl.sum(tl.sum(finite.to(tl.float32), 1), 0)
            here = tl.sum(tl.sum(tl.where(finite, z, 0.0), 1), 0) / tl.maximum(n, 1.0)
            distance = tl.where(finite, z - here, 0.0)
            # Two groups as one: their squares, and those of the distance between their means.
            both = tl.maximum(count + n, 1.0)
            apart = here - mean
            squares += tl.sum(tl.sum(distance * distance, 1), 0)
            squares += tl.where(n > 0.0, apart * apart * (count * n / both), 0.0)
            mean += tl.where(n > 0.0, apart * (n / both), 0.0)
            count += n
    parts = facts + FACTS
    programs = tl.num_programs(0)
    tl.store(parts + tl.program_id(0), count)
    tl.store(parts + programs + tl.program_id(0), mean)
    tl.store(parts + 2 * programs + tl.program_id(0), squares)
    if is_last(table):
        lane = tl.arange(0, PROGRAMS)
        inside = lane < programs
        n = tl.load(parts + lane, mask=inside, other=0.0, cache_modifier=".cg")
        m = tl.load(parts + programs + lane, mask=inside, other=0.0, cache_modifier=".cg")
        q = tl.load(parts + 2 * programs + lane, mask=inside, other=0.0, cache_modifier=".cg")
        count = tl.sum(n, 0)
        mean = tl.sum(n * m, 0) / tl.maximum(count, 1.0)
        squares = tl.sum(q + n * (m - mean) * (m - mean), 0)
        spread = tl.sqrt(squares / tl.maximum(count - 1.0, 1.0) + epsilon)
        if MOVING & 1:
            sigma = tl.load(sigma_at).to(tl.float32)
        if MOVING & 2:
            margin = tl.load(margin_at).to(tl.float32)
        tl.store(facts + COUNT, count)
        tl.store(facts + MEAN, mean)
        tl.store(facts + SQUARES, squares)
        tl.store(facts + SPREAD, spread)
        tl.store(facts + SIGMA, sigma * spread)
        tl.store(facts + MARGIN, margin * spread)


@triton.jit(do_not_specialize=("stride_upstream",), do_not_specialize_on_alignment=ANYWHERE)
def pull_kernel(
    logits,
    gradient,
    facts,
    table,
    upstream,
    work,
    size,
    classes,
    stride_upstream,
    SCALING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum of logits, from their mean, times their gradient: how the loss pulls at their spread.

    A gradient that was made with its value is, in place, multiplied by what comes from above first.
    """
    mean = tl.load(facts + MEAN)
    found = tl.zeros([BLOCK], tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    if SCALING == ONE_FACTOR:
        factor = tl.load(upstream).to(tl.float32) * tl.load(work)
    for start in range(tl.program_id(0).to(tl.int64) * BLOCK, size, step):
        i = start + tl.arange(0, BLOCK)
        z = tl.load(logits + i, mask=i < size, other=float("nan")).to(tl.float32)
        g = tl.load(gradient + i, mask=i < size, other=0.0).to(tl.float32)
        if SCALING != AS_IT_IS:
            if SCALING == PER_ROW:
                above = upstream + (i // classes) * stride_upstream
                factor = tl.load(above, mask=i < size, other=0.0).to(tl.float32)
            # A row without part in the loss has no gradient, whatever comes from above.
            g = tl.where(g == 0.0, 0.0, g * factor)
            tl.store(gradient + i, g.to(gradient.dtype.element_ty), mask=i < size)
        # What does not count has no gradient.
        found += tl.where(is_finite(z), (z - mean) * g, 0.0)
    parts = facts + FACTS
    tl.store(parts + tl.program_id(0), tl.sum(found, 0))
    if is_last(table):
        lane = tl.arange(0, PROGRAMS)
        inside = lane < tl.num_programs(0)
        part = tl.load(parts + lane, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(facts + PULL, tl.sum(part, 0))


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def correct_kernel(
    logits,
    target,
    gradient,
    facts,
    rows,
    classes,
    ignore_index,
    INDEX: tl.constexpr,
    R: tl.constexpr,
    P: tl.constexpr,
):
    """Add, in place, the gradient through mean and spread."""
    mean = tl.load(facts + MEAN)
    spread = tl.load(facts + SPREAD)
    freedom = tl.maximum(tl.load(facts + COUNT) - 1.0, 1.0)
    factor = -tl.load(facts + PULL) / (spread * spread * freedom)
    row = (tl.program_id(0) * R + tl.arange(0, R)).to(tl.int64)
    c = tl.program_id(1) * P + tl.arange(0, P)
    there = counted_rows(target, row, rows, ignore_index, INDEX)
    inside = there[:, None] & (c < classes)[None, :]
    at = row[:, None] * classes + c[None, :]
    z = tl.load(logits + at, mask=inside, other=float("nan")).to(tl.float32)
    g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.where(is_finite(z), g + factor * (z - mean), g)
    tl.store(gradient + at, g.to(gradient.dtype.element_ty), mask=inside)
