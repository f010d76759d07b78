"""Spearman's rank correlation, and bootstrap intervals where values come in groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from hitrate_lab.statistics.effects import Interval
from hitrate_lab.statistics.scores import Floats


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    r"""Correlation of the ranks of x and y (n,), those that tie sharing their mean rank.

    0 where one of them does not vary.

    Examples
    --------
    >>> from hitrate_lab.statistics import spearman
    >>> spearman([1.0, 2.0, 3.0, 9.0], [0.1, 0.3, 0.2, 0.4])
    0.8
    """
    from scipy.stats import rankdata

    ranks = [rankdata(np.asarray(each, np.float64)) for each in (x, y)]
    a, b = (rank - rank.mean() for rank in ranks)
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return round(float(a @ b) / scale, 12) if scale else 0.0


def grouped_interval(
    statistic: Callable[[Floats], float],
    values: ArrayLike,
    groups: Sequence[str],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """A statistic of rows with its percentile bootstrap interval; whole groups are drawn.

    Parameters
    ----------
    statistic : callable
        Of rows (n, k).
    values : array, shape (n, k)
    groups : sequence of str
        Rows of a group, such as two models of one data set, are not independent.
    level : float
    resamples : int
    seed : int

    Examples
    --------
    >>> import numpy as np
    >>> from hitrate_lab.statistics import grouped_interval
    >>> rows = np.arange(40.0)[:, None]
    >>> found = grouped_interval(lambda x: float(x.mean()), rows, [str(k // 2) for k in range(40)])
    >>> found.value, found.low < 16 < 23 < found.high
    (19.5, True)
    """
    rows = np.asarray(values, np.float64)
    if rows.ndim != 2 or len(rows) != len(groups) or not len(rows):
        raise ValueError(
            f"grouped_interval: needs rows (n, k) and n groups, got {rows.shape} and {len(groups)}"
        )
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    members = list(places.values())
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        some = random.integers(len(members), size=len(members))
        drawn.append(statistic(rows[[place for k in some for place in members[k]]]))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(statistic(rows), float(low), float(high))
