"""Launchers of the statistics of logits, and of the gradient through them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from hitrate.kernels import standardize
from hitrate.kernels.launch.rule import stream_of
from hitrate.kernels.launch.start import Start
from hitrate.kernels.launch.table import table_of
from hitrate.kernels.standardize import correct_kernel, pull_kernel, statistics_kernel

# Elements of a tile, classes of it at the most, and warps.
TILE, COLUMNS, WARPS = 2048, 1024, 4
PROGRAMS, FACTS = int(standardize.PROGRAMS), int(standardize.FACTS)
COUNT, SQUARES = int(standardize.COUNT), int(standardize.SQUARES)
SPREAD, SIGMA = int(standardize.SPREAD), int(standardize.SIGMA)
MARGIN, PULL = int(standardize.MARGIN), int(standardize.PULL)
AS_IT_IS, ONE_FACTOR = int(standardize.AS_IT_IS), int(standardize.ONE_FACTOR)
PER_ROW = int(standardize.PER_ROW)


def statistics(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    sigma: float | Tensor,
    margin: float | Tensor,
    epsilon: float,
) -> Tensor:
    """Facts of contiguous logits (N, C), in their order of `hitrate.kernels.standardize`.

    Sigma and margin are numbers, or tensors of one on the device.
    """
    rows, classes = logits.shape
    device = logits.device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return statistics(logits, target, ignore_index, sigma, margin, epsilon)
    stream = stream_of(device)
    programs = min(-(-rows // _tile(classes)[0]), PROGRAMS)
    parts = max(3 * programs, _pullers(logits))
    facts = torch.empty(FACTS + parts, dtype=torch.float32, device=device)
    moving = isinstance(sigma, Tensor) + 2 * isinstance(margin, Tensor)
    sigma_at, scale = (sigma, 0.0) if isinstance(sigma, Tensor) else (logits, float(sigma))
    margin_at, rim = (margin, 0.0) if isinstance(margin, Tensor) else (logits, float(margin))
    tensors = (logits, target, sigma_at, margin_at, facts, table_of(device, stream))
    start = _statistics(
        classes,
        moving,
        not target.is_floating_point(),
        (device, *(tensor.dtype for tensor in tensors)),
        logits.data_ptr() % 16 == 0,
    )
    start((programs, 1), stream, tensors, (rows, classes, scale, rim, epsilon, ignore_index))
    return facts


def pull(
    gradient: Tensor,
    logits: Tensor,
    facts: Tensor,
    scaling: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Put among the facts how the loss pulls at the logits' spread.

    The gradient is, in place, multiplied before by the scaling: what comes from above, () or (N,),
    and the mean's factor.
    """
    device, size, classes = logits.device, logits.numel(), logits.shape[1]
    stream = stream_of(device)
    upstream, work = scaling or (facts, facts)
    kind = AS_IT_IS if scaling is None else (PER_ROW if upstream.dim() else ONE_FACTOR)
    start = _pull(
        kind,
        (size % 16 == 0, size < 2**31, classes),
        (device, logits.dtype, upstream.dtype),
        logits.data_ptr() % 16 == 0,
    )
    start(
        (_pullers(logits), 1),
        stream,
        (logits, gradient, facts, table_of(device, stream), upstream, work),
        (size, classes, upstream.stride(0) if kind == PER_ROW else 0),
    )


def correct(
    gradient: Tensor, logits: Tensor, target: Tensor, ignore_index: int, facts: Tensor
) -> None:
    """Add to the gradient (N, C) what flows through the statistics."""
    rows, classes = logits.shape
    device = logits.device
    together, columns = _tile(classes)
    start = _correct(
        classes,
        not target.is_floating_point(),
        (device, logits.dtype, target.dtype),
        logits.data_ptr() % 16 == 0,
    )
    start(
        (-(-rows // together), -(-classes // columns)),
        stream_of(device),
        (logits, target, gradient, facts),
        (rows, classes, ignore_index),
    )


def _pullers(logits: Tensor) -> int:
    """Programs that look at logits as numbers in a line."""
    return min(-(-logits.numel() // TILE), PROGRAMS)


def _tile(classes: int) -> tuple[int, int]:
    """Rows and classes that a program takes at once."""
    columns = min(1 << (classes - 1).bit_length(), COLUMNS)
    return TILE // columns, columns


@functools.lru_cache(maxsize=1024)
def _statistics(
    classes: int, moving: int, index: bool, types: tuple[Any, ...], is_aligned: bool
) -> Start:
    return Start(statistics_kernel, (moving, index, *_tile(classes)), WARPS)


@functools.lru_cache(maxsize=1024)
def _pull(scaling: int, counts: tuple[Any, ...], types: tuple[Any, ...], is_aligned: bool) -> Start:
    return Start(pull_kernel, (scaling, TILE), WARPS)


@functools.lru_cache(maxsize=1024)
def _correct(classes: int, index: bool, types: tuple[Any, ...], is_aligned: bool) -> Start:
    return Start(correct_kernel, (index, *_tile(classes)), WARPS)
