"""Getting a published set over the network, checked, and into a data folder in one step."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.files import SUMS, content_digest
from hitrate_lab.datasets.table_sets import Source, TableSet, table_set
from hitrate_lab.datasets.uci import numbers_of
from hitrate_lab.whole_file import write_whole

Progress = Callable[[str, int, int | None], None]

# Bytes of a file, packed or not; the largest has 70 million.
LARGEST = 500_000_000
CHUNK = 1 << 16


def fetch(
    name: str,
    folder: str | Path,
    *,
    progress: Progress | None = None,
    mirror: str | None = None,
    timeout: float = 60.0,
) -> Path:
    """Get one published set and put it into a data folder.

    What came is compared with the set that this library knows before anything is written. Of
    adult, connect-4, miniboone, musk-2 and statlog-shuttle in uci121 the features are not known by
    their content: there only their number is compared.

    Parameters
    ----------
    name : str
        The whole name: "exact/car", "uci121/iris".
    folder : path
        The data folder, for `data_dir` or HITRATE_DATA; it is made if it is not there.
    progress : callable, optional
        Called with a file's address, the bytes so far, and all its bytes or None.
    mirror : str, optional
        Scheme and host, such as "http://localhost:8000", of a server that has the same paths.
    timeout : float
        Seconds without an answer after which to give up.

    Returns
    -------
    Path
        The folder of the set.

    Raises
    ------
    BadInput
        There is no such set, the network does not answer, or something else came. Files that are
        there already stay as they are.
    """
    if "/" not in name:
        raise BadInput(f"fetch({name!r}): say which collection, such as 'exact/{name}'")
    known, contents = table_set(name), {}
    for file, source in known.files.items():
        content = download(_at(mirror, source.url), progress=progress, timeout=timeout)
        contents[file] = content if source.member is None else _member(content, source)
    _compare(name, known, contents)
    target = Path(folder).expanduser() / name
    _write(target, contents)
    return target


def download(url: str, *, progress: Progress | None = None, timeout: float = 60.0) -> bytes:
    """Content of a web address, all of it or BadInput."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise BadInput(f"{url}: not an address of the web (http or https)")
    request = urllib.request.Request(url, headers={"User-Agent": "hitrate"})
    held = io.BytesIO()
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            length = answer.headers.get("Content-Length")
            total = int(length) if length else None
            while chunk := answer.read(CHUNK):
                held.write(chunk)
                if held.tell() > LARGEST:
                    raise BadInput(f"{url}: more than {LARGEST} bytes, which no set has")
                if progress is not None:
                    progress(url, held.tell(), total)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"could not get {url}: {error or type(error).__name__}") from error
    if total is not None and held.tell() != total:
        raise BadInput(f"{url}: the connection ended after {held.tell()} of {total} bytes")
    return held.getvalue()


def _at(mirror: str | None, url: str) -> str:
    return url if mirror is None else mirror.rstrip("/") + urllib.parse.urlsplit(url).path


def _member(content: bytes, source: Source) -> bytes:
    """One file of an archive."""
    assert source.member is not None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if archive.getinfo(source.member).file_size > LARGEST:
                raise BadInput(f"{source.url}: {source.member} is larger than any set")
            return archive.read(source.member)
    except (KeyError, zipfile.BadZipFile) as error:
        raise BadInput(f"{source.url}: no archive with {source.member} in it") from error


def _compare(whole: str, known: TableSet, contents: Mapping[str, bytes]) -> None:
    """BadInput unless the contents are those of the set."""
    files = list(contents.values())
    data, rest = (files[:1], files[1:]) if known.rest else (files, [])
    parts = [(data, known.data), (rest, known.rest)]
    if any(digest and content_digest(part) != digest for part, digest in parts):
        raise BadInput(
            f"{whole}: what came is not the set as published; its address may have moved or it was "
            "changed there; nothing was written"
        )
    if known.data:
        return
    try:
        x = numbers_of(data[0])
        fits = x.shape == (known.rows, known.features) and bool(np.isfinite(x).all())
    except ValueError:
        fits = False
    if not fits:
        raise BadInput(
            f"{whole}: what came are not {known.rows} rows of {known.features} numbers; "
            "nothing was written"
        )


def _write(target: Path, contents: Mapping[str, bytes]) -> None:
    """All files of a set, each by renaming; the sums last, for without them nothing is read."""
    lines = []
    for file, content in contents.items():
        packed = gzip.compress(content, mtime=0) if file.endswith(".gz") else content
        write_whole(target / file, packed)
        lines.append(f"{hashlib.sha256(packed).hexdigest()}  {file}\n")
    write_whole(target / SUMS, "".join(lines).encode())
