"""Time and memory of forward and backward, next to torch's cross entropy in the same run.

The timed call is ``(-hitrate.log_expected_accuracy(x, y, method=m).mean()).backward()`` against
``F.cross_entropy(x, y).backward()``, in float32, x standard normal. Methods take turns: a round
times each of them once, in a random order, so that a slow moment of the machine hits all alike and
the ratio of a round is more stable than its times.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from memory import memory_of
from torch import Tensor

import hitrate

BASELINE = "cross_entropy"
METHODS = ("quadrature", "gridded", "auto", "genz")
SAMPLES = 16
# Genz's time is O(N C^2 S): seconds a call at this limit, and minutes at N = 256, C = 1000, where
# the margins given a tie alone take 1 GiB.
GENZ_LIMIT = 5e7
# One timing lasts at least this long: a short call is repeated, and divided.
SHORTEST = 2e-3

# Losses as Modules, timed as they are trained with.
MEMBERS = {
    "CrossEntropyLoss()": hitrate.CrossEntropyLoss(),
    "MixedLoss(0.25)": hitrate.MixedLoss(0.25),
    "ExpectationLoss()": hitrate.ExpectationLoss(),
    "GeneralizedCrossEntropyLoss()": hitrate.GeneralizedCrossEntropyLoss(),
    "ExactLoss()": hitrate.ExactLoss(),
}

Call = Callable[[], None]


def measure_shape(
    rows: int, classes: int, *, seconds: float, rounds: tuple[int, int]
) -> list[dict[str, Any]]:
    """Time and memory of every method for one shape.

    Parameters
    ----------
    rows, classes : int
        Shape (N, C) of the logits.
    seconds : float
        Rounds go on for this long,
    rounds : tuple of int
        but no fewer and no more than these.

    Returns
    -------
    list of dict
        One per method, cross entropy first. Times in seconds, memory in bytes; ``not_run`` says
        why there are none. ``others`` is how many cores other processes used meanwhile: with more
        than a fraction of one, torch's threads wait for each other and the times say little.
    """
    torch.manual_seed(0)
    x = torch.randn(rows, classes, requires_grad=True)
    y = torch.randint(classes, (rows,))
    calls = {BASELINE: _cross_entropy(x, y)}
    skipped = {}
    for method in METHODS:
        if method == "genz" and rows * classes**2 * SAMPLES > GENZ_LIMIT:
            skipped[method] = f"N C^2 S = {rows * classes**2 * SAMPLES:.1e} > {GENZ_LIMIT:.1e}"
        else:
            calls[method] = _expected_accuracy(x, y, method)

    memory = {}
    for method, call in calls.items():
        # What the first call keeps, other than the gradient, are tables for later calls.
        x.grad = None
        kept = memory_of(call).kept - x.nbytes
        x.grad = None
        memory[method] = {"peak_bytes": memory_of(call).peak, "table_bytes": kept}
    start = time.perf_counter(), _others_seconds()
    times = _take_turns(calls, seconds, rounds)
    shape = {
        "rows": rows,
        "classes": classes,
        "logits_bytes": x.nbytes,
        "others": _others_share(*start),
    }
    return [
        shape | {"method": method, **_summary(times[method], times[BASELINE]), **memory[method]}
        for method in calls
    ] + [shape | {"method": method, "not_run": why} for method, why in skipped.items()]


def measure_members(
    rows: int, classes: int, *, seconds: float, rounds: tuple[int, int]
) -> list[dict[str, Any]]:
    """Time of every loss of `MEMBERS` for one shape, with the arguments of `measure_shape`."""
    torch.manual_seed(0)
    x = torch.randn(rows, classes, requires_grad=True)
    y = torch.randint(classes, (rows,))
    calls = {BASELINE: _cross_entropy(x, y)}
    calls |= {name: _loss(x, y, loss) for name, loss in MEMBERS.items()}
    for call in calls.values():
        call()
    start = time.perf_counter(), _others_seconds()
    times = _take_turns(calls, seconds, rounds)
    shape = {"rows": rows, "classes": classes, "others": _others_share(*start)}
    return [shape | {"loss": name, **_summary(times[name], times[BASELINE])} for name in MEMBERS]


def _cross_entropy(x: Tensor, y: Tensor) -> Call:
    def call() -> None:
        x.grad = None
        F.cross_entropy(x, y).backward()

    return call


def _expected_accuracy(x: Tensor, y: Tensor, method: str) -> Call:
    def call() -> None:
        x.grad = None
        loss = -hitrate.log_expected_accuracy(x, y, method=method, samples=SAMPLES).mean()
        loss.backward()

    return call


def _loss(x: Tensor, y: Tensor, loss: torch.nn.Module) -> Call:
    def call() -> None:
        x.grad = None
        loss(x, y).backward()

    return call


def _take_turns(
    calls: dict[str, Call], seconds: float, rounds: tuple[int, int]
) -> dict[str, list[float]]:
    """Seconds per call of each method, one number per round."""
    # The calls have warmed up: one more tells how often a short call is repeated.
    repeats = {
        method: max(1, round(SHORTEST / max(_seconds(call, 1), 1e-5)))
        for method, call in calls.items()
    }
    fewest, most = rounds
    order = list(calls)
    shuffle = random.Random(0).shuffle
    times: dict[str, list[float]] = {method: [] for method in calls}
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        for count in range(most):
            if count >= fewest and time.perf_counter() > end:
                break
            shuffle(order)
            for method in order:
                times[method].append(_seconds(calls[method], repeats[method]))
    finally:
        gc.enable()
    return times


def _seconds(call: Call, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _others_seconds() -> float | None:
    """Seconds of all cores that went to other processes since the start; None if unknown."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    # The first line: cpu user nice system idle iowait irq softirq steal ...
    ticks = [int(word) for word in stat.read_text().split(maxsplit=9)[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]
    return busy / os.sysconf("SC_CLK_TCK") - time.process_time()


def _others_share(clock: float, seconds: float | None) -> float | None:
    """Cores that other processes used since both numbers were read."""
    now = _others_seconds()
    if now is None or seconds is None:
        return None
    return max(0.0, (now - seconds) / (time.perf_counter() - clock))


def _summary(times: list[float], baseline: list[float]) -> dict[str, Any]:
    """Medians and quartiles of times and of their ratios to the baseline, round by round."""
    ratios = [own / other for own, other in zip(times, baseline, strict=True)]
    return {
        "rounds": len(times),
        "seconds": statistics.median(times),
        "seconds_quartiles": quartiles(times),
        "ratio_of_medians": statistics.median(times) / statistics.median(baseline),
        "ratio": statistics.median(ratios),
        "ratio_quartiles": quartiles(ratios),
    }


def quartiles(values: list[float]) -> list[float]:
    """First and third quartile."""
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return [first, third]
