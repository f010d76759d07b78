"""Files to frames: delimited text and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.tables.cells import (
    DECIMAL_COMMA,
    MISSING,
    numbers,
)
from hitrate_lab.tables.formats.delimited import (
    PACKED,
    column_names,
    delimiter_of,
    records,
    unpacked_name,
)
from hitrate_lab.tables.formats.opened import refuse_bombs, refuse_strange
from hitrate_lab.tables.formats.parquet_files import parquet_pieces, read_parquet
from hitrate_lab.tables.formats.recognised import AS_CSV
from hitrate_lab.tables.written import COMMAS, Form, Writing

Array = NDArray[Any]

TEXT = (".csv", ".tsv", ".tab", ".txt")
PARQUET = (".parquet", ".pq")
# What is missing where text is to stay as it is.
EMPTY = frozenset({""})
# What takes a second or longer to read.
SLOW_BYTES, SLOW_COLUMNS = 20_000_000, 2_000
# Cells that are text at one time; each costs about 60 bytes as such.
CELLS = 1_000_000


def kind_of(path: Path) -> str:
    """'text' or 'parquet', by the name's end.

    Examples
    --------
    >>> kind_of(Path("sales.CSV.gz"))
    'text'
    """
    name = path.name.lower()
    if unpacked_name(path).endswith(TEXT):
        return "text"
    if name.endswith(PARQUET):
        return "parquet"
    sheet = name.endswith((".xls", ".xlsx", ".ods"))
    hint = f"; {AS_CSV.format(name=path.name)}" if sheet else ""
    raise BadInput(
        f"{path}: only {', '.join(TEXT)} (also with {' or '.join(PACKED)}) and "
        f"{', '.join(PARQUET)} can be read{hint}"
    )


def checked_file(path: Path) -> Path:
    """The path, if there is a file of a kind that can be read."""
    try:
        is_there = path.exists()
        mode = path.stat().st_mode if is_there else 0
    except (OSError, ValueError) as error:
        raise BadInput(f"{quoted(path)} is no file name ({error})") from None
    if not is_there:
        raise BadInput(f"{path}: there is no such file")
    refuse_strange(path, mode)
    if kind_of(path) == "text":
        refuse_bombs(path)
    return path


def read_frame(
    path: Path,
    as_text: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[Any, list[str], dict[str, Form]]:
    """All columns of a file, notes about them, and how numbers are written in some.

    A column of text is of numbers if all its cells are numbers or missing, and none begins with a
    zero as zip codes do. They may have decimal commas, signs between thousands and one unit, as
    `written.Writing` finds. Other cells are str, or None where missing.

    Parameters
    ----------
    path : Path
    as_text : collection of str
        Columns that stay text in any case; of their cells only the empty ones are missing.
    progress : callable, optional
        Is told in a few words what takes long, before it begins.

    Returns
    -------
    frame : DataFrame
    notes : list of str
    forms : dict of Form
        Of columns whose numbers are not as Python writes them.
    """
    checked_file(path)
    size = path.stat().st_size
    if progress is not None and size > SLOW_BYTES:
        progress(f"reading {path.name}, {size / 1e6:,.0f} MB")
    if kind_of(path) == "parquet":
        frame, renamed, notes, left_out = read_parquet(path, as_text)
        _refuse_doubles(path, as_text, renamed)
        for name in as_text:
            if name in left_out:
                raise BadInput(
                    f"{path}: the column {quoted(name)} is of {left_out[name]}, and classes are "
                    "text, numbers or true and false; turn it into one of these, one in each row"
                )
        return frame, notes, {}
    reading = _Reading(delimiter_of(path), frozenset(as_text))
    if progress is not None and (width := _width(path)) > SLOW_COLUMNS:
        progress(f"reading {path.name}, {width:,} columns")
    # What a later part shows to be text, or to have commas, was perhaps read in another way before.
    while (found := _read_text(path, reading)) is None:
        pass
    names, renamed, columns = found
    _refuse_doubles(path, as_text, renamed)
    frame = pd.DataFrame({name: _joined(columns[name]) for name in names})
    notes = []
    if renamed:
        notes.append(f"names that were empty, or there before, are now {listed(renamed)}")
    notes += reading.notes(names)
    if not renamed and numbers(names, padded=True) is not None:
        notes.append("all column names are numbers; the first line must hold names, not values")
    if names[0] == "column 1" and renamed[:1] == names[:1] and _counts_rows(frame["column 1"]):
        notes.append("not used, a first column without a name that counts the rows")
        frame = frame.drop(columns="column 1")
    return frame, notes, reading.forms


def text_chunks(
    path: Path, rows: int, *, as_text: Collection[str] = (), as_numbers: Collection[str] = ()
) -> Generator[Any]:
    """A file's rows as frames of text, so many at a time; the index counts them from 0.

    Parameters
    ----------
    path : Path
    rows : int
    as_text : collection of str
        As for `read_frame`.
    as_numbers : collection of str
        Columns whose decimal commas become points, where commas are not between cells.
    """
    checked_file(path)
    if kind_of(path) == "parquet":
        yield from parquet_pieces(path, rows, as_text)
        return
    pointed = set() if delimiter_of(path) == "," else set(as_numbers)
    names, _, parts = _parts(path, rows)
    start = 0
    with closing(parts):
        for part in parts:
            index = range(start, start + len(part[0]))
            columns = {}
            for name, cells in zip(names, part, strict=True):
                cells = [_pointed(cell) for cell in cells] if name in pointed else cells
                columns[name] = _text(cells, missing=EMPTY if name in as_text else MISSING)
            yield pd.DataFrame(columns, index=index, dtype=object)
            start = index.stop


def _width(path: Path) -> int:
    """Number of columns."""
    with closing(records(path)) as found:
        return len(next(found)[1])


def _pointed(cell: str) -> str:
    """A number's cell with its comma as a point; any other as it is."""
    return cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell


def _parts(path: Path, rows: int | None = None) -> tuple[list[str], list[str], Generator[Any]]:
    """Names, those that are new, and columns of text cells, part by part."""
    found = records(path)
    _, header = next(found)
    names, renamed = column_names(header)
    size = rows or max(1, CELLS // len(names))

    def parts() -> Generator[Any]:
        count = 0
        with closing(found):
            while part := [cells for _, cells in islice(found, size)]:
                count += len(part)
                yield list(zip(*part, strict=True))
        if not count:
            raise BadInput(f"{path} has a header but no rows")

    return names, renamed, parts()


@dataclass
class _Reading:
    """What is known about a file's columns while its parts are read.

    Parameters
    ----------
    delimiter : str
    verbatim : set of str
        Columns that stay text.
    text : set of str
        Columns that turned out to be text.
    writings : dict
        What is known of columns whose numbers are not as Python writes them.
    forms : dict
        How these are written.
    """

    delimiter: str
    verbatim: frozenset[str]
    text: set[str] = field(default_factory=set)
    writings: dict[str, Writing] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)

    def numbers(self, name: str, cells: Sequence[str]) -> Array | None:
        """A part of a column as numbers, if it and all before may be some."""
        if name in self.verbatim or name in self.text:
            return None
        if name not in self.writings:
            found = numbers(cells)
            if found is not None:
                return found
            self.writings[name] = Writing(self.delimiter)
        form = self.writings[name].see(cells)
        found = None if form is None else form.numbers(cells)
        if form is None or found is None:
            self.text.add(name)
            self.forms.pop(name, None)
            return None
        self.forms[name] = form
        return found

    def known(self, name: str) -> tuple[bool, Form | None]:
        """How a column is read so far."""
        return name in self.text, self.forms.get(name)

    def notes(self, names: Sequence[str]) -> list[str]:
        """Notes on columns whose numbers are written in some way."""
        found: dict[str, list[str]] = {}
        for name in names:
            if name in self.forms:
                found.setdefault(self.forms[name].described, []).append(name)
        notes = []
        for how, columns in found.items():
            have = "has" if len(columns) == 1 else "have"
            example = self.forms[columns[0]].example
            such = f" (such as {quoted(example)})" if example and how != COMMAS else ""
            notes.append(f"{listed(columns)} {have} {how}{such}, read as numbers")
        return notes


def _read_text(
    path: Path, reading: _Reading
) -> tuple[list[str], list[str], dict[str, list[Array]]] | None:
    """Names, those that are new, and the parts of each column; None if it must be read again."""
    names, renamed, parts = _parts(path)
    columns: dict[str, list[Array]] = {name: [] for name in names}
    same: dict[str, str] = {}
    again = False
    for part in parts:
        for name, cells in zip(names, part, strict=True):
            known = reading.known(name)
            values = reading.numbers(name, cells)
            if values is None:
                values = _text(cells, same, EMPTY if name in reading.verbatim else MISSING)
            again |= bool(columns[name]) and known != reading.known(name)
            columns[name].append(values)
    return None if again else (names, renamed, columns)


def _text(
    cells: Sequence[str],
    same: dict[str, str] | None = None,
    missing: Collection[str] = MISSING,
) -> Array:
    """Cells (n,) without blanks around them, None where missing; equal ones share their memory."""
    values = np.empty(len(cells), object)
    same = {} if same is None or len(same) > CELLS else same
    for row, cell in enumerate(cells):
        text = cell.strip()
        values[row] = None if text in missing else same.setdefault(text, text)
    return values


def _joined(parts: list[Array]) -> Any:
    """The parts of a column as one, whole numbers as such."""
    values = np.concatenate(parts)
    if values.dtype == object:
        return pd.Series(values, dtype=object)
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    return pd.Series(whole if (whole == values).all() and (abs(values) < 2**53).all() else values)


def _counts_rows(values: Any) -> bool:
    """Whether these are 0, 1, 2, ... or 1, 2, 3, ..."""
    if values.dtype.kind != "i":
        return False
    steps = values.to_numpy() - np.arange(len(values))
    return bool(steps[0] in (0, 1) and (steps == steps[0]).all())


def _refuse_doubles(path: Path, names: Collection[str], renamed: Collection[str]) -> None:
    """Refuse columns that are asked for by a name that is not theirs alone."""
    for name in names:
        if f"{name} (2)" in renamed:
            raise BadInput(f"{path} has more than one column {quoted(name)}; rename all but one")
