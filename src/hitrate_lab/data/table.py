"""A table to classify, checked, and what is worth knowing about it."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from hitrate_lab.data.bad_input import BadInput, listed, quoted
from hitrate_lab.data.cells import WHOLE, label_text, missing_cells, numbers

# Numbers with more values than this may be quantities; above the second number they are.
MANY_VALUES, TOO_MANY_VALUES = 20, 100
# A column of text is spoiled numbers if no larger part of its values is none.
MOSTLY_NUMBERS = 0.1
# Text that differs in each of so many rows is a name of the row.
FEWEST_IDS = 20


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to classify.

    Parameters
    ----------
    name : str
        "car", or the file's stem.
    features : DataFrame
        Columns are int64, float64, bool, datetime64 or object; objects are str or None.
    target : Series
        Labels: str, int or bool.
    notes : tuple of str
        What a user should know, one line each.
    fingerprint : str
        SHA-256 of the content.
    target_name : str
    """

    name: str
    features: Any
    target: Any
    notes: tuple[str, ...]
    fingerprint: str
    target_name: str

    @property
    def classes(self) -> list[Any]:
        """Labels in their order, as Python's own str, int or bool."""
        return sorted(pd.unique(self.target).tolist())


def make_table(
    frame: Any, target: str, name: str, *, notes: Sequence[str] = (), fewest: int = 2
) -> Table:
    """Divide a frame into features and target, after checking both.

    Parameters
    ----------
    frame : DataFrame
        As from `read_frame`, with its target as text or of any plain dtype.
    target : str
        Name of a column.
    name : str
        For messages.
    notes : sequence of str
        From reading.
    fewest : int
        Rows that a class needs.
    """
    found = list(notes)
    if target not in frame.columns:
        raise BadInput(no_such_column(target, list(frame.columns), name))
    label = frame[target]
    features = frame.drop(columns=target)
    if not features.shape[1]:
        raise BadInput(
            f"{name}: {quoted(target)} is the only column; there is nothing to learn from"
        )
    missing = missing_cells(label)
    if missing.any():
        if missing.all():
            raise BadInput(f"{name}: the target {quoted(target)} is empty in every row")
        found.append(f"{_rows(int(missing.sum()))} without a value of {quoted(target)} left out")
        label, features = label[~missing], features[~missing]
    label, features = label.reset_index(drop=True), features.reset_index(drop=True)
    _refuse_quantities(label, target, name)
    label = labels(label)
    _refuse_classes(label, target, name, fewest)
    features = without_infinities(features, found)
    found += _about_columns(features, label, target)
    return Table(name, features, label, tuple(found), fingerprint(features, label), target)


def no_such_column(target: str, columns: Sequence[str], name: str) -> str:
    """The complaint that a column is not there, with the name that was perhaps meant."""
    lower = {column.lower(): column for column in reversed(columns)}
    near = difflib.get_close_matches(target.lower(), list(lower), 1, 0.6)
    if near:
        return f"{name}: no column {quoted(target)}; did you mean {quoted(lower[near[0]])}?"
    return f"{name}: no column {quoted(target)}; it has {listed(columns)}"


def labels(values: Any) -> Any:
    """Labels without missing ones: whole numbers as int, bools as bool, others as text."""
    if values.dtype == bool:
        return values
    if values.dtype.kind in "iuf":
        number = values.to_numpy(np.float64)
        if (number == np.round(number)).all() and (np.abs(number) < 2**53).all():
            return values.astype(np.int64)
    text = [str(label_text(value)) for value in values.tolist()]
    if all(WHOLE.fullmatch(each) for each in text):
        return pd.Series([int(each) for each in text], dtype=np.int64, name=values.name)
    return pd.Series(text, dtype=object, name=values.name)


def _refuse_quantities(label: Any, target: str, name: str) -> None:
    """A number with very many values is no class."""
    if label.dtype.kind in "iuf":
        number = label.to_numpy(np.float64)
    elif label.dtype == object and (parsed := numbers(label.tolist(), padded=True)) is not None:
        number = parsed
    else:
        return
    count = len(np.unique(number))
    fractions = not (number == np.round(number)).all()
    many = count > MANY_VALUES and (
        count > 0.1 * len(number) or (fractions and count > TOO_MANY_VALUES)
    )
    if many:
        raise BadInput(
            f"{name}: {quoted(target)} is a number with {count} different values, no class; "
            "choose another target or put its values into a few groups"
        )


def _refuse_classes(label: Any, target: str, name: str, fewest: int) -> None:
    """At least two classes, each with enough rows."""
    counts = Counter(label.tolist())
    if len(counts) < 2:
        raise BadInput(
            f"{name}: every row has the same target, {quoted(target)} = {quoted(*counts)}"
        )
    small = sorted(each for each, count in counts.items() if count < fewest)
    if small:
        one = f"class {quoted(small[0])} of {quoted(target)} has {_rows(counts[small[0]])}"
        more = "" if len(small) == 1 else f", and {len(small) - 1} more classes have too few"
        raise BadInput(
            f"{name}: {one}{more}; each needs at least {fewest}: add, merge or remove rows"
        )


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def without_infinities(features: Any, notes: list[str]) -> Any:
    """The same features with infinite numbers missing; a note says in which columns."""
    floats = features.select_dtypes("floating")
    infinite = np.isinf(floats.to_numpy(np.float64)).any(axis=0)
    if not infinite.any():
        return features
    columns = list(floats.columns[infinite])
    notes.append(f"infinite numbers are taken as missing in {listed(columns)}")
    return features.assign(
        **{column: features[column].where(np.isfinite(features[column])) for column in columns}
    )


def _about_columns(features: Any, label: Any, target: str) -> list[str]:
    """Notes on columns that say nothing, or too much."""
    constant, ids, leaks, spoiled = [], [], [], []
    codes, classes = pd.factorize(label)
    for column in features.columns:
        values = features[column]
        own, levels = pd.factorize(values)
        if len(levels) + int((own < 0).any()) < 2:
            constant.append(column)
        elif _one_to_one(own, codes, len(classes)):
            leaks.append(column)
        elif values.dtype == object and is_id(levels, int((own >= 0).sum())):
            ids.append(column)
        elif values.dtype == object and (strange := _between_numbers(levels.tolist())):
            spoiled.append(f"{quoted(column)} because of {listed(strange, 3)}")
    notes = []
    if leaks:
        notes.append(
            f"{listed(leaks)} tells {quoted(target)} of every row: if it is not known beforehand, "
            "remove it, or every accuracy is too good to be true"
        )
    if constant:
        notes.append(f"not used, the same in every row: {listed(constant)}")
    if ids:
        notes.append(f"not used, text that is different in every row: {listed(ids)}")
    if spoiled:
        more = "" if len(spoiled) <= 3 else f" and {len(spoiled) - 3} more columns"
        notes.append(
            f"text, though most of it is numbers: {'; '.join(spoiled[:3])}{more}; "
            "leave such cells empty if they are missing"
        )
    return notes


def _between_numbers(levels: list[str]) -> list[str]:
    """The texts that are no numbers, if there are many numbers and few of these."""
    if len(levels) < MANY_VALUES:
        return []
    strange = [level for level in levels if numbers([level]) is None]
    return strange if len(strange) <= MOSTLY_NUMBERS * len(levels) else []


def is_id(levels: Any, present: int) -> bool:
    """Whether text without spaces is different in each of many rows."""
    return FEWEST_IDS <= present == len(levels) and not spaced(levels)


def spaced(levels: Any) -> bool:
    """Whether at least half of the texts have a space, as sentences have."""
    return sum(" " in str(level) for level in levels) >= len(levels) / 2


def _one_to_one(own: Any, codes: Any, classes: int) -> bool:
    """Whether each value goes with one class and each class with one value."""
    own = own + 1
    # Most columns have more values than there are classes, and are done here.
    if len(np.unique(own)) != classes:
        return False
    return len(np.unique(own * classes + codes)) == classes


def fingerprint(features: Any, label: Any) -> str:
    """SHA-256 (hex) of names and values."""
    digest = hashlib.sha256()
    for name, values in (*features.items(), (label.name, label)):
        digest.update(repr(str(name)).encode("utf-8", "backslashreplace"))
        if values.dtype.kind in "iufb":
            # -0 is 0, and there is one NaN.
            number = values.to_numpy(np.float64) + 0.0
            digest.update(np.where(np.isnan(number), np.nan, number).tobytes())
        else:
            text = "\x1f".join("\x00" if value is None else str(value) for value in values.tolist())
            digest.update(text.encode("utf-8", "backslashreplace"))
        digest.update(b"\x1e")
    return digest.hexdigest()
