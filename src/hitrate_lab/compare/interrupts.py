"""Ctrl-C during a fit ends it, also one that would rather stop early and be content."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def no_early_stop() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if Ctrl-C was pressed and something inside kept it.

    A network takes it as the wish to stop training; here a half-trained one is no result. Where
    the signal is ignored, as in processes that the parent ends, it stays so.
    """
    before = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread()
    if not here or before is None or before is signal.SIG_IGN:
        yield
        return
    pressed = False

    def note(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
