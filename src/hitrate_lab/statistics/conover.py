"""Which methods differ, after Friedman's test: Conover's comparison of all pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hitrate_lab.statistics.scores import Floats, checked_scores, mid_ranks


@dataclass(frozen=True, eq=False)
class Conover:
    """P-values of all pairs of methods.

    `ranks` are the mean ranks, 1 the best; `order` has the methods' columns, best first. `p` and
    `adjusted` are symmetric with 1 on the diagonal; `adjusted` is by Benjamini and Hochberg.
    """

    ranks: tuple[float, ...]
    order: tuple[int, ...]
    p: Floats
    adjusted: Floats

    def groups(self, alpha: float = 0.05) -> list[tuple[int, ...]]:
        """Largest groups of methods of which no two are told apart at level `alpha`.

        These are the bars of a critical-difference diagram. A pair's p depends on its ranks alone
        and is smaller the further they are apart, so each group is a run of the ranking, and these
        are all cliques that are in no larger one.

        Returns
        -------
        list of tuple of int
            Columns of two or more methods, best first. Groups may overlap.
        """
        if not 0 < alpha < 1:
            raise ValueError(f"groups(alpha={alpha!r}): needs 0 < alpha < 1")
        found: list[tuple[int, ...]] = []
        end = 0
        for start, first in enumerate(self.order):
            last = max(
                place
                for place in range(start, len(self.order))
                if self.adjusted[first, self.order[place]] >= alpha
            )
            if last > start and last + 1 > end:
                end = last + 1
                found.append(self.order[start:end])
        return found


def conover(scores: ArrayLike) -> Conover:
    r"""Compare all pairs of k methods on n data sets by their ranks.

    With rank sums :math:`R_j` as in `friedman`, ties as mid-ranks, two methods differ by

    .. math::

        t_{jl} = |R_j - R_l| \sqrt{\frac{(n - 1)(k - 1)}
                                        {2 \left(n \sum_{im} r_{im}^2 - \sum_m R_m^2\right)}}

    with (n - 1)(k - 1) degrees of freedom.

    Parameters
    ----------
    scores : array, shape (n, k)
        Higher is better. One row per data set, one column per method.

    Returns
    -------
    Conover
        With one data set, or where all scores of each data set are the same, every p is 1. Where
        all data sets rank the methods the same, there is no error to compare with: p is 0 for
        methods whose ranks differ.

    Examples
    --------
    >>> from hitrate_lab.statistics import conover
    >>> scores = [[0.9, 0.8, 0.3], [0.7, 0.8, 0.4], [0.9, 0.8, 0.5], [0.8, 0.9, 0.5]]
    >>> pairs = conover(scores)
    >>> pairs.p.round(4)
    array([[1.    , 1.    , 0.0104],
           [1.    , 1.    , 0.0104],
           [0.0104, 0.0104, 1.    ]])
    >>> pairs.groups()
    [(0, 1)]

    References
    ----------
    Conover. Practical Nonparametric Statistics. Third edition, 1999, section 5.8.
    Benjamini, Hochberg. Controlling the False Discovery Rate. 1995.
    """
    from scipy.special import stdtr

    x = checked_scores(scores, "conover")
    n, k = x.shape
    ranks = mid_ranks(x)
    sums = ranks.sum(0)
    apart = np.abs(sums[:, None] - sums)
    # Ranks are halves of whole numbers: this difference has no rounding error.
    left = n * float((ranks**2).sum()) - float((sums**2).sum())
    freedom = (n - 1) * (k - 1)
    if n == 1:
        p = np.ones((k, k))
    elif left == 0:
        p = np.where(apart > 0, 0.0, 1.0)
    else:
        p = 2 * np.asarray(stdtr(freedom, -apart * math.sqrt(freedom / (2 * left))))
    upper = np.triu_indices(k, 1)
    adjusted = np.ones((k, k))
    adjusted[upper] = benjamini_hochberg(p[upper].tolist())
    adjusted.T[upper] = adjusted[upper]
    order = np.argsort(sums, kind="stable")
    return Conover(
        tuple(float(each) for each in sums / n), tuple(int(each) for each in order), p, adjusted
    )


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted so that those below a level have a false discovery rate of that level.

    The largest of m is multiplied by m / m, the next by m / (m - 1), and so on down to m / 1; none
    becomes larger than one before it.

    Parameters
    ----------
    p_values : sequence of float

    Returns
    -------
    list of float
        In the order given.

    Examples
    --------
    >>> from hitrate_lab.statistics import benjamini_hochberg
    >>> benjamini_hochberg([0.04, 0.01, 0.03])
    [0.04, 0.03, 0.04]
    """
    p = np.asarray(p_values, np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"benjamini_hochberg({list(p_values)!r}): needs numbers from 0 to 1")
    order = np.argsort(-p, kind="stable")
    m = len(p)
    adjusted = np.empty(m)
    adjusted[order] = np.minimum.accumulate(p[order] * m / np.arange(m, 0, -1))
    return [float(each) for each in adjusted]
