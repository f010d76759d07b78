"""The corrected resampled t-test, its intervals, and Holm's adjustment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Estimate:
    """A mean over folds, and what can be said about it.

    `std` is the standard deviation over folds; `low` and `high` are the interval for the mean, and
    `p` is the two-sided p-value of a mean of zero. One fold alone has a mean and nothing else.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int


def corrected_estimate(values: ArrayLike, test_to_train: float, *, level: float = 0.95) -> Estimate:
    r"""Mean of folds' accuracies, or of their differences, with the correction for shared rows.

    Training parts of different folds have most rows in common, so values :math:`d_1 \dots d_n` are
    not independent, and their variance s² over n is too small for that of the mean. Nadeau and
    Bengio replace 1 / n:

    .. math::

        t = \frac{\bar d}{\sqrt{\left(\frac1n + \frac{n_\text{test}}{n_\text{train}}\right) s^2}},
        \qquad n - 1 \text{ degrees of freedom}

    With k folds, repeated or not, the ratio of test rows to training rows is 1 / (k - 1).

    Parameters
    ----------
    values : array, shape (n,)
        One number per fold, all repeats together.
    test_to_train : float
        Rows in a test fold over rows that were trained on; 0 is the uncorrected test.
    level : float
        Of the interval.

    Returns
    -------
    Estimate
        Values that are all 0 have p = 1 and an interval of no width. Values that are all the same
        otherwise have no interval, and the p of the sign test.

    Examples
    --------
    >>> from hitrate_lab.statistics import corrected_estimate
    >>> gain = corrected_estimate([0.02, 0.01, 0.03, 0.02, 0.01], test_to_train=1 / 4)
    >>> round(gain.mean, 4), round(gain.p, 4)
    (0.018, 0.0327)

    References
    ----------
    Nadeau, Bengio. Inference for the Generalization Error. Machine Learning 52, 2003.
    Bouckaert, Frank. Evaluating the Replicability of Significance Tests for Comparing Learning
    Algorithms. PAKDD 2004.
    """
    # Not scipy.stats, which takes longer to import than all of this to run.
    from scipy.special import stdtr, stdtrit

    x = np.asarray(values, np.float64)
    call = f"corrected_estimate(values of shape {x.shape}, test_to_train={test_to_train!r})"
    if x.ndim != 1 or not len(x):
        raise ValueError(f"{call}: needs one number for each of one or more folds")
    if not np.isfinite(x).all():
        raise ValueError(f"{call}: value {np.flatnonzero(~np.isfinite(x))[0]} is not finite")
    if not 0 <= test_to_train < math.inf or not 0 < level < 1:
        raise ValueError(f"{call}, level={level!r}: needs a ratio >= 0, and 0 < level < 1")
    n, mean = len(x), float(x.mean())
    if n == 1:
        return Estimate(mean, None, None, None, None, 1)
    if (x == x[0]).all():
        mean = float(x[0])
        # Folds that agree by chance have no spread to judge by: their signs are all there is.
        if mean == 0:
            return Estimate(mean, 0.0, mean, mean, 1.0, n)
        return Estimate(mean, 0.0, None, None, 2.0 ** (1 - n), n)
    std = float(x.std(ddof=1))
    error = std * math.sqrt(1 / n + test_to_train)
    reach = float(stdtrit(n - 1, 0.5 + 0.5 * level)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Estimate(mean, std, mean - reach, mean + reach, p, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, by Holm's step-down rule.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none becomes smaller than
    one before it, or larger than 1.

    Parameters
    ----------
    p_values : sequence of float

    Returns
    -------
    list of float
        In the order given.

    Examples
    --------
    >>> from hitrate_lab.statistics import holm
    >>> holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]

    References
    ----------
    Holm. A Simple Sequentially Rejective Multiple Test Procedure. 1979.
    """
    p = np.asarray(p_values, np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"holm({list(p_values)!r}): needs numbers from 0 to 1")
    order = np.argsort(p, kind="stable")
    steps = p[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(each) for each in adjusted]
