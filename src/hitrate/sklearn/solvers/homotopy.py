"""From a convex start along a falling sigma: full batch, every stage from the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate.sklearn.goals import SoftF1
from hitrate.sklearn.solvers.objective import Minimum, Objective
from hitrate.sklearn.solvers.row_losses import RowLoss, cross_entropy

Array = NDArray[Any]

# Without L2 separable classes have their likelihood's maximum at infinity.
SMALLEST_L2 = 1e-7


def convex_start(
    objective: Objective, theta: Array | None, *, l2: float, max_iter: int, tol: float
) -> Minimum:
    """The minimum of cross entropy, from theta or from zero."""
    table = objective.table
    if theta is None:
        theta = np.zeros((table.features + 1, table.classes - 1))
    return objective.minimize(
        cross_entropy, theta, l2=max(l2, SMALLEST_L2), max_iter=max_iter, tol=tol
    )


def path(
    objective: Objective,
    rule_at: Callable[[float], RowLoss | SoftF1],
    theta: Array,
    sigmas: Sequence[float],
    *,
    l2: float,
    max_iter: int,
    tol: float,
) -> Iterator[Minimum]:
    """The minimum at each sigma in turn.

    Without L2 a loss of scores / sigma does not know the scale of the weights. Then it is held:
    scores have a spread of one when a stage begins, as by the logit normalisation of the paper.
    """
    for sigma in sigmas:
        if l2 == 0:
            theta = theta / spread(objective, theta)
        found = objective.minimize(
            rule_at(sigma), theta, l2=l2, max_iter=max_iter, tol=tol, hold_norm=l2 == 0
        )
        theta = found.theta
        yield found


def spread(objective: Objective, theta: Array) -> float:
    """Root mean square of the scores about their mean, over rows and classes."""
    table = objective.table
    total = np.zeros(theta.shape[1])
    square = np.zeros(theta.shape[1])
    for block in table.blocks(max(objective.block, 4096)):
        scores = np.asarray(table.scores(theta, block), np.float64)
        total += table.weight[block] @ scores
        square += table.weight[block] @ (scores * scores)
    return float(np.sqrt(np.maximum(square - total**2, 0).mean())) or 1.0
