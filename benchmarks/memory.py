"""Peak memory of a call: the allocations and releases that torch's profiler records."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile


class Memory(NamedTuple):
    """Bytes beyond those that existed before a call."""

    peak: int
    kept: int


def memory_of(call: Callable[[], object]) -> Memory:
    """Peak during the call, and what is left after it, in bytes of torch's CPU allocator.

    Every tensor counts, temporaries inside operators too. What a matrix product's library
    allocates for itself does not pass torch's allocator and is not seen.

    Parameters
    ----------
    call : callable
        Called once; what it returns is dropped before memory is counted as kept.

    Returns
    -------
    Memory
        ``peak`` and ``kept``, both relative to the start of the call.
    """
    # The profiler otherwise tells on stderr that it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    # Garbage of earlier calls, released meanwhile, would lower the count.
    gc.collect()
    gc.disable()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            call()
    finally:
        gc.enable()
    # Not by way of `events()` or a trace in JSON, which take gigabytes of a call of a minute.
    recorded = profiler.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in recorded if e.name() == "[memory]"]
    changes.sort(key=lambda change: change[0])
    levels = list(accumulate((size for _, size in changes), initial=0))
    return Memory(max(levels), levels[-1])


def check_memory_of() -> None:
    """Raise unless two calls whose memory is known by hand are measured right."""

    def overlap() -> None:
        first = torch.empty(1000)
        second = torch.empty(3000)  # the peak: both are alive
        del first
        third = torch.empty(500)
        del second, third

    x = torch.randn(1000, requires_grad=True)

    def backward() -> None:
        # exp keeps its result for the gradient, which has the same size and stays; the loss and
        # the gradient of the loss are one number each.
        x.exp().sum().backward()

    known = {
        overlap: Memory(peak=4 * 4000, kept=0),
        backward: Memory(peak=4 * 2002, kept=4 * 1000),
    }
    for call, expected in known.items():
        found = memory_of(call)
        if found != expected:
            raise RuntimeError(f"memory of {call.__name__}: measured {found}, known {expected}")
