"""The choice of L2, margin, sigma's end and polish on an inner split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hitrate.sklearn.homotopy import convex_start, path
from hitrate.sklearn.linear_fit import BREAKPOINTS, Settings
from hitrate.sklearn.objective import Objective, top
from hitrate.sklearn.standardized import Standardized
from hitrate.sklearn.zero_one_search import polish

Array = NDArray[Any]

# N l2 = 1 / C of scikit-learn's LogisticRegression.
STRENGTHS = tuple(10.0**k for k in range(3, -5, -1))
SIGMAS = (1.0, 0.5, 0.25, 0.125, 0.0625)
MARGINS = (None, 1.0)
# The inner split is made of so many rows at most.
ROWS = 20_000
# How many standard errors of the difference a rougher candidate must be better by.
STANDARD_ERRORS = 1.0


@dataclass(frozen=True)
class Grid:
    """What may be chosen; one value where the user has said it."""

    l2: tuple[float, ...]
    sigmas: tuple[float, ...]
    margins: tuple[float | None, ...]
    polish: tuple[bool, ...]
    # Whether the convex start itself may win.
    start: bool


@dataclass(frozen=True)
class Choice:
    """The best settings, the scores of rows by fits that had not seen them, and the mean start."""

    settings: Settings
    scores: Array
    rows: Array
    near: Array | None
    # Of the scores (D,), where a goal has thresholds.
    offsets: Array | float = 0.0


def folds(target: Array, count: int, random: np.random.Generator) -> list[Array]:
    """Rows of each fold, every class spread over them as evenly as can be."""
    fold = np.empty(len(target), dtype=np.int64)
    first = 0
    for c in np.unique(target):
        members = random.permutation(np.flatnonzero(target == c))
        fold[members] = (np.arange(len(members)) + first) % count
        # The next class goes on where this one ended, so that small classes do not pile up.
        first += len(members)
    return [np.flatnonzero(fold == k) for k in range(count)]


def held_out_rows(target: Array, fraction: float, random: np.random.Generator) -> Array:
    """About this part of every class, at least one row and not all."""
    parts = folds(target, max(2, round(1 / fraction)), random)
    return next(part for part in parts if 0 < len(part) < len(target))


def choose(
    table: Standardized, settings: Settings, grid: Grid, random: np.random.Generator
) -> Choice:
    """Cross validation along the path.

    L2 is that of the convex start whose held-out likelihood is the highest, which varies less than
    accuracy does, among those that are accurate. From there, with that L2, sigma falls.
    Candidates come in the order of their roughness: the start, each sigma with each margin, the
    polished end. The most accurate on held-out rows is taken if it beats the first by more than a
    standard error of the difference.
    """
    some, whole = np.arange(table.rows), table
    if table.rows > ROWS:
        some = np.sort(random.choice(table.rows, ROWS, replace=False))
        whole = table.part(some)
    count = min(5 if whole.rows <= 5000 else 3, whole.rows)
    splits = [rows for rows in folds(whole.target, count, random) if 0 < len(rows) < whole.rows]

    l2, starts = _best_l2(splits, settings, grid.l2, whole)
    candidates = list(_candidates(grid))
    held_out = {each: np.zeros((whole.rows, whole.classes - 1), np.float32) for each in candidates}
    for rows, start in zip(splits, starts, strict=True):
        objective, out = _without(whole, rows)
        here = replace(settings, l2=l2 * whole.rows / objective.table.rows)
        for each, theta in _fits(objective, here, grid, start, random):
            held_out[each][rows] = out.scores(theta)

    offsets: list[Array | float] = [0.0] * len(candidates)
    if whole.goal is None:
        hits = [top(held_out[each]) == whole.target for each in candidates]
        number = smoothest(hits, whole.weight)
    else:
        judge = whole.goal.judged
        judged = [judge(held_out[each], whole.target, whole.weight) for each in candidates]
        number = smoothest(
            [each.rows for each in judged], whole.weight, [each.score for each in judged]
        )
        offsets = [each.offsets for each in judged]
    best = candidates[number]
    sigma, margin, polished = best
    chosen = replace(settings, l2=l2, sigma=sigma, margin=margin, polish=polished)
    # Along the path that was tried, each stage came to rest.
    chosen = replace(chosen, passing=settings.max_iter)
    scores = held_out[best] + offsets[number]
    return Choice(chosen, scores, some, np.mean(starts, axis=0), offsets[number])


def _without(whole: Standardized, rows: Array) -> tuple[Objective, Standardized]:
    """The objective of all rows but some, and these; made anew each time, as it copies the rows."""
    inside = np.delete(np.arange(whole.rows), rows)
    return Objective(whole.part(inside)), whole.part(rows)


def smoothest(hits: Sequence[Array], weight: Array, scores: Sequence[float] | None = None) -> int:
    """The most accurate candidate, unless the first is as good within a standard error.

    Parameters
    ----------
    hits : sequence of arrays, shape (N,)
        Which rows each candidate has right, or what they are worth; candidates from smooth to
        rough.
    weight : array, shape (N,)
    scores : sequence of float, optional
        By default the weighted sums of the rows'.
    """
    accuracy = [float(weight @ each) for each in hits] if scores is None else scores
    best = int(np.argmax(np.round(accuracy, 12)))
    difference = hits[best].astype(float) - hits[0]
    error = math.sqrt(float((weight * difference) @ (weight * difference)))
    gain = accuracy[best] - accuracy[0]
    return best if gain > STANDARD_ERRORS * error else 0


def _candidates(grid: Grid) -> Iterator[tuple[float, float | None, bool]]:
    """(sigma, margin, polish) from smooth to rough; infinite sigma is the convex start."""
    if grid.start:
        yield math.inf, None, False
    for sigma in grid.sigmas:
        for margin in grid.margins:
            if False in grid.polish:
                yield sigma, margin, False
    if True in grid.polish:
        yield grid.sigmas[-1], grid.margins[0], True


def _fits(
    objective: Objective,
    settings: Settings,
    grid: Grid,
    start: Array,
    random: np.random.Generator,
) -> Iterator[tuple[tuple[float, float | None, bool], Array]]:
    """Every candidate's theta on one fold's rows."""
    options: dict[str, Any] = {"max_iter": settings.max_iter, "tol": settings.tol}
    if grid.start:
        yield (math.inf, None, False), start
    for margin in grid.margins:
        here = replace(settings, margin=margin)
        theta = start
        stages = path(objective, here.rule, start, grid.sigmas, l2=settings.l2, **options)
        for sigma, found in zip(grid.sigmas, stages, strict=True):
            theta = found.theta
            if False in grid.polish:
                yield (sigma, margin, False), theta
        if True in grid.polish and margin is grid.margins[0]:
            theta, _ = polish(objective.table, theta, breakpoints=BREAKPOINTS // 8, random=random)
            yield (grid.sigmas[-1], margin, True), theta


def _best_l2(
    splits: Sequence[Array],
    settings: Settings,
    grid: Sequence[float],
    whole: Standardized,
) -> tuple[float, list[Array]]:
    """L2 of the convex start with the highest held-out likelihood, and that start of each fold.

    Only those count whose held-out accuracy is within a standard error of the best.
    """
    options: dict[str, Any] = {"max_iter": settings.max_iter, "tol": settings.tol}
    loss = np.zeros(len(grid))
    hits = np.zeros((len(grid), whole.rows))
    starts: list[list[Array]] = []
    for rows in splits:
        objective, out = _without(whole, rows)
        theta, found = None, []
        for k, l2 in enumerate(grid):
            scaled = l2 * whole.rows / objective.table.rows
            theta = convex_start(objective, theta, l2=scaled, **options).theta
            found.append(theta)
            scores = out.scores(theta)
            loss[k] += whole.weight[rows] @ _cross_entropy(scores, out.target)
            hits[k, rows] = top(scores) == out.target
        starts.append(found)
    if whole.goal is not None:
        # Thresholds come later: of the scores themselves likelihood says more.
        best = int(np.argmin(np.round(loss, 12)))
        return grid[best], [found[best] for found in starts]
    accuracy = hits @ whole.weight
    top_one = int(accuracy.argmax())
    error = np.linalg.norm(whole.weight * (hits[top_one] - accuracy[top_one]))
    loss[accuracy < accuracy[top_one] - error] = np.inf
    best = int(np.argmin(np.round(loss, 12)))
    return grid[best], [found[best] for found in starts]


def _cross_entropy(scores: Array, target: Array) -> Array:
    """-log softmax of the target (n,)."""
    every = np.pad(np.asarray(scores, np.float64), ((0, 0), (1, 0)))
    own = np.take_along_axis(every, target[:, None], 1)[:, 0]
    return np.asarray(special.logsumexp(every, axis=1) - own)
