"""One fit at fixed hyper-parameters: convex start, falling sigma, polish."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate.sklearn.solvers.homotopy import convex_start, path, spread
from hitrate.sklearn.solvers.objective import Objective
from hitrate.sklearn.solvers.row_losses import ExactError
from hitrate.sklearn.solvers.settings import Settings
from hitrate.sklearn.solvers.standardized import Standardized
from hitrate.sklearn.solvers.zero_one_search import polish

Array = NDArray[Any]

# Stages before the last are followed on so many rows at most: they only have to find the valley.
COARSE = 100_000
# The first sigma: this share of the scores' spread, with L2 at most one. A larger one would take
# scores that say little to the most frequent class, and no path leads back from there.
FIRST, LARGEST_SIGMA = 0.25, 1.0
# Sigma falls by about this much from stage to stage, without L2 faster.
FALL = 0.5
FAST_FALL = 0.4
# The convex losses: the start is the answer, or one stage away.
CONVEX = ("cross_entropy", "hinge")


@dataclass(frozen=True)
class Solution:
    """Weights, the steps they took, and whether the last stage came to rest."""

    theta: Array
    iterations: int
    converged: bool
    # The minimum of cross entropy that the path began at.
    start: Array | None = None
    # Sigma, and expected and actual accuracy there: of the start, then after each stage.
    path: list[dict[str, float]] = field(default_factory=list)


def sigmas(first: float, last: float, fall: float) -> list[float]:
    """From first to last in equal ratios of about `fall`; the last alone if it is larger."""
    if last >= first:
        return [last]
    count = max(1, round(math.log(last / first) / math.log(fall)))
    return [float(s) for s in np.geomspace(first, last, count + 1)]


def first_sigma(objective: Objective, start: Array) -> float:
    """Where a path with L2 begins that leads away from the convex start."""
    return min(LARGEST_SIGMA, FIRST * spread(objective, start))


def solve(
    table: Standardized,
    settings: Settings,
    random: np.random.Generator,
    theta: Array | None = None,
    near: Array | None = None,
) -> Solution:
    """Fit at fixed hyper-parameters.

    Parameters
    ----------
    table : Standardized
    settings : Settings
    random : Generator
        Of the rows of coarse stages and the lines of the polish.
    theta : array, shape (F + 1, D), optional
        Where the path begins, instead of the convex start.
    near : array, shape (F + 1, D), optional
        Where to look for the convex start; it is the same from anywhere, but sooner found.
    """
    objective = Objective(table)
    coarse = objective
    if table.rows > COARSE:
        some = np.sort(random.choice(table.rows, COARSE, replace=False))
        coarse = Objective(table.part(some))
    options: dict[str, Any] = {"max_iter": settings.max_iter, "tol": settings.tol}
    iterations, converged, warm = 0, True, theta is not None
    stages = settings.loss != "cross_entropy" or bool(settings.loss_params)
    stages = stages and math.isfinite(settings.sigma)
    if theta is None or not stages:
        theta = near if theta is None else theta
        if not stages:
            # Nothing comes after to make up for what is missing.
            options["tol"] = 0.1 * settings.tol
        for part in [coarse] if stages or coarse is objective else [coarse, objective]:
            found = convex_start(part, theta, l2=settings.l2, **options)
            theta, iterations = found.theta, iterations + found.iterations
            converged = found.converged
    assert theta is not None
    start = theta
    if not stages:
        solution = Solution(theta, max(iterations, 1), converged, start)
        return _polished(table, settings, solution, random)

    # With L2 the objective decides, without it the accuracy.
    by_accuracy = settings.l2 == 0
    if by_accuracy and objective.right(theta).all():
        return Solution(theta, max(iterations, 1), True, start)
    best, highest = theta, objective.accuracy(theta) if by_accuracy else 0.0
    if warm or settings.loss in CONVEX:
        every = [settings.sigma]
    elif settings.l2 > 0:
        every = sigmas(first_sigma(coarse, theta), settings.sigma, FALL)
    else:
        every = sigmas(FIRST / spread(coarse, theta), settings.sigma, FAST_FALL)
    last = len(every) - 1
    accuracies = []
    if settings.told:
        scaled = theta / spread(coarse, theta) if by_accuracy else theta
        accuracies.append(_accuracies(coarse, scaled, every[0]))
    for number, sigma in enumerate(every):
        part = objective if number == last else coarse
        passing = min(settings.max_iter, settings.passing)
        options["max_iter"] = settings.max_iter if number == last else passing
        (found,) = path(part, settings.rule, theta, [sigma], l2=settings.l2, **options)
        theta, iterations = found.theta, iterations + found.iterations
        converged = found.converged
        if settings.told:
            accuracies.append(_accuracies(part, theta, sigma))
        accuracy = objective.accuracy(theta) if by_accuracy else 0.0
        if accuracy > highest:
            best, highest = theta, accuracy
            if objective.right(theta).all():
                break
    found_at = best if by_accuracy else theta
    solution = Solution(found_at, max(iterations, 1), converged, start, accuracies)
    return _polished(table, settings, solution, random)


def _accuracies(objective: Objective, theta: Array, sigma: float) -> dict[str, float]:
    """Expected accuracy under normal noise of this size on the scores, and without noise."""
    goal, actual = objective.table.goal, objective.accuracy(theta)
    if goal is not None:
        loss, _ = objective.loss(goal.rule(sigma), theta)
        return {"sigma": sigma, "expected": goal.score(loss), "actual": actual}
    error, _ = objective.loss(ExactError(sigma), theta)
    return {"sigma": sigma, "expected": 1 - error, "actual": actual}


def _polished(
    table: Standardized,
    settings: Settings,
    solution: Solution,
    random: np.random.Generator,
) -> Solution:
    """The solution after the line searches on its error, if these were asked for."""
    if settings.polish:
        better, _ = polish(table, solution.theta, breakpoints=settings.breakpoints, random=random)
        solution = replace(solution, theta=better)
    return solution
