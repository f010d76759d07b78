"""One comparison or study at a time for each store; the lock ends with the process that has it."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from hitrate_lab.bad_input import BadInput

# The byte that is locked on Windows, where a locked one cannot be read by others.
FAR = 1 << 20
# What a folder that has no locks answers; the store is safe without, only work may be done twice.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextlib.contextmanager
def only_one(store: Path) -> Iterator[None]:
    """Hold the lock of a store, in a file beside it, or refuse because another process does.

    Parameters
    ----------
    store : Path
    """
    path = store.with_name(f"{store.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise BadInput(f"{path}: cannot be used: {error.strerror}") from error
    try:
        try:
            _lock(file)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                holder = os.read(file, 20).decode(errors="replace").strip()
                who = f" (process {holder})" if holder.isdigit() else ""
                raise BadInput(
                    f"{store} is in use by another comparison or study{who}; "
                    "wait for its end, or name another file"
                ) from error
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        yield
    finally:
        # Closing lets go of the lock. The file stays: who waits for it may have it open.
        os.close(file)


def _lock(file: int) -> None:
    """Take the lock at once or raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, FAR, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(file, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
