"""One call for every source of a table: a file, a set that is built in, or one in a folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from typing import Any

import pandas as pd

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.tables.formats.delimited import PACKED
from hitrate_lab.tables.formats.files import PARQUET, TEXT, read_frame, text_chunks
from hitrate_lab.tables.table import Table, make_table
from hitrate_lab.tables.vectors import TextEncoder
from hitrate_lab.tables.written import Form

HERE = Path(__file__).parent / "sets"
# The function of sklearn.datasets, and what is to be learned.
SCIKIT_LEARN = {
    "breast-cancer": ("load_breast_cancer", "diagnosis"),
    "digits": ("load_digits", "digit"),
    "iris": ("load_iris", "species"),
    "wine": ("load_wine", "cultivar"),
}
BUILT_IN = tuple(sorted({"car", *SCIKIT_LEARN}))
# Of sets that are shipped, or that lie in the data folder.
TARGET = "class"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def read_table(
    source: str | Path,
    target: str | None = None,
    *,
    data_dir: Path | None = None,
    text: bool = True,
    encoder: TextEncoder | None = None,
    fewest: int = 2,
    progress: Callable[[str], None] | None = None,
) -> Table:
    """Read a table to classify.

    Parameters
    ----------
    source : str or Path
        A file: .csv, .tsv, .txt (also with .gz or .xz) or .parquet. Or the name of a set: one of
        `BUILT_IN`, or that of a CSV file in the data folder.
    target : str, optional
        The column to predict. Sets that are built in have their own; in the data folder it is
        "class".
    data_dir : Path, optional
        The data folder; by default what the environment variable HITRATE_DATA says, then the
        user's cache folder.
    text : bool
        Whether columns of free text are features.
    encoder : TextEncoder, optional
        What reads them then, in the place of words, such as
        `hitrate_lab.datasets.sentence_vectors.TextVectors`.
    fewest : int
        Rows that each class needs.
    progress : callable, optional
        Is told in a few words what takes long, before it begins.

    Returns
    -------
    Table

    Examples
    --------
    >>> from hitrate_lab.tables import read_table
    >>> table = read_table("car")
    >>> table.features.shape, table.classes
    ((1728, 6), ['acc', 'good', 'unacc', 'vgood'])
    """
    frame, notes, forms, default, name = _frame(source, target, data_dir, progress)
    target = target or default
    if target is None:
        raise BadInput(f"{name}: say which column is the target; it has {listed(frame.columns)}")
    return make_table(
        frame,
        target,
        name,
        notes=notes,
        forms=forms,
        text=text,
        encoder=encoder,
        fewest=fewest,
        progress=progress,
    )


def read_rows(
    source: str | Path,
    rows: int,
    *,
    data_dir: Path | None = None,
    as_text: Collection[str] = (),
    as_numbers: Collection[str] = (),
) -> Generator[Any]:
    """The rows of any source as frames of so many, cells of text files as text.

    The index counts rows from 0.

    Parameters
    ----------
    source : str or Path
        As for `read_table`.
    rows : int
    data_dir : Path, optional
    as_text, as_numbers : collections of str
        As for `text_chunks`.
    """
    file = source_file(source, data_dir)
    if file is not None:
        yield from text_chunks(file, rows, as_text=as_text, as_numbers=as_numbers)
        return
    frame, _ = _from_scikit_learn(str(source))
    for start in range(0, len(frame), rows):
        yield frame.iloc[start : start + rows]


def source_file(source: str | Path, data_dir: Path | None = None) -> Path | None:
    """The file that a source stands for; None for what scikit-learn brings along."""
    text = os.fspath(source)
    is_name = isinstance(source, str) and NAME.fullmatch(text)
    if not is_name:
        if not text.strip():
            raise BadInput(f"no table is named: give a file or one of {', '.join(BUILT_IN)}")
        return Path(text).expanduser()
    if text == "car":
        return HERE / "car.csv"
    if text in SCIKIT_LEARN:
        return None
    folders = data_folders(data_dir)
    for folder in folders:
        file = folder / f"{text}.csv"
        if file.is_file():
            return file
    raise BadInput(
        f"no data set {quoted(text)}: built in are {', '.join(BUILT_IN)}; for another one put "
        f"{text}.csv, with a column {quoted(TARGET)}, into {folders[0]}, or name a file with its "
        f"ending ({', '.join((*TEXT, *PARQUET))})"
    )


def data_folders(data_dir: Path | None = None) -> list[Path]:
    """Where sets are looked for: as said, by HITRATE_DATA, in the user's cache."""
    if data_dir is not None:
        return [Path(data_dir)]
    said = os.environ.get("HITRATE_DATA")
    if sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    elif os.name == "nt":
        cache = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [*([Path(said)] if said else []), cache / "hitrate"]


def _frame(
    source: str | Path,
    target: str | None,
    data_dir: Path | None,
    progress: Callable[[str], None] | None,
) -> tuple[Any, list[str], dict[str, Form], str | None, str]:
    """All columns, notes, forms of numbers, the target if it is known, and the table's name."""
    file = source_file(source, data_dir)
    if file is None:
        name = str(source)
        frame, target = _from_scikit_learn(name)
        return frame, [], {}, target, name
    known = None if file == Path(os.fspath(source)).expanduser() else TARGET
    frame, notes, forms = read_frame(file, [each for each in (target, known) if each], progress)
    stem = file.name
    for ending in (*PACKED, *TEXT, *PARQUET):
        stem = stem[: -len(ending)] if stem.lower().endswith(ending) else stem
    return frame, notes, forms, known, stem


def _from_scikit_learn(name: str) -> tuple[Any, str]:
    """One of scikit-learn's sets, its classes by their names."""
    from sklearn import datasets

    function, target = SCIKIT_LEARN[name]
    found = getattr(datasets, function)(as_frame=True)
    label = found.target
    if name != "digits":
        names = [str(each) for each in found.target_names]
        label = pd.Series([names[code] for code in label], dtype=object)
    frame = pd.DataFrame(found.data)
    frame[target] = label.to_numpy()
    return frame, target
