"""Friedman's test that methods rank the same over data sets, with Iman and Davenport's form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from hitrate_lab.statistics.scores import checked_scores, mid_ranks


@dataclass(frozen=True)
class Friedman:
    """What Friedman's test says.

    `ranks` are the methods' mean ranks, 1 the best. `statistic` and `p` are those of χ² with k - 1
    degrees of freedom; `f` and `f_p` are Iman and Davenport's, which is less cautious.
    """

    ranks: tuple[float, ...]
    statistic: float
    p: float
    f: float
    f_p: float
    data_sets: int
    methods: int


def friedman(scores: ArrayLike) -> Friedman:
    r"""Test that k methods do equally well on n data sets.

    With :math:`r_{ij}` the rank of method j on data set i, ties as mid-ranks, and
    :math:`R_j = \sum_i r_{ij}`:

    .. math::

        \chi^2 = \frac{(k - 1) \sum_j \left(R_j - n \frac{k + 1}2\right)^2}
                      {\sum_{ij} r_{ij}^2 - n k \frac{(k + 1)^2}4},
        \qquad
        F = \frac{(n - 1) \chi^2}{n (k - 1) - \chi^2}

    where F has k - 1 and (k - 1)(n - 1) degrees of freedom.

    Parameters
    ----------
    scores : array, shape (n, k)
        Higher is better. One row per data set, one column per method.

    Returns
    -------
    Friedman
        Where all scores of each data set are the same, or there is one method, the statistics are 0
        and p is 1. With one data set the statistic is the same for every order of the methods, so p
        is 1. Where all data sets agree, F is infinite.

    Examples
    --------
    >>> from hitrate_lab.statistics import friedman
    >>> test = friedman([[0.9, 0.8, 0.7], [0.8, 0.7, 0.6], [0.9, 0.5, 0.6], [0.7, 0.8, 0.5]])
    >>> test.ranks
    (1.25, 2.0, 2.75)
    >>> round(test.statistic, 3), round(test.p, 4), round(test.f, 3), round(test.f_p, 4)
    (4.5, 0.1054, 3.857, 0.0837)

    References
    ----------
    Conover. Practical Nonparametric Statistics. Third edition, 1999, section 5.8.
    Iman, Davenport. Approximations of the Critical Region of the Friedman Statistic. 1980.
    Demšar. Statistical Comparisons of Classifiers over Multiple Data Sets. JMLR 7, 2006.
    """
    # Not scipy.stats, which takes longer to import than all of this to run.
    from scipy.special import chdtrc, fdtrc

    x = checked_scores(scores, "friedman")
    n, k = x.shape
    ranks = mid_ranks(x)
    sums = ranks.sum(0)
    means = tuple(float(each) for each in sums / n)
    # Ranks are halves of whole numbers: these differences have no rounding error.
    spread = float((ranks**2).sum()) - n * k * (k + 1) ** 2 / 4
    if spread == 0:
        return Friedman(means, 0.0, 1.0, 0.0, 1.0, n, k)
    between = float(((sums - n * (k + 1) / 2) ** 2).sum())
    statistic = (k - 1) * between / spread
    if n == 1:
        return Friedman(means, statistic, 1.0, 0.0, 1.0, n, k)
    p = float(chdtrc(k - 1, statistic))
    # The same as n (k - 1) - χ² over k - 1, up to its rounding.
    left = n * spread - between
    if left == 0:
        return Friedman(means, statistic, p, math.inf, 0.0, n, k)
    f = (n - 1) * between / left
    return Friedman(means, statistic, p, f, float(fdtrc(k - 1, (k - 1) * (n - 1), f)), n, k)
