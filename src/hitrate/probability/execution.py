"""Where values may be looked at, how many rows to work on at once, and memory for numpy."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Shapes = tuple[tuple[int, ...], ...]

# Elements of one buffer and thread: torch splits no smaller piece of work.
BLOCK = 2**15
# Elements of a buffer that is no matter.
LEAST = 2**12
# Elements of one buffer on a GPU, where all rows at once may not fit.
GPU_BLOCK = 2**23
# Elements of one of the dozen buffers that numpy works on, in float64, in one thread.
NUMPY_BLOCK = 2**14
# Elements that a thread keeps for them, at the most.
MOST_KEPT = 2**19


def has_values(a: Tensor) -> bool:
    """Whether there are values, as there are not where only shapes are asked for."""
    return type(a) in (Tensor, torch.nn.Parameter) and not a.is_meta


def is_eager_cpu(a: Tensor) -> bool:
    """Whether looking at values is free: not on a GPU, not while tracing, not if there are none."""
    return has_values(a) and a.device.type == "cpu" and not torch.compiler.is_compiling()


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


class Limit(threading.local):
    """Bytes that a thread's buffers have at the most where there is not to be more memory."""

    bytes: int | None = None


LIMIT = Limit()


@contextmanager
def within(size: int | None) -> Iterator[None]:
    """A block in which rows that need larger buffers than so many bytes are worked on in parts."""
    before, LIMIT.bytes = LIMIT.bytes, size
    try:
        yield
    finally:
        LIMIT.bytes = before


def parts_of_row(count: int, width: int, a: Tensor) -> list[slice]:
    """Slices of `count` things that take `width` elements each of a buffer, of all rows of `a`.

    Whatever a compiler sees gets one slice; several rows too, unless memory has a limit.
    """
    is_whole = len(a) != 1 and LIMIT.bytes is None
    if is_whole or not has_values(a) or torch.compiler.is_compiling():
        return [slice(0, count)]
    most = block_size() if a.device.type == "cpu" else GPU_BLOCK
    if LIMIT.bytes is not None and a.device.type == "cpu":
        most = min(most, LIMIT.bytes // a.element_size())
    size = most // max(width, 1) or 1
    return [slice(start, start + size) for start in range(0, count, size)]


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


def row_parts(a: Tensor, width: int, least: int = LEAST) -> list[slice]:
    """The same where a dozen buffers of `width` are worked on: an eighth of the rows at the most.

    Some thousand elements are no matter, or `least`.
    """
    if not is_eager_cpu(a):
        return parts(a, width)
    most = max(least, min(block_size(), a.numel() // 8)) // width or 1
    return [slice(start, start + most) for start in range(0, a.shape[0], most)]


def is_quick_in_numpy(a: Tensor) -> bool:
    """Whether numpy may work on the same memory: its calls cost a fraction of torch's."""
    return is_eager_cpu(a) and not torch._C._are_functorch_transforms_active()


def rows_at_once(where: str, rows: int, width: int, beside: int) -> int:
    """How many of these rows to work on at once, with a dozen buffers of `width` and one `beside`.

    `where` is numpy, or the type of a device for torch.
    """
    if where != "numpy":
        most = block_size() if where == "cpu" else GPU_BLOCK
        return max(1, min(rows, most // max(width, beside)))
    most = max(1, min(NUMPY_BLOCK // width, 4 * NUMPY_BLOCK // beside))
    # Parts of the same size, of eight rows or more: then buffers begin with a line of the cache.
    even = -(-rows // -(-rows // most))
    return min(rows, -(-even // 8) * 8) if even > 8 else even


class Room(threading.local):
    """Memory for numpy that a thread keeps: fresh memory costs more than the arithmetic on it."""

    memory: Tensor | None = None
    # What was made of it last, and how.
    made: tuple[Any, Any] = (None, None)

    def of(self, make: Callable[..., T], shapes: Shapes) -> T:
        """What `make` makes of uninitialised arrays of float64; it holds until the next call."""
        key = make, shapes
        if self.made[0] == key:
            found: T = self.made[1]
            return found
        # From torch: its memory begins where a line of the cache does, and so does each array.
        sizes = [-(-math.prod(shape) // 8) * 8 for shape in shapes]
        memory, size = self.memory, sum(sizes)
        if memory is None or len(memory) < size:
            memory = torch.empty(size, dtype=torch.float64, device="cpu")
        pieces = zip(torch.split(memory[:size], sizes), shapes, strict=True)
        made = make(*(piece[: math.prod(shape)].view(shape).numpy() for piece, shape in pieces))
        if len(memory) <= MOST_KEPT:
            self.memory, self.made = memory, (key, made)
        return made


ROOM = Room()
