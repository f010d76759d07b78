"""Processes of this machine for runs: one thread each, gone when their parent is."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Seconds between looks at the parent.
WATCH = 0.5
DIED = "the process that ran it died; perhaps there was not enough memory"


@dataclass(frozen=True)
class Outcome:
    """What came of a task: a result, an error, or neither if it was too late to begin."""

    number: int
    result: Any = None
    error: str | None = None
    traceback: str = ""


def outcome_of(number: int, run: Callable[[], Any]) -> Outcome:
    """The result of a call; whatever it raises is its outcome."""
    try:
        return Outcome(number, result=run())
    except Exception as error:
        return failed(number, error)


def failed(number: int, error: BaseException) -> Outcome:
    """The outcome that an exception is: in a line, and in full."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return Outcome(number, error=line, traceback="".join(traceback.format_exception(error)))


def in_order_of_ending(
    calls: Iterable[Any], jobs: int, pre_dispatch: int, folder: Path | None = None
) -> Iterator[Outcome]:
    """What joblib's delayed calls give, in the order in which they end.

    The end of the iteration, by whatever exception, is the end of the processes. They end with this
    one too, whether they have begun a call or not.

    Parameters
    ----------
    calls : iterable
    jobs : int
    pre_dispatch : int
        Calls that are under way at a time.
    folder : Path, optional
        As for `become_a_worker`.
    """
    import joblib

    begin = {"initializer": become_a_worker, "initargs": (os.getpid(), folder)}
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1, **begin):
        spread = joblib.Parallel(
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch=pre_dispatch,
            max_nbytes=None,
        )
        ended = spread(calls)
        try:
            yield from ended
        finally:
            with warnings.catch_warnings():
                # That not all of it was waited for is what was meant.
                warnings.simplefilter("ignore")
                ended.close()


def become_a_worker(parent: int, folder: Path | None) -> None:
    """Leave Ctrl-C at a terminal, which reaches this process too, to the parent; end with it.

    Parameters
    ----------
    parent : int
    folder : Path, optional
        To remove if the parent was killed, and cannot do so.
    """
    # A network would take the signal as the wish to stop early.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    # One that was killed cannot end its workers: they watch whether it lives.
    def watch() -> None:
        # A process whose parent has died gets another one; Windows has no such thing.
        while os.getppid() == parent:
            time.sleep(WATCH)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
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
