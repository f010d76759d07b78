"""Files of text as streams of bytes: only plain files, unpacked, and never without a bound."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables.formats.recognised import GZIP, LOOKED_AT, XZ, complaint_about

# What a packed file may become: so many bytes in any case, and so many times its own.
UNPACKED, TIMES = 2**26, 200
BLOCK = 2**17
# What a stream raises that cannot be unpacked.
DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
# What is no plain file, and would be waited for, or has no end.
STRANGE = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def refuse_strange(path: Path, mode: int) -> None:
    """Refuse whatever is no plain file.

    Parameters
    ----------
    path : Path
        For the message.
    mode : int
        As `os.stat` has it.
    """
    if stat.S_ISDIR(mode):
        raise BadInput(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        what = next((name for test, name in STRANGE if test(mode)), "no plain file")
        raise BadInput(f"{path} is {what}; write what it gives into a file, and name that")


def opened(path: Path) -> io.BufferedReader:
    """The bytes of a file of text, unpacked where they are gzip or xz.

    Raises
    ------
    BadInput
        It is no plain file, or its bytes are those of a workbook, an archive and the like.
    OSError
        It cannot be read; and one of `DAMAGED`, here or later, if it cannot be unpacked.
    """
    file = _plain(path)
    stream = file
    try:
        start = file.peek(LOOKED_AT)[:LOOKED_AT]
        if start.startswith(GZIP):
            stream = _Bounded(path, file, gzip.GzipFile(fileobj=file, mode="rb")).buffered()
        elif start.startswith(XZ):
            stream = _Bounded(path, file, lzma.LZMAFile(file)).buffered()
        if stream is not file:
            start = stream.peek(LOOKED_AT)[:LOOKED_AT]
        if complaint := complaint_about(path, start):
            raise BadInput(complaint)
    except BaseException:
        stream.close()
        raise
    return stream


def refuse_bombs(path: Path) -> None:
    """Refuse what unpacks to more than the bound, before a part of it is made into cells.

    Unpacking takes a small part of the time that reading does.
    """
    # Whoever reads it says what else is wrong.
    with suppress(OSError, *DAMAGED), opened(path) as file:
        while isinstance(file.raw, _Bounded) and file.read(BLOCK):
            pass


def _plain(path: Path) -> io.BufferedReader:
    """A plain file, opened without waiting for anybody at the other end of a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = open(os.open(path, flags), "rb")
    try:
        refuse_strange(path, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


class _Bounded(io.RawIOBase):
    """What is packed in a file, up to a bound.

    Parameters
    ----------
    path : Path
        For the message.
    file : binary file
        Closed with this one.
    packed : binary file
        That unpacks it.
    """

    def __init__(self, path: Path, file: io.BufferedReader, packed: Any) -> None:
        self._path, self._file, self._packed = path, file, packed
        self._most = max(UNPACKED, TIMES * os.fstat(file.fileno()).st_size)
        self._left = self._most

    def buffered(self) -> io.BufferedReader:
        """The same, read in larger parts."""
        return io.BufferedReader(self, BLOCK)

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def readinto(self, into: Any, /) -> int:
        """Fill a buffer; how many bytes there were."""
        data = self._packed.read(memoryview(into).nbytes)
        self._left -= len(data)
        if self._left < 0:
            raise BadInput(
                f"{self._path}: unpacks to more than {self._most:,} bytes, over {TIMES} times its "
                "own; if that is meant, unpack it and name what comes out"
            )
        memoryview(into)[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close both."""
        if not self.closed:
            self._packed.close()
            self._file.close()
        super().close()
