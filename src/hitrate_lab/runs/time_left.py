"""How long the rest of a plan takes: a guess from the runs that are done."""

from __future__ import annotations

import collections
import time
from collections.abc import Collection, Sequence
from typing import Any

from hitrate_lab.runs.store import Run
from hitrate_lab.runs.work import Result, Specification, Work

Kind = tuple[Any, ...]


class Left:
    """How long batches that have not ended may take: each run as long as others that are like it.

    Parameters
    ----------
    work : Work
        Knows how long a result took.
    finished : sequence of Run
    batches : collection
        Specifications of the runs of each.
    jobs : int, optional
        Processes. Of a cluster it is not known: as many as have worked so far, on average.
    """

    def __init__(
        self,
        work: Work,
        finished: Sequence[Run],
        batches: Collection[Sequence[Specification]],
        jobs: int | None,
    ) -> None:
        self._work, self._jobs, self._batches = work, jobs, len(batches)
        self._begun, self._worked = time.monotonic(), 0.0
        self._waiting = collections.Counter(_kind(spec) for specs in batches for spec in specs)
        self._seconds: dict[Kind, float] = collections.defaultdict(float)
        self._counts: collections.Counter[Kind] = collections.Counter()
        for run in finished:
            self._learn(run.specification, work.seconds_of(run.result))

    def ended(self, specs: Sequence[Specification], results: Sequence[Result | None]) -> None:
        """Take notice of a batch's end, and of how long each of its runs took, if that is known."""
        self._batches -= 1
        for spec, result in zip(specs, results, strict=True):
            seconds = None if result is None else self._work.seconds_of(result)
            self._waiting[_kind(spec)] -= 1
            self._worked += seconds or 0.0
            self._learn(spec, seconds)

    def seconds(self) -> float | None:
        """The guess; None if no run is known yet."""
        if not self._counts[()]:
            return None
        work = sum(count * self._mean(kind) for kind, count in self._waiting.items())
        if self._jobs is not None:
            return work / max(min(self._jobs, self._batches), 1)
        return work / max(self._worked / max(time.monotonic() - self._begun, 1e-9), 1.0)

    def _mean(self, kind: Kind) -> float:
        like = next(each for each in _from_the_most_alike(kind) if self._counts[each])
        return self._seconds[like] / self._counts[like]

    def _learn(self, spec: Specification, seconds: float | None) -> None:
        if seconds is not None:
            for kind in _from_the_most_alike(_kind(spec)):
                self._seconds[kind] += seconds
                self._counts[kind] += 1


def _kind(spec: Specification) -> Kind:
    return spec.get("data_set"), spec.get("method", spec.get("model")), spec.get("stage")


def _from_the_most_alike(kind: Kind) -> list[Kind]:
    return [kind, kind[1:], ()]
