"""Runs spread over processes of this machine, or over a Dask cluster, in any order of ending.

A task is a number, the name of a protocol's module, a specification and the data folder. Dask is
used through its own client: joblib's backend for it waits forever for a task whose workers died.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from hitrate_lab.data.bad_input import BadInput
from hitrate_lab.protocols.processes import (
    DIED,
    Outcome,
    become_a_worker,
    in_order_of_ending,
    one_thread,
    outcome_of,
)

Task = tuple[int, str, dict[str, Any], Path | None]

# Seconds to wait for a cluster and its first worker.
PATIENCE = 30


def in_this_process(tasks: Sequence[Task]) -> Generator[Outcome]:
    """One task after the other, here, with one thread as in other processes."""
    with one_thread():
        yield from map(_outcome, tasks)


def in_processes(tasks: Sequence[Task], jobs: int) -> Generator[Outcome]:
    """`jobs` tasks at a time, in processes that end with the iteration.

    If a process dies, what was under way is begun again, one task at a time: only one that takes
    its process along a second time, and alone, fails.
    """
    waiting = {task[0]: task for task in tasks}
    suspects: list[int] = []
    while waiting:
        alone = [waiting[number] for number in suspects if number in waiting]
        begun: list[int] = []
        try:
            for outcome in _spread(alone or list(waiting.values()), jobs, begun, bool(alone)):
                del waiting[outcome.number]
                yield outcome
        except BrokenExecutor as error:
            under_way = [number for number in begun if number in waiting]
            if not alone or not under_way:
                suspects = under_way
                continue
            del waiting[under_way[-1]]
            yield Outcome(under_way[-1], error=DIED, traceback=f"{DIED}\n{error}")


def _spread(tasks: list[Task], jobs: int, begun: list[int], alone: bool) -> Iterator[Outcome]:
    """Outcomes in the order in which tasks end; numbers of those begun are added to `begun`."""
    import joblib

    def beginning() -> Iterator[Any]:
        for task in tasks:
            begun.append(task[0])
            yield joblib.delayed(_in_a_worker)(task, os.getpid())

    # Threads are limited by the environment of the new processes. With n_jobs=1 there were none.
    return in_order_of_ending(beginning(), max(jobs, 2), pre_dispatch=1 if alone else jobs)


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
                number = futures[future][0]
                try:
                    outcome = future.result()
                except Exception as error:
                    # What a run raises is in its outcome: this is of the cluster.
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
    """Run one task."""
    number, module, specification, data_dir = task
    return outcome_of(number, lambda: importlib.import_module(module).run(specification, data_dir))


def _on_a_node(task: Task) -> Outcome:
    """A task on a cluster, whose workers may have left the number of threads open."""
    import torch

    torch.set_num_threads(1)
    return _outcome(task)


def _in_a_worker(task: Task, parent: int) -> Outcome:
    """A task in a process of its own."""
    become_a_worker(parent)
    return _outcome(task)
