"""Runs spread over processes of this machine, or over a Dask cluster, in any order of ending.

Dask is used through its own client: joblib's backend for it waits forever for a task whose workers
died.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import os
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from pathlib import Path
from typing import Any, NamedTuple

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.processes import (
    DIED,
    Outcome,
    become_a_worker,
    failed,
    one_thread,
    outcome_of,
)
from hitrate_lab.runs.store import canonical
from hitrate_lab.runs.work import Work

# Processes that a task may take along: others may have killed one or two of them.
DEATHS = 3
# Seconds to wait for a cluster and its first worker.
PATIENCE = 30
# Variables that say to libraries how many threads they may start.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class Task(NamedTuple):
    """Specifications that are run together, one or more, and what they are run with.

    `known` has results that they need, by key.
    """

    number: int
    work: Work
    specifications: list[dict[str, Any]]
    data_dir: Path | None
    known: dict[str, dict[str, Any]]
    device: str


def in_this_process(tasks: Sequence[Task]) -> Generator[Outcome]:
    """One task after the other, here, with one thread as in other processes."""
    with one_thread():
        yield from map(_outcome, tasks)


def in_processes(tasks: Sequence[Task], jobs: int) -> Generator[Outcome]:
    """`jobs` tasks at a time, in processes that end with the iteration.

    Each process is a pool of its own: if it dies, whatever killed it, it is known which task it
    had. That one is begun again when the others have ended, alone; if it has taken `DEATHS`
    processes along it fails.
    """
    waiting, again = collections.deque(tasks), collections.deque[Task]()
    processes: list[Any] = []
    free: list[Any] = []
    under_way: dict[Future[Outcome], tuple[Task, Any]] = {}
    deaths: collections.Counter[int] = collections.Counter()

    def begin(task: Task) -> None:
        while True:
            if not free:
                processes.append(_process())
                free.append(processes[-1])
            process = free.pop()
            # One that died in its sleep is forgotten.
            with contextlib.suppress(BrokenExecutor):
                under_way[process.submit(_outcome, task)] = task, process
                return

    outcomes: list[Outcome] = []
    try:
        while waiting or again or under_way or outcomes:
            while waiting and len(under_way) < jobs:
                begin(waiting.popleft())
            if again and not under_way:
                begin(again.popleft())
            # While these are kept the next ones run.
            yield from outcomes
            outcomes.clear()
            # On Windows, Ctrl-C has no effect on one that waits for good.
            for future in wait(under_way, timeout=1.0, return_when=FIRST_COMPLETED).done:
                task, process = under_way.pop(future)
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    deaths[task.number] += 1
                    if deaths[task.number] < DEATHS:
                        again.append(task)
                    else:
                        trace = f"{DIED}\n{error}"
                        outcomes.append(Outcome(task.number, error=DIED, traceback=trace))
                    continue
                free.append(process)
                outcomes.append(failed(task.number, error) if error else future.result())
    finally:
        for process in processes:
            process.shutdown(kill_workers=True)


def _process() -> Any:
    """A pool of one process with one thread, which ends with this one."""
    loky: Any = importlib.import_module("joblib.externals.loky")
    return loky.ProcessPoolExecutor(
        1,
        initializer=become_a_worker,
        initargs=(os.getpid(), None),
        env=dict.fromkeys(THREADS, "1"),
    )


def on_cluster(tasks: Sequence[Task], address: str) -> Generator[Outcome]:
    """Tasks on the workers of a Dask cluster, which must have hitrate and see the data folder.

    Dask begins a task again elsewhere when its worker dies; one that has taken several workers
    along fails.

    Parameters
    ----------
    tasks : sequence
    address : str
        Of the scheduler, such as tcp://10.0.0.1:8786.
    """
    try:
        # Its types are there in some places and not in others.
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise BadInput(
            "--cluster needs Dask, which is not installed: pip install 'dask[distributed]'"
        ) from error
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"no Dask cluster at {address}: {' '.join(str(error).split())}") from error
    with client:
        _check_workers(client, address)
        futures = {client.submit(_on_a_node, task, pure=False): task for task in tasks}
        try:
            for future in distributed.as_completed(list(futures), loop=client.loop):
                number = futures[future].number
                try:
                    outcome = future.result()
                except (CancelledError, OSError) as error:
                    raise BadInput(
                        f"the Dask cluster at {address} is lost; what is done is kept, the same "
                        "command goes on from here"
                    ) from error
                except Exception as error:
                    # What a run raises is in its outcome: this is of its workers.
                    outcome = Outcome(
                        number, error=f"{DIED} ({type(error).__name__})", traceback=str(error)
                    )
                # The cluster may forget it: the store has it when we are called again.
                del futures[future]
                yield outcome
                future.release()
        finally:
            with contextlib.suppress(Exception):
                client.cancel(list(futures))


def _check_workers(client: Any, address: str) -> None:
    """Complain at once of a cluster that has no workers, or whose workers have another hitrate."""
    import hitrate

    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        raise BadInput(f"the Dask cluster at {address} has no workers; start some") from error
    try:
        found = set(client.run(version_here).values())
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"a worker of the Dask cluster at {address} cannot import hitrate_lab: {error}; "
            "install the same hitrate there"
        ) from error
    if found != {hitrate.__version__}:
        raise BadInput(
            f"workers of the Dask cluster at {address} have hitrate {', '.join(sorted(found))}, "
            f"here it is {hitrate.__version__}; install the same there"
        )


def version_here() -> str:
    """The version of hitrate in this process."""
    import hitrate

    return str(hitrate.__version__)


def _outcome(task: Task) -> Outcome:
    """Run one task; its result has an `Outcome` for each specification."""
    return outcome_of(task.number, lambda: _results(task))


def _results(task: Task) -> list[Outcome]:
    found = task.work.run_batch(task.specifications, task.data_dir, task.known, task.device)
    assert len(found) == len(task.specifications)
    return [outcome_of(k, functools.partial(_plain, each)) for k, each in enumerate(found)]


def _plain(found: Any) -> Any:
    """What a run ended with, if a store can keep it."""
    if isinstance(found, Exception):
        raise found
    canonical(found)
    return found


def _on_a_node(task: Task) -> Outcome:
    """A task on a cluster, whose workers may have left the number of threads open."""
    import torch

    torch.set_num_threads(1)
    return _outcome(task)
