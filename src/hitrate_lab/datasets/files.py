"""Where published sets lie, and whether their bytes are the ones that are meant."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from hitrate_lab.bad_input import BadInput
from hitrate_lab.tables.reading import data_folders

SUMS = "SHA256SUMS"


def bases(data_dir: Path | None) -> list[Path]:
    """Folders that may hold collections: those of `data_folders`, and `tabular` inside of them."""
    return [base for folder in data_folders(data_dir) for base in (folder, folder / "tabular")]


def find_set(whole: str, data_dir: Path | None = None) -> Path:
    """The folder of a set; BadInput if no data folder has it.

    Parameters
    ----------
    whole : str
        Such as "exact/car".
    data_dir : Path, optional
        As for `read_table`.
    """
    for base in bases(data_dir):
        if (base / whole).is_dir():
            return base / whole
    looked = data_folders(data_dir)
    raise BadInput(
        f"data set {whole} is not in {' or '.join(map(str, looked))}: let HITRATE_DATA name the "
        f"folder that has it, or get it with hitrate_lab.datasets.fetch({whole!r}, "
        f"{str(looked[0])!r})"
    )


def read_verified(folder: Path, name: str) -> bytes:
    """Content of a file of a set, unpacked, after its SHA-256 was compared (once per process).

    Sums are those of the set's own folder, or of the folder that has the collections.
    """
    file = folder / name
    if not file.is_file():
        raise BadInput(f"{file} is missing, the set is not complete: fetch it again")
    _verify(file, _expected(folder, name))
    content = file.read_bytes()
    return gzip.decompress(content) if name.endswith(".gz") else content


def _expected(folder: Path, name: str) -> str:
    base = folder.parents[1]
    for sums, path in (
        (folder / SUMS, name),
        (base / SUMS, f"{folder.parent.name}/{folder.name}/{name}"),
    ):
        if sums.is_file() and (digest := _sums(sums, sums.stat().st_mtime_ns).get(path)):
            return digest
    raise BadInput(
        f"no SHA-256 of {folder / name}: {base / SUMS} does not list it; fetch the set again"
    )


@cache
def _sums(file: Path, changed: int) -> dict[str, str]:
    """Digests by path, as `sha256sum` writes them."""
    lines = (line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines())
    return {path.strip().lstrip("*"): digest.lower() for digest, path in lines}


@cache
def _verify(file: Path, expected: str) -> None:
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != expected:
        raise BadInput(
            f"{file} is damaged: its SHA-256 is {found[:12]}... and should be {expected[:12]}...; "
            "remove it and fetch the set again"
        )


def content_digest(contents: Iterable[bytes]) -> str:
    r"""SHA-256 (hex) of files' lines, blind to how lines end, blank ones, and a mark at the start.

    Copies of one set that went through different hands differ in these.

    Examples
    --------
    >>> content_digest([b"1,2\r\n3,4\r\n"]) == content_digest([b"1,2\n\n3,4"])
    True
    """
    digest = hashlib.sha256()
    for content in contents:
        for line in content.removeprefix(b"\xef\xbb\xbf").splitlines():
            if stripped := line.rstrip():
                digest.update(stripped + b"\n")
        digest.update(b"\0")
    return digest.hexdigest()
