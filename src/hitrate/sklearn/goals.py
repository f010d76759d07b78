"""What an estimator is after: accuracy, or another count of its decisions.

Balanced accuracy, and costs that depend on the right class alone, are accuracy of weighted rows.
Other costs and the F-measure have an objective of their own, and a judge of held-out decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hitrate.losses.expected_cost import cost_matrix

if TYPE_CHECKING:
    from hitrate.sklearn.solvers.objective import Objective

Array = NDArray[Any]

OBJECTIVES = ("accuracy", "balanced_accuracy", "cost", "f1_macro")
# Parameters of an estimator that a goal of its own has no use for, and what they may be.
OF_LINEAR: dict[str, tuple[Any, ...]] = {
    "loss": ("exact",),
    "loss_params": (None, {}),
    "solver": ("homotopy",),
    "margin": (None, "auto"),
    "polish": (False, "auto"),
}
OF_NETWORK: dict[str, tuple[Any, ...]] = {"loss": ("mixed_gradual",), "loss_params": (None, {})}
# Rounds over all classes in the search for offsets.
ROUNDS = 3


class Judged(NamedTuple):
    """How good decisions are, what each row adds to that, and scores' offsets that make them."""

    score: float
    # A row's part (N,): for an F-measure its influence, the derivative by the row's weight.
    rows: Array
    offsets: Array  # (D,)


class SoftCost:
    r"""Expected cost :math:`\sum_c K_{yc} p_c` with p the softmax of scores / sigma.

    docs/math.md (52) with Gumbel noise, whose p needs no integral.

    Parameters
    ----------
    cost : array, shape (C, C)
    sigma : float
    """

    def __init__(self, cost: Array, sigma: float) -> None:
        self.cost = torch.from_numpy(np.asarray(cost, np.float64))
        self.sigma = sigma

    def __call__(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (n,) and slopes (n, D) of scores (n, D)."""
        p = soft(scores, self.sigma)
        cost = self.cost.to(p.dtype)[target]
        loss = (p * cost).sum(1)
        return loss, (p * (cost - loss[:, None]))[:, 1:] / self.sigma


class SoftF1:
    """One minus the macro F1 of expected counts, docs/math.md (54), and its slopes.

    At any point its slopes are those of an expected cost, (55).

    Parameters
    ----------
    sigma : float
    """

    def __init__(self, sigma: float) -> None:
        self.sigma = sigma

    def at(self, objective: Objective, theta: Array) -> tuple[float, SoftCost]:
        """The value at theta, and the cost that has its slopes there."""
        table = objective.table
        hits, said = np.zeros(table.classes), np.zeros(table.classes)
        for block in table.blocks(objective.block):
            scores = torch.from_numpy(table.scores(theta, block))
            p = soft(scores, self.sigma).double().numpy()
            target, weight = table.target[block], table.weight[block].astype(np.float64)
            own = weight * np.take_along_axis(p, target[:, None], 1)[:, 0]
            hits += np.bincount(target, own, table.classes)
            said += weight @ p
        right = np.bincount(table.target, table.weight.astype(np.float64), table.classes)
        f, by_hit, by_said = f1_and_slopes(hits, said, right)
        return 1 - f, SoftCost(by_said[None, :] - np.diag(by_hit), self.sigma)


class Goal:
    """A count of decisions that is no accuracy of weighted rows.

    Parameters
    ----------
    classes : int
    cost : array, shape (C, C), optional
        Without it the goal is macro F1.
    """

    def __init__(self, classes: int, cost: Array | None = None) -> None:
        self.classes = classes
        self.cost = cost

    def rule(self, sigma: float) -> SoftCost | SoftF1:
        """The objective at one sigma."""
        return SoftF1(sigma) if self.cost is None else SoftCost(self.cost, sigma)

    def score(self, loss: float) -> float:
        """Higher is better."""
        return 1 - loss if self.cost is None else -loss

    def judged(self, scores: Array, target: Array, weight: Array, *, free: bool = True) -> Judged:
        """The decisions of scores (N, D), with the best offsets of the classes if these are free.

        Each class in turn gets the offset that is best on these rows: a threshold for each.
        """
        weight = np.asarray(weight, np.float64) / weight.sum()
        every = np.pad(np.asarray(scores, np.float64), ((0, 0), (1, 0)))
        offsets = np.zeros(self.classes)
        for _ in range(ROUNDS if free else 0):
            before = offsets.copy()
            for c in range(self.classes):
                offsets[c] += self._best_shift(every + offsets, c, target, weight)
            if np.array_equal(before, offsets):
                break
        offsets -= offsets[0]
        said = (every + offsets).argmax(1)
        score, rows = self.counted(target, said, weight)
        return Judged(score, rows, offsets[1:])

    def counted(self, target: Array, said: Array, weight: Array) -> tuple[float, Array]:
        """The score of decisions (N,), and each row's part in it; weights have the sum 1."""
        if self.cost is not None:
            rows = -self.cost[target, said]
            return float(weight @ rows), rows
        right = np.bincount(target, weight, self.classes)
        times = np.bincount(said, weight, self.classes)
        hits = np.bincount(target[said == target], weight[said == target], self.classes)
        f, by_hit, by_said = f1_and_slopes(hits, times, right)
        # A row more of class y: what it says and hits, and that y is right once more.
        rows = by_hit[said] * (said == target) - by_said[said] - by_said[target]
        return f, rows

    def _best_shift(self, scores: Array, c: int, target: Array, weight: Array) -> float:
        """What to add to class c's scores (N, C) so that the decisions are best."""
        others = scores.copy()
        others[:, c] = -np.inf
        rival = others.argmax(1)
        at = np.take_along_axis(others, rival[:, None], 1)[:, 0] - scores[:, c]
        order = np.argsort(at, kind="stable")
        at, rival, target, weight = at[order], rival[order], target[order], weight[order]
        if self.cost is not None:
            step = weight * (self.cost[target, rival] - self.cost[target, c])
            level = np.concatenate([[0.0], np.cumsum(step)])
        else:
            level = self._levels(c, rival, target, weight)
        # Before the first, between two, after the last: ties are no place to stand.
        places = np.concatenate([[at[0] - 1.0], 0.5 * (at[1:] + at[:-1]), [at[-1] + 1.0]])
        stand = np.concatenate([[True], at[1:] > at[:-1] + 1e-12, [True]])
        now = int(np.searchsorted(at, 0.0))
        best = int(np.where(stand, level, -np.inf).argmax())
        return float(places[best]) if level[best] > level[now] + 1e-12 else 0.0

    def _levels(self, c: int, rival: Array, target: Array, weight: Array) -> Array:
        """Macro F1 (N + 1,) when the first 0, 1, ... rows are said to be c, the others rivals."""
        right = np.bincount(target, weight, self.classes)
        there = right > 0
        total = np.zeros(len(target) + 1)
        for k in np.flatnonzero(there):
            if k == c:
                said, hits = weight, weight * (target == c)
                start_said, start_hits = 0.0, 0.0
            else:
                own = weight * (rival == k)
                said, hits = -own, -own * (target == k)
                start_said, start_hits = own.sum(), -hits.sum()
            times = start_said + np.concatenate([[0.0], np.cumsum(said)])
            good = start_hits + np.concatenate([[0.0], np.cumsum(hits)])
            total += 2 * good / (right[k] + np.maximum(times, 0.0))
        return np.asarray(total / there.sum())


def f1_and_slopes(hits: Array, said: Array, right: Array) -> tuple[float, Array, Array]:
    """Macro F1 of counts (C,), its slope in a class's hits, and less that in how often it is said.

    Over the classes that have rows; the others add nothing.
    """
    there = right > 0
    both = np.where(there, said + right, 1.0)
    f = np.where(there, 2 * hits / both, 0.0)
    share = there / there.sum()
    return float(f @ share), 2 * share / both, f * share / both


def soft(scores: Tensor, sigma: float) -> Tensor:
    """Softmax (n, C) of scores (n, D) / sigma, the first class's score being 0."""
    return torch.softmax(torch.nn.functional.pad(scores, (1, 0)) / sigma, 1)


@dataclass(frozen=True)
class Wanted:
    """An estimator's `objective` and `cost`, checked.

    Parameters
    ----------
    objective : str
    cost : array, shape (C, C), or None
    call : str
        What complaints show.
    """

    objective: str
    cost: Any
    call: str

    def __post_init__(self) -> None:
        if not isinstance(self.objective, str) or self.objective not in OBJECTIVES:
            names = ", ".join(map(repr, OBJECTIVES))
            raise ValueError(f"{self.call}: objective={self.objective!r} is not one of {names}")
        if (self.objective == "cost") != (self.cost is not None):
            raise ValueError(
                f"{self.call}: objective={self.objective!r} and cost={self.cost!r} do not go "
                "together; objective='cost' takes a matrix, the others none"
            )

    def balanced(self, target: Array, weight: Array, classes: int) -> Array:
        """Weights of rows (N,) that make balanced accuracy accuracy; class weights are factors."""
        if self.objective != "balanced_accuracy":
            return weight
        total = np.bincount(target, weight, classes)
        factor = weight.sum() / (max((total > 0).sum(), 1) * np.where(total > 0, total, 1.0))
        return np.asarray(weight * factor[target])

    def weighted(self, target: Array, weight: Array, classes: int) -> tuple[Array, Goal | None]:
        """Weights of rows (N,) that make costs an error rate, and the goal where none do."""
        if self.objective == "f1_macro":
            return weight, Goal(classes)
        if self.objective != "cost":
            return weight, None
        cost = cost_matrix(self.cost, self.call).double().numpy()
        if len(cost) != classes:
            raise ValueError(
                f"{self.call}: cost {cost.shape} does not fit the {classes} classes of y"
            )
        # What does not depend on the decision changes none.
        wrong = cost - np.diag(cost)[:, None]
        beside = wrong[~np.eye(classes, dtype=bool)].reshape(classes, classes - 1)
        if (beside < 0).any():
            y = int((beside < 0).any(1).argmax())
            raise ValueError(
                f"{self.call}: a right decision must not cost more than a wrong one, see row {y} "
                f"of cost: {cost[y].tolist()}"
            )
        if np.ptp(beside, axis=1).max() == 0 and beside.max() > 0:
            return weight * beside[target, 0], None
        return weight, Goal(classes, wrong)


def refuse_others(given: Mapping[str, Any], usual: Mapping[str, Any], call: str) -> None:
    """Complain about parameters that a goal of its own leaves no room for.

    Parameters
    ----------
    given : mapping
        An estimator's own.
    usual : mapping
        What some of them have to be: one of several.
    call : str
    """
    for name, allowed in usual.items():
        if not any(given[name] == each for each in allowed):
            raise ValueError(
                f"{call}: objective={given['objective']!r} is trained by an objective of its own, "
                f"without {name}={given[name]!r}"
            )
