"""Launchers: from tensors to kernels, no autograd, no checks of what the user said."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime import driver

from hitrate.kernels import chebyshev, epilogue
from hitrate.kernels.chebyshev_table import table_of
from hitrate.kernels.epilogue import scale_kernel
from hitrate.kernels.fast_launch import Start
from hitrate.kernels.few_classes import few_classes_kernel
from hitrate.kernels.link_code import compiled, log_p_itself
from hitrate.kernels.logistic import logistic_kernel
from hitrate.kernels.many_classes import compress, expand, integrate_kept
from hitrate.kernels.per_row import per_row_kernel

__all__ = ["Found", "Rule", "backward", "compiled", "forward", "log_probability", "scaled"]

# Up to this many classes all rivals are looked at; above, a few stand for all.
ROWS_UP_TO = 32
# Up to this many classes the gradient is made with the value; above, in the backward pass.
AT_ONCE_UP_TO = 4096
# Up to this many programs leave their sums to the last of them.
FINISHED_UP_TO = int(epilogue.FINISHED)
# Columns and warps of a program, for rows at once, for long rows (in half precision), and for
# their gradient.
SHORT, LONG, LONG_HALF, WIDE = (32, 1), (512, 8), (256, 4), (2048, 4)
# Columns that a program of logistic noise looks at for the closest, and at all nodes at once.
SPREAD = (256, 16)
SEARCH = 20
# Terms of a segment's polynomial in half precision.
TERMS_HALF = 16
REDUCTIONS = {"none": int(epilogue.NONE), "sum": int(epilogue.SUM), "mean": int(epilogue.MEAN)}
# The kernels' numbers, as numbers.
ADDED_LATER = int(epilogue.LATER)
KEPT = int(chebyshev.FACTS) + int(chebyshev.PLACES)


class Rule(NamedTuple):
    """What a loss makes of log p: a compiled link, its numbers, and cross entropy's options."""

    noise: str
    link: Any = log_p_itself
    a: float | Tensor = 0.0
    b: float | Tensor = 0.0
    reduction: str = "none"
    ignore_index: int = -(2**31)
    margin: float | Tensor | None = None

    @property
    def logistic(self) -> bool:
        """Whether the kernel is that of logistic noise."""
        return self.noise == "logistic"

    def is_at_once(self, classes: int) -> bool:
        """Whether the gradient is made with the value."""
        return self.logistic or classes <= AT_ONCE_UP_TO

    def numbers(self) -> tuple[Tensor | None, float, float, float]:
        """Margin and the link's two numbers; or, if they move on a device, a tensor of them."""
        three = (0.0 if self.margin is None else self.margin, self.a, self.b)
        home = next((n.device for n in three if isinstance(n, Tensor) and not n.is_cpu), None)
        if home is None:
            margin, a, b = map(float, three)
            return None, margin, a, b
        each = [torch.as_tensor(n, dtype=torch.float32, device=home) for n in three]
        return torch.stack(each), 0.0, 0.0, 0.0


class Found(NamedTuple):
    """A loss, and what its gradient is made from."""

    loss: Tensor  # () or (N,), float32
    gradient: Tensor  # (N, C) in the logits' dtype, or (N, KEPT) to expand; or none
    work: Tensor  # The mean's factor; then slopes in sigma, if it is learned.


class Launch(NamedTuple):
    """What calls have in common that differ in nothing but values and the number of rows."""

    together: int  # Rows in a program.
    reduction: int
    starts: tuple[Start, ...]


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
    sigma_at, noise, sigmas = _sigma(sigma, logits)
    weight_at = logits if weight is None else weight
    moving, margin, a, b = rule.numbers()
    moving_at = logits if moving is None else moving
    plan = _launch(
        rows > FINISHED_UP_TO * _together(classes, rule.logistic),
        classes,
        (rule.link, rule.reduction, rule.logistic),
        (sigmas, weight is not None, rule.margin is not None, moving is not None, learned, wanted),
        (device, logits.dtype, target.dtype, sigma_at.dtype, weight_at.dtype, moving_at.dtype),
        logits.data_ptr() % 16 == 0,
    )
    programs = -(-rows // plan.together)
    if plan.reduction == ADDED_LATER:
        loss = torch.empty((2, programs), dtype=torch.float32, device=device)
    else:
        loss = torch.empty(() if plan.reduction else rows, dtype=torch.float32, device=device)
    work = torch.empty(1 + rows if learned else 1, dtype=torch.float32, device=device)
    at_once = rule.is_at_once(classes)
    if not at_once:
        gradient = torch.empty((rows, KEPT), dtype=torch.float32, device=device)
    else:
        gradient = torch.empty_like(logits) if wanted else work
    stream = _stream(device)
    table = table_of(device, stream)
    tensors = (logits, target, sigma_at, weight_at, moving_at, loss, gradient, work, table)
    numbers: tuple[float, ...] = (classes, noise, margin, rule.ignore_index, a, b)
    if classes <= ROWS_UP_TO and not rule.logistic:
        numbers = (rows, *numbers)
    grid = (programs, 1)
    if not at_once:
        read = (logits, target, sigma_at, weight_at, moving_at, gradient, table)
        plan.starts[1](grid, stream, read, (classes, noise, margin, rule.ignore_index))
    plan.starts[0](grid, stream, tensors, numbers)
    if plan.reduction == ADDED_LATER:
        whole, parts = loss.sum(1)
        mean = rule.reduction == "mean"
        loss = whole / parts if mean else whole
        work[0] = torch.where(parts == 0, 0.0, 1 / parts) if mean else 1.0
    return Found(loss, gradient, work)


def _together(classes: int, logistic: bool) -> int:
    """How many rows a program takes."""
    return 1 if classes > ROWS_UP_TO or logistic else 32 // _padded(classes)


def _padded(classes: int) -> int:
    """The next power of two."""
    return 1 << (classes - 1).bit_length()


@functools.lru_cache(maxsize=1024)
def _launch(
    is_long: bool,
    classes: int,
    kind: tuple[Any, str, bool],
    which: tuple[int, bool, bool, bool, bool, bool],
    types: tuple[Any, ...],
    is_aligned: bool,
) -> Launch:
    """Kernels for a number of classes, a rule without its parameters, and types of tensors."""
    link, named, logistic = kind
    reduction = REDUCTIONS[named]
    if reduction and is_long:
        reduction = ADDED_LATER
    together = _together(classes, logistic)
    how: tuple[Any, ...] = (*which, link, reduction)
    if logistic:
        start = Start(logistic_kernel, (*how, *SPREAD), 1 if classes <= 256 else 4)
    elif classes <= ROWS_UP_TO:
        start = Start(few_classes_kernel, (*how, together, _padded(classes), 4, SEARCH), 1)
    elif classes <= AT_ONCE_UP_TO:
        block, warps = SHORT
        start = Start(per_row_kernel, (*how, classes % block == 0, block, SEARCH), warps)
    else:
        start = Start(integrate_kept, (*how, _terms(types[1]), SEARCH), 1)
        block, warps = LONG if types[1] == torch.float32 else LONG_HALF
        pace = (*which[:4], classes % block == 0, block, SEARCH)
        return Launch(together, reduction, (start, Start(compress, pace, warps)))
    return Launch(together, reduction, (start,))


def _terms(dtype: torch.dtype) -> int:
    """Terms of a segment's polynomial: half precision rounds far above what fewer leave out."""
    return int(chebyshev.POINTS) if dtype == torch.float32 else TERMS_HALF


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
    if rule.is_at_once(classes):
        return scaled(found.gradient, found.work, upstream, rule)
    per_row = rule.reduction == "none"
    step = upstream.stride(0) if per_row else 0
    gradient = torch.empty_like(logits)
    sigma_at, noise, sigmas = _sigma(sigma, logits)
    moving, margin, _, _ = rule.numbers()
    moving_at = logits if moving is None else moving
    dtypes = (a.dtype for a in (logits, target, sigma_at, moving_at, upstream))
    which = (sigmas, rule.margin is not None, moving is not None, per_row)
    start = _expansion(classes, which, (logits.device, *dtypes), logits.data_ptr() % 16 == 0)
    start(
        (rows, -(-classes // WIDE[0])),
        _stream(logits.device),
        (logits, target, sigma_at, moving_at, found.gradient, found.work, upstream, gradient),
        (classes, step, noise, margin),
    )
    return gradient


def scaled(gradient: Tensor, work: Tensor, upstream: Tensor, rule: Rule) -> Tensor:
    """A gradient (N, C) that was made with its value, in place times what comes from above."""
    rows, classes = gradient.shape
    device = gradient.device
    per_row = rule.reduction == "none"
    start = _scaling(classes % 16 == 0, per_row, device, gradient.dtype, upstream.dtype)
    start(
        (-(-rows * classes // 1024), 1),
        _stream(device),
        (gradient, upstream, work),
        (rows, classes, upstream.stride(0) if per_row else 0),
    )
    return gradient


@functools.lru_cache(maxsize=1024)
def _scaling(is_even: bool, per_row: bool, *types: Any) -> Start:
    """The kernel that scales a gradient; for a number of classes divisible by 16, or not."""
    return Start(scale_kernel, (per_row, 1024), 4)


@functools.lru_cache(maxsize=1024)
def _expansion(
    classes: int, which: tuple[int, bool, bool, bool], types: tuple[Any, ...], is_aligned: bool
) -> Start:
    """The kernel that writes the gradient of long rows."""
    block, warps = WIDE
    return Start(expand, (*which, _terms(types[1]), classes % block == 0, block), warps)


def _stream(device: torch.device) -> int:
    """The current stream, as a number."""
    if device.type != "cuda":
        return 0
    stream: int = driver.active.get_current_stream(device.index)
    return stream


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
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | Tensor | None, noise: str
) -> tuple[Tensor, Tensor, Tensor]:
    """log p (N,), its gradient in logits (N, C) and in sigma (N, 1).

    Logits in float32 or half precision; sigma (N, 1); all arithmetic in float32.
    """
    if torch.compiler.is_compiling():
        # A margin that moves is a tensor; to the operation all are.
        has_margin = margin is not None
        rim = torch.as_tensor(margin if has_margin else 0.0, dtype=torch.float64)
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.hitrate.log_probability(
            logits, target, sigma, rim, has_margin, noise
        )
        return found
    return _log_probability(logits, target, sigma, margin, margin is not None, noise)


def _log_probability(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: float | Tensor | None,
    has_margin: bool,
    noise: str,
) -> tuple[Tensor, Tensor, Tensor]:
    rule = Rule(noise, margin=margin if has_margin else None)
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
    schema="(Tensor logits, Tensor target, Tensor sigma, Tensor margin, bool has_margin, str noise)"
    " -> (Tensor, Tensor, Tensor)",
)


@_operation.register_fake
def _shapes(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: Tensor, has_margin: bool, noise: str
) -> tuple[Tensor, Tensor, Tensor]:
    row = torch.empty_like(logits[:, 0], dtype=torch.float32)
    whole = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    return row, whole, row.new_empty(len(logits), 1)
