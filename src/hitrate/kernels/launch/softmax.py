"""Launchers of the softmax's kernels."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.kernels import softmax
from hitrate.kernels.launch.rule import (
    ADDED_LATER,
    FINISHED_UP_TO,
    REDUCTIONS,
    Found,
    Numbers,
    Rule,
    added_up,
    empty_loss,
    sigma_from,
    stream_of,
)
from hitrate.kernels.launch.start import Start
from hitrate.kernels.launch.table import table_of
from hitrate.kernels.softmax import softmax_gradient, softmax_value

# Up to this many classes a row is read once, and held in registers.
WHOLE_UP_TO = 4096
# Elements of a tile, where rows lie one after the other and where they lie next to each other.
TILE, TILE_ACROSS = 512, 2048
# Columns and warps for long rows, and for their gradient.
LONG, WIDE = (2048, 8), (2048, 4)
KEPT = int(softmax.KEPT)
INDEX, SMOOTHED, SOFT = int(softmax.INDEX), int(softmax.SMOOTHED), int(softmax.SOFT)


class Layout(NamedTuple):
    """How logits (R, C) or (N, C, D) lie."""

    outer: int
    rows: int  # Within each of the outer ones.
    classes: int
    pitch: int  # From a class to the next.

    @staticmethod
    def of(logits: Tensor) -> Layout:
        """Of contiguous logits."""
        if logits.dim() == 2:
            return Layout(1, logits.shape[0], logits.shape[1], 1)
        outer, classes, inner = logits.shape
        return Layout(outer, inner, classes, inner)


class Tile(NamedTuple):
    """Rows and classes of a program, and its warps."""

    rows: int
    classes: int
    warps: int


@functools.lru_cache(maxsize=1024)
def tile_of(classes: int, across: bool, *, gradient: bool) -> Tile:
    """What a program takes at once."""
    padded = 1 << (classes - 1).bit_length()
    if across:
        columns = min(padded, 256) if gradient else padded
        rows = max(1, TILE_ACROSS // columns)
        return Tile(rows, columns, 4 if rows * columns <= TILE_ACROSS else 8)
    if gradient and padded > WIDE[0]:
        return Tile(1, *WIDE)
    if padded > WHOLE_UP_TO:
        return Tile(1, *LONG)
    rows = max(1, TILE // padded)
    return Tile(rows, padded, 1 if rows * padded <= 256 else (4 if padded <= 2048 else 8))


def targets_of(target: Tensor, rule: Rule) -> int:
    """Which kind of target."""
    if target.is_floating_point():
        return SOFT
    smooth = isinstance(rule.smoothing, Tensor) or rule.smoothing > 0
    return SMOOTHED if smooth else INDEX


class Plan(NamedTuple):
    """The kernels for numbers and types that they are compiled for."""

    value: Start
    gradient: Start
    gradient_tile: Tile


@functools.lru_cache(maxsize=1024)
def plan_of(
    classes: int,
    pitch: int,
    reduction: int,
    how: tuple[Any, ...],
    types: tuple[Any, ...],
    is_aligned: bool,
) -> Plan:
    """What calls share that differ in nothing but values and the number of rows."""
    across = pitch > 1
    one, other = (tile_of(classes, across, gradient=gradient) for gradient in (False, True))
    fits = one.classes >= classes
    value = Start(softmax_value, (*how, reduction, across, fits, *one[:2]), one.warps)
    per_row = reduction == REDUCTIONS["none"]
    gradient = Start(softmax_gradient, (*how, per_row, across, *other[:2]), other.warps)
    return Plan(value, gradient, other)


class Call(NamedTuple):
    """What the gradient needs to know of the call of its value, beside tensors."""

    plan: Plan
    layout: Layout
    numbers: Numbers
    sigma: float


def forward(
    logits: Tensor, target: Tensor, sigma: float | Tensor, weight: Tensor | None, rule: Rule
) -> Found:
    """The loss of contiguous logits (R, C) or (N, C, D); soft targets are laid out like them."""
    device = logits.device
    layout = Layout.of(logits)
    outer, rows, classes, pitch = layout
    sigma_at, noise, sigmas = sigma_from(sigma, logits)
    weight_at = logits if weight is None else weight
    numbers = rule.numbers(logits.device)
    margin, a, b, smoothing = numbers.values
    read_only = (logits, target, sigma_at, weight_at, *numbers.pointers(logits, 4))
    which = (sigmas, weight is not None, rule.margin is not None, numbers.moving)
    reduction = REDUCTIONS[rule.reduction]
    rows_together = tile_of(classes, pitch > 1, gradient=False).rows
    programs = outer * -(-rows // rows_together)
    if reduction and programs > FINISHED_UP_TO:
        reduction = ADDED_LATER
    types = [tensor.dtype for tensor in (read_only if numbers.moving else read_only[:4])]
    plan = plan_of(
        classes,
        pitch,
        reduction,
        (*which, targets_of(target, rule), rule.link),
        (device, *types),
        logits.data_ptr() % 16 == 0,
    )
    loss = empty_loss(reduction, outer * rows, programs, device)
    # The last row is for the mean's factor.
    kept = torch.empty((outer * rows + 1, KEPT), dtype=torch.float32, device=device)
    stream = stream_of(device)
    plan.value(
        (programs, 1),
        stream,
        (*read_only, loss, kept, table_of(device, stream)),
        (rows, classes, pitch, noise, margin, rule.ignore_index, a, b, smoothing),
    )
    if reduction == ADDED_LATER:
        loss = added_up(loss, kept[-1], mean=rule.reduction == "mean")
    return Found(loss, kept, kept, Call(plan, layout, numbers, noise))


def backward(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    weight: Tensor | None,
    kept: Tensor,
    call: Call,
    upstream: Tensor,
    into: Tensor | None = None,
) -> Tensor:
    """Gradient in logits, for an upstream () or one per row; in new memory, or in that given."""
    plan, (outer, rows, classes, pitch), numbers, noise = call
    margin, a, b, smoothing = numbers.values
    tile = plan.gradient_tile
    sigma_at = sigma if isinstance(sigma, Tensor) else logits
    weight_at = logits if weight is None else weight
    gradient = torch.empty_like(logits) if into is None else into
    plan.gradient(
        (outer * -(-rows // tile.rows), -(-classes // tile.classes)),
        stream_of(logits.device),
        (
            *(logits, target, sigma_at, weight_at, *numbers.pointers(logits, 4)),
            *(kept, upstream, gradient),
        ),
        (
            *(rows, classes, pitch, upstream.stride(0) if upstream.dim() else 0),
            *(noise, margin, a, b, smoothing),
        ),
    )
    return gradient
