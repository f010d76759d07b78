"""Parquet to frames: what is numbers, text or dates, and what kinds the rest is of."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from hitrate_lab.bad_input import BadInput, listed
from hitrate_lab.tables.cells import cell_text, label_text, plain
from hitrate_lab.tables.delimited import MOST_COLUMNS, column_names
from hitrate_lab.tables.recognised import LOOKED_AT, PARQUET_MAGIC, complaint_about

# What Parquet may become: so many cells in any case, and so many for each of its bytes.
FEW_CELLS, CELLS_PER_BYTE = 2**27, 2**7
# Of the name that Parquet has for a kind.
LONGEST_KIND = 40


def read_parquet(
    path: Path, as_text: Collection[str]
) -> tuple[Any, list[str], list[str], dict[str, str]]:
    """A Parquet file's columns, names that are new, notes, and the kinds of what is left out.

    Columns of lists, bytes and the like are left out with a note.
    """
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
            _refuse_large(path, parquet.read_metadata(file))
            file.seek(0)
            found = parquet.read_table(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(f"{path}: cannot be read as Parquet ({error})") from None
    if not found.num_rows:
        raise BadInput(f"{path} has no rows")
    names, renamed = column_names(list(found.column_names))
    notes = (
        [f"names that were empty, or there before, are now {listed(renamed)}"] if renamed else []
    )
    data: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name, column in zip(names, found.columns, strict=True):
        kind = column.type
        if pyarrow.types.is_dictionary(kind):
            kind = kind.value_type
        if pyarrow.types.is_nested(kind) or pyarrow.types.is_binary(kind):
            left_out[name] = _kind_of_column(str(column.type))
        else:
            values = plain(column.to_pandas())
            if values.dtype == object:
                text = cell_text if name in as_text else label_text
                values = values.map(text).astype(object)
            data[name] = values
    if left_out:
        notes.append(f"not used, neither numbers, text nor dates: {listed(left_out)}")
    return pd.DataFrame(data), renamed, notes, left_out


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
