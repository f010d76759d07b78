"""Where values may be looked at, and how many rows to work on at once."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

# Elements of one buffer and thread: torch splits no smaller piece of work.
BLOCK = 2**15
# Elements of one buffer on a GPU, where all rows at once may not fit.
GPU_BLOCK = 2**23


def is_eager_cpu(a: Tensor) -> bool:
    """Whether looking at values is free: not on a GPU, not while tracing, not if there are none."""
    has_values = type(a) in (Tensor, torch.nn.Parameter)
    return has_values and a.device.type == "cpu" and not torch.compiler.is_compiling()


def full_precision(a: Tensor) -> AbstractContextManager[None]:
    """A block in which autocast does not lower the precision of sums."""
    # Autocast does not know the device without values.
    if a.is_meta:
        return nullcontext()
    return torch.autocast(a.device.type, enabled=False)


def double(a: Tensor) -> Tensor:
    """In float64, where the device has it."""
    return a if a.device.type == "mps" else a.double()


def block_size() -> int:
    """Elements of one buffer: as many as keep every thread busy and stay in the cache."""
    return BLOCK * torch.get_num_threads()


def blocks(a: Tensor, width: int) -> list[slice]:
    """Slices of rows whose buffers of `width` per row stay in the cache; one slice elsewhere."""
    if not is_eager_cpu(a):
        return [slice(None)]
    size = block_size() // width or 1
    return [slice(start, start + size) for start in range(0, a.shape[0], size)]


def parts(a: Tensor, width: int) -> list[slice]:
    """The same, but on a GPU too; one slice for a compiler."""
    if a.device.type == "cpu" or torch.compiler.is_compiling():
        return blocks(a, width)
    size = GPU_BLOCK // width or 1
    return [slice(start, start + size) for start in range(0, a.shape[0], size)]


def exp_(a: Tensor) -> Tensor:
    """e^a in place; numpy's is several times as fast, unless many threads share the work."""
    if not _is_quick_in_numpy(a):
        return a.exp_()
    np.exp(a.numpy(), out=a.numpy())
    return a


def expm1_(a: Tensor) -> Tensor:
    """e^a - 1, likewise."""
    if not _is_quick_in_numpy(a):
        return a.expm1_()
    np.expm1(a.numpy(), out=a.numpy())
    return a


def _is_quick_in_numpy(a: Tensor) -> bool:
    if torch._C._are_functorch_transforms_active():
        return False
    return is_eager_cpu(a) and a.numel() <= 4 * BLOCK
