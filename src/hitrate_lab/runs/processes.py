"""Processes of this machine for runs, which are gone when their parent is."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

# Seconds between looks at the parent.
WATCH = 0.5
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
# What this process runs, if it is a worker.
_here: dict[str, Any] = {}


class Process:
    """A process with what it works on, which has one call at a time.

    Parameters
    ----------
    shared : object
        Reaches it once; `shared_here` finds it there.
    threads : int
        That it may compute with.
    """

    def __init__(self, shared: Any, threads: int) -> None:
        loky: Any = importlib.import_module("joblib.externals.loky")
        self._pool = loky.ProcessPoolExecutor(
            1,
            initializer=become_a_worker,
            initargs=(os.getpid(), shared, threads),
            env=dict.fromkeys(THREADS, str(threads)),
        )

    def submit(self, call: Any, argument: Any) -> Any:
        """Begin a call; its future ends in BrokenExecutor if the process dies."""
        with deaf_children():
            return self._pool.submit(call, argument)

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        self._pool.shutdown(kill_workers=True)


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Processes that are started here never hear of Ctrl-C, which a terminal sends to them too.

    It is the parent's to end them; one that heard of it while it is starting would print where it
    was. This process hears of it at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become_a_worker(parent: int, shared: Any, threads: int) -> None:
    """Keep what the process works on, and end with its parent.

    Parameters
    ----------
    parent : int
    shared : object
    threads : int
    """
    # Where children cannot be deaf; a network would take it as the wish to stop early.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _here["shared"], _here["threads"] = shared, threads

    # One that was killed cannot end its workers: they watch whether it lives.
    def watch() -> None:
        # A process whose parent has died gets another one; Windows has no such thing.
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()


def shared_here() -> Any:
    """What the parent gave to this worker, which has the threads that it may have."""
    import torch

    torch.set_num_threads(_here["threads"])
    return _here["shared"]


@contextlib.contextmanager
def so_many_threads(count: int) -> Iterator[None]:
    """As in other processes, so that numbers do not depend on how many there are."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)
