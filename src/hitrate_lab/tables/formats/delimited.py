"""Text files of cells, read line by line: which encoding, which delimiter, and no row ragged."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Generator
from contextlib import closing
from itertools import islice
from pathlib import Path

from hitrate_lab.bad_input import BadInput, quoted
from hitrate_lab.tables.formats.opened import DAMAGED, opened

DELIMITERS = ",;\t|"
# Longer ones first: that of UTF-32 begins like that of UTF-16.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Lines, and characters, by which the delimiter is found.
SAMPLE_LINES, SAMPLE_SIZE = 200, 1 << 18
# Endings of packed files, before which stands that of the text.
PACKED = (".gz", ".xz")
# A longer line, or cell, is none: a quote was left open, or the file is no text. The csv module
# takes no cell above 128 kB if not told otherwise.
LONGEST = 2**26
# Whatever has more is not a table of features, and takes minutes to turn into one.
MOST_COLUMNS = 100_000
BLOCK = 8192


def records(path: Path) -> Generator[tuple[int, list[str]]]:
    """Line number and cells of every record, the header first; blank lines are passed over.

    Every record has as many cells as the header, or `BadInput` is raised.
    """
    csv.field_size_limit(LONGEST)
    delimiter = delimiter_of(path)
    width = 0
    with closing(_lines(path)) as text:
        lines = csv.reader(text, delimiter=delimiter, strict=True)
        try:
            for cells in lines:
                if _is_blank(cells):
                    continue
                width = width or len(cells)
                if len(cells) != width:
                    raise BadInput(
                        f"{path}, line {lines.line_num}: {_cells(len(cells))}, but the header has "
                        f"{width}; cells that contain {delimiter!r} need quotes"
                    )
                yield lines.line_num, cells
        except csv.Error as error:
            raise BadInput(
                f"{path}, line {lines.line_num}: a quote that is not closed, or text after it "
                f"({error})"
            ) from None
    if not width:
        raise BadInput(f"{path} is empty")


def delimiter_of(path: Path) -> str:
    """The delimiter that cuts most lines into as many cells as the first, and into most of them."""
    sample, size = [], 0
    with closing(_lines(path)) as text:
        for line in islice(text, SAMPLE_LINES):
            sample.append(line)
            # Counted, not cut: ten million cells are slow.
            most = max(map(line.count, DELIMITERS)) + 1 if len(sample) == 1 else 0
            if most > MOST_COLUMNS:
                raise BadInput(
                    f"{path}: the first line has {most:,} cells, and no table may have more than "
                    f"{MOST_COLUMNS:,} columns; leave out columns, or turn rows and columns around"
                )
            size += len(line)
            if size > SAMPLE_SIZE:
                break
    if unpacked_name(path).endswith((".tsv", ".tab")):
        return "\t"
    best, highest = ",", (0.0, 1)
    for delimiter in DELIMITERS:
        counts = []
        try:
            found = csv.reader(sample, delimiter=delimiter)
            counts += [len(cells) for cells in found if not _is_blank(cells)]
        except csv.Error:
            continue
        if counts and counts[0] > 1:
            agree = counts.count(counts[0]) / len(counts)
            if (agree, counts[0]) > highest:
                best, highest = delimiter, (agree, counts[0])
    return best


def column_names(header: list[str]) -> tuple[list[str], list[str]]:
    """Names that differ and are not empty, and those among them that are not from the header.

    Examples
    --------
    >>> column_names(["x", "", "x"])
    (['x', 'column 2', 'x (2)'], ['column 2', 'x (2)'])
    """
    given = [name.strip() for name in header]
    names: list[str] = []
    renamed: list[str] = []
    taken, seen = set(given), set()
    for place, name in enumerate(given, 1):
        base = name or f"column {place}"
        new, count = base, 1
        while new in seen or (new in taken and new != name):
            count += 1
            new = f"{base} ({count})"
        if new != name:
            renamed.append(new)
        seen.add(new)
        names.append(new)
    return names, renamed


def _lines(path: Path) -> Generator[str]:
    """Lines with their ends, of files that are text."""
    encoding = "utf-8"
    try:
        with opened(path) as file:
            start = file.peek(4)
            encoding = next(
                (name for mark, name in MARKS.items() if start.startswith(mark)), encoding
            )
        with opened(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
            for number, line in enumerate(iter(lambda: text.readline(LONGEST + 1), ""), 1):
                if len(line) > LONGEST:
                    raise BadInput(
                        f"{path}, line {number}: longer than {LONGEST:,} characters; it has more "
                        f"than {MOST_COLUMNS:,} columns, which no table may have, or its lines "
                        "have no ends"
                    )
                if "\0" in line:
                    raise BadInput(
                        f"{path}, line {number}: holds NUL characters, so this is no text file, or "
                        "UTF-16 without its mark; save it as CSV in UTF-8"
                    )
                yield line
    except UnicodeDecodeError:
        raise BadInput(_undecodable(path, encoding)) from None
    except DAMAGED as error:
        raise BadInput(f"{path}: cannot be unpacked, so it is damaged ({error})") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None


def unpacked_name(path: Path) -> str:
    """The file's name in small letters, without the ending of what packed it.

    Examples
    --------
    >>> unpacked_name(Path("sales.CSV.gz"))
    'sales.csv'
    """
    name = path.name.lower()
    return name.removesuffix(next((each for each in PACKED if name.endswith(each)), ""))


def _undecodable(path: Path, encoding: str) -> str:
    """The complaint about the first byte that is no text."""
    decoder = codecs.getincrementaldecoder(encoding)()
    passed = 0
    shown = encoding.upper().removesuffix("-SIG")
    with opened(path) as file:
        while True:
            # As the text above was read: what follows may not unpack.
            block = file.read1(BLOCK)
            waiting = len(decoder.getstate()[0])
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                place = passed - waiting + error.start
                what = f"byte {place} (0x{error.object[error.start]:02x}) is not {shown}"
                break
            passed += len(block)
            if not block:
                # Someone has changed the file since.
                what = f"not all of it is {shown}"
                break
    hint = ""
    if shown == "UTF-8" and path.suffix.lower() not in PACKED:
        hint = (
            f", from Latin-1 for example by iconv -f LATIN1 -t UTF-8 {quoted(path.name)} > new.csv"
        )
    return f"{path}: {what}; convert the file to UTF-8{hint}"


def _is_blank(cells: list[str]) -> bool:
    """Whether a line had nothing but white space; a cell of empty quotes is a row."""
    return not cells or (len(cells) == 1 and cells[0].isspace())


def _cells(count: int) -> str:
    return f"{count} cell" if count == 1 else f"{count} cells"
