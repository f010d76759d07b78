"""Launchers that multiply gradients by what comes from above."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from hitrate.kernels.launch.rule import on_device, stream_of
from hitrate.kernels.launch.start import Start
from hitrate.kernels.parts.epilogue import scale_kernel, times_kernel

# Elements that a program scales, in a gradient and in many numbers; most programs of the latter.
SCALED, MANY, PROGRAMS = 1024, 8192, 1056


def scaled(gradient: Tensor, work: Tensor, upstream: Tensor) -> Tensor:
    """A gradient (N, C) made with its value, in place times what comes from above, () or (N,)."""
    rows, classes = gradient.shape
    device = gradient.device
    per_row = upstream.dim() > 0
    start = _scaling(classes % 16 == 0, per_row, device, gradient.dtype, upstream.dtype)
    start(
        (-(-rows * classes // SCALED), 1),
        stream_of(device),
        (gradient, upstream, work),
        (rows, classes, upstream.stride(0) if per_row else 0),
    )
    return gradient


@functools.lru_cache(maxsize=1024)
def _scaling(is_even: bool, per_row: bool, *types: Any) -> Start:
    """The kernel that scales a gradient; for a number of classes divisible by 16, or not."""
    return Start(scale_kernel, (per_row, SCALED), 4)


def times(values: Tensor, factor: Tensor) -> Tensor:
    """Contiguous numbers of any shape, in place times a number () on their device.

    Nothing is read if that is 1, as it mostly is.
    """
    count = values.numel()
    start = _times(values.data_ptr() % 16 == 0, values.device, values.dtype, factor.dtype)
    with on_device(values):
        grid = (min(-(-count // MANY), PROGRAMS), 1)
        start(grid, stream_of(values.device), (values, factor), (count,))
    return values


@functools.lru_cache(maxsize=64)
def _times(is_aligned: bool, device: torch.device, *types: Any) -> Start:
    return Start(times_kernel, (MANY,), 8)
