"""What comes of runs: a result, an error, or nothing where the process was lost."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from hitrate_lab.runs.store import canonical
from hitrate_lab.runs.work import Context, Result, Specification, Work

LOST = "the process that ran it died; perhaps there was not enough memory"


class Task(NamedTuple):
    """Specifications that are run together, one or more, and what they are run with."""

    number: int
    specifications: list[Specification]
    context: Context


@dataclass(frozen=True)
class Outcome:
    """What came of a run. One that is lost may be begun again: nothing is known against it."""

    result: Result | None = None
    error: str | None = None
    traceback: str = ""
    is_lost: bool = False


# The number of a task, and what came of each of its runs.
Ended = tuple[int, list[Outcome]]


def outcomes_of(work: Work, task: Task) -> Ended:
    """Run a task; what ends the whole of it ends each of its runs."""
    specs = task.specifications

    def results() -> Sequence[Any]:
        found = work.run_batch(specs, task.context)
        assert len(found) == len(specs)
        return found

    found, failure = _called(results)
    if failure is not None:
        return task.number, [failure] * len(specs)
    return task.number, [_kept(each) for each in found]


def failed(error: BaseException) -> Outcome:
    """The outcome that an exception is: in a line, and in full."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return Outcome(error=line, traceback="".join(traceback.format_exception(error)))


def lost(task: Task, why: str) -> Ended:
    """The outcome of a task whose processes died again and again."""
    one = Outcome(error=LOST, traceback=f"{LOST}\n{why}", is_lost=True)
    return task.number, [one] * len(task.specifications)


def _kept(found: Any) -> Outcome:
    """What a run ended with, if a store can keep it."""
    if isinstance(found, Exception):
        return failed(found)
    _, failure = _called(partial(canonical, found))
    return Outcome(result=found) if failure is None else failure


def _called(call: Callable[[], Any]) -> tuple[Any, Outcome | None]:
    try:
        return call(), None
    except Exception as error:
        return None, failed(error)
