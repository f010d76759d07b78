"""What `hitrate fit` says of files that are no table, or a strange one: each made, and tried."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import os
import random
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from hitrate_lab.cli import main


def table(rows: int = 60, value: Callable[[float], str] = "{:.2f}".format) -> str:
    """A good one, whose numbers are written as `value` writes them."""
    rng = random.Random(0)
    lines = ["x,y"]
    lines += [f'"{value(rng.gauss(0, 3000))}",{"no" if k % 2 else "yes"}' for k in range(rows)]
    return "\n".join(lines) + "\n"


def _archive(path: Path, inside: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(inside, "x,y\n1,2\n")


def _parquet(path: Path, target: list[object]) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {"x": [float(k) for k in range(len(target))], "y": target}
    parquet.write_table(pyarrow.table(columns), path)


def _classes(path: Path) -> None:
    lines = "".join(f"{k / 7:.3f},c{k % 5000}\n" for k in range(10_000))
    path.write_text("x,y\n" + lines)


def _columns(path: Path) -> None:
    with path.open("w") as file:
        for _ in range(100):
            file.write(",".join(["x"] * 100_000) + ",")
        file.write("y\n")


def _packed(pack: Callable[[bytes], bytes], size: int | None = None) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(pack(table().encode())[:size])


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _written(value: Callable[[float], str]) -> Callable[[Path], object]:
    return lambda path: path.write_text(table(value=value))


def _with_commas(number: float) -> str:
    return f"{number:.2f}".replace(".", ",")


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
ZEROS = gzip.compress(bytes(1 << 24), 1) * 20
# What it is, the end of its name, and how it is made.
FILES: list[tuple[str, str, Callable[[Path], object]]] = [
    ("an Excel workbook", ".csv", lambda path: _archive(path, "xl/workbook.xml")),
    ("a zip archive", ".csv", lambda path: _archive(path, "table.csv")),
    ("a Parquet file", ".csv", lambda path: _parquet(path, [k % 2 for k in range(60)])),
    ("a table packed with gzip", ".csv", _packed(gzip.compress)),
    ("gzip, cut off", ".csv", _packed(gzip.compress, 90)),
    ("320 MB of zeros, packed", ".csv", lambda path: path.write_bytes(ZEROS)),
    ("a table packed with bzip2", ".csv", _packed(bz2.compress)),
    ("a named pipe", ".csv", os.mkfifo),
    ("a link to /dev/zero", ".csv", lambda path: path.symlink_to("/dev/zero")),
    ("a folder", ".csv", Path.mkdir),
    ("nothing", ".csv", Path.touch),
    ("a page in HTML", ".csv", _text("<!DOCTYPE html><html>404</html>")),
    ("SQLite", ".csv", lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(200))),
    ("a pointer of Git LFS", ".csv", _text(LFS)),
    ("a target of lists", ".parquet", lambda path: _parquet(path, [[k % 2] for k in range(60)])),
    (
        "a target of bytes",
        ".parquet",
        lambda path: _parquet(path, [bytes([k % 2]) for k in range(60)]),
    ),
    ("decimal commas", ".csv", _written(_with_commas)),
    ("dollars", ".csv", _written("${:,.2f}".format)),
    ("commas between thousands", ".csv", _written("{:,.0f}".format)),
    ("per cent", ".csv", _written("{:.1f} %".format)),
    ("5,000 classes of 10,000 rows", ".csv", _classes),
    ("10 million columns", ".csv", _columns),
]


def messages() -> list[dict[str, str]]:
    """Each file, and what standard error has of it."""
    found = []
    for name, ending, make in FILES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"t{ending}")
            make(path)
            code, said = _fit(path, Path(folder, "model"))
        lines = said.replace(f"{folder}/", "").splitlines()
        lines = [line for line in lines if not line.startswith("hitrate: reading ")]
        found.append({"file": name, "exit": str(code), "said": "\n".join(lines)})
    return found


def _fit(path: Path, out: Path) -> tuple[int, str]:
    """The command's exit code, and what it says."""
    words = ["hitrate", "fit", str(path), "--target", "y", "--method", "linear/cross_entropy"]
    before, sys.argv = sys.argv, [*words, "--trials", "1", "--out", str(out)]
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            with contextlib.redirect_stdout(io.StringIO()):
                main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return code, said.getvalue()
