"""What the text of a cell means: a number, a date, a label, or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[Any]

MISSING = frozenset(
    spelling
    for word in ("", "?", "-", "na", "n/a", "nan", "null")
    for spelling in (word, word.upper(), word.capitalize())
) | {"NaN"}
# A whole number as Python would write it: "007" is a label.
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
# Zip codes and the like begin with zeros.
PADDED = re.compile(r"\n0[0-9]+\n")
DATE = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})"
    r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)? *(?:Z|UTC|[+-]\d{2}:?\d{2})?)?"
)
# What pandas calls objects that are numbers.
NUMBERS = ("decimal", "floating", "integer", "mixed-integer-float")
PARTS = ("year", "month", "day", "weekday", "hour", "days")


def numbers(cells: Sequence[Any], *, padded: bool = False) -> Array | None:
    """Cells as numbers (N,), NaN where missing; None if one of them is no number.

    Parameters
    ----------
    cells : sequence of str or None
    padded : bool
        Whether 007 is a number, too.
    """
    nan = float("nan")
    try:
        values = [nan if c is None or c in MISSING else float(c) for c in cells]
    except ValueError:
        stripped = [c if c is None else c.strip() for c in cells]
        if stripped == list(cells):
            return None
        return numbers(stripped, padded=padded)
    text = "\n".join(["", *filter(None, cells), ""])
    # Python reads 1_000 as a number.
    if "_" in text or (not padded and PADDED.search(text)):
        return None
    return np.array(values, np.float64)


def label_text(value: Any) -> str | None:
    """The text of a category; None if it is missing.

    Whole numbers have no point, as a column of them may or may not, depending on its neighbours.
    """
    if isinstance(value, str):
        text = value.strip()
        return None if text in MISSING else text
    if isinstance(value, (float, np.floating)):
        if np.isnan(value):
            return None
        exact = float(value)
        return str(int(exact)) if exact.is_integer() and abs(exact) < 2**53 else repr(exact)
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    return str(value)


def plain(values: Any) -> Any:
    """A column as int64, float64, bool, datetime64 without a zone, or objects."""
    kind = values.dtype.kind
    if not isinstance(values.dtype, np.dtype):
        if isinstance(values.dtype, pd.DatetimeTZDtype):
            return values.dt.tz_localize(None)
        if isinstance(values.dtype, pd.CategoricalDtype) or kind not in "biuf":
            return values.astype(object)
        if kind == "b":
            return values.astype(object if values.isna().any() else bool)
        return pd.Series(values.to_numpy(np.float64, na_value=np.nan), values.index)
    elif kind == "m":
        return values.dt.total_seconds()
    elif kind == "O" and pd.api.types.infer_dtype(values, skipna=True) in NUMBERS:
        return values.astype(np.float64)
    if kind in "iu":
        return values.astype(np.int64 if values.dtype != np.uint64 else np.float64)
    return values.astype(np.float64) if kind == "f" else values


def missing_cells(values: Any) -> Array:
    """Which rows (N,) of a column are missing."""
    if values.dtype.kind in "biufM":
        return np.asarray(values.isna())
    return np.array([label_text(value) is None for value in values.tolist()], bool)


def date_parts(text: str) -> tuple[float, ...] | None:
    """Year, month, day, weekday, hour, and days since 1970; None if it is no date.

    Dates are year first. Times are those of the clock on the wall: zones are not looked at.

    Examples
    --------
    >>> date_parts("2024-02-29 06:30")
    (2024.0, 2.0, 29.0, 3.0, 6.5, 19782.27...)
    """
    match = DATE.fullmatch(text)
    if match is None:
        return None
    year, _, month, day, *time = match.groups()
    hour, minute, second = (int(part or 0) for part in time)
    try:
        # A leap second is the one before it.
        when = datetime(int(year), int(month), int(day), hour, minute, min(second, 59))
    except ValueError:
        return None
    passed = when - datetime(1970, 1, 1)
    return (
        float(when.year),
        float(when.month),
        float(when.day),
        float(when.weekday()),
        when.hour + when.minute / 60,
        passed.days + passed.seconds / 86_400,
    )
