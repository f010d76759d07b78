"""From log p to a loss: the target's part, the link, and the mean over rows."""

import triton
import triton.language as tl

# A kernel serves tensors at any address, and any numbers: launches need not look at them.
ANYWHERE = ("target", "sigma", "weight", "loss", "kept", "work", "table", "upstream")
ANY_NUMBER = ("rows", "ignore_index", "stride_upstream")
# Where sigma comes from: a number, one value, or one per row.
NUMBER: tl.constexpr = tl.constexpr(0)
ONE: tl.constexpr = tl.constexpr(1)
EACH: tl.constexpr = tl.constexpr(2)
# Links by number, with parameters a and b.
LOG_P: tl.constexpr = tl.constexpr(0)
MIXED: tl.constexpr = tl.constexpr(1)
GCE: tl.constexpr = tl.constexpr(2)
FOCAL: tl.constexpr = tl.constexpr(3)
TAMED: tl.constexpr = tl.constexpr(4)
# Reductions by number. The last leaves the sums to the caller.
NONE: tl.constexpr = tl.constexpr(0)
SUM: tl.constexpr = tl.constexpr(1)
MEAN: tl.constexpr = tl.constexpr(2)
LATER: tl.constexpr = tl.constexpr(3)
# Most programs whose sums are left to the last of them. The table begins with a count of programs,
# goes on with their sums, and then with what `hitrate.kernels.chebyshev` reads.
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
def one_minus_exp(x):
    """1 - e^x for x <= 0."""
    series = 1.0 / 5040.0
    series = series * x + 1.0 / 720.0
    series = series * x + 1.0 / 120.0
    series = series * x + 1.0 / 24.0
    series = series * x + 1.0 / 6.0
    series = series * x + 0.5
    series = series * x + 1.0
    return tl.where(x > -0.3, -x * series, 1.0 - tl.exp(x))


@triton.jit
def log1p(x):
    """log(1 + x) for x >= 0: what 1 + x loses in rounding is made up for by a factor."""
    u = 1.0 + x
    kept = u - 1.0
    return tl.where(kept == 0.0, x, tl.where(x > 1e30, tl.log(x), tl.log(u) * (x / kept)))


@triton.jit
def link_of(log_p, a, b, LINK: tl.constexpr):
    """The link's value, and its slope in log p, as in `hitrate.links`."""
    if LINK == LOG_P:
        value = log_p
        slope = tl.zeros_like(log_p) + 1.0
    if LINK == MIXED:
        # Each part only where it is one: 0 times infinity is not 0.
        value = b * one_minus_exp(log_p)
        value = tl.where(a == 0.0, value, value - a * log_p)
        slope = -a - b * tl.exp(log_p)
    if LINK == GCE:
        above = tl.maximum(log_p, b, propagate_nan=tl.PropagateNan.ALL)
        value = tl.where(a == 0.0, -above, one_minus_exp(a * above) / tl.maximum(a, 1e-30))
        slope = tl.where(log_p >= b, -tl.exp(a * log_p), 0.0)
    if LINK == FOCAL:
        x = -log_p
        e = one_minus_exp(log_p)
        power = tl.where(e > 0.0, tl.exp(a * tl.log(e)), tl.where(a == 0.0, 1.0, 0.0))
        value = x * power
        # Of x e^a: e^a + a x / e e^a p, where x / e tends to 1 and x p to 0.
        p = tl.exp(log_p)
        ratio = tl.where(e > 0.0, tl.where(p > 0.0, x * p, 0.0) / e, 1.0)
        slope = -power * (1.0 + a * ratio)
    if LINK == TAMED:
        x = -log_p
        grown = log1p(x)
        c = 1.0 - a
        value = tl.where(c == 0.0, grown, -one_minus_exp_signed(c * grown) / (c + (c == 0.0)))
        slope = -tl.exp(-a * grown)
    return value, slope


@triton.jit
def one_minus_exp_signed(x):
    """1 - e^x for any x."""
    return tl.where(x > 0.3, 1.0 - tl.exp(x), one_minus_exp(x))


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
                tl.store(loss, whole / divisor)
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
