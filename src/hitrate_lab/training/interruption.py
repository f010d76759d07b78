"""Ctrl-C behind a step rather than inside of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interruption:
    """A block in which Ctrl-C is kept until somebody asks; a second one does not wait.

    Where the signal is ignored, as in processes that the parent ends, it stays so.

    Parameters
    ----------
    is_kept : bool
        Without, Ctrl-C does what it does elsewhere.
    """

    def __init__(self, *, is_kept: bool = True) -> None:
        self.has_come = False
        self._former: Any = signal.getsignal(signal.SIGINT)
        is_here = threading.current_thread() is threading.main_thread()
        is_heard = self._former not in (None, signal.SIG_IGN)
        self._is_watching = is_kept and is_here and is_heard

    def __enter__(self) -> Self:
        if self._is_watching:
            signal.signal(signal.SIGINT, self._come)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_watching:
            signal.signal(signal.SIGINT, self._former)

    def raise_if_come(self) -> None:
        """As Ctrl-C does."""
        if self.has_come:
            raise KeyboardInterrupt

    def _come(self, number: int, frame: FrameType | None) -> None:
        if self.has_come:
            raise KeyboardInterrupt
        self.has_come = True
