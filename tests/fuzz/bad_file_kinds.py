"""Kinds of files that someone may take for a table, each a function of a seed."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import random
import socket
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from fuzz.fuzzed_csv import NUMBERS, TARGET, UNICODE, fuzzed_csv

# How numbers are written; every second table has one form, the rest have several.
FORMS = [
    "{:.2f}",
    "{:,.2f}",
    "$ {:,.2f}",
    "{:.1f} %",
    "{:.0f} kg",
    "EUR {:.2f}",
    "{:+.3f}",
    "{:.2e}",
]
WORDS = "a b the dress fits très größe 日本 good. Bad! it's 3.5 re-turned <b> NULL inf".split()
NAMES = ["t", "two words", "-x", "t\x1b[31m", "línea", "日本", "a'b\"c", "t.csv", "x" * 200]


def make_bad_file(seed: int, folder: Path) -> tuple[Path, str]:
    """Make a file, or what is none, in a folder; where it is, and what kind."""
    rng = random.Random(seed)
    if rng.random() < 0.45:
        data, ending = fuzzed_csv(seed)
        path = folder / f"{rng.choice(NAMES)}{ending}"
        path.write_bytes(data)
        return path, "fuzzed"
    kinds = KINDS if rng.random() > RARELY else RARE
    kind = rng.choice(list(kinds))
    ending = rng.choice([".csv"] * 6 + [".tsv", ".txt", ".csv.gz", ".tsv.xz", ".CSV", ".parquet"])
    path = folder / f"{rng.choice(NAMES)}{ending}"
    kinds[kind](rng, path)
    return path, kind


def table(rng: random.Random, rows: int = 40) -> str:
    """A plain table."""
    lines = ["column 0,column 1," + TARGET]
    lines += [f"{rng.gauss(0, 1):.3f},{rng.choice('abc')},{'yn'[k % 2]}" for k in range(rows)]
    return "\n".join(lines) + "\n"


def _zipped(rng: random.Random, path: Path) -> None:
    inside = rng.choice(["xl/workbook.xml", "table.csv", "word/document.xml", "a.npy", "mimetype"])
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(inside, "application/vnd.oasis.opendocument.spreadsheet")
    if rng.random() < 0.3:
        path.write_bytes(path.read_bytes()[: rng.randrange(4, 80)])


def _tarred(rng: random.Random, path: Path) -> None:
    with tarfile.open(path, rng.choice(["w", "w:gz", "w:xz"])) as archive:
        data = table(rng).encode()
        info = tarfile.TarInfo("table.csv")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))


def _packed(rng: random.Random, path: Path) -> None:
    pack = rng.choice([gzip.compress, lzma.compress, bz2.compress])
    data = pack(table(rng).encode())
    if rng.random() < 0.5:
        place = rng.randrange(len(data))
        data = data[:place] + rng.randbytes(rng.choice([0, 1, 3])) + data[place + 1 :]
    elif rng.random() < 0.3:
        data = pack(data)
    path.write_bytes(data)


def _bomb(rng: random.Random, path: Path) -> None:
    # 320 MiB of which nothing is worth reading; it stops at a line, or at the bound.
    block = rng.choice([b"\0", b"1,2\n", b"a", b'"', b",", b"\n"]) * (1 << 20)
    pack = lzma.LZMACompressor(preset=0) if rng.random() < 0.3 else None
    with path.open("wb") as file:
        if pack is None:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as packed:
                for _ in range(80 if len(block) > 1 << 20 else 320):
                    packed.write(block)
            return
        for _ in range(80 if len(block) > 1 << 20 else 320):
            file.write(pack.compress(block))
        file.write(pack.flush())


def _parquet(rng: random.Random, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = rng.choice([0, 1, 40])
    kinds: list[Callable[[int], object]] = [
        lambda k: k % 2,
        lambda k: f"{k % 2}",
        lambda k: [k % 2],
        lambda k: bytes([k % 2]),
        lambda k: {"a": k},
        lambda k: None,
        lambda k: k / 7,
        lambda k: float("nan") if k % 2 else float("inf"),
        lambda k: k % 2 == 0,
    ]
    columns = {"column 0": [kinds[6](k) for k in range(rows)]}
    for name in ("column 1", TARGET):
        kind = rng.choice(kinds)
        columns[name] = [kind(k) for k in range(rows)]
    parquet.write_table(pyarrow.table(columns), path)
    if rng.random() < 0.5:
        data = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 3, 20])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])


def _other_formats(rng: random.Random, path: Path) -> None:
    rows = [{"column 0": k, TARGET: k % 2} for k in range(40)]
    starts = {
        "json": json.dumps(rows).encode(),
        "lines": b"\n".join(json.dumps(row).encode() for row in rows),
        "html": b"<!DOCTYPE html><html><body>404</body></html>",
        "xml": b"<?xml version='1.0'?><table/>",
        "pickle": pickle.dumps(rows),
        "sqlite": b"SQLite format 3\0" + rng.randbytes(200),
        "numpy": b"\x93NUMPY\x01\0" + rng.randbytes(200),
        "hdf": b"\x89HDF\r\n\x1a\n" + rng.randbytes(200),
        "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + rng.randbytes(500),
        "pdf": b"%PDF-1.7\n" + rng.randbytes(200),
        "png": b"\x89PNG\r\n\x1a\n" + rng.randbytes(200),
        "feather": b"ARROW1\0\0" + rng.randbytes(200),
        "orc": b"ORC" + rng.randbytes(200),
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
        "zstd": b"\x28\xb5\x2f\xfd" + rng.randbytes(200),
        "rtf": b"{\\rtf1 table}",
        "nothing": b"",
        "random": rng.randbytes(3000),
        "begun": rng.choice([b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xfd7zXZ\0", b"\xef\xbb\xbf"]),
    }
    path.write_bytes(rng.choice(list(starts.values())))


def _strange(rng: random.Random, path: Path) -> None:
    """What is no plain file."""
    aside = path.parent / "aside"
    aside.mkdir()
    match rng.choice(["pipe", "folder", "zero", "null", "loop", "nowhere", "socket", "link"]):
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "zero":
            path.symlink_to("/dev/zero")
        case "null":
            path.symlink_to("/dev/null")
        case "loop":
            path.symlink_to(path.name)
        case "nowhere":
            path.symlink_to("nowhere at all")
        case "socket":
            # Names of sockets are short: it is made where it is, and called from there.
            here = Path.cwd()
            os.chdir(path.parent)
            try:
                with socket.socket(socket.AF_UNIX) as end:
                    end.bind("aside/s")
            finally:
                os.chdir(here)
            path.symlink_to("aside/s")
        case "link":
            (aside / "t").write_text(table(rng))
            path.symlink_to("aside/t")


def _wide(rng: random.Random, path: Path) -> None:
    width = rng.choice([300, 2_500, 150_000])
    header = ",".join(f"c{k}" for k in range(width)) + f",{TARGET}"
    rows = [",".join(["1"] * width) + f",{k % 2}" for k in range(4 if width < 10_000 else 1)]
    path.write_text("\n".join([header, *rows, ""]))


def _classes(rng: random.Random, path: Path) -> None:
    count = rng.choice([1, 2, 30, 200, 2_000])
    rows = rng.choice([1, 2, 50, 400, 2_000])
    kind = rng.choice(["c{}", "{}", "{}.5", "1e{}", "{} %"])
    lines = [f"{rng.gauss(0, 1)},{kind.format(k % count)}" for k in range(rows)]
    path.write_text("\n".join([f"column 0,{TARGET}", *lines, ""]))


def _written(rng: random.Random, path: Path) -> None:
    """Numbers as people write them."""
    forms = rng.sample(FORMS, rng.choice([1, 1, 2]))
    lines = [["column 0", "column 1", TARGET]]
    comma = rng.random() < 0.4
    for k in range(60):
        text = rng.choice(forms).format(rng.gauss(0, 2000))
        if comma:
            text = text.translate(str.maketrans(",.", ".,"))
        if rng.random() < 0.03:
            text = rng.choice([*NUMBERS, "", "?", "-", "5,", ",5", "1.2.3", "1,2,3", "%", "$"])
        lines.append([text, str(k % 7), "yn"[k % 2]])
    delimiter = rng.choice(",;\t")
    quote = '"{}"'.format if delimiter == "," else str
    path.write_text("\n".join(delimiter.join(map(quote, row)) for row in lines))


def _prose(rng: random.Random, path: Path) -> None:
    """Free text, long enough to be read as such."""
    lines = [f"column 3,{TARGET}"]
    for k in range(rng.choice([90, 150, 300])):
        some = rng.choices([*WORDS, *UNICODE], k=rng.choice([0, 1, 8, 30]))
        if rng.random() < 0.01:
            some *= 1000
        text = " ".join(some).replace('"', "'")
        lines.append(f'"{text}",{"yn"[k % 2]}')
    path.write_text("\n".join(lines))


def _lines(rng: random.Random, path: Path) -> None:
    """Ends of lines, quotes and blanks that do not agree."""
    text = table(rng)
    match rng.randrange(6):
        case 0:
            text = "".join(
                line + rng.choice(["\n", "\r\n", "\r", "\n\n"]) for line in text.splitlines()
            )
        case 1:
            text = text.replace("a", '"a', 1)
        case 2:
            text = text[: text.index("\n")]
        case 3:
            text = "\n".join(text.splitlines()[:2])
        case 4:
            text = text.replace(",", rng.choice([" ", ":", "", ",,", ", "]))
        case 5:
            text = text.replace("column 0", rng.choice(["", TARGET, "column 1", " ", "y" * 10**5]))
    path.write_text(text, newline="")


KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "zipped": _zipped,
    "tarred": _tarred,
    "packed": _packed,
    "parquet": _parquet,
    "other format": _other_formats,
    "strange": _strange,
    "wide": _wide,
    "classes": _classes,
    "written": _written,
    "prose": _prose,
    "lines": _lines,
}
# Slow to make.
RARE, RARELY = {"bomb": _bomb}, 0.01
