"""Several data sets: average ranks and what difference between them counts (Demšar, 2006)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache


def average_ranks(scores: Sequence[Sequence[float]]) -> list[float]:
    """Mean rank of each method, 1 for the highest score; equal scores share their mean rank.

    Parameters
    ----------
    scores : one row per data set, one column per method

    Examples
    --------
    >>> average_ranks([[0.9, 0.8, 0.8], [0.7, 0.6, 0.5]])
    [1.0, 2.25, 2.75]
    """
    from hitrate_lab.statistics import mid_ranks

    return [float(rank) for rank in mid_ranks(scores).mean(0)]


@cache
def critical_difference(methods: int, data_sets: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of two average ranks.

    q sqrt(k (k + 1) / (6 N)) for k methods on N data sets, where q is the studentized range
    statistic with infinite degrees of freedom over sqrt 2.

    Examples
    --------
    >>> critical_difference(4, 14)
    1.25

    References
    ----------
    Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006.
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * data_sets))


def friedman_p(scores: Sequence[Sequence[float]]) -> float | None:
    """Friedman's test that all methods rank the same; None with fewer than three methods.

    Where all scores agree there is nothing to tell apart, and p is 1.
    """
    columns = list(zip(*scores, strict=True))
    if len(columns) < 3 or len(scores) < 2:
        return None
    if all(len(set(row)) == 1 for row in scores):
        return 1.0
    from scipy.stats import friedmanchisquare

    return float(friedmanchisquare(*columns).pvalue)


def indistinct(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """First and last of the largest groups of sorted ranks that lie within one difference.

    Examples
    --------
    >>> indistinct([1.0, 1.5, 2.2, 3.9], 1.0)
    [(0, 1), (1, 2)]
    """
    groups: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = max(i for i in range(first, len(ranks)) if ranks[i] - ranks[first] <= difference)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups
