"""What the text of a cell means: a number, a label, or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
PADDED = re.compile(r"\n[^\S\n]*0[0-9]+[^\S\n]*\n")
DECIMAL_COMMA = re.compile(r"-?(?:0|[1-9][0-9]*)(?:,[0-9]+)?")
# What pandas calls objects that are numbers.
NUMBERS = ("decimal", "floating", "integer", "mixed-integer-float")


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
    """The text of a category; None if it is missing."""
    text = cell_text(value)
    return None if text in MISSING else text


def cell_text(value: Any) -> str | None:
    """The text of a value, whatever it means; None if there is nothing.

    Whole numbers have no point, as a column of them may or may not, depending on its neighbours.
    """
    if isinstance(value, str):
        return value.strip() or None
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
