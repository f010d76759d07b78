"""Text sets in tables of sentences and labels, as GLUE's are, and vectors of words.

A set is an entry of `TEXT_SETS`. A file may be packed by gzip or xz. Rows stay in the files' order;
a set without a published split has training rows only.
"""

from __future__ import annotations

import csv
import gzip
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.tables.reading import data_folders

PACKED = {"": Path.open, ".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True, eq=False)
class Texts:
    """Rows of one part of a set.

    Parameters
    ----------
    first : tuple of str
    second : tuple of str or None
        Where a row is a pair.
    labels : array of int64
        Places in the set's classes.
    """

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, eq=False)
class TextSet:
    """Parts of a set; those that are not published are None."""

    name: str
    train: Texts
    validation: Texts | None
    test: Texts | None
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """A text set before it is read.

    Parameters
    ----------
    folders : tuple of str
        Where it may lie in a data folder.
    train, validation, test : tuple of str
        Names that the file of a part may have, in any of the folders.
    text : tuple of str
        Names that the column of the text, or the first of a pair, may have.
    label : tuple of str
    second : tuple of str
        Of the other of a pair.
    head : tuple of str
        The columns, for files that do not name them.
    is_quoted : bool
        Whether quotation marks enclose cells, as in CSV; in GLUE's files they stand for themselves.
    needs_text : bool
        Whether rows without a text are left out.
    """

    folders: tuple[str, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    text: tuple[str, ...] = ("sentence",)
    label: tuple[str, ...] = ("label",)
    second: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    is_quoted: bool = False
    needs_text: bool = False


def _glue(
    folder: str,
    short: str,
    text: tuple[str, ...] = ("sentence1",),
    second: tuple[str, ...] = ("sentence2",),
    label: tuple[str, ...] = ("label",),
    validation: tuple[str, ...] = ("dev.tsv",),
    head: tuple[str, ...] = (),
) -> Known:
    """A task of GLUE: in its own folder, or all tasks in one."""
    return Known(
        (folder, f"GLUE/{folder}", "glue"),
        ("train.tsv", f"{short}_train.tsv"),
        (*validation, f"{short}_dev.tsv"),
        (f"{short}_test_labeled.tsv",),
        text,
        label,
        second,
        head,
    )


def _sentences(train: str, validation: str = "", test: str = "") -> Known:
    return Known(("sentence_cls",), _table(train), _table(validation), _table(test))


def _intents(train: str, validation: str = "", test: str = "") -> Known:
    parts = _table(train), _table(validation), _table(test)
    return Known(("intents",), *parts, text=("text",))


def _clothing(label: str) -> Known:
    return Known(
        ("womens_reviews", ""),
        ("womens_clothing_ecommerce_reviews.csv", "Womens Clothing E-Commerce Reviews.csv"),
        text=("Review Text",),
        label=(label,),
        is_quoted=True,
        needs_text=True,
    )


def _table(name: str) -> tuple[str, ...]:
    return (f"{name}.tsv",) if name else ()


TEXT_SETS: dict[str, Known] = {
    "cola": _glue("CoLA", "cola", ("sentence",), (), head=("source", "label", "mark", "sentence")),
    "sst2": _glue("SST-2", "sst2", ("sentence",), ()),
    "mrpc": Known(
        ("MRPC", "GLUE/MRPC", "glue"),
        ("msr_paraphrase_train.txt", "mrpc_train_msr4076.tsv"),
        (),
        ("msr_paraphrase_test.txt", "mrpc_test_labeled.tsv"),
        ("sentence1", "#1 String"),
        ("label", "Quality"),
        ("sentence2", "#2 String"),
    ),
    "rte": _glue("RTE", "rte"),
    "wnli": _glue("WNLI", "wnli"),
    "qnli": _glue("QNLI", "qnli", ("question",), ("sentence",)),
    "qqp": _glue("QQP", "qqp", ("question1",), ("question2",), ("is_duplicate",)),
    "mnli": _glue("MNLI", "mnli", label=("gold_label",), validation=("dev_matched.tsv",)),
    "trec": _sentences("trec_train", test="trec_test"),
    "sst5": _sentences("stsa_fine_train", "stsa_fine_dev", "stsa_fine_test"),
    "subj": _sentences("subj"),
    "mr": _sentences("rt_polarity"),
    "cr": _sentences("custrev"),
    "mpqa": _sentences("mpqa"),
    "banking77": _intents("banking77_train", test="banking77_test"),
    "clinc150": _intents("clinc150_train", "clinc150_val", "clinc150_test"),
    "clinc150_imbalanced": _intents("clinc150_imbalanced_train", "clinc150_val", "clinc150_test"),
    "clothing_reviews": _clothing("Recommended IND"),
    "clothing_ratings": _clothing("Rating"),
}


def read_texts(name: str, *, data_dir: Path | None = None) -> TextSet:
    """A text set from a data folder.

    Classes are the labels of the training rows, as text, in order.

    Parameters
    ----------
    name : str
        Of `TEXT_SETS`.
    data_dir : Path, optional
        The data folder; by default that of HITRATE_DATA, or the user's cache.

    Raises
    ------
    BadInput
        There is no such set, its training rows are not in the folder, or a file is not what it
        should be.
    """
    if name not in TEXT_SETS:
        raise BadInput(f"no text set {quoted(name)}: there are {listed(TEXT_SETS)}")
    known = TEXT_SETS[name]
    train = _found(known, known.train, data_dir)
    if train is None:
        looked = " or ".join(map(str, data_folders(data_dir)))
        raise BadInput(
            f"text set {name} is not in {looked}: let HITRATE_DATA name the folder that has "
            f"{known.folders[0]}/{known.train[0]}"
        )
    rows = _rows(train, known)
    classes = tuple(sorted({label for *_, label in rows}, key=_in_order))
    others = (_found(known, names, data_dir) for names in (known.validation, known.test))
    validation, test = (
        None if file is None else _texts(_rows(file, known), classes, file) for file in others
    )
    return TextSet(name, _texts(rows, classes, train), validation, test, classes)


def _in_order(label: str) -> tuple[float, str]:
    """Numbers by their size, words behind them."""
    return (float(label), label) if label.isdigit() else (float("inf"), label)


def _found(known: Known, names: Sequence[str], data_dir: Path | None) -> Path | None:
    """The first file of these names, packed or not; also in ``text`` inside a data folder."""
    for base in data_folders(data_dir):
        for folder in (base / each / inner for each in ("", "text") for inner in known.folders):
            for name in names:
                for ending in PACKED:
                    file = folder / (name + ending)
                    if file.is_file():
                        return file
    return None


class Plain(csv.Dialect):
    """Cells between tabs, in which every mark stands for itself."""

    delimiter = "\t"
    quoting = csv.QUOTE_NONE
    lineterminator = "\n"


def _opened(file: Path) -> IO[str]:
    opener = PACKED[file.suffix] if file.suffix in PACKED else Path.open
    return opener(file, "rt", encoding="utf-8", newline="")  # type: ignore[operator,no-any-return]


def _rows(file: Path, known: Known) -> list[tuple[str, str | None, str]]:
    """Text, its other half, and label of every row."""
    kind: type[csv.Dialect] = csv.excel if known.is_quoted else Plain
    found = []
    with _opened(file) as lines:
        table: Iterator[list[str]] = csv.reader(lines, kind)
        first_row = next(table, [])
        head = first_row
        if known.head and not set(known.label) & set(first_row):
            # A file of GLUE's that begins with a row.
            head = list(known.head)
            table = _again(first_row, table)
        text, label = (_column(head, names, file) for names in (known.text, known.label))
        second = _column(head, known.second, file) if known.second else None
        for number, row in enumerate(table, 2):
            if len(row) != len(head):
                raise BadInput(
                    f"{file}, row {number}: {len(row)} cells, where there are {len(head)}"
                )
            if row[text] or not known.needs_text:
                found.append((row[text], None if second is None else row[second], row[label]))
    return found


def _again(first: list[str], rest: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rest


def _column(head: list[str], names: tuple[str, ...], file: Path) -> int:
    for name in names:
        if name in head:
            return head.index(name)
    raise BadInput(f"{file}: has no column {' or '.join(map(repr, names))}, but {listed(head)}")


def _texts(rows: list[tuple[str, str | None, str]], classes: tuple[str, ...], file: Path) -> Texts:
    place = {label: number for number, label in enumerate(classes)}
    first, second, labels = zip(*rows, strict=True) if rows else ((), (), ())
    unknown = next((label for label in labels if label not in place), None)
    if unknown is not None:
        raise BadInput(f"{file}: label {unknown!r} is in no training row")
    pairs = None if None in second or not second else second
    return Texts(first, pairs, np.array([place[label] for label in labels], np.int64))


def read_vectors(
    file: Path, words: set[str] | None = None
) -> tuple[list[str], NDArray[np.float32]]:
    """Words and their vectors, from a file of GloVe's: a word and its numbers on every line.

    Parameters
    ----------
    file : Path
        Packed or not.
    words : set of str, optional
        Only these.
    """
    found: list[str] = []
    numbers: list[NDArray[np.float32]] = []
    with _opened(file) as lines:
        for number, line in enumerate(lines, 1):
            word, _, rest = line.rstrip("\n").partition(" ")
            if words is not None and word not in words:
                continue
            try:
                vector = np.array(rest.split(" "), np.float32)
            except ValueError as error:
                raise BadInput(f"{file}, line {number}: not a word and its numbers") from error
            if numbers and vector.shape != numbers[0].shape:
                raise BadInput(
                    f"{file}, line {number}: {len(vector)} numbers, not {len(numbers[0])}"
                )
            found.append(word)
            numbers.append(vector)
    return found, np.stack(numbers) if numbers else np.empty((0, 0), np.float32)
