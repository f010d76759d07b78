"""Parquet to frames: what is numbers, text or dates, and what kinds the rest is of."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from hitrate_lab.bad_input import BadInput, listed
from hitrate_lab.tables.cells import cell_text, label_text, plain
from hitrate_lab.tables.formats.delimited import MOST_COLUMNS, column_names
from hitrate_lab.tables.formats.recognised import LOOKED_AT, PARQUET_MAGIC, complaint_about

# What Parquet may become: so many cells in any case, and so many for each of its bytes.
FEW_CELLS, CELLS_PER_BYTE = 2**27, 2**7
# Bytes of a column that are read ahead, where a file is read in pieces.
BUFFER = 2**16
# Of the name that Parquet has for a kind.
LONGEST_KIND = 40


def read_parquet(
    path: Path, as_text: Collection[str]
) -> tuple[Any, list[str], list[str], dict[str, str]]:
    """A Parquet file's columns, names that are new, notes, and the kinds of what is left out.

    Columns of lists, bytes and the like are left out with a note.
    """
    with _opened(path) as (file, parquet):
        found = parquet.read_table(file)
    names, renamed = column_names(list(found.column_names))
    notes = (
        [f"names that were empty, or there before, are now {listed(renamed)}"] if renamed else []
    )
    columns = list(found.columns)
    del found
    data, left_out = _plain_columns(names, columns, as_text)
    if left_out:
        notes.append(f"not used, neither numbers, text nor dates: {listed(left_out)}")
    # Columns stay apart: to put them together would take the room of the table once more.
    return pd.DataFrame(data, copy=False), renamed, notes, left_out


def parquet_pieces(path: Path, rows: int, as_text: Collection[str]) -> Generator[Any]:
    """The same columns as frames of at most so many rows; the index counts rows from 0.

    Each piece is read by itself: of a column with gaps, one without them may have another type.
    """
    start = 0
    with _opened(path) as (file, parquet):
        # Else each column's part of a group of rows, which may be all there are, is read at once.
        pieces = parquet.ParquetFile(file, buffer_size=BUFFER, pre_buffer=False)
        names, _ = column_names(list(pieces.schema_arrow.names))
        for piece in pieces.iter_batches(rows, use_threads=False):
            data, _ = _plain_columns(names, list(piece.columns), as_text)
            index = range(start, start + piece.num_rows)
            start = index.stop
            if len(index):
                yield pd.DataFrame(data, index=index, copy=False)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """A file that is Parquet, has rows and is in proportion, and the module that reads it."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput(f"{path}: reading Parquet needs pyarrow: pip install pyarrow") from None
    try:
        with path.open("rb") as file:
            start = file.peek(LOOKED_AT)[:LOOKED_AT]
            if not start.startswith(PARQUET_MAGIC) and (what := complaint_about(path, start)):
                raise BadInput(what)
            metadata = parquet.read_metadata(file)
            _refuse_large(path, metadata)
            if not metadata.num_rows:
                raise BadInput(f"{path} has no rows")
            file.seek(0)
            yield file, parquet
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(f"{path}: cannot be read as Parquet ({error})") from None


def _plain_columns(
    names: Sequence[str], columns: list[Any], as_text: Collection[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Columns of a frame, and the kinds of those that are left out.

    The list is emptied on the way, so that what is done with can go.
    """
    import pyarrow

    data: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in names:
        column = columns.pop(0)
        kind = column.type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if pyarrow.types.is_nested(kind) or pyarrow.types.is_binary(kind):
            left_out[name] = _kind_of_column(str(column.type))
            continue
        values = plain(column.to_pandas())
        if values.dtype == object:
            text = cell_text if name in as_text else label_text
            values = values.map(text).astype(object)
        data[name] = values.to_numpy()
    return data, left_out


def _kind_of_column(kind: str) -> str:
    """What Parquet calls a kind of column, in words.

    Examples
    --------
    >>> _kind_of_column("list<element: int64>"), _kind_of_column("binary")
    ('lists (list<element: int64>)', 'bytes (binary)')
    """
    words = {"binary": "bytes", "large_b": "bytes", "fixed_s": "bytes", "struct": "records"}
    words |= {"map": "records"}
    word = next((word for start, word in words.items() if kind.startswith(start)), "lists")
    return f"{word} ({kind if len(kind) <= LONGEST_KIND else kind[:LONGEST_KIND] + '...'})"


def _refuse_large(path: Path, metadata: Any) -> None:
    """Refuse a file that becomes out of all proportion larger in memory, or is too wide."""
    if metadata.num_columns > MOST_COLUMNS:
        raise BadInput(
            f"{path} has {metadata.num_columns:,} columns, and no table may have more than "
            f"{MOST_COLUMNS:,}; leave out columns, or turn rows and columns around"
        )
    cells = metadata.num_rows * metadata.num_columns
    if cells > max(FEW_CELLS, CELLS_PER_BYTE * path.stat().st_size):
        raise BadInput(
            f"{path} has {metadata.num_rows:,} rows and {metadata.num_columns:,} columns, out of "
            "all proportion to its size; if that is meant, give a part of its rows"
        )
