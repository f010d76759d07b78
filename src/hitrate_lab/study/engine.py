"""A study's runs: planned, spread over processes or a cluster, kept one by one, and counted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hitrate_lab.data.bad_input import BadInput, listed
from hitrate_lab.protocols.lock import only_one
from hitrate_lab.protocols.processes import Outcome
from hitrate_lab.store import Failure, Store, key_of
from hitrate_lab.study.batches import batches_of, held_up, needed_by
from hitrate_lab.study.file import Study
from hitrate_lab.study.left import Left
from hitrate_lab.study.protocols import PROTOCOLS, protocol_named
from hitrate_lab.study.spreading import Task, in_processes, in_this_process, on_cluster

# Processes that share a GPU, if nobody says how many.
ON_DEVICE = 4
# Of data sets that have to be there before a study can begin.
PUBLISHED = ("exact/", "uci121/")


@dataclass(frozen=True)
class Event:
    """Something that happened during a study.

    `kind` is "planned", once at the beginning, "finished", or "failed" with the error in one line.
    `left` is a guess, in seconds, of how long the rest takes; None before anything is known.
    """

    kind: str
    done: int
    failed: int
    planned: int
    specification: dict[str, Any] | None = None
    seconds: float | None = None
    error: str | None = None
    left: float | None = None


@dataclass(frozen=True)
class Status:
    """How far a study is: runs by what has become of them, in all and of each data set.

    A failed run that has a result by now is done. Of those that are missing, `waiting` need the
    result of one that failed.
    """

    name: str
    store: str
    planned: int
    done: int
    failed: int
    missing: int
    waiting: int
    seconds: float
    data_sets: dict[str, dict[str, int]]
    failures: list[dict[str, str]]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"format": "hitrate study status", "version": 1, **asdict(self)}


def plan_of(study: Study) -> list[dict[str, Any]]:
    """Specifications of all runs of a study, in the order in which they begin.

    Parameters
    ----------
    study : Study
    """
    plan: list[dict[str, Any]] = protocol_named(study.protocol).plan(study)
    assert len({key_of(each) for each in plan}) == len(plan)
    return plan


def run_study(
    study: Study,
    *,
    store: Path | str,
    jobs: int | None = None,
    cluster: str | None = None,
    data_dir: Path | None = None,
    retry: bool = False,
    device: str = "cpu",
    observer: Callable[[Event], object] | None = None,
) -> Status:
    """Run what the store does not have yet, and keep each outcome at once.

    Whatever ends it, Ctrl-C, kill -9 or a loss of power, the same call goes on from there. Results
    are never overwritten. A run that fails does not stop the others, except those that need its
    result. What a protocol computes together is computed together again if a part of it is missing,
    so that results do not depend on where it stopped.

    Parameters
    ----------
    study : Study
    store : Path
        File of runs; made if it is not there. One study at a time may use it.
    jobs : int, optional
        Processes; by default one for each core, on another device four at most, which share its
        memory. 1 is this one.
    cluster : str, optional
        Address of a Dask scheduler, whose workers run instead.
    data_dir : Path, optional
        As for `read_table`; on a cluster, of each worker.
    retry : bool
        Run again what failed in an earlier call.
    device : str
        Of torch, such as cuda, for protocols that can use it.
    observer : callable, optional
        Called with every `Event`, from the thread that called this function.

    Returns
    -------
    Status
    """
    import joblib

    if jobs is not None and jobs < 1:
        raise BadInput(f"jobs={jobs}: needs 1 or more")
    if jobs is not None and cluster is not None:
        raise BadInput("jobs and cluster: the cluster has its own processes; give one of the two")
    protocol, plan = protocol_named(study.protocol), plan_of(study)
    if cluster is None:
        check_device(study, device)
        if hasattr(protocol, "check_machine"):
            protocol.check_machine(study)
    check_data(study, data_dir)
    if jobs is None:
        jobs = joblib.cpu_count() if device == "cpu" else min(joblib.cpu_count(), ON_DEVICE)
    path = Path(store)
    with only_one(path), Store(path) as runs:
        missing, finished = runs.missing(plan, retry=retry), runs.runs(plan)
        waiting = batches_of(protocol, plan, missing)
        left = Left(finished, waiting.values(), None if cluster else jobs)
        keeper = _Keeper(runs, missing, len(finished), len(plan), left, observer)
        keeper.tell("planned")
        while tasks := _ready(study, plan, waiting, runs, data_dir, device):
            # Whatever ends the loop ends the processes.
            with contextlib.closing(_outcomes(tasks, jobs, cluster)) as ended:
                for outcome in ended:
                    keeper.keep(waiting.pop(outcome.number), outcome)
        status = _status(study, plan, path, runs)
    assert status.missing == status.waiting, "a run needs one that is not planned, or itself"
    return status


def status_of(study: Study, store: Path | str) -> Status:
    """How far a study is; a store that is not there yet has no runs, and is not made.

    Parameters
    ----------
    study : Study
    store : Path
    """
    plan, path = plan_of(study), Path(store)
    if not path.is_file():
        return _status(study, plan, path, None)
    with Store(path) as runs:
        return _status(study, plan, path, runs)


def check_data(study: Study, data_dir: Path | None) -> None:
    """Complain, in one line, of published data sets that are not there.

    Parameters
    ----------
    study : Study
    data_dir : Path, optional
    """
    from hitrate_lab.data.published.files import find_set
    from hitrate_lab.data.reading import data_folders

    missing = []
    for name in study.data_sets:
        if name.startswith(PUBLISHED):
            try:
                find_set(name, data_dir)
            except BadInput:
                missing.append(name)
    if missing:
        looked = data_folders(data_dir)
        raise BadInput(
            f"{len(missing)} of {len(study.data_sets)} data sets of study {study.name} are not in "
            f"{' or '.join(map(str, looked))}: {listed(missing)}; let HITRATE_DATA or --data-dir "
            "name the folder that has them, or get each with hitrate_lab.data.published.fetch("
            f"{missing[0]!r}, {str(looked[0])!r})"
        )


def check_device(study: Study, device: str) -> None:
    """Complain, in one line, of a device that is not here or that the study cannot use.

    Parameters
    ----------
    study : Study
    device : str
    """
    if device == "cpu":
        return
    import torch

    if not hasattr(protocol_named(study.protocol), "run_batch"):
        raise BadInput(
            f"device {device}: study {study.name} has no use for it; its file says where it runs"
        )
    try:
        asked = torch.device(device)
    except RuntimeError as error:
        raise BadInput(f"device {device}: {str(error).splitlines()[0]}") from error
    # Counting takes no memory of theirs.
    if asked.type == "cuda" and (asked.index or 0) >= (there := torch.cuda.device_count()):
        raise BadInput(f"device {device}: is not here; there are {there} GPUs")


def _ready(
    study: Study,
    plan: list[dict[str, Any]],
    waiting: dict[int, list[dict[str, Any]]],
    runs: Store,
    data_dir: Path | None,
    device: str,
) -> list[Task]:
    """Tasks for the batches that can begin: all that they need is there."""
    protocol, module = protocol_named(study.protocol), PROTOCOLS[study.protocol]
    folder = None if data_dir is None else Path(data_dir).resolve()
    results = {}
    if waiting and hasattr(protocol, "needs"):
        results = {run.key: run.result for run in runs.runs(plan)}
    tasks = []
    for number, specs in waiting.items():
        needed = needed_by(protocol, specs, plan)
        if results.keys() >= set(needed):
            known = {key: results[key] for key in needed}
            tasks.append(Task(number, module, specs, folder, known, device))
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
        for spec, one, took in zip(specs, each, seconds, strict=True):
            if one.result is not None:
                if self._runs.add(spec, one.result):
                    self._done += 1
                    self.tell("finished", spec, took)
            # Others were only run again beside those that are missing.
            elif key_of(spec) in self._missing:
                self._failed += 1
                self._runs.add_failure(spec, one.error or "", one.traceback)
                self.tell("failed", spec, error=one.error)

    def tell(
        self,
        kind: str,
        spec: dict[str, Any] | None = None,
        seconds: float | None = None,
        error: str | None = None,
    ) -> None:
        """Call the observer, if there is one."""
        if self._observer is not None:
            counts = self._done, self._failed, self._planned
            self._observer(Event(kind, *counts, spec, seconds, error, self._left.seconds()))


def _status(study: Study, plan: list[dict[str, Any]], path: Path, runs: Store | None) -> Status:
    finished = [] if runs is None else runs.runs(plan)
    failures = [] if runs is None else runs.failures(plan)
    sets = {name: {"planned": 0, "done": 0, "failed": 0} for name in study.data_sets}
    for kind, specs in (
        ("planned", plan),
        ("done", [run.specification for run in finished]),
        ("failed", [failure.specification for failure in failures]),
    ):
        for spec in specs:
            sets[spec["data_set"]][kind] += 1
    missing = plan if runs is None else runs.missing(plan)
    keys = {failure.key for failure in failures}
    return Status(
        name=study.name,
        store=str(path),
        planned=len(plan),
        done=len(finished),
        failed=len(failures),
        missing=len(missing),
        waiting=len(held_up(protocol_named(study.protocol), plan, missing, keys)),
        seconds=round(sum(run.result.get("seconds") or 0.0 for run in finished), 1),
        data_sets=sets,
        failures=[_shown(failure) for failure in failures],
    )


def _shown(failure: Failure) -> dict[str, str]:
    return {
        "run": run_name(failure.specification),
        "error": failure.error,
        "finished": failure.finished,
        "traceback": failure.traceback,
    }


def run_name(specification: dict[str, Any]) -> str:
    """A run in a few words.

    Examples
    --------
    >>> run_name({"data_set": "exact/car", "method": "EXACT", "seed": 3, "steps": 8000})
    'exact/car, EXACT, seed 3'
    """
    words = [str(specification["data_set"])]
    words += [str(specification[key]) for key in ("method", "model") if key in specification]
    words += [f"{key} {specification[key]}" for key in ("trial", "seed") if key in specification]
    return ", ".join(words)
