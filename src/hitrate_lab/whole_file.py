"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from hitrate_lab.bad_input import BadInput


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Another name to write a file under, which gets its own at the end, with what is on the disk.

    Whoever reads the file sees the old one or the new one, whatever ends the writing. Its folder is
    made if it is not there.

    Parameters
    ----------
    path : Path

    Raises
    ------
    BadInput
        If it cannot be written, in one line.
    """
    # Not by `with_name`: "." has no name.
    new = path.parent / f".{path.name}.new-{uuid.uuid4().hex[:12]}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield new
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        # The folder may be what is wrong.
        with contextlib.suppress(OSError):
            new.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file at once, as `whole_file` does.

    Parameters
    ----------
    path : Path
    content : bytes
    """
    with whole_file(path) as new:
        new.write_bytes(content)
