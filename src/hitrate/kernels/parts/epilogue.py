"""From log p to a loss: the target's part, and the mean over rows."""

import triton
import triton.language as tl

# A kernel serves tensors at any address, and any numbers: launches need not look at them.
ANYWHERE = (
    *("target", "sigma", "weight", "margin_at", "a_at", "b_at", "smoothing_at"),
    *("loss", "kept", "work", "table", "upstream"),
)
ANY_NUMBER = ("rows", "ignore_index", "stride_upstream")
# Where sigma comes from: a number, one value, or one per row.
NUMBER: tl.constexpr = tl.constexpr(0)
ONE: tl.constexpr = tl.constexpr(1)
EACH: tl.constexpr = tl.constexpr(2)
# Reductions by number. The last leaves the sums to the caller.
NONE: tl.constexpr = tl.constexpr(0)
SUM: tl.constexpr = tl.constexpr(1)
MEAN: tl.constexpr = tl.constexpr(2)
LATER: tl.constexpr = tl.constexpr(3)
# Most programs whose sums are left to the last of them. The table begins with a count of programs,
# goes on with their sums, and then with what `hitrate.kernels.parts.chebyshev` reads.
FINISHED: tl.constexpr = tl.constexpr(16384)
WAVES: tl.constexpr = tl.constexpr(1 + 2 * 16384)
# Programs whose sums the last one adds up at a time.
STRIDE: tl.constexpr = tl.constexpr(512)


@triton.jit
def classify(y, there, weight, classes, ignore_index, WEIGHTS: tl.constexpr):
    """The target as a class, its part in the loss (0 if ignored), and whether it is no class."""
    y = y.to(tl.int64)
    ignored = y == ignore_index
    outside = (y < 0) | (y >= classes)
    astray = outside & (ignored == 0)
    # No foreign memory is read for a target that is no class: its loss is not a number.
    y = tl.where(outside, 0, y)
    part = tl.where(ignored | (there == 0), 0.0, 1.0)
    if WEIGHTS:
        w = tl.load(weight + y).to(tl.float32)
        part = tl.where(astray, 1.0, part * w)
    return y, part, astray


@triton.jit
def sigma_of(sigma, row, there, noise, SIGMAS: tl.constexpr):
    """Sigma of rows."""
    scale = tl.zeros(row.shape, tl.float32) + noise
    if SIGMAS == ONE:
        scale = tl.zeros(row.shape, tl.float32) + tl.load(sigma).to(tl.float32)
    if SIGMAS == EACH:
        scale = tl.load(sigma + row, mask=there, other=1.0).to(tl.float32)
    return scale


@triton.jit
def number_of(at, number, MOVING: tl.constexpr):
    """A number of the loss: as given, or, where a schedule moves it, from memory."""
    if MOVING != 0:
        number = tl.load(at).to(tl.float32)
    return number


@triton.jit
def turning_at(work, row):
    """Where a row's slope in sigma is kept: behind the factor of the mean."""
    return work + 1 + row


@triton.jit
def finish(loss, work, table, row, value, part, there, REDUCTION: tl.constexpr):
    """Store the rows' losses, or their sum; the last program adds all up, always in one order.

    `work` begins with the factor by which the mean divides. The table's count of the programs that
    were here is left at 0.
    """
    programs = tl.num_programs(0)
    if REDUCTION == NONE:
        tl.store(loss + row, value, mask=there)
    if REDUCTION == LATER:
        tl.store(loss + tl.program_id(0), tl.sum(value, 0))
        tl.store(loss + programs + tl.program_id(0), tl.sum(part, 0))
    if (REDUCTION == SUM) | (REDUCTION == MEAN):
        sums = table + 1
        tl.store(sums + tl.program_id(0), tl.sum(value, 0))
        tl.store(sums + FINISHED + tl.program_id(0), tl.sum(part, 0))
        # Every store of this program comes before its ticket.
        tl.debug_barrier()
        drawn = tl.atomic_add(table, 1.0, sem="acq_rel")
        if drawn == programs - 1:
            lane = tl.arange(0, STRIDE)
            total = tl.zeros([STRIDE], tl.float32)
            parts = tl.zeros([STRIDE], tl.float32)
            for start in range(0, programs, STRIDE):
                at = start + lane
                inside = at < programs
                total += tl.load(sums + at, mask=inside, other=0.0, cache_modifier=".cg")
                at += FINISHED
                parts += tl.load(sums + at, mask=inside, other=0.0, cache_modifier=".cg")
            whole = tl.sum(total, 0)
            if REDUCTION == MEAN:
                divisor = tl.sum(parts, 0)
                # Smoothing leaves something even where no target has weight.
                tl.store(loss, tl.where(divisor == 0.0, float("nan"), whole / divisor))
                # Without any part the mean is not a number, and has no gradient.
                tl.store(work, tl.where(divisor == 0.0, 0.0, 1.0 / divisor))
            else:
                tl.store(loss, whole)
                tl.store(work, 1.0)
            # Ready for the next launch.
            tl.store(table, 0.0)


@triton.jit(do_not_specialize=ANY_NUMBER, do_not_specialize_on_alignment=ANYWHERE)
def scale_kernel(
    gradient,
    upstream,
    work,
    rows,
    classes,
    stride_upstream,
    PER_ROW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply a gradient, in place, by what comes from above."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < rows.to(tl.int64) * classes
    g = tl.load(gradient + i, mask=inside, other=0.0).to(tl.float32)
    if PER_ROW:
        factor = tl.load(upstream + (i // classes) * stride_upstream, mask=inside, other=0.0)
    else:
        factor = tl.load(upstream) * tl.load(work)
    # A row without part in the loss has no gradient, whatever comes from above.
    g = tl.where(g == 0.0, 0.0, g * factor.to(tl.float32))
    tl.store(gradient + i, g.to(gradient.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=("count",), do_not_specialize_on_alignment=("factor",))
def times_kernel(values, factor, count, BLOCK: tl.constexpr):
    """Multiply numbers, in place, by one in memory; 1 leaves them unread."""
    f = tl.load(factor).to(tl.float32)
    if f != 1.0:
        first = tl.program_id(0).to(tl.int64) * BLOCK
        for start in range(first, count, tl.num_programs(0).to(tl.int64) * BLOCK):
            i = start + tl.arange(0, BLOCK)
            v = tl.load(values + i, mask=i < count, other=0.0).to(tl.float32)
            tl.store(values + i, (v * f).to(values.dtype.element_ty), mask=i < count)
