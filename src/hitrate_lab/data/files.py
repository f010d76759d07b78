"""Files to frames: delimited text and Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hitrate_lab.data.bad_input import BadInput, listed, quoted
from hitrate_lab.data.cells import MISSING, label_text, numbers, plain
from hitrate_lab.data.delimited import records

Array = NDArray[Any]

TEXT = (".csv", ".tsv", ".tab", ".txt")
PARQUET = (".parquet", ".pq")
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
    if name.removesuffix(".gz").endswith(TEXT):
        return "text"
    if name.endswith(PARQUET):
        return "parquet"
    hint = "; save the sheet as CSV" if name.endswith((".xls", ".xlsx", ".ods")) else ""
    raise BadInput(
        f"{path}: only {', '.join(TEXT)} (also with .gz) and {', '.join(PARQUET)} can be read{hint}"
    )


def checked_file(path: Path) -> Path:
    """The path, if there is a file of a kind that can be read."""
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError) as error:
        raise BadInput(f"{quoted(path)} is no file name ({error})") from None
    if is_folder:
        raise BadInput(f"{path} is a folder; name a file in it")
    if not is_there:
        raise BadInput(f"{path}: there is no such file")
    kind_of(path)
    return path


def read_frame(path: Path, as_text: Collection[str] = ()) -> tuple[Any, list[str]]:
    """All columns of a file, and notes about them.

    A column of text is of numbers if all its cells are numbers or missing, and none begins with a
    zero as zip codes do. Other cells are str, or None where missing.

    Parameters
    ----------
    path : Path
    as_text : collection of str
        Columns that stay text in any case.

    Returns
    -------
    frame : DataFrame
    notes : list of str
    """
    checked_file(path)
    if kind_of(path) == "parquet":
        return _read_parquet(path, as_text)
    text = set(as_text)
    while True:
        names, renamed, columns = _read_text(path, text)
        # What a later part showed to be text was taken for numbers in the first: once more.
        if all(columns[name][0].dtype == object for name in text.intersection(names)):
            break
    _refuse_doubles(path, as_text, renamed)
    frame = pd.DataFrame({name: _joined(columns[name]) for name in names})
    notes = []
    if renamed:
        notes.append(f"names that were empty, or there before, are now {listed(renamed)}")
    if not renamed and numbers(names, padded=True) is not None:
        notes.append("all column names are numbers; the first line must hold names, not values")
    if names[0] == "column 1" and renamed[:1] == names[:1] and _counts_rows(frame["column 1"]):
        notes.append("not used, a first column without a name that counts the rows")
        frame = frame.drop(columns="column 1")
    return frame, notes


def text_chunks(path: Path, rows: int) -> Iterator[Any]:
    """A file's rows as frames of text, so many at a time; the index counts them from 0."""
    checked_file(path)
    if kind_of(path) == "parquet":
        frame, _ = _read_parquet(path, ())
        for start in range(0, len(frame), rows):
            yield frame.iloc[start : start + rows]
        return
    names, _, parts = _parts(path, rows)
    start = 0
    for part in parts:
        index = range(start, start + len(part[0]))
        yield pd.DataFrame(
            dict(zip(names, map(_text, part), strict=True)), index=index, dtype=object
        )
        start = index.stop


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


def _parts(path: Path, rows: int | None = None) -> tuple[list[str], list[str], Iterator[Any]]:
    """Names, those that are new, and columns of text cells, part by part."""
    found = records(path)
    _, header = next(found)
    names, renamed = column_names(header)
    size = rows or max(1, CELLS // len(names))

    def parts() -> Iterator[Any]:
        count = 0
        while part := [cells for _, cells in islice(found, size)]:
            count += len(part)
            yield list(zip(*part, strict=True))
        if not count:
            raise BadInput(f"{path} has a header but no rows")

    return names, renamed, parts()


def _read_text(path: Path, text: set[str]) -> tuple[list[str], list[str], dict[str, list[Array]]]:
    """Names, those that are new, and the parts of each column; adds to `text` what is no number."""
    names, renamed, parts = _parts(path)
    columns: dict[str, list[Array]] = {name: [] for name in names}
    same: dict[str, str] = {}
    for part in parts:
        for name, cells in zip(names, part, strict=True):
            values = None if name in text else numbers(cells)
            if values is None:
                text.add(name)
                values = _text(cells, same)
            columns[name].append(values)
    return names, renamed, columns


def _text(cells: Sequence[str], same: dict[str, str] | None = None) -> Array:
    """Cells (n,) without blanks around them, None where missing; equal ones share their memory."""
    values = np.empty(len(cells), object)
    same = {} if same is None or len(same) > CELLS else same
    for row, cell in enumerate(cells):
        text = cell.strip()
        values[row] = None if text in MISSING else same.setdefault(text, text)
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


def _read_parquet(path: Path, as_text: Collection[str]) -> tuple[Any, list[str]]:
    """A Parquet file's columns, those of lists, bytes and the like left out with a note."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput(f"{path}: reading Parquet needs pyarrow: pip install pyarrow") from None
    try:
        with path.open("rb") as file:
            found = parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(f"{path}: cannot be read as Parquet ({error})") from None
    if not found.num_rows:
        raise BadInput(f"{path} has no rows")
    names, renamed = column_names(list(found.column_names))
    _refuse_doubles(path, as_text, renamed)
    notes = (
        [f"names that were empty, or there before, are now {listed(renamed)}"] if renamed else []
    )
    data, left_out = {}, []
    for name, column in zip(names, found.columns, strict=True):
        kind = column.type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if pyarrow.types.is_nested(kind) or pyarrow.types.is_binary(kind):
            left_out.append(name)
        else:
            values = plain(column.to_pandas())
            data[name] = values.map(label_text).astype(object) if values.dtype == object else values
    if left_out:
        notes.append(f"not used, neither numbers, text nor dates: {listed(left_out)}")
    return pd.DataFrame(data), notes
