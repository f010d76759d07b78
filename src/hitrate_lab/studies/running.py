"""A study's runs: planned, run where the store lacks them, and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hitrate_lab.bad_input import BadInput, listed
from hitrate_lab.runs.batches import held_up
from hitrate_lab.runs.engine import Where, run_missing
from hitrate_lab.runs.events import Event, run_name
from hitrate_lab.runs.lock import only_one
from hitrate_lab.runs.store import Failure, Store, key_of
from hitrate_lab.studies.registry import protocol_named
from hitrate_lab.studies.study_file import Study

# What names of image sets begin with.
IMAGES = "images/"


@dataclass(frozen=True)
class Status:
    """How far a study is: runs by what has become of them, in all and of each data set.

    A failed run that has a result by now is done. Of those that are missing, `waiting` need the
    result of one that failed, and `lost` were begun and died with their processes, in this call.
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
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"format": "hitrate study status", "version": 1, **asdict(self)}


def plan_of(study: Study) -> list[dict[str, Any]]:
    """Specifications of all runs of a study, in the order in which they begin.

    Parameters
    ----------
    study : Study
    """
    plan = protocol_named(study.protocol).plan(study)
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
    result; one that was lost with its process is begun again. What a protocol computes together is
    computed together again if a part of it is missing, so that results do not depend on where it
    stopped.

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
    if jobs is not None and jobs < 1:
        raise BadInput(f"jobs={jobs}: needs 1 or more")
    if jobs is not None and cluster is not None:
        raise BadInput("jobs and cluster: the cluster has its own processes; give one of the two")
    protocol, plan = protocol_named(study.protocol), plan_of(study)
    if cluster is None:
        check_device(study, device)
        protocol.check_machine(study)
    check_data(study, data_dir)
    path = Path(store)
    where = Where(jobs, cluster, data_dir, device)
    with only_one(path), Store(path) as runs:
        lost = run_missing(protocol, plan, runs, where, retry=retry, observer=observer)
        status = replace(_status(study, plan, path, runs), lost=lost)
    assert lost or status.missing == status.waiting, "a run needs one that is not planned"
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
    from hitrate_lab.datasets.files import find_set
    from hitrate_lab.datasets.images import find_images
    from hitrate_lab.datasets.table_sets import is_published
    from hitrate_lab.tables.reading import data_folders

    missing = []
    for name in study.data_sets:
        if name.startswith(IMAGES):
            find_images(name.removeprefix(IMAGES), data_dir=data_dir)
        if is_published(name):
            try:
                find_set(name, data_dir)
            except BadInput:
                missing.append(name)
    if missing:
        looked = data_folders(data_dir)
        raise BadInput(
            f"{len(missing)} of {len(study.data_sets)} data sets of study {study.name} are not in "
            f"{' or '.join(map(str, looked))}: {listed(missing)}; let HITRATE_DATA or --data-dir "
            "name the folder that has them, or get each with hitrate_lab.datasets.fetch("
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

    if not protocol_named(study.protocol).uses_device:
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
