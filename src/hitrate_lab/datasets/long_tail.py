"""A long tail made of a set, as in CIFAR-100-LT: each class keeps fewer rows than the last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


def counts_of(rows: int, classes: int, imbalance: float) -> list[int]:
    r"""Rows that each class keeps, of a set of that many.

    .. math::

        n_c = \max\big(1, \lfloor N / C \cdot \rho^{-c / (C - 1)} \rfloor\big)

    Parameters
    ----------
    rows, classes : int
        N and C.
    imbalance : float
        :math:`\rho`: how many times as many rows the first class has as the last.

    Examples
    --------
    >>> counts = counts_of(50_000, 100, 100)
    >>> counts[0], counts[1], counts[99], sum(counts)
    (500, 477, 5, 10847)

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma. Learning Imbalanced Datasets with Label-Distribution-Aware
    Margin Loss. 2019. Exponential decay, as in Cui et al., Class-Balanced Loss Based on Effective
    Number of Samples. 2019.
    """
    most, last = rows // classes, max(classes - 1, 1)
    return [max(1, int(most * (1 / imbalance) ** (c / last))) for c in range(classes)]


def long_tailed(labels: Labels, classes: int, imbalance: float) -> NDArray[np.intp]:
    """Places of the rows that stay, in their order: the first ones of each class.

    Parameters
    ----------
    labels : array, shape (N,)
        A class that has fewer rows than it could keep keeps all.
    classes : int
    imbalance : float
        As for `counts_of`.

    Examples
    --------
    >>> long_tailed(np.array([0, 1, 0, 1, 1, 0]), 2, 3.0).tolist()
    [0, 1, 2, 5]
    """
    counts = counts_of(len(labels), classes, imbalance)
    kept = [np.flatnonzero(labels == c)[:count] for c, count in enumerate(counts)]
    return np.sort(np.concatenate(kept))
