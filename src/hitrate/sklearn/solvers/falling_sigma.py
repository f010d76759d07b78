"""From a start along a falling sigma, and another way where the first one leads nowhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate.sklearn.solvers.homotopy import path, spread
from hitrate.sklearn.solvers.objective import Objective
from hitrate.sklearn.solvers.row_losses import ExactError
from hitrate.sklearn.solvers.settings import Settings

Array = NDArray[Any]

# The first sigma with L2, where any boundary may still move far.
LARGEST_SIGMA = 1.0
# Of the scores' spread: so much noise leaves the order of rows what it is.
SHARE = 0.25
# Sigma falls by about this much from stage to stage, without L2 faster.
FALL = 0.5
FAST_FALL = 0.4


@dataclass(frozen=True)
class Fall:
    """Where a falling sigma has led."""

    # Weights after each stage.
    stages: list[Array]
    # The objective after the last one.
    value: float
    iterations: int
    converged: bool
    # Without L2 the most accurate of start and stages, else the last stage.
    best: Array
    # Sigma, and expected and actual accuracy there: of the start, then after each stage.
    told: list[dict[str, float]] = field(default_factory=list)


def sigmas(first: float, last: float, fall: float) -> list[float]:
    """From first to last in equal ratios of about `fall`; the last alone if it is larger."""
    if last >= first:
        return [last]
    count = max(1, round(math.log(last / first) / math.log(fall)))
    return [float(s) for s in np.geomspace(first, last, count + 1)]


def own_sigma(objective: Objective, theta: Array) -> float:
    """A noise that scores of this spread bear."""
    return min(LARGEST_SIGMA, SHARE * spread(objective, theta))


def falls_with_l2(
    objective: Objective,
    coarse: Objective,
    settings: Settings,
    start: Array,
    ends: Sequence[float],
) -> Fall:
    """Weights at falling sigmas, the ends; from the start by the better of two ways.

    From a large sigma a boundary can go far, past rows that the likelihood was drawn to. But where
    scores say little, so much noise leaves nothing but the most frequent class, and no smaller
    sigma leads back. So where the first way ends no more accurate than it began, sigma falls from
    the scores' own size, and the lower objective is taken.

    Parameters
    ----------
    objective, coarse : Objective
        Of all rows for the last stage, of some for those before.
    settings : Settings
    start : array, shape (F + 1, D)
    ends : sequence of float
        Falling; the stages of the result are these.
    """
    first = _down_to(ends, LARGEST_SIGMA)
    found = falls(objective, coarse, settings, start, first)
    stages = found.stages[-len(ends) :]
    before = objective.accuracy(start)
    if objective.accuracy(stages[-1]) > before or objective.right(start).all():
        return replace(found, stages=stages)
    own = own_sigma(coarse, start)
    lower = [sigma for sigma in ends if sigma < own] or [ends[-1]]
    second = _down_to(lower, own)
    if second == first:
        return replace(found, stages=stages)
    other = falls(objective, coarse, settings, start, second)
    iterations = found.iterations + other.iterations
    if other.value > (1 - settings.tol) * found.value:
        return replace(found, stages=stages, iterations=iterations)
    stages = stages[: -len(lower)] + other.stages[-len(lower) :]
    return replace(other, stages=stages, iterations=iterations)


def _down_to(ends: Sequence[float], first: float) -> list[float]:
    return [*sigmas(first, ends[0], FALL)[:-1], *ends]


def falls(
    objective: Objective,
    coarse: Objective,
    settings: Settings,
    start: Array,
    every: Sequence[float],
) -> Fall:
    """One way: a stage for each sigma, from where the one before ended."""
    # With L2 the objective decides, without it the accuracy.
    by_accuracy = settings.l2 == 0
    theta, best, highest = start, start, objective.accuracy(start) if by_accuracy else 0.0
    told, stages, iterations, converged, value = [], [], 0, True, math.inf
    if settings.told:
        scaled = start / spread(coarse, start) if by_accuracy else start
        told.append(_accuracies(coarse, scaled, every[0]))
    for number, sigma in enumerate(every):
        is_last = number == len(every) - 1
        part = objective if is_last else coarse
        (found,) = path(
            part,
            settings.rule,
            theta,
            [sigma],
            l2=settings.l2,
            max_iter=settings.max_iter if is_last else min(settings.max_iter, settings.passing),
            tol=settings.tol,
        )
        theta, value, converged = found.theta, found.value, found.converged
        iterations += found.iterations
        stages.append(theta)
        if settings.told:
            told.append(_accuracies(part, theta, sigma))
        accuracy = objective.accuracy(theta) if by_accuracy else 0.0
        if accuracy > highest:
            best, highest = theta, accuracy
            if objective.right(theta).all():
                break
    stages += [theta] * (len(every) - len(stages))
    return Fall(stages, value, iterations, converged, best if by_accuracy else theta, told)


def _accuracies(objective: Objective, theta: Array, sigma: float) -> dict[str, float]:
    """Expected accuracy under normal noise of this size on the scores, and without noise."""
    goal, actual = objective.table.goal, objective.accuracy(theta)
    if goal is not None:
        loss, _ = objective.loss(goal.rule(sigma), theta)
        return {"sigma": sigma, "expected": goal.score(loss), "actual": actual}
    error, _ = objective.loss(ExactError(sigma), theta)
    return {"sigma": sigma, "expected": 1 - error, "actual": actual}
