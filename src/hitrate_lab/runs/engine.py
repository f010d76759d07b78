"""Runs of a plan: spread over processes or a cluster, kept one by one, and told of."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from hitrate_lab.runs.batches import batches_of, needed_by
from hitrate_lab.runs.events import Event
from hitrate_lab.runs.executors import in_processes, in_this_process, on_cluster
from hitrate_lab.runs.outcomes import Ended, Outcome, Task
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.runs.time_left import Left
from hitrate_lab.runs.work import Context, Result, Specification, Work

# Processes that share a GPU, if nobody says how many.
ON_DEVICE = 4


@dataclass(frozen=True)
class Where:
    """Where runs are computed.

    Parameters
    ----------
    jobs : int, optional
        Processes; by default one for each core, on another device four at most. 1 is this one.
    cluster : str, optional
        Address of a Dask scheduler, whose workers run instead.
    data_dir : Path, optional
        As for `read_table`; on a cluster, of each worker.
    device : str
        Of torch.
    """

    jobs: int | None = None
    cluster: str | None = None
    data_dir: Path | None = None
    device: str = "cpu"

    @property
    def processes(self) -> int:
        """How many there are, if there is no cluster."""
        import joblib

        if self.jobs is not None:
            return self.jobs
        cores = int(joblib.cpu_count())
        return cores if self.device == "cpu" else min(cores, ON_DEVICE)

    def ended(self, work: Work, tasks: Iterator[Task]) -> Generator[Ended]:
        """What comes of tasks, as they end; closing it ends what is under way."""
        import joblib

        if self.cluster is not None:
            return on_cluster(work, tasks, self.cluster)
        processes = self.processes
        threads = 1 if work.has_one_thread else max(1, joblib.cpu_count() // processes)
        if processes == 1:
            return in_this_process(work, tasks, threads)
        return in_processes(work, tasks, processes, threads)


def run_missing(
    work: Work,
    plan: list[Specification],
    runs: Store,
    where: Where,
    *,
    retry: bool = False,
    time_budget: float | None = None,
    observer: Callable[[Event], object] | None = None,
) -> int:
    """Run what the store does not have yet, and keep each outcome at once.

    A run that fails does not stop the others, except those that need its result. What is computed
    together is computed together again if a part of it is missing. A run whose processes died is
    no failure: the next call begins it again.

    Parameters
    ----------
    work : Work
        What has the runs; a copy of it reaches each process.
    plan : list of dict
        Specifications of all runs.
    runs : Store
    where : Where
    retry : bool
        Run again what failed in an earlier call.
    time_budget : float, optional
        Seconds after which only runs begin that ignore it.
    observer : callable, optional
        Called with every `Event`, from the thread that called this function.

    Returns
    -------
    int
        How many runs were lost with their processes.
    """
    deadline = None if time_budget is None else time.monotonic() + time_budget
    missing, finished = runs.missing(plan, retry=retry), runs.runs(plan)
    waiting = batches_of(work, plan, missing)
    left = Left(work, finished, waiting.values(), None if where.cluster else where.processes)
    keeper = _Keeper(runs, missing, len(finished), len(plan), left, observer)
    keeper.tell("planned")
    for run in finished:
        keeper.tell("finished", run.specification, run.result, stored=True)

    def begun(tasks: list[Task]) -> Iterator[Task]:
        for task in tasks:
            specs = task.specifications
            late = deadline is not None and time.monotonic() >= deadline
            if late and not any(map(work.ignores_time_budget, specs)):
                del waiting[task.number]
                continue
            for spec in specs:
                if key_of(spec) in keeper.missing:
                    keeper.tell("started", spec)
            yield task

    while tasks := _ready(work, plan, waiting, runs, where):
        # Whatever ends the loop ends the processes.
        with contextlib.closing(where.ended(work, begun(tasks))) as ended:
            for number, outcomes in ended:
                specs = waiting.pop(number)
                keeper.keep(specs, outcomes)
                if all(each.result is not None for each in outcomes):
                    shutil.rmtree(_scratch(runs, specs), ignore_errors=True)
    with contextlib.suppress(OSError):
        _scratch(runs).rmdir()
    return keeper.lost


def _scratch(runs: Store, specs: list[Specification] | None = None) -> Path:
    """The folder beside a store for what is under way; of a batch, if it is given."""
    folder = runs.path.with_name(f"{runs.path.name}.scratch").absolute()
    return folder if specs is None else folder / key_of(specs[0])[:32]


def _ready(
    work: Work,
    plan: list[Specification],
    waiting: dict[int, list[Specification]],
    runs: Store,
    where: Where,
) -> list[Task]:
    """Tasks for the batches that can begin: all that they need is there."""
    folder = None if where.data_dir is None else Path(where.data_dir).resolve()
    needs = {number: needed_by(work, specs, plan) for number, specs in waiting.items()}
    results: dict[str, Result] = {}
    if any(needs.values()):
        results = {run.key: run.result for run in runs.runs(plan)}
    tasks = []
    for number, specs in waiting.items():
        needed = needs[number]
        if results.keys() >= set(needed):
            known = {key: results[key] for key in needed}
            # A cluster's machines need not see the store's folder.
            scratch = None if where.cluster else _scratch(runs, specs)
            tasks.append(Task(number, specs, Context(folder, known, where.device, scratch)))
    return tasks


class _Keeper:
    """Keeps what comes of runs, and tells of it."""

    def __init__(
        self,
        runs: Store,
        missing: list[Specification],
        done: int,
        planned: int,
        left: Left,
        observer: Callable[[Event], object] | None,
    ) -> None:
        self._runs, self._left, self._observer = runs, left, observer
        self.missing, self.lost = set(map(key_of, missing)), 0
        self._done, self._failed, self._planned = done, 0, planned

    def keep(self, specs: list[Specification], outcomes: list[Outcome]) -> None:
        """Put the outcome of a batch into the store; what is there already stays."""
        self._left.ended(specs, [each.result for each in outcomes])
        for spec, one in zip(specs, outcomes, strict=True):
            if one.result is not None:
                if self._runs.add(spec, one.result):
                    self._done += 1
                    self.tell("finished", spec, one.result)
            # Others were only run again beside those that are missing.
            elif key_of(spec) in self.missing:
                self._failed += 1
                if one.is_lost:
                    self.lost += 1
                else:
                    self._runs.add_failure(spec, one.error or "", one.traceback)
                self.tell("failed", spec, error=one.error)

    def tell(
        self,
        kind: str,
        spec: Specification | None = None,
        result: Result | None = None,
        error: str | None = None,
        stored: bool = False,
    ) -> None:
        """Call the observer, if there is one."""
        if self._observer is not None:
            counts = self._done, self._failed, self._planned
            left = self._left.seconds()
            self._observer(Event(kind, *counts, spec, result, error, stored, left))
