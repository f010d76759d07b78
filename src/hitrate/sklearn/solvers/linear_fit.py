"""One fit at fixed hyper-parameters: convex start, falling sigma, polish."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate.sklearn.solvers.falling_sigma import FAST_FALL, falls, falls_with_l2, sigmas
from hitrate.sklearn.solvers.homotopy import convex_start, spread
from hitrate.sklearn.solvers.objective import Objective
from hitrate.sklearn.solvers.settings import Settings
from hitrate.sklearn.solvers.standardized import Standardized
from hitrate.sklearn.solvers.zero_one_search import polish

Array = NDArray[Any]

# Stages before the last are followed on so many rows at most: they only have to find the valley.
COARSE = 100_000
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

    if settings.l2 == 0 and objective.right(theta).all():
        return Solution(theta, max(iterations, 1), True, start)
    if warm or settings.loss in CONVEX:
        fall = falls(objective, coarse, settings, start, [settings.sigma])
    elif settings.l2 > 0:
        fall = falls_with_l2(objective, coarse, settings, start, [settings.sigma])
    else:
        first = 0.25 / spread(coarse, start)
        every = sigmas(first, settings.sigma, FAST_FALL)
        fall = falls(objective, coarse, settings, start, every)
    iterations = max(iterations + fall.iterations, 1)
    solution = Solution(fall.best, iterations, fall.converged, start, fall.told)
    return _polished(table, settings, solution, random)


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
