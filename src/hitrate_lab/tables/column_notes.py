"""What is worth knowing about a table's columns before anything is learned from them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from hitrate_lab.bad_input import listed, quoted
from hitrate_lab.tables.cells import numbers
from hitrate_lab.tables.dates import EXAMPLES, UNCLEAR, order_of_dates
from hitrate_lab.tables.labels import MANY_VALUES
from hitrate_lab.tables.prose import DIRECTIONS, FEWEST_TEXTS

NO_USE = "no column is of use: each is the same in every row or different in every row"
# A column of text is spoiled numbers if no larger part of its values is none.
MOSTLY_NUMBERS = 0.1
# A text of so many words is read word by word, however often it occurs.
WORDS = 4
# More different texts than this are no levels of a category, or only rarely.
LEVELS = 40
# Text that differs in each of so many rows is a name of the row.
FEWEST_IDS = 20
# 1,000 or 1.000,5 or 5 % or $ 3.20
SIGNED = re.compile(
    r"[-+]?(?:[$\u20ac\u00a3\u00a5] ?)?[-+]?"
    r"(?:[1-9][0-9]{0,2}(?:[,.' \u00a0\u202f][0-9]{3})+|0|[1-9][0-9]*)"
    r"(?:[.,][0-9]+)? ?[%\u2030$\u20ac\u00a3\u00a5]?"
)
# So many values show what a column looks like.
ENOUGH = 1000


def about_columns(features: Any, label: Any, target: str) -> tuple[list[str], list[str]]:
    """Notes on columns that say nothing, too much, or what they do not seem to say.

    Parameters
    ----------
    features : DataFrame
    label : Series
    target : str
        Its name.

    Returns
    -------
    notes : list of str
    unused : list of str
        Columns that are the same, or text that is different, in every row.
    """
    constant, ids, leaks, spoiled, signed, unclear = [], [], [], [], [], []
    directed: list[str] = []
    counted: list[str] = []
    codes, classes = pd.factorize(label)
    for column in features.columns:
        values = features[column]
        own, levels = pd.factorize(values)
        if len(levels) + int((own < 0).any()) < 2:
            constant.append(column)
        elif _one_to_one(own, codes, len(classes)):
            leaks.append(column)
        elif values.dtype == object:
            texts = [str(level) for level in levels]
            counts = dict(zip(texts, np.bincount(own[own >= 0]).tolist(), strict=True))
            order = order_of_dates(counts)
            if order in EXAMPLES:
                continue
            if order == UNCLEAR:
                unclear.append(f"{quoted(column)} (such as {quoted(texts[0])})")
            elif example := _with_signs(texts):
                signed.append(f"{quoted(column)} (such as {quoted(example)})")
            if is_id(texts, int((own >= 0).sum())):
                ids.append(column)
            elif strange := _between_numbers(texts):
                spoiled.append(f"{quoted(column)} because of {listed(strange, 3)}")
            elif len(texts) > LEVELS and is_free_text(texts, int((own >= 0).sum())):
                (directed if len(texts) >= FEWEST_TEXTS else counted).append(column)
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
    for made_of, columns in (
        (f"words and pairs of words along up to {DIRECTIONS} directions", directed),
        ("counts of words", counted),
    ):
        if columns:
            notes.append(
                f"free text, read as {made_of} (--no-text leaves it out): {listed(columns)}"
            )
    if signed:
        notes.append(
            f"{_few(signed)} looks like numbers with signs; it is text until these are removed"
        )
    if unclear:
        notes.append(
            f"{_few(unclear)} looks like dates, but which is the day and which the month cannot be "
            "told; write them as 2024-12-31"
        )
    if spoiled:
        notes.append(
            f"text, though most of it is numbers: {_few(spoiled)}; "
            "leave such cells empty if they are missing"
        )
    return notes, constant + ids


def free_texts(features: Any) -> list[str]:
    """Names of the columns that are free text."""
    found = []
    for column in features.columns:
        if features[column].dtype == object:
            own, levels = pd.factorize(features[column])
            texts, present = [str(level) for level in levels], int((own >= 0).sum())
            counts = dict(zip(texts, np.bincount(own[own >= 0]).tolist(), strict=True))
            dates = order_of_dates(counts) in EXAMPLES
            if len(texts) > LEVELS and not dates and is_free_text(texts, present):
                found.append(column)
    return found


def _few(columns: list[str]) -> str:
    more = len(columns) - 3
    rest = f" and {more} more column{'s' * (more > 1)}" if more > 0 else ""
    return f"{'; '.join(columns[:3])}{rest}"


def _with_signs(levels: list[str]) -> str | None:
    """An example, if many texts are numbers but for signs such as % and those between thousands."""
    if len(levels) < MANY_VALUES:
        return None
    some = levels[:ENOUGH]
    strange = [level for level in some if numbers([level]) is None]
    signs = [level for level in strange if SIGNED.fullmatch(level)]
    few = len(strange) <= MOSTLY_NUMBERS * len(some)
    if few or len(signs) < (1 - MOSTLY_NUMBERS) * len(strange):
        return None
    return signs[0]


def _between_numbers(levels: list[str]) -> list[str]:
    """The texts that are no numbers, if there are many numbers and few of these."""
    if len(levels) < MANY_VALUES:
        return []
    strange = [level for level in levels if numbers([level]) is None]
    return strange if len(strange) <= MOSTLY_NUMBERS * len(levels) else []


def is_free_text(levels: Any, present: int) -> bool:
    """Whether text is to be read word by word: it has spaces, and hardly repeats or is long.

    Parameters
    ----------
    levels : iterable of str
        The texts that differ.
    present : int
        How many there are.
    """
    if not spaced(levels):
        return False
    words = sum(len(str(level).split()) for level in levels) / len(levels)
    return len(levels) >= present / 2 or words >= WORDS


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
