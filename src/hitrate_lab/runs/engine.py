"""Runs of a plan: spread over processes or a cluster, kept one by one, and told of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from hitrate_lab.runs.batches import batches_of, needed_by
from hitrate_lab.runs.events import Event
from hitrate_lab.runs.executors import Task, in_processes, in_this_process, on_cluster
from hitrate_lab.runs.processes import Outcome
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.runs.time_left import Left
from hitrate_lab.runs.work import Work

# Processes that share a GPU, if nobody says how many.
ON_DEVICE = 4


def run_missing(
    work: Work,
    plan: list[dict[str, Any]],
    runs: Store,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    data_dir: Path | None = None,
    retry: bool = False,
    device: str = "cpu",
    observer: Callable[[Event], object] | None = None,
) -> None:
    """Run what the store does not have yet, and keep each outcome at once.

    A run that fails does not stop the others, except those that need its result. What is computed
    together is computed together again if a part of it is missing.

    Parameters
    ----------
    work : Work
        What has the runs; workers import its class.
    plan : list of dict
        Specifications of all runs.
    runs : Store
    jobs : int, optional
        Processes; by default one for each core, on another device four at most. 1 is this one.
    cluster : str, optional
        Address of a Dask scheduler, whose workers run instead.
    data_dir : Path, optional
    retry : bool
        Run again what failed in an earlier call.
    device : str
        Of torch.
    observer : callable, optional
        Called with every `Event`, from the thread that called this function.
    """
    import joblib

    if jobs is None:
        jobs = joblib.cpu_count() if device == "cpu" else min(joblib.cpu_count(), ON_DEVICE)
    missing, finished = runs.missing(plan, retry=retry), runs.runs(plan)
    waiting = batches_of(work, plan, missing)
    left = Left(finished, waiting.values(), None if cluster else jobs)
    keeper = _Keeper(runs, missing, len(finished), len(plan), left, observer)
    keeper.tell("planned")
    while tasks := _ready(work, plan, waiting, runs, data_dir, device):
        # Whatever ends the loop ends the processes.
        with contextlib.closing(_outcomes(tasks, jobs, cluster)) as ended:
            for outcome in ended:
                keeper.keep(waiting.pop(outcome.number), outcome)


def _ready(
    work: Work,
    plan: list[dict[str, Any]],
    waiting: dict[int, list[dict[str, Any]]],
    runs: Store,
    data_dir: Path | None,
    device: str,
) -> list[Task]:
    """Tasks for the batches that can begin: all that they need is there."""
    folder = None if data_dir is None else Path(data_dir).resolve()
    needs = {number: needed_by(work, specs, plan) for number, specs in waiting.items()}
    results = {}
    if any(needs.values()):
        results = {run.key: run.result for run in runs.runs(plan)}
    tasks = []
    for number, specs in waiting.items():
        needed = needs[number]
        if results.keys() >= set(needed):
            known = {key: results[key] for key in needed}
            tasks.append(Task(number, work, specs, folder, known, device))
    return tasks


def _outcomes(tasks: list[Task], jobs: int, cluster: str | None) -> Generator[Outcome]:
    if cluster is not None:
        return on_cluster(tasks, cluster)
    return in_this_process(tasks) if jobs == 1 else in_processes(tasks, jobs)


class _Keeper:
    """Keeps what comes of runs, and tells of it."""

    def __init__(
        self,
        runs: Store,
        missing: list[dict[str, Any]],
        done: int,
        planned: int,
        left: Left,
        observer: Callable[[Event], object] | None,
    ) -> None:
        self._runs, self._left, self._observer = runs, left, observer
        self._missing = set(map(key_of, missing))
        self._done, self._failed, self._planned = done, 0, planned

    def keep(self, specs: list[dict[str, Any]], outcome: Outcome) -> None:
        """Put the outcome of a batch into the store; what is there already stays."""
        # What ended a whole batch ended each of its runs.
        each = [outcome] * len(specs) if outcome.result is None else outcome.result
        seconds = [None if one.result is None else one.result.get("seconds") for one in each]
        self._left.ended(specs, seconds)
        for spec, one in zip(specs, each, strict=True):
            if one.result is not None:
                if self._runs.add(spec, one.result):
                    self._done += 1
                    self.tell("finished", spec, one.result)
            # Others were only run again beside those that are missing.
            elif key_of(spec) in self._missing:
                self._failed += 1
                self._runs.add_failure(spec, one.error or "", one.traceback)
                self.tell("failed", spec, error=one.error)

    def tell(
        self,
        kind: str,
        spec: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Call the observer, if there is one."""
        if self._observer is not None:
            counts = self._done, self._failed, self._planned
            left = self._left.seconds()
            self._observer(Event(kind, *counts, spec, result, error, left=left))
