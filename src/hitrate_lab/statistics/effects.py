"""How large the difference of two methods is over data sets, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hitrate_lab.statistics.scores import Floats, differences


@dataclass(frozen=True)
class Interval:
    """A number and the ends of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """How much one method is better than another; all numbers are positive where it is."""

    mean: Interval
    median: Interval
    rank_biserial: Interval
    wins: int
    ties: int
    losses: int


def paired_effect(
    a: ArrayLike,
    b: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Effect:
    r"""Sizes of the difference between methods `a` and `b` on the same n data sets.

    The matched-pairs rank-biserial correlation compares the rank sums of Wilcoxon's signed-rank
    test: with :math:`d_i = a_i - b_i`, zeros left out and the others ranked by :math:`|d_i|`,

    .. math::

        r = \frac{\sum_{d_i > 0} \text{rank}_i - \sum_{d_i < 0} \text{rank}_i}{\sum_i \text{rank}_i}

    It is 1 where `a` always wins, 0 where nothing is different. Intervals are BCa (bias-corrected
    and accelerated) bootstrap intervals: data sets are drawn with replacement.

    Parameters
    ----------
    a, b : array, shape (n,)
        Scores, one per data set.
    level : float
        Of the intervals.
    resamples : int
        Draws; more make the ends of the intervals steadier.
    seed : int
        Of the draws.

    Returns
    -------
    Effect
        With one data set, or where all differences are the same, intervals have no width.

    Examples
    --------
    >>> from hitrate_lab.statistics import paired_effect
    >>> effect = paired_effect([0.9, 0.8, 0.7, 0.6, 0.9], [0.85, 0.8, 0.72, 0.5, 0.7])
    >>> effect.wins, effect.ties, effect.losses
    (3, 1, 1)
    >>> round(effect.mean.value, 3), effect.median.value, effect.rank_biserial.value
    (0.066, 0.05, 0.8)

    References
    ----------
    Kerby. The Simple Difference Formula. Comprehensive Psychology 3, 2014.
    Efron, Tibshirani. An Introduction to the Bootstrap. 1993, chapter 14.
    """
    d, _ = differences(a, b, "paired_effect")
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(
            f"paired_effect(level={level!r}, resamples={resamples!r}): "
            "needs 0 < level < 1 and one or more resamples"
        )
    n = len(d)
    drawn = d[np.random.default_rng(seed).integers(n, size=(resamples, n))]  # (resamples, n)
    # Each row lacks one of the data sets; with one there is nothing to leave out.
    without = d[np.array([np.delete(np.arange(n), i) for i in range(n)])] if n > 1 else d[:, None]

    def interval(statistic: Callable[[Floats], Floats]) -> Interval:
        value = float(statistic(d[None])[0])
        return Interval(value, *_bca(value, statistic(drawn), statistic(without), level))

    return Effect(
        interval(lambda rows: np.asarray(rows.mean(1))),
        interval(lambda rows: np.asarray(np.median(rows, 1))),
        interval(rank_biserial),
        int((d > 0).sum()),
        int((d == 0).sum()),
        int((d < 0).sum()),
    )


def rank_biserial(rows: Floats) -> Floats:
    """The matched-pairs rank-biserial correlation of each row of differences; 0 if all are 0.

    Parameters
    ----------
    rows : array, shape (m, n)

    Returns
    -------
    array, shape (m,)
    """
    from scipy.stats import rankdata

    zeros = (rows == 0).sum(1, keepdims=True)
    # Zeros have the lowest ranks, which are taken off those of the others.
    ranks = np.where(rows == 0, 0.0, rankdata(np.abs(rows), axis=1) - zeros)
    total = ranks.sum(1)
    signed = (np.sign(rows) * ranks).sum(1)
    return np.asarray(np.divide(signed, total, out=np.zeros_like(total), where=total > 0))


def _bca(value: float, drawn: Floats, without: Floats, level: float) -> tuple[float, float]:
    """Ends of the interval from values of the draws and of all data sets but one."""
    from scipy.special import ndtr, ndtri

    if (drawn == drawn[0]).all():
        return value, value
    below = ((drawn < value).mean() + (drawn <= value).mean()) / 2
    apart = without.mean() - without
    scale = float((apart**2).sum())
    acceleration = float((apart**3).sum()) / (6 * scale**1.5) if scale > 0 else 0.0
    # With few draws the value may lie beyond all of them, and the bias would be infinite.
    bias = ndtri(np.clip(below, 1 / (2 * len(drawn)), 1 - 1 / (2 * len(drawn))))
    z = bias + ndtri([(1 - level) / 2, (1 + level) / 2])
    low, high = np.quantile(drawn, ndtr(bias + z / (1 - acceleration * z)))
    return float(low), float(high)
