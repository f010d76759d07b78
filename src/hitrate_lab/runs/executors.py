"""Tasks spread over processes of this machine, or over a Dask cluster, in any order of ending.

Tasks are taken one by one, each when it can begin. Dask is used through its own client: joblib's
backend for it waits forever for a task whose workers died.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import warnings
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from typing import Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.outcomes import Ended, Task, failed, lost, outcomes_of
from hitrate_lab.runs.processes import Process, shared_here, so_many_threads
from hitrate_lab.runs.work import Work

# Processes that a task may take along: others may have killed one or two of them.
DEATHS = 3
# Seconds to wait for a cluster and its first worker.
PATIENCE = 30
# Tasks for each thread of a cluster: while one runs, the next is on its way.
AHEAD = 2


def in_this_process(work: Work, tasks: Iterator[Task], threads: int) -> Generator[Ended]:
    """One task after the other, here, with as many threads as in other processes."""
    with so_many_threads(threads):
        for task in tasks:
            yield outcomes_of(work, task)


def in_processes(work: Work, tasks: Iterator[Task], jobs: int, threads: int) -> Generator[Ended]:
    """`jobs` tasks at a time, in processes that end with the iteration.

    Each process is a pool of its own: if it dies, whatever killed it, it is known which task it
    had. That one is begun again when the others have ended, alone; if it has taken `DEATHS`
    processes along it is lost.
    """
    again = collections.deque[Task]()
    processes: list[Process] = []
    free: list[Process] = []
    under_way: dict[Future[Ended], tuple[Task, Process]] = {}
    deaths: collections.Counter[int] = collections.Counter()

    def begin(task: Task) -> None:
        while True:
            if not free:
                processes.append(Process(work, threads))
                free.append(processes[-1])
            process = free.pop()
            # One that died in its sleep is forgotten.
            with contextlib.suppress(BrokenExecutor):
                under_way[process.submit(_in_a_worker, task)] = task, process
                return

    ended: list[Ended] = []
    try:
        while True:
            while len(under_way) < jobs and (task := next(tasks, None)) is not None:
                begin(task)
            if again and not under_way:
                begin(again.popleft())
            # While these are kept the next ones run.
            yield from ended
            ended.clear()
            if not under_way:
                return
            # On Windows, Ctrl-C has no effect on one that waits for good.
            for future in wait(under_way, timeout=1.0, return_when=FIRST_COMPLETED).done:
                task, process = under_way.pop(future)
                error = future.exception()
                if isinstance(error, BrokenExecutor):
                    deaths[task.number] += 1
                    if deaths[task.number] < DEATHS:
                        again.append(task)
                    else:
                        ended.append(lost(task, str(error)))
                    continue
                free.append(process)
                if error is None:
                    ended.append(future.result())
                else:
                    ended.append((task.number, [failed(error)] * len(task.specifications)))
    finally:
        for process in processes:
            process.end()


def _in_a_worker(task: Task) -> Ended:
    return outcomes_of(shared_here(), task)


def on_cluster(work: Work, tasks: Iterator[Task], address: str) -> Generator[Ended]:
    """Tasks on the workers of a Dask cluster, which must have hitrate and see the data folder.

    Dask begins a task again elsewhere when its worker dies; one that has taken several workers
    along is lost.

    Parameters
    ----------
    work : Work
    tasks : iterator
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
    under_way: dict[Any, Task] = {}
    with client:
        _check_workers(client, address)
        ended = distributed.as_completed(loop=client.loop)
        try:
            with _while_it_lasts(address), warnings.catch_warnings():
                # That a table is large.
                warnings.filterwarnings("ignore", "Sending large graph")
                # As a task that the cluster may repeat: its copies may die with their workers.
                shared = client.submit(_itself, work, pure=False)
            while True:
                with _while_it_lasts(address):
                    most = AHEAD * max(1, sum(client.nthreads().values()))
                while len(under_way) < most and (task := next(tasks, None)) is not None:
                    future = client.submit(_on_a_node, shared, task, pure=False)
                    under_way[future] = task
                    ended.add(future)
                if not under_way:
                    return
                with _while_it_lasts(address):
                    future = next(ended)
                    task = under_way.pop(future)
                    found = _result(distributed, future, task)
                # The cluster may forget it: the store has it when we are called again.
                yield found
                future.release()
        finally:
            with contextlib.suppress(Exception):
                client.cancel(list(under_way))


@contextlib.contextmanager
def _while_it_lasts(address: str) -> Iterator[None]:
    try:
        yield
    except (CancelledError, OSError) as error:
        raise BadInput(
            f"the Dask cluster at {address} is lost; what is done is kept, the same "
            "command goes on from here"
        ) from error


def _result(distributed: Any, future: Any, task: Task) -> Ended:
    try:
        found: Ended = future.result()
        return found
    except distributed.scheduler.KilledWorker as error:
        return lost(task, str(error))
    except (CancelledError, OSError):
        raise
    except Exception as error:
        # What a run raises is in its outcome: this is of its worker.
        return task.number, [failed(error)] * len(task.specifications)


def _itself(work: Work) -> Work:
    return work


def _on_a_node(work: Work, task: Task) -> Ended:
    """A task on a cluster, whose workers may have left the number of threads open."""
    import torch

    if work.has_one_thread:
        torch.set_num_threads(1)
    return outcomes_of(work, task)


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
