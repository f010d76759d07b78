"""Launchers of the kernels of normal and logistic noise, where each row has a class as target."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from hitrate.kernels.few_classes import few_classes_kernel
from hitrate.kernels.launch.rule import (
    ADDED_LATER,
    FINISHED_UP_TO,
    REDUCTIONS,
    Found,
    Now,
    Numbers,
    Rule,
    added_up,
    empty_loss,
    nothing,
    stream_of,
)
from hitrate.kernels.launch.scaling import scaled
from hitrate.kernels.launch.start import Start
from hitrate.kernels.launch.table import table_of
from hitrate.kernels.logistic import logistic_kernel
from hitrate.kernels.many_classes import compress, expand, integrate_kept
from hitrate.kernels.parts import chebyshev
from hitrate.kernels.per_row import per_row_kernel

# Up to this many classes all rivals are looked at; above, a few stand for all.
ROWS_UP_TO = 32
# Up to this many classes the gradient is made with the value; above, in the backward pass.
AT_ONCE_UP_TO = 4096
# Columns and warps of a program, for rows at once, for long rows (in half precision), and for
# their gradient.
SHORT, LONG, LONG_HALF, WIDE = (32, 1), (512, 8), (512, 4), (2048, 4)
# For logistic noise: up to this many classes all rivals are looked at; nodes; columns and warps of
# a program, for rows up to AT_ONCE_UP_TO and longer ones.
LOGISTIC_UP_TO, NODES = 64, 64
LOGISTIC_SHORT, LOGISTIC_LONG = (64, 1), (512, 8)
SEARCH = 20
# The kernels' numbers, as numbers.
KEPT = int(chebyshev.FACTS) + int(chebyshev.PLACES)


class RowsCall:
    """A loss of logits (N, C) with classes as targets, see `Call`.

    Parameters
    ----------
    wanted, learned : bool
        Whether gradients in logits and in sigma will be asked for.
    """

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        sigma: float | Tensor,
        weight: Tensor | None,
        rule: Rule,
        *,
        wanted: bool,
        learned: bool,
    ) -> None:
        self._device = device = logits.device
        self._rows, self._classes = rows, classes = logits.shape
        self.numbers = numbers = Numbers(sigma, rule, device)
        self._weight = nothing(device) if weight is None else weight
        self._wanted, self._learned = wanted, learned
        self._ignore_index, self._is_mean = rule.ignore_index, rule.reduction == "mean"
        logistic = rule.noise == "logistic"
        is_few = classes <= ROWS_UP_TO and not logistic
        self.is_at_once = logistic or classes <= AT_ONCE_UP_TO
        together = 32 // _padded(classes) if is_few else 1
        self._programs = -(-rows // together)
        self._counts = (rows, classes) if is_few else (classes,)
        reduction = REDUCTIONS[rule.reduction]
        if reduction and self._programs > FINISHED_UP_TO:
            reduction = ADDED_LATER
        self._reduction, self._per_row = reduction, rule.reduction == "none"
        has_margin, is_aligned = rule.margin is not None, logits.data_ptr() % 16 == 0
        which = (numbers.sigmas, weight is not None, has_margin, numbers.moving)
        types = (device, logits.dtype, target.dtype, self._weight.dtype, *numbers.types)
        how = (*which, learned, wanted, rule.link, reduction)
        self._kernel = _kernel(classes, self.is_at_once, logistic, how, types, is_aligned)
        if not self.is_at_once:
            self._compress = _compression(classes, which, types, is_aligned)
            of_expansion = (numbers.sigmas, has_margin, numbers.moving, self._per_row)
            # The type of what comes from above is known when it comes.
            self._expansion = functools.partial(
                _expansion, classes, of_expansion, types, is_aligned
            )

    def value(self, logits: Tensor, target: Tensor, now: Now) -> tuple[Tensor, Found]:
        """The loss, and with it the gradient or a few numbers per row to expand."""
        device, rows = self._device, self._rows
        at, (sigma, margin, a, b, _) = now
        loss = empty_loss(self._reduction, rows, self._programs, device)
        work = torch.empty(1 + rows if self._learned else 1, dtype=torch.float32, device=device)
        if not self.is_at_once:
            gradient = torch.empty((rows, KEPT), dtype=torch.float32, device=device)
        else:
            gradient = torch.empty_like(logits) if self._wanted else work
        stream = stream_of(device)
        table = table_of(device, stream)
        grid, read_only = (self._programs, 1), (logits, target, at[0], self._weight, *at[1:4])
        if not self.is_at_once:
            read = (*read_only[:5], gradient, table)
            self._compress(grid, stream, read, (self._classes, sigma, margin, self._ignore_index))
        self._kernel(
            grid,
            stream,
            (*read_only, loss, gradient, work, table),
            (*self._counts, sigma, margin, self._ignore_index, a, b),
        )
        if self._reduction == ADDED_LATER:
            loss = added_up(loss, work, mean=self._is_mean)
        return loss, Found(gradient, work, now)

    def gradient(
        self,
        logits: Tensor,
        target: Tensor,
        found: Found,
        upstream: Tensor,
        into: Tensor | None = None,
    ) -> Tensor:
        """In logits, in the place of what was found, in new memory or in that given."""
        if self.is_at_once:
            return scaled(found.gradient, found.work, upstream)
        classes, (at, (sigma, margin, *_)) = self._classes, found.now
        gradient = torch.empty_like(logits) if into is None else into
        self._expansion(upstream.dtype)(
            (self._rows, -(-classes // WIDE[0])),
            stream_of(self._device),
            (logits, target, at[0], at[1], found.gradient, found.work, upstream, gradient),
            (classes, upstream.stride(0) if self._per_row else 0, sigma, margin),
        )
        return gradient

    def slope_in_sigma(self, found: Found, upstream: Tensor) -> Tensor:
        """Gradient in sigma (N,), where it is learned."""
        turning = found.work[-self._rows :]
        factor = upstream if self._per_row else upstream * found.work[0]
        return torch.where(turning == 0, turning, turning * factor)


def _padded(classes: int) -> int:
    """The next power of two."""
    return 1 << (classes - 1).bit_length()


@functools.lru_cache(maxsize=1024)
def _kernel(
    classes: int,
    at_once: bool,
    logistic: bool,
    how: tuple[Any, ...],
    types: tuple[Any, ...],
    is_aligned: bool,
) -> Start:
    """For a number of classes, a rule without its parameters, and types of tensors."""
    if logistic:
        few = classes <= LOGISTIC_UP_TO
        block, warps = LOGISTIC_SHORT if classes <= AT_ONCE_UP_TO else LOGISTIC_LONG
        return Start(logistic_kernel, (*how, few, classes % block == 0, block, NODES), warps)
    if classes <= ROWS_UP_TO:
        padded = _padded(classes)
        return Start(few_classes_kernel, (*how, 32 // padded, padded, 4, SEARCH), 1)
    if at_once:
        block, warps = SHORT
        return Start(per_row_kernel, (*how, classes % block == 0, block, SEARCH), warps)
    return Start(integrate_kept, (*how, SEARCH), 1)


@functools.lru_cache(maxsize=1024)
def _compression(
    classes: int, which: tuple[Any, ...], types: tuple[Any, ...], is_aligned: bool
) -> Start:
    """The kernel that reads long rows."""
    block, warps = LONG if types[1] == torch.float32 else LONG_HALF
    return Start(compress, (*which, classes % block == 0, block), warps)


@functools.lru_cache(maxsize=1024)
def _expansion(
    classes: int,
    which: tuple[Any, ...],
    types: tuple[Any, ...],
    is_aligned: bool,
    upstream: torch.dtype,
) -> Start:
    """The kernel that writes the gradient of long rows."""
    block, warps = WIDE
    return Start(expand, (*which, classes % block == 0, block), warps)
