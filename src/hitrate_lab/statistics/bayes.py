"""The Bayesian signed-rank test: how probable it is that a method is practically better."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hitrate_lab.statistics.scores import differences, rounded


@dataclass(frozen=True)
class SignedRank:
    """Probabilities that sum to 1, and their Monte Carlo standard errors.

    `better` is the probability that method `a` being practically better than `b` is the most
    probable of the three cases; `equal` and `worse` likewise. `error` is the largest standard
    error of the three. `mean` has the posterior means of the cases' own probabilities, in the
    order worse, equal, better.
    """

    worse: float
    equal: float
    better: float
    error: float
    mean: tuple[float, float, float]


def signed_rank(
    a: ArrayLike,
    b: ArrayLike,
    *,
    rope: float = 0.0,
    prior: float = 0.5,
    samples: int = 50_000,
    seed: int = 0,
) -> SignedRank:
    r"""Compare methods `a` and `b` on the same n data sets.

    The distribution of differences has a Dirichlet process as prior, of strength s and with all its
    mass at :math:`d_0 = 0`. Given the differences :math:`d_1 \dots d_n`, the posterior is weights
    :math:`w \sim \text{Dirichlet}(s, 1, \dots, 1)` on :math:`d_0 \dots d_n`, and

    .. math::

        \theta_\text{better} = \sum_{i, j = 0}^n w_i w_j [d_i + d_j > 2 r], \qquad
        \theta_\text{worse} = \sum_{i, j = 0}^n w_i w_j [d_i + d_j < -2 r]

    with what is left for differences within the region of practical equivalence [-r, r]. The
    result counts which of the three θ is the largest in draws of w; where two are, each has half.

    Parameters
    ----------
    a, b : array, shape (n,)
        Scores, one per data set.
    rope : float
        r, such as 0.01 for one percent of accuracy. 0 leaves ties as equivalent.
    prior : float
        s, in data sets' worth.
    samples : int
        Draws from the posterior.
    seed : int
        Of the draws.

    Returns
    -------
    SignedRank

    Examples
    --------
    >>> from hitrate_lab.statistics import signed_rank
    >>> a, b = [0.91, 0.82, 0.76, 0.95, 0.88], [0.89, 0.78, 0.75, 0.91, 0.87]
    >>> test = signed_rank(a, b, rope=0.01)
    >>> round(test.better, 2), round(test.equal, 2), round(test.worse, 2)
    (0.86, 0.14, 0.0)

    References
    ----------
    Benavoli, Corani, Mangili, Zaffalon, Ruggeri. A Bayesian Wilcoxon Signed-Rank Test Based on the
    Dirichlet Process. ICML 2014.
    Benavoli, Corani, Demšar, Zaffalon. Time for a Change: a Tutorial for Comparing Multiple
    Classifiers Through Bayesian Analysis. JMLR 18, 2017.
    """
    d, decimals = differences(a, b, "signed_rank")
    if not 0 <= rope < math.inf or not 0 < prior < math.inf or samples < 1:
        raise ValueError(
            f"signed_rank(rope={rope!r}, prior={prior!r}, samples={samples!r}): "
            "needs rope >= 0, prior > 0 and one or more samples"
        )
    d = np.append(0.0, d)
    sums = rounded(d[:, None] + d, decimals)
    edge = rounded(2 * rope, decimals)
    strength = np.append(prior, np.ones(len(d) - 1))
    random = np.random.default_rng(seed)
    counts, means = np.zeros(3), np.zeros(3)
    # Few draws at a time: all of them for all data sets may not fit into memory.
    step = max(1, 1_000_000 // len(d))
    for start in range(0, samples, step):
        w = random.dirichlet(strength, min(step, samples - start))  # (step, n + 1)
        worse, better = (((w @ case) * w).sum(1) for case in (sums < -edge, sums > edge))
        theta = np.stack([worse, 1 - worse - better, better], 1)  # (step, 3)
        # The third is a difference, and equal only up to its rounding.
        largest = theta >= theta.max(1, keepdims=True) - 1e-12
        counts += (largest / largest.sum(1, keepdims=True)).sum(0)
        means += theta.sum(0)
    won = counts / samples
    error = float(np.sqrt(won * (1 - won) / samples).max())
    p_worse, p_equal, p_better = won.tolist()
    mean_worse, mean_equal, mean_better = (means / samples).tolist()
    return SignedRank(p_worse, p_equal, p_better, error, (mean_worse, mean_equal, mean_better))
