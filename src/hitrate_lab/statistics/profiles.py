"""Dolan and Moré's performance profiles, for scores of which the highest is best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hitrate_lab.statistics.scores import Floats, checked_scores


@dataclass(frozen=True, eq=False)
class Profile:
    """A step function: the share of data sets with a score of at least τ times the best.

    Between two `thresholds` the share is that of the upper one; above the last it is 0. So
    ``plt.step(profile.thresholds, profile.shares, where="pre")`` draws it.
    """

    thresholds: Floats  # increasing
    shares: Floats  # decreasing from 1

    def at(self, tau: ArrayLike) -> Floats:
        """Shares for thresholds `tau`, of the same shape."""
        place = np.searchsorted(self.thresholds, np.asarray(tau, np.float64), side="left")
        return np.asarray(np.append(self.shares, 0.0)[place])


def profiles(scores: ArrayLike) -> list[Profile]:
    r"""One profile for each method, exact.

    For method j, with :math:`s_{ij}` its score on data set i of n:

    .. math::

        \rho_j(\tau) = \frac1n \left|\left\{i : s_{ij} \ge \tau \max_l s_{il}\right\}\right|

    :math:`\rho_j(1)` is the share of data sets on which no other method is better. The form is that
    of Figure 2 of "Mixing between the Cross Entropy and the Expectation Loss Terms".

    Parameters
    ----------
    scores : array, shape (n, k)
        From 0 up, such as accuracies. One row per data set, one column per method.

    Returns
    -------
    list of Profile
        Where the best score of a data set is 0, every method has it, and its ratio is 1.

    Examples
    --------
    >>> from hitrate_lab.statistics import profiles
    >>> first, second = profiles([[0.8, 0.4], [0.9, 0.9], [0.5, 0.6]])
    >>> second.thresholds, second.shares
    (array([0.5, 1. ]), array([1. , 0.66666667]))
    >>> first.at([0.5, 0.9, 1.0])
    array([1. , 0.66666667, 0.66666667])

    References
    ----------
    Dolan, Moré. Benchmarking Optimization Software with Performance Profiles. 2002.
    """
    x = checked_scores(scores, "profiles")
    if (x < 0).any():
        at = tuple(int(i) for i in np.argwhere(x < 0)[0])
        raise ValueError(
            f"profiles(scores of shape {x.shape}): the score at {at} is {float(x[at])}; "
            "ratios to the best need scores >= 0"
        )
    best = x.max(1, keepdims=True)
    ratios = np.divide(x, best, out=np.ones_like(x), where=best > 0)
    found = []
    for column in ratios.T:
        thresholds, counts = np.unique(column, return_counts=True)
        found.append(Profile(thresholds, np.cumsum(counts[::-1])[::-1] / len(column)))
    return found
