"""The column to predict: which of its cells are labels, and which labels are classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, quoted
from hitrate_lab.tables.cells import MISSING, cell_text, numbers

Array = NDArray[Any]

# A sign or a word that is no label, unless it is frequent: - and + are often classes.
NO_LABEL = (MISSING - {"", "-"}) | {"None"}
# A label has at least this part of the rows to be believed where it might be none.
RARE = 0.05
# A whole number as Python would write it, with or without a point.
WHOLE_FLOAT = re.compile(r"(0|-?[1-9][0-9]{0,17})(?:\.0+)?")
TRUTH = {"true": "1", "false": "0"}
# Numbers with more values than this may be quantities; above the second number they are.
MANY_VALUES, TOO_MANY_VALUES = 20, 100
# More classes need so many rows each on average: fewer teach nothing, and take hours.
MANY_CLASSES, ROWS_OF_EACH = 100, 5
# In the place of a class's number.
UNKNOWN, UNLABELLED = -1, -2


def unlabelled(values: Any, target: str) -> tuple[Array, list[str]]:
    """Which rows (N,) of the target have no label, and notes about it.

    Empty cells have none. NA, ? and the like are none if fewer than 5 % of the rows have them, or
    one row alone. Otherwise they are labels, as - is in any case.

    Parameters
    ----------
    values : Series
        As it was read: only empty cells are None or NaN.
    target : str
        Its name.
    """
    if values.dtype.kind in "biufM":
        empty = np.asarray(values.isna())
        return empty, _left_out(Counter({None: int(empty.sum())}), target)
    texts = [cell_text(value) for value in values.tolist()]
    counts = Counter(texts)
    none = {
        text
        for text, count in counts.items()
        if text is None or (text in NO_LABEL and (count == 1 or count < RARE * len(texts)))
    }
    classes = sorted(text for text in counts if text in MISSING and text not in none)
    notes = [f"{quoted(text)} is taken as a class of {quoted(target)}" for text in classes]
    left_out = Counter({text: counts[text] for text in none})
    return np.array([text in none for text in texts], bool), _left_out(left_out, target) + notes


def _left_out(counts: Counter[str | None], target: str) -> list[str]:
    """A note on rows that have no label, if there are some."""
    if not counts.total():
        return []
    note = f"{rows_of(counts.total())} without a value of {quoted(target)} left out"
    if set(counts) == {None}:
        return [note]
    order = sorted(counts.items(), key=lambda each: (-each[1], str(each[0])))
    found = ("empty" if text is None else quoted(text) for text, _ in order)
    return [
        f"{note}: {', '.join(f'{n} {each}' for each, (_, n) in zip(found, order, strict=True))}"
    ]


def labels(values: Any) -> Any:
    """Labels, none missing: whole numbers as int, bools as bool, others as text."""
    if values.dtype == bool:
        return values
    if values.dtype.kind in "iuf":
        number = values.to_numpy(np.float64)
        if (number == np.round(number)).all() and (np.abs(number) < 2**53).all():
            return values.astype(np.int64)
    text = [str(cell_text(value)) for value in values.tolist()]
    whole = [WHOLE_FLOAT.fullmatch(each) for each in text]
    if all(whole):
        found = [int(each[1]) for each in whole if each]
        return pd.Series(found, dtype=np.int64, name=values.name)
    return pd.Series(text, dtype=object, name=values.name)


def class_numbers(values: Sequence[Any], classes: Sequence[Any]) -> Array:
    """The number (n,) of the class that each value names, in whichever way it is written.

    1.0 is 1, and where the classes are true and false, or 1 and 0, each is written in all these
    ways. `UNKNOWN` stands for other labels, `UNLABELLED` for none.

    Examples
    --------
    >>> class_numbers(["true", "1.0", 0, None, "x"], [False, True])
    array([ 1,  1,  0, -2, -1])
    """
    texts = [str(each) for each in classes]
    two = {_short(text, TRUTH) for text in texts} == {"0", "1"}
    truth = TRUTH if two and len(texts) == 2 else {}
    short = {_short(text, truth): number for number, text in enumerate(texts)}
    exact = {text: number for number, text in enumerate(texts)}
    # 1 and 1.0 are two classes, if both are there.
    known = exact | (short if len(short) == len(texts) else {})
    found: dict[str | None, int] = {None: UNLABELLED}
    for text in set(map(cell_text, values)) - {None}:
        text = str(text)
        other = UNLABELLED if text in NO_LABEL else UNKNOWN
        found[text] = known.get(text, known.get(_short(text, truth), other))
    return np.array([found[cell_text(value)] for value in values], np.int64)


def _short(text: str, truth: dict[str, str]) -> str:
    whole = WHOLE_FLOAT.fullmatch(text)
    return whole[1] if whole else truth.get(text.lower(), text)


def refuse_quantities(label: Any, target: str, name: str) -> None:
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


def refuse_classes(
    label: Any, target: str, name: str, fewest: int, notes: Sequence[str] = ()
) -> None:
    """At least two classes, each with enough rows; notes say what became of other rows."""
    counts = Counter(label.tolist())
    if len(counts) < 2:
        one = f"{name}: every row has the same target, {quoted(target)} = {quoted(*counts)}"
        raise BadInput("; ".join([one, *notes]))
    rows, many = len(label), len(counts)
    if many == rows > MANY_VALUES:
        raise BadInput(
            f"{name}: {quoted(target)} is different in every row, so it names rows and no classes; "
            "choose another target"
        )
    if many > MANY_CLASSES and rows < ROWS_OF_EACH * many:
        raise BadInput(
            f"{name}: {quoted(target)} has {many:,} classes in {rows:,} rows, and so many need "
            f"{ROWS_OF_EACH} rows each on average; choose another target, or merge rare classes"
        )
    small = sorted(each for each, count in counts.items() if count < fewest)
    if small:
        one = f"class {quoted(small[0])} of {quoted(target)} has {rows_of(counts[small[0]])}"
        others = len(small) - 1
        classes = "class has" if others == 1 else "classes have"
        more = f", and {others} more {classes} too few" if others else ""
        raise BadInput(
            f"{name}: {one}{more}; each needs at least {fewest}: add, merge or remove rows"
        )


def rows_of(count: int) -> str:
    """So many rows, in words."""
    return f"{count} row" if count == 1 else f"{count} rows"
