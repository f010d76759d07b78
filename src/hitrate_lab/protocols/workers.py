"""Runs spread over processes: each outcome as soon as it is there, in any order."""

from __future__ import annotations

import functools
import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from hitrate_lab.data import Table
from hitrate_lab.models.methods import methods
from hitrate_lab.protocols.folds import codes, fold_rows, seed_of
from hitrate_lab.protocols.one_run import one_run
from hitrate_lab.protocols.processes import (
    DIED,
    Outcome,
    in_order_of_ending,
    one_thread,
    outcome_of,
)

# Features, numbers of rows' classes, and how many classes there are.
Content = tuple[Any, Any, int]
# Number of a run, its specification, and when it is too late to begin.
Task = tuple[int, dict[str, Any], float | None]


def outcomes(
    table: Table, plan: Sequence[dict[str, Any]], jobs: int, deadlines: Sequence[float | None]
) -> Iterator[Outcome]:
    """Run specifications in their order, `jobs` at a time.

    The end of the iteration, by whatever exception, is the end of the processes. If one of them
    dies on its own the runs that were under way fail, and the others go on in new processes.

    Parameters
    ----------
    table : Table
    plan : sequence of dict
        Specifications of `compare`.
    jobs : int
        Processes; 1 is this one.
    deadlines : sequence of float or None
        The time, as of `time.time`, after which each run is not begun.
    """
    content = (table.features, codes(table), len(table.classes))
    tasks = {k: (k, spec, deadlines[k]) for k, spec in enumerate(plan)}
    if jobs == 1:
        with one_thread():
            for task in tasks.values():
                yield _outcome(content, task)
        return
    with tempfile.TemporaryDirectory(prefix="hitrate-") as folder:
        # Written once and read once by each process; a task itself is small.
        path = Path(folder) / "table.pickle"
        path.write_bytes(pickle.dumps(content, pickle.HIGHEST_PROTOCOL))
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
    return _outcome(_read(path), task)


def _outcome(content: Content, task: Task) -> Outcome:
    """Run one specification."""
    number, spec, deadline = task
    if deadline is not None and time.time() >= deadline:
        return Outcome(number)
    return outcome_of(number, lambda: _run(content, spec))


def _run(content: Content, spec: dict[str, Any]) -> dict[str, Any]:
    features, target, classes = content
    model, loss = spec["method"].split("/")
    (method,) = methods([model], [loss])
    repeat, fold, seed = spec["repeat"], spec["fold"], spec["seed"]
    rows = fold_rows(target, spec["folds"], repeat, seed)[fold]
    return one_run(
        features,
        target,
        classes,
        rows,
        method,
        spec["candidates"],
        seed_of(seed, repeat, fold),
    )


@functools.lru_cache(maxsize=1)
def _read(path: Path) -> Content:
    """The content that the parent wrote, read once by each process."""
    features, target, classes = pickle.loads(path.read_bytes())
    return features, target, classes
