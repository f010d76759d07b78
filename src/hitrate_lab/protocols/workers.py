"""Runs spread over processes: each outcome as soon as it is there, in any order."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hitrate_lab.data import Table
from hitrate_lab.models.methods import methods
from hitrate_lab.protocols.folds import codes, fold_rows, seed_of
from hitrate_lab.protocols.one_run import one_run

# Features, numbers of rows' classes, and how many classes there are.
Content = tuple[Any, Any, int]
# Number of a run, its specification, and when it is too late to begin.
Task = tuple[int, dict[str, Any], float | None]

# Seconds between looks at the parent.
WATCH = 0.5
DIED = "the process that ran it died; perhaps there was not enough memory"


@dataclass(frozen=True)
class Outcome:
    """What came of a specification: a result, an error, or neither if it was too late to begin."""

    number: int
    result: dict[str, Any] | None = None
    error: str | None = None
    traceback: str = ""


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
        with _one_thread():
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

    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        spread = joblib.Parallel(
            return_as="generator_unordered", batch_size=1, pre_dispatch=jobs, max_nbytes=None
        )
        ended = spread(joblib.delayed(_in_a_worker)(path, task, os.getpid()) for task in tasks)
        try:
            yield from ended
        finally:
            with warnings.catch_warnings():
                # That not all of it was waited for is what was meant.
                warnings.simplefilter("ignore")
                ended.close()


def _in_a_worker(path: Path, task: Task, parent: int) -> Outcome:
    """A task in a process of its own, which Ctrl-C at a terminal reaches too."""
    import torch

    # The parent ends it; a network would take the signal as the wish to stop early.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _end_with(parent, path.parent)
    return _outcome(_read(path), task)


@functools.lru_cache(maxsize=1)
def _end_with(parent: int, folder: Path) -> None:
    """Watch from now on whether the parent lives; one that was killed cannot end its workers."""

    def watch() -> None:
        # A process whose parent has died gets another one; Windows has no such thing.
        while os.getppid() == parent:
            time.sleep(WATCH)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """As in the other processes, so that numbers do not depend on how many there are."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _outcome(content: Content, task: Task) -> Outcome:
    """Run one specification."""
    number, spec, deadline = task
    if deadline is not None and time.time() >= deadline:
        return Outcome(number)
    try:
        features, target, classes = content
        model, loss = spec["method"].split("/")
        (method,) = methods([model], [loss])
        repeat, fold, seed = spec["repeat"], spec["fold"], spec["seed"]
        rows = fold_rows(target, spec["folds"], repeat, seed)[fold]
        result = one_run(
            features,
            target,
            classes,
            rows,
            method,
            spec["candidates"],
            seed_of(seed, repeat, fold),
        )
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome(number, error=line, traceback=traceback.format_exc())
    return Outcome(number, result=result)


@functools.lru_cache(maxsize=1)
def _read(path: Path) -> Content:
    """The content that the parent wrote, read once by each process."""
    features, target, classes = pickle.loads(path.read_bytes())
    return features, target, classes
