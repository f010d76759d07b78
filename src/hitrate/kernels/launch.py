"""Launchers: from tensors to kernels, no autograd, no checks of what the user said."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from hitrate.kernels import finish, segments
from hitrate.kernels.finish import scale_kernel
from hitrate.kernels.logistic import logistic_kernel
from hitrate.kernels.long import compress, expand, integrate_kept
from hitrate.kernels.many import many_kernel
from hitrate.kernels.rows import rows_kernel

# Up to this many classes all rivals are looked at; above, a few stand for all.
ROWS_UP_TO = 32
# Up to this many classes the gradient is made with the value; above, in the backward pass.
AT_ONCE_UP_TO = 4096
# Programs whose sums are left to the last of them.
FINISHED_UP_TO = 16384
# Columns and warps of a program, for rows at once, for long rows (in half precision), and for
# their gradient.
SHORT, LONG, LONG_HALF, WIDE = (32, 1), (512, 8), (256, 4), (2048, 4)
# Columns that a program of logistic noise looks at for the closest, and at all nodes at once.
SPREAD = (256, 16)
SEARCH = 20
REDUCTIONS = {"none": int(finish.NONE), "sum": int(finish.SUM), "mean": int(finish.MEAN)}
# The kernels' numbers, as numbers.
ADDED_LATER = int(finish.LATER)
KEPT = int(segments.FACTS) + int(segments.PLACES)
LOG_P = int(finish.LOG_P)


class Rule(NamedTuple):
    """What a loss makes of log p: a link by number, its parameters, and cross entropy's manners."""

    link: int = LOG_P
    a: float = 0.0
    b: float = 0.0
    reduction: str = "none"
    ignore_index: int = -(2**31)
    margin: float | None = None
    logistic: bool = False

    def is_at_once(self, classes: int) -> bool:
        """Whether the gradient is made with the value."""
        return self.logistic or classes <= AT_ONCE_UP_TO


class Found(NamedTuple):
    """A loss, and what its gradient is made from."""

    loss: Tensor  # () or (N,), float32
    gradient: Tensor  # (N, C) in the logits' dtype, or (N, KEPT) to expand; or none
    # The mean's factor; losses and parts of all programs; slopes in sigma, if they are learned.
    work: Tensor


def forward(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    weight: Tensor | None,
    rule: Rule,
    *,
    wanted: bool,
    learned: bool,
) -> Found:
    """The loss of logits (N, C) in float32 or half precision.

    Tensors are contiguous; one of sigma has one value, or N. `wanted` and `learned` say whether
    gradients in logits and sigma will be asked for. All arithmetic is in float32.
    """
    device = logits.device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return forward(logits, target, sigma, weight, rule, wanted=wanted, learned=learned)
    rows, classes = logits.shape
    few, at_once = classes <= ROWS_UP_TO and not rule.logistic, rule.is_at_once(classes)
    padded = max(triton.next_power_of_2(classes), 2)
    together = 32 // padded if few else 1
    programs = -(-rows // together)
    reduction = REDUCTIONS[rule.reduction]
    if reduction and programs > FINISHED_UP_TO:
        reduction = ADDED_LATER
    float32: Any = {"dtype": torch.float32, "device": device}
    loss = torch.empty(() if reduction else rows, **float32)
    work = gradient = torch.empty(1 + 2 * programs + (rows if learned else 0), **float32)
    if wanted and at_once:
        gradient = torch.empty(logits.shape, dtype=logits.dtype, device=device)
    elif not at_once:
        gradient = torch.empty((rows, KEPT), **float32)
    table = _table(device)
    margin = 0.0 if rule.margin is None else rule.margin
    sigma_at, noise, sigmas = _sigma(sigma, logits)
    read = (logits, target, sigma_at, logits if weight is None else weight)
    tensors = (*read, loss, gradient, work, table)
    numbers = (classes, noise, margin, rule.ignore_index, rule.a, rule.b)
    grid = (programs, 1, 1)
    which = (sigmas, weight is not None, rule.margin is not None)
    how: tuple[int, ...] = (*which, learned, wanted, rule.link, reduction)
    if few:
        launch(rows_kernel, grid, tensors, (rows, *numbers), (*how, together, padded, 4, SEARCH), 1)
    elif rule.logistic:
        launch(logistic_kernel, grid, tensors, numbers, (*how, *SPREAD), 1 if classes <= 256 else 4)
    elif at_once:
        block, warps = SHORT
        how = (*how, classes % block == 0, block, SEARCH)
        launch(many_kernel, grid, tensors, numbers, how, warps)
    else:
        powers = logits.dtype != torch.float32
        block, warps = LONG_HALF if powers else LONG
        facts = (classes, noise, margin, rule.ignore_index)
        pace = (*which, classes % block == 0, block, SEARCH)
        launch(compress, grid, (*read, gradient, table), facts, pace, warps)
        launch(integrate_kept, grid, tensors, numbers, (*how, powers, SEARCH), 1)
    if reduction == ADDED_LATER:
        whole, parts = work[1 : 2 * programs + 1].view(2, programs).sum(1)
        mean = rule.reduction == "mean"
        loss = whole / parts if mean else whole
        work[0] = torch.where(parts == 0, 0.0, 1 / parts) if mean else 1.0
    return Found(loss, gradient, work)


def backward(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    found: Found,
    rule: Rule,
    upstream: Tensor,
) -> Tensor:
    """Gradient in logits (N, C) for an upstream () or (N,); may overwrite what was found."""
    rows, classes = logits.shape
    per_row = rule.reduction == "none"
    step = upstream.stride(0) if per_row else 0
    if rule.is_at_once(classes):
        tensors = (found.gradient, upstream, found.work)
        grid = (-(-rows * classes // 1024), 1, 1)
        launch(scale_kernel, grid, tensors, (rows, classes, step), (per_row, 1024), 4)
        return found.gradient
    gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    block, warps = WIDE
    sigma_at, noise, sigmas = _sigma(sigma, logits)
    which = (sigmas, rule.margin is not None)
    launch(
        expand,
        (rows, -(-classes // block), 1),
        (logits, target, sigma_at, found.gradient, found.work, upstream, gradient),
        (classes, step, noise, 0.0 if rule.margin is None else rule.margin),
        (*which, per_row, logits.dtype != torch.float32, classes % block == 0, block),
        warps,
    )
    return gradient


_COMPILED: dict[tuple[Any, ...], Any] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: tuple[Tensor, ...],
    numbers: tuple[float, ...],
    constants: tuple[int, ...],
    warps: int,
) -> None:
    """Start a kernel; from the second time on without what Triton's own launcher looks at.

    A compiled kernel serves all calls with the same constants, types, and divisibility of the
    first tensor's address and of the number of classes, of which kernels make use. Numbers count
    as any of their kind, other tensors may be anywhere or are aligned, being new.
    """
    first = tensors[0]
    key = (
        kernel,
        warps,
        constants,
        first.device.index,
        first.shape[1] % 16 == 0,
        first.data_ptr() % 16 == 0,
        *[tensor.dtype for tensor in tensors],
    )
    compiled = _COMPILED.get(key)
    if compiled is None:
        # In the interpreter there is nothing to keep.
        found = kernel[grid](*tensors, *numbers, *constants, num_warps=warps)
        if found is not None:
            _COMPILED[key] = found
    else:
        compiled[grid](*tensors, *numbers, *constants)


def _sigma(sigma: float | Tensor, logits: Tensor) -> tuple[Tensor, float, int]:
    """A tensor to read sigma from (any, for a number), the number, and which it is."""
    if not isinstance(sigma, Tensor):
        return logits, float(sigma), 0
    return sigma, 1.0, 1 if sigma.numel() == 1 else 2


def slope_in_sigma(rows: int, found: Found, rule: Rule, upstream: Tensor) -> Tensor:
    """Gradient in sigma (N,), where the loss was computed as learned."""
    turning = found.work[-rows:]
    factor = upstream if rule.reduction == "none" else upstream * found.work[0]
    return torch.where(turning == 0, turning, turning * factor)


def log_probability(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None, logistic: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """log p (N,), its gradient in logits (N, C) and in sigma (N, 1).

    Logits in float32 or half precision; sigma (N, 1); all arithmetic in float32.
    """
    if torch.compiler.is_compiling():
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.hitrate.log_probability(
            logits, target, sigma, margin, logistic
        )
        return found
    return _log_probability(logits, target, sigma, margin, logistic)


def _log_probability(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None, logistic: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rule = Rule(margin=margin, logistic=logistic)
    logits, target, column = logits.contiguous(), target.contiguous(), sigma[:, 0].contiguous()
    found = forward(logits, target, column, None, rule, wanted=True, learned=True)
    to_sigma = found.work[-len(logits) :, None].clone()
    if rule.is_at_once(logits.shape[1]):
        return found.loss, found.gradient, to_sigma
    ones = torch.ones(1, dtype=torch.float32, device=logits.device).expand(len(logits))
    return found.loss, backward(logits, target, column, found, rule, ones), to_sigma


# To a compiler the kernels are one operation that it does not look into.
_operation = torch.library.custom_op(
    "hitrate::log_probability",
    _log_probability,
    mutates_args=(),
    schema="(Tensor logits, Tensor target, Tensor sigma, float? margin, bool logistic)"
    " -> (Tensor, Tensor, Tensor)",
)


@_operation.register_fake
def _shapes(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None, logistic: bool
) -> tuple[Tensor, Tensor, Tensor]:
    row = torch.empty_like(logits[:, 0], dtype=torch.float32)
    whole = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    return row, whole, row.new_empty(len(logits), 1)


@functools.lru_cache(maxsize=8)
def _pristine(device: torch.device) -> Tensor:
    """A count of programs, 0; then the table of `hitrate.kernels.segments`."""
    count, pitch = int(segments.POINTS), int(segments.PITCH)
    angle = (torch.arange(count, dtype=torch.float64) + 0.5) * (math.pi / count)
    terms = int(segments.TERMS)
    rows = torch.zeros(count + 1 + terms, pitch, dtype=torch.float64)
    # What makes coefficients: T_j at the points, times 2 / points, half that for j = 0.
    waves = torch.cos(torch.arange(count)[:, None] * angle) * (2 / count)
    waves[0] /= 2
    rows[:count, :count] = waves
    rows[count, :count] = torch.cos(angle)
    rows[count + 1 :, :terms] = _powers(terms).T
    return torch.cat([torch.zeros(1), rows.flatten().float()]).to(device)


def _powers(terms: int) -> Tensor:
    """Coefficients (j, m) of x^m in T_j."""
    found = torch.zeros(terms, terms, dtype=torch.float64)
    found[0, 0] = found[1, 1] = 1.0
    for j in range(2, terms):
        found[j] = -found[j - 2]
        found[j, 1:] += 2 * found[j - 1, :-1]
    return found


_TABLES: dict[tuple[torch.device, int], Tensor] = {}


def _table(device: torch.device) -> Tensor:
    """The table for the current stream, whose kernels come one by one and leave the count at 0."""
    stream = 0
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            # A graph may run beside others, on any stream.
            return _pristine(device).clone()
        stream = driver.active.get_current_stream(device.index)
    table = _TABLES.get((device, stream))
    if table is None:
        table = _TABLES[device, stream] = _pristine(device).clone()
    return table
