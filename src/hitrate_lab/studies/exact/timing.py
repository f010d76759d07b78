"""Time and memory of calls, on a CPU or a GPU."""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import accumulate

import torch
from torch.profiler import ProfilerActivity, profile

# One timing lasts at least this long: a short call is repeated, and divided.
SHORTEST = 5e-3

Call = Callable[[], object]


def memory_of(call: Call, device: str) -> int:
    """Peak of a call in bytes, beyond what there was before it.

    On a GPU it is what torch's allocator counts. On a CPU it is the sum of the allocations and
    releases that torch's profiler records: every tensor, and what operators need inside, but not
    what a library of matrix products keeps for itself.

    Parameters
    ----------
    call : callable
        Called once.
    device : {"cpu", "cuda"}

    Examples
    --------
    >>> memory_of(lambda: torch.ones(1000), "cpu")
    4000
    """
    # Garbage of earlier calls, released meanwhile, would lower the count.
    gc.collect()
    gc.disable()
    try:
        return _peak_on_gpu(call) if device == "cuda" else _peak_on_cpu(call)
    finally:
        gc.enable()


def _peak_on_gpu(call: Call) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def _peak_on_cpu(call: Call) -> int:
    # The profiler otherwise tells on stderr that it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    # A trace written to a file has the same numbers, and takes ten times as long.
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = profiler.profiler.kineto_results.events()
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    changes.sort(key=lambda change: change[0])
    return int(max(accumulate((change[1] for change in changes), initial=0)))


def take_turns(
    calls: Mapping[str, Call], device: str, *, seconds: float, rounds: tuple[int, int]
) -> dict[str, list[float]]:
    """Seconds of each call, one number for each round.

    A round times every call once, in a random order: a slow moment of the machine hits all alike,
    and the ratio of a round is more stable than its times. Calls are warm: they have run before.

    On a CPU it is the time that the process had a core: with one thread, what a call takes where
    nothing else runs. On a GPU it is that between two events of the stream, so what the GPU waits
    for the process counts too.

    Parameters
    ----------
    calls : dict
    device : {"cpu", "cuda"}
    seconds : float
        Rounds go on for this long,
    rounds : tuple of int
        but no fewer and no more than these.
    """
    fewest, most = rounds
    times: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    repeats = dict.fromkeys(calls, 1)
    gc.collect()
    gc.disable()
    try:
        clock = time.perf_counter if device == "cuda" else time.process_time
        ends = clock() + seconds
        for count in range(most):
            if count >= fewest and clock() > ends:
                break
            shuffle(order)
            for name in order:
                taken = _seconds(calls[name], repeats[name], device)
                if repeats[name] == 1 and taken < SHORTEST:
                    # The first call after others is slower than those that follow it.
                    taken = _seconds(calls[name], 5, device)
                    repeats[name] = max(2, round(SHORTEST / max(taken, 1e-6)))
                    taken = _seconds(calls[name], repeats[name], device)
                times[name].append(taken)
    finally:
        gc.enable()
    return times


def _seconds(call: Call, repeats: int, device: str) -> float:
    """Seconds of a call, the mean over several."""
    if device == "cuda":
        first = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        last = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        first.record()
        for _ in range(repeats):
            call()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / repeats
    begun = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - begun) / repeats


def median_and_quartiles(values: list[float]) -> tuple[float, list[float]]:
    """Median; first and third quartile.

    Examples
    --------
    >>> median_and_quartiles([4.0, 1.0, 2.0, 3.0, 5.0])
    (3.0, [2.0, 4.0])
    """
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive")
    return middle, [first, third]
