"""What the tests of several data sets start from: checked numbers, ranks, differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

# Numbers that differ in no earlier digit than this are equal: 0.3 - 0.2 and 0.2 - 0.1 are.
DIGITS = 12


def checked_scores(scores: ArrayLike, function: str) -> Floats:
    """Scores as an array (n, k), one row per data set and one column per method.

    Raises
    ------
    ValueError
        It is no such table, or a number in it is not finite. The message names `function`.
    """
    x = np.asarray(scores, np.float64)
    call = f"{function}(scores of shape {x.shape})"
    if x.ndim != 2 or not x.size:
        raise ValueError(f"{call}: needs one row per data set and one column per method")
    _refuse_infinite(x, call)
    return x


def mid_ranks(scores: ArrayLike) -> Floats:
    """Ranks in each row, 1 for the highest score; equal scores share their mean rank.

    Parameters
    ----------
    scores : array, shape (n, k)

    Returns
    -------
    array, shape (n, k)

    Examples
    --------
    >>> mid_ranks([[0.9, 0.8, 0.8], [0.5, 0.6, 0.7]])
    array([[1. , 2.5, 2.5],
           [3. , 2. , 1. ]])
    """
    x = checked_scores(scores, "mid_ranks")
    ranks = np.empty_like(x)
    for row, rank in zip(x, ranks, strict=True):
        _, place, counts = np.unique(-row, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        rank[:] = (last - (counts - 1) / 2)[place.reshape(-1)]
    return ranks


def differences(a: ArrayLike, b: ArrayLike, function: str) -> tuple[Floats, int]:
    """Differences (n,) of two methods on the same data sets, free of the noise of subtraction.

    Accuracies have few digits, and differences that are equal on paper should tie. So all are
    rounded to `DIGITS` digits, counted from the first digit of the largest score.

    Returns
    -------
    array, shape (n,)
    int
        Decimals that were kept, for more of such numbers.
    """
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    call = f"{function}(a of shape {x.shape}, b of shape {y.shape})"
    if x.ndim != 1 or x.shape != y.shape or not x.size:
        raise ValueError(f"{call}: needs two scores for each of one or more data sets")
    _refuse_infinite(np.stack([x, y]), call)
    largest = max(np.abs(x).max(), np.abs(y).max())
    decimals = DIGITS - math.ceil(math.log10(largest)) if largest > 0 else DIGITS
    return rounded(x - y, decimals), decimals


def rounded(values: Any, decimals: int) -> Floats:
    """To so many decimals, and without negative zeros."""
    return np.asarray(np.round(values, decimals), np.float64) + 0.0


def _refuse_infinite(x: Floats, call: str) -> None:
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        raise ValueError(f"{call}: the number at {at} is {float(x[at])}; all must be finite")
