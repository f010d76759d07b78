"""The full-batch objective of a linear classifier, and its minimum by L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg, optimize

from hitrate.sklearn.goals import SoftF1
from hitrate.sklearn.solvers.row_losses import NODES, RowLoss
from hitrate.sklearn.solvers.standardized import Standardized

Array = NDArray[Any]

# With more features the second moments cost more than the steps they save.
WHITEN_UP_TO = 400


@dataclass
class Minimum:
    """Where a minimisation stopped."""

    theta: Array
    value: float
    iterations: int
    converged: bool


class Objective:
    r"""Mean loss of the rows, plus :math:`\tfrac{l_2}{2} \lVert W \rVert^2`.

    With several classes the weights of all C enter the penalty after their mean has been taken
    off, so that it does not matter which class has the score 0; the intercept is free. The mean
    and the penalty are those of scikit-learn's `LogisticRegression` with C = 1 / (N l2).

    Steps are taken in coordinates in which the features are uncorrelated, if there are not too
    many of them.

    Parameters
    ----------
    table : Standardized
    """

    def __init__(self, table: Standardized) -> None:
        self.table = table
        # A block's working arrays should stay in the processor's cache.
        per_row = 16 if table.classes == 2 else table.classes * NODES
        self.block = max(256, (1 << 18) // per_row)
        self._whiten: Array | None = None
        if table.features <= WHITEN_UP_TO:
            gram = table.gram()
            ridge = 1e-4 * np.trace(gram) / len(gram)
            gram[np.diag_indices_from(gram)] += ridge
            # theta = whiten.T @ steps, with whiten the inverse of the Cholesky factor.
            factor = linalg.cholesky(gram, lower=True)
            self._unwhiten = factor.T.copy()
            self._whiten = linalg.solve_triangular(factor, np.eye(len(gram)), lower=True)

    def loss(self, rule: RowLoss | SoftF1, theta: Array) -> tuple[float, Array]:
        """Mean loss and its slopes in theta; of counts, by the cost that has their slopes."""
        if isinstance(rule, SoftF1):
            value, cost = rule.at(self, theta)
            return value, self.loss(cost, theta)[1]
        table = self.table
        total, slopes = 0.0, np.zeros(theta.shape)
        for block in table.blocks(self.block):
            scores = torch.from_numpy(table.scores(theta, block))
            target = torch.from_numpy(table.target[block])
            weight = torch.from_numpy(table.weight[block]).to(scores.dtype)
            loss, slope = rule(scores, target)
            total += float(torch.dot(loss, weight))
            slopes += table.back((slope * weight[:, None]).numpy(), block)
        return total, slopes

    def penalty(self, theta: Array, l2: float) -> tuple[float, Array]:
        """L2 of the weights and its slopes."""
        weights = theta[:-1]
        if self.table.classes > 2:
            weights = weights - weights.sum(1, keepdims=True) / self.table.classes
        slopes = np.vstack([l2 * weights, np.zeros(theta.shape[1])])
        return 0.5 * l2 * float((weights * theta[:-1]).sum()), slopes

    def minimize(
        self,
        rule: RowLoss | SoftF1,
        theta: Array,
        *,
        l2: float,
        max_iter: int,
        tol: float,
        hold_norm: bool = False,
    ) -> Minimum:
        """L-BFGS from theta; `hold_norm` keeps the length of the weights, and l2 has no part."""
        shape = theta.shape
        length = float(np.linalg.norm(theta[:-1]))
        hold = hold_norm and length > 0

        def held(given: Array) -> tuple[Array, float]:
            norm = float(np.linalg.norm(given[:-1])) or 1.0
            return np.vstack([given[:-1] * (length / norm), given[-1:]]), norm

        def value_and_slopes(flat: Array) -> tuple[float, Array]:
            given = self._from_steps(flat.reshape(shape))
            if not hold:
                value, slopes = self.loss(rule, given)
                more, also = self.penalty(given, l2)
                value, slopes = value + more, slopes + also
            else:
                point, norm = held(given)
                value, slopes = self.loss(rule, point)
                outer = (slopes[:-1] * given[:-1]).sum() / norm**2
                slopes[:-1] = (slopes[:-1] - outer * given[:-1]) * (length / norm)
            return value, self._slopes_of_steps(slopes).ravel()

        start = self._to_steps(theta).ravel()
        result = optimize.minimize(
            value_and_slopes,
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "ftol": tol, "gtol": 1e-3 * tol, "maxcor": 20},
        )
        best = self._from_steps(result.x.reshape(shape))
        if hold:
            best = held(best)[0]
        stopped_early = result.nit >= max_iter
        return Minimum(best, float(result.fun), int(result.nit), not stopped_early)

    def right(self, theta: Array) -> Array:
        """Which rows have their class on top; ties count as wrong, but for the first class."""
        hits = np.empty(self.table.rows, dtype=bool)
        for block in self.table.blocks(max(self.block, 4096)):
            hits[block] = top(self.table.scores(theta, block)) == self.table.target[block]
        return hits

    def accuracy(self, theta: Array) -> float:
        """Weighted share of rows that are right, or what the table's goal makes of decisions."""
        table, goal = self.table, self.table.goal
        if goal is not None:
            scores = table.scores(theta)
            return goal.judged(scores, table.target, table.weight, free=False).score
        return float(self.table.weight.astype(np.float64) @ self.right(theta))

    def _from_steps(self, steps: Array) -> Array:
        return steps if self._whiten is None else self._whiten.T @ steps

    def _to_steps(self, theta: Array) -> Array:
        return theta if self._whiten is None else self._unwhiten @ theta

    def _slopes_of_steps(self, slopes: Array) -> Array:
        return slopes if self._whiten is None else self._whiten @ slopes


def top(scores: Array) -> Array:
    """The class with the highest score; scores (n, D) leave out the first class, which has 0."""
    if scores.shape[1] == 1:
        return np.asarray(scores[:, 0] > 0, dtype=np.int64)
    best = scores.argmax(1)
    highest = np.take_along_axis(scores, best[:, None], 1)[:, 0]
    return np.where(highest > 0, best + 1, 0)
