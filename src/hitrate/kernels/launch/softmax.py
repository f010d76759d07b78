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
    Now,
    Numbers,
    Rule,
    added_up,
    empty_loss,
    nothing,
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


class SoftmaxCall:
    """A loss of the softmax, of logits (R, C) or (N, C, D); soft targets are laid out like them.

    See `Call`.
    """

    is_at_once = False

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        sigma: float | Tensor,
        weight: Tensor | None,
        rule: Rule,
    ) -> None:
        self._device = device = logits.device
        self._layout = outer, rows, classes, pitch = Layout.of(logits)
        self.numbers = numbers = Numbers(sigma, rule, device)
        self._weight = nothing(device) if weight is None else weight
        self._ignore_index, self._is_mean = rule.ignore_index, rule.reduction == "mean"
        tiles = [tile_of(classes, pitch > 1, gradient=gradient) for gradient in (False, True)]
        programs, slopes = (outer * -(-rows // tile.rows) for tile in tiles)
        reduction = REDUCTIONS[rule.reduction]
        if reduction and programs > FINISHED_UP_TO:
            reduction = ADDED_LATER
        self._reduction = reduction
        which = (numbers.sigmas, weight is not None, rule.margin is not None, numbers.moving)
        self._value, self._gradient = kernels_of(
            *(classes, pitch, reduction, tiles[0], tiles[1]),
            (*which, targets_of(target, rule), rule.link),
            (device, logits.dtype, target.dtype, self._weight.dtype, *numbers.types),
            logits.data_ptr() % 16 == 0,
        )
        self._grid = programs, 1
        self._gradient_grid = slopes, -(-classes // tiles[1].classes)

    def value(self, logits: Tensor, target: Tensor, now: Now) -> tuple[Tensor, Found]:
        """The loss."""
        device = self._device
        outer, rows, classes, pitch = self._layout
        at, (sigma, margin, a, b, smoothing) = now
        loss = empty_loss(self._reduction, outer * rows, self._grid[0], device)
        # The last row is for the mean's factor.
        kept = torch.empty((outer * rows + 1, KEPT), dtype=torch.float32, device=device)
        stream = stream_of(device)
        self._value(
            self._grid,
            stream,
            (logits, target, at[0], self._weight, *at[1:], loss, kept, table_of(device, stream)),
            (rows, classes, pitch, sigma, margin, self._ignore_index, a, b, smoothing),
        )
        if self._reduction == ADDED_LATER:
            loss = added_up(loss, kept[-1], mean=self._is_mean)
        return loss, Found(kept, kept, now)

    def gradient(
        self,
        logits: Tensor,
        target: Tensor,
        found: Found,
        upstream: Tensor,
        into: Tensor | None = None,
    ) -> Tensor:
        """In logits, in new memory, or in that given."""
        _, rows, classes, pitch = self._layout
        at, (sigma, margin, a, b, smoothing) = found.now
        gradient = torch.empty_like(logits) if into is None else into
        self._gradient(
            self._gradient_grid,
            stream_of(self._device),
            (logits, target, at[0], self._weight, *at[1:], found.gradient, upstream, gradient),
            (
                *(rows, classes, pitch, upstream.stride(0) if upstream.dim() else 0),
                *(sigma, margin, a, b, smoothing),
            ),
        )
        return gradient


@functools.lru_cache(maxsize=1024)
def kernels_of(
    classes: int,
    pitch: int,
    reduction: int,
    tile: Tile,
    gradient_tile: Tile,
    how: tuple[Any, ...],
    types: tuple[Any, ...],
    is_aligned: bool,
) -> tuple[Start, Start]:
    """For the value and the gradient: one pair for what differs in nothing but values and rows."""
    fits, across = tile.classes >= classes, pitch > 1
    value = Start(softmax_value, (*how, reduction, across, fits, *tile[:2]), tile.warps)
    per_row = reduction == REDUCTIONS["none"]
    constants = (*how, per_row, across, *gradient_tile[:2])
    return value, Start(softmax_gradient, constants, gradient_tile.warps)
