"""Runs spread over processes: each outcome as soon as it is there, in any order."""

from __future__ import annotations

import functools
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from hitrate_lab.runs.processes import (
    DIED,
    Outcome,
    in_order_of_ending,
    one_thread,
    outcome_of,
)

# From what all runs share, and a specification.
Run = Callable[[Any, dict[str, Any]], dict[str, Any]]
# Number of a run, its specification, and when it is too late to begin.
Task = tuple[int, dict[str, Any], float | None]


def outcomes(
    run: Run,
    content: Any,
    plan: Sequence[dict[str, Any]],
    jobs: int,
    deadlines: Sequence[float | None],
) -> Iterator[Outcome]:
    """Run specifications in their order, `jobs` at a time.

    The end of the iteration, by whatever exception, is the end of the processes. If one of them
    dies on its own the runs that were under way fail, and the others go on in new processes.

    Parameters
    ----------
    run : callable
        One run, of the content and a specification; processes import it by its name.
    content : object
        What all runs share; it reaches each process once.
    plan : sequence of dict
        Specifications.
    jobs : int
        Processes; 1 is this one.
    deadlines : sequence of float or None
        The time, as of `time.time`, after which each run is not begun.
    """
    tasks = {k: (k, spec, deadlines[k]) for k, spec in enumerate(plan)}
    if jobs == 1:
        with one_thread():
            for task in tasks.values():
                yield _outcome(run, content, task)
        return
    with tempfile.TemporaryDirectory(prefix="hitrate-") as folder:
        # Written once and read once by each process; a task itself is small.
        path = Path(folder) / "content.pickle"
        path.write_bytes(pickle.dumps((run, content), pickle.HIGHEST_PROTOCOL))
        while tasks:
            try:
                for outcome in _spread(path, list(tasks.values()), jobs):
                    del tasks[outcome.number]
                    yield outcome
            except BrokenExecutor as error:
                for number in list(tasks)[:jobs]:
                    del tasks[number]
                    yield Outcome(number, error=DIED, traceback=f"{DIED}\n{error}")


def _spread(path: Path, tasks: list[Task], jobs: int) -> Iterator[Outcome]:
    """The outcomes of tasks, in the order in which they end."""
    import joblib

    calls = (joblib.delayed(_in_a_worker)(path, task) for task in tasks)
    return in_order_of_ending(calls, jobs, pre_dispatch=jobs, folder=path.parent)


def _in_a_worker(path: Path, task: Task) -> Outcome:
    """A task in a process of its own."""
    import torch

    torch.set_num_threads(1)
    return _outcome(*_read(path), task)


def _outcome(run: Run, content: Any, task: Task) -> Outcome:
    """Run one specification."""
    number, spec, deadline = task
    if deadline is not None and time.time() >= deadline:
        return Outcome(number)
    return outcome_of(number, lambda: run(content, spec))


@functools.lru_cache(maxsize=1)
def _read(path: Path) -> tuple[Run, Any]:
    """What the parent wrote, read once by each process."""
    run, content = pickle.loads(path.read_bytes())
    return run, content
