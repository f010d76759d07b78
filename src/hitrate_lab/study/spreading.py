"""Runs spread over processes of this machine, or over a Dask cluster, in any order of ending.

Dask is used through its own client: joblib's backend for it waits forever for a task whose workers
died.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any, NamedTuple

from hitrate_lab.data.bad_input import BadInput
from hitrate_lab.protocols.processes import (
    DIED,
    Outcome,
    failed,
    in_order_of_ending,
    one_thread,
    outcome_of,
)


class Task(NamedTuple):
    """Specifications that are run together, one or more, and what they are run with.

    `module` is the name of a protocol's. `known` has results that they need, by key.
    """

    number: int
    module: str
    specifications: list[dict[str, Any]]
    data_dir: Path | None
    known: dict[str, dict[str, Any]]
    device: str


# Seconds to wait for a cluster and its first worker.
PATIENCE = 30


def in_this_process(tasks: Sequence[Task]) -> Generator[Outcome]:
    """One task after the other, here, with one thread as in other processes."""
    with one_thread():
        yield from map(_outcome, tasks)


def in_processes(tasks: Sequence[Task], jobs: int) -> Generator[Outcome]:
    """`jobs` tasks at a time, in processes that end with the iteration.

    If a process dies, what was under way is begun again, one task at a time: only one that takes
    its process along twice more, and alone, fails.
    """
    waiting = {task.number: task for task in tasks}
    suspects: list[int] = []
    deaths: collections.Counter[int] = collections.Counter()
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
            last = under_way[-1]
            deaths[last] += 1
            if deaths[last] > 1:
                del waiting[last]
                yield Outcome(last, error=DIED, traceback=f"{DIED}\n{error}")


def _spread(tasks: list[Task], jobs: int, begun: list[int], alone: bool) -> Iterator[Outcome]:
    """Outcomes in the order in which tasks end; numbers of those begun are added to `begun`."""
    import joblib

    def beginning() -> Iterator[Any]:
        for task in tasks:
            begun.append(task.number)
            yield joblib.delayed(_outcome)(task)

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
                number = futures[future].number
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
    """Run one task; its result has an `Outcome` for each specification."""
    return outcome_of(task.number, lambda: _results(task))


def _results(task: Task) -> list[Outcome]:
    protocol = importlib.import_module(task.module)
    if not hasattr(protocol, "run_batch"):
        return [Outcome(0, protocol.run(spec, task.data_dir)) for spec in task.specifications]
    found = protocol.run_batch(task.specifications, task.data_dir, task.known, task.device)
    return [
        failed(k, each) if isinstance(each, Exception) else Outcome(k, each)
        for k, each in enumerate(found)
    ]


def _on_a_node(task: Task) -> Outcome:
    """A task on a cluster, whose workers may have left the number of threads open."""
    import torch

    torch.set_num_threads(1)
    return _outcome(task)
