"""Launchers: from tensors to kernels, no autograd, no checks of what the user said."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.kernels import chebyshev
from hitrate.kernels.epilogue import scale_kernel
from hitrate.kernels.few_classes import few_classes_kernel
from hitrate.kernels.launch import all_classes as all_classes_launch
from hitrate.kernels.launch import softmax as softmax_launch
from hitrate.kernels.launch.rule import (
    ADDED_LATER,
    FINISHED_UP_TO,
    REDUCTIONS,
    Found,
    Rule,
    added_up,
    empty_loss,
    sigma_from,
    stream_of,
)
from hitrate.kernels.launch.start import Start
from hitrate.kernels.launch.table import table_of
from hitrate.kernels.link_code import compiled
from hitrate.kernels.logistic import logistic_kernel
from hitrate.kernels.many_classes import compress, expand, integrate_kept
from hitrate.kernels.per_row import per_row_kernel

__all__ = ["Found", "Rule", "backward", "compiled", "forward", "log_probability", "scaled"]

# Up to this many classes all rivals are looked at; above, a few stand for all.
ROWS_UP_TO = 32
# Up to this many classes the gradient is made with the value; above, in the backward pass.
AT_ONCE_UP_TO = 4096
# Columns and warps of a program, for rows at once, for long rows (in half precision), and for
# their gradient.
SHORT, LONG, LONG_HALF, WIDE = (32, 1), (512, 8), (256, 4), (2048, 4)
# For logistic noise: up to this many classes all rivals are looked at; nodes; columns and warps of
# a program, for rows up to AT_ONCE_UP_TO and longer ones.
LOGISTIC_UP_TO, NODES = 64, 64
LOGISTIC_SHORT, LOGISTIC_LONG = (64, 1), (512, 8)
SEARCH = 20
# The kernels' numbers, as numbers.
KEPT = int(chebyshev.FACTS) + int(chebyshev.PLACES)


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
    """The loss of logits (N, C) in float32 or half precision; (N, C, D) for Gumbel noise.

    Tensors are contiguous; one of sigma has one value, or N. `wanted` and `learned` say whether
    gradients in logits and sigma will be asked for. All arithmetic is in float32.
    """
    device = logits.device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return forward(logits, target, sigma, weight, rule, wanted=wanted, learned=learned)
    if rule.noise == "gumbel":
        return softmax_launch.forward(logits, target, sigma, weight, rule)
    if rule.noise in all_classes_launch.NOISES:
        return all_classes_launch.forward(logits, target, sigma, weight, rule, wanted=wanted)
    rows, classes = logits.shape
    logistic = rule.noise == "logistic"
    sigma_at, noise, sigmas = sigma_from(sigma, logits)
    weight_at = logits if weight is None else weight
    numbers = rule.numbers(logits.device)
    margin, a, b, _ = numbers.values
    moving_at = numbers.pointers(logits, 3)
    read_only = (logits, target, sigma_at, weight_at, *moving_at)
    plan = _launch(
        rows > FINISHED_UP_TO * _together(classes, logistic),
        classes,
        (rule.link, rule.reduction, logistic),
        (sigmas, weight is not None, rule.margin is not None, numbers.moving, learned, wanted),
        (device, *[tensor.dtype for tensor in (read_only if numbers.moving else read_only[:4])]),
        logits.data_ptr() % 16 == 0,
    )
    programs = -(-rows // plan.together)
    loss = empty_loss(plan.reduction, rows, programs, device)
    work = torch.empty(1 + rows if learned else 1, dtype=torch.float32, device=device)
    at_once = is_at_once(rule, classes)
    if not at_once:
        gradient = torch.empty((rows, KEPT), dtype=torch.float32, device=device)
    else:
        gradient = torch.empty_like(logits) if wanted else work
    stream = stream_of(device)
    table = table_of(device, stream)
    counts = (rows, classes) if classes <= ROWS_UP_TO and not logistic else (classes,)
    grid = (programs, 1)
    if not at_once:
        read = (*read_only[:5], gradient, table)
        plan.starts[1](grid, stream, read, (classes, noise, margin, rule.ignore_index))
    tensors = (*read_only, loss, gradient, work, table)
    plan.starts[0](grid, stream, tensors, (*counts, noise, margin, rule.ignore_index, a, b))
    if plan.reduction == ADDED_LATER:
        loss = added_up(loss, work, mean=rule.reduction == "mean")
    return Found(loss, gradient, work)


def is_at_once(rule: Rule, classes: int) -> bool:
    """Whether the gradient is made with the value."""
    if rule.noise == "normal":
        return classes <= AT_ONCE_UP_TO
    return rule.noise != "gumbel"


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
    which: tuple[int, bool, bool, int, bool, bool],
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
        few = classes <= LOGISTIC_UP_TO
        block, warps = LOGISTIC_SHORT if classes <= AT_ONCE_UP_TO else LOGISTIC_LONG
        spread = (few, classes % block == 0, block, NODES)
        start = Start(logistic_kernel, (*how, *spread), warps)
    elif classes <= ROWS_UP_TO:
        start = Start(few_classes_kernel, (*how, together, _padded(classes), 4, SEARCH), 1)
    elif classes <= AT_ONCE_UP_TO:
        block, warps = SHORT
        start = Start(per_row_kernel, (*how, classes % block == 0, block, SEARCH), warps)
    else:
        start = Start(integrate_kept, (*how, SEARCH), 1)
        block, warps = LONG if types[1] == torch.float32 else LONG_HALF
        pace = (*which[:4], classes % block == 0, block)
        return Launch(together, reduction, (start, Start(compress, pace, warps)))
    return Launch(together, reduction, (start,))


def backward(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    weight: Tensor | None,
    found: Found,
    rule: Rule,
    upstream: Tensor,
    *,
    overwrite: bool = False,
) -> Tensor:
    """Gradient in logits, shaped so, for an upstream () or (N,); may overwrite what was found.

    With `overwrite` also the logits, unless a margin makes all of a row's programs read one.
    """
    into = logits if overwrite and rule.margin is None else None
    if rule.noise == "gumbel":
        kept, call = found.gradient, found.call
        return softmax_launch.backward(logits, target, sigma, weight, kept, call, upstream, into)
    rows, classes = logits.shape
    if is_at_once(rule, classes):
        return scaled(found.gradient, found.work, upstream, rule)
    per_row = rule.reduction == "none"
    step = upstream.stride(0) if per_row else 0
    gradient = torch.empty_like(logits) if into is None else into
    sigma_at, noise, sigmas = sigma_from(sigma, logits)
    numbers = rule.numbers(logits.device)
    read_only = (logits, target, sigma_at, *numbers.pointers(logits, 1))
    dtypes = (tensor.dtype for tensor in (*read_only, upstream))
    which = (sigmas, rule.margin is not None, numbers.moving, per_row)
    start = _expansion(classes, which, (logits.device, *dtypes), logits.data_ptr() % 16 == 0)
    start(
        (rows, -(-classes // WIDE[0])),
        stream_of(logits.device),
        (*read_only, found.gradient, found.work, upstream, gradient),
        (classes, step, noise, numbers.values[0]),
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
        stream_of(device),
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
    classes: int, which: tuple[int, bool, int, bool], types: tuple[Any, ...], is_aligned: bool
) -> Start:
    """The kernel that writes the gradient of long rows."""
    block, warps = WIDE
    return Start(expand, (*which, classes % block == 0, block), warps)


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
    if is_at_once(rule, logits.shape[1]):
        return found.loss, found.gradient, to_sigma
    ones = torch.ones(1, dtype=torch.float32, device=logits.device).expand(len(logits))
    return found.loss, backward(logits, target, column, None, found, rule, ones), to_sigma


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
