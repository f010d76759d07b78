"""The choice of L2, margin, sigma's end and polish on an inner split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hitrate.sklearn.solvers.falling_sigma import falls, falls_with_l2, own_sigma
from hitrate.sklearn.solvers.homotopy import convex_start
from hitrate.sklearn.solvers.objective import Objective, top
from hitrate.sklearn.solvers.settings import BREAKPOINTS, Settings
from hitrate.sklearn.solvers.standardized import Standardized
from hitrate.sklearn.solvers.zero_one_search import polish

Array = NDArray[Any]

# N l2 = 1 / C of scikit-learn's LogisticRegression, from strong to weak.
STRENGTHS = tuple(10.0**k for k in range(3, -5, -1))
# How many weaker ones in a row have to make held-out likelihood worse to end the search.
WORSE = 2
# Sigmas to choose from, and shares of the scores' own where that is smaller still.
SIGMAS = (0.5, 0.25)
MARGINS = (1.0,)
# Of an objective of its own, whose path nobody has measured with fewer.
GOAL_SIGMAS = (1.0, 0.5, 0.25, 0.125, 0.0625)
# Up to so many rows there are this many folds; above, one half of so many is held out.
FEW_ROWS, FOLDS = 5000, 5
ROWS, FEWER_FOLDS = 20_000, 3
MOST_ROWS = 100_000
# Folds of so many numbers are kept, others made anew.
KEEP = 2_000_000
# How many standard errors of the difference a rougher candidate must be better by.
STANDARD_ERRORS = 1.0

# (sigma, margin, polish)
End = tuple[float, float | None, bool]


@dataclass(frozen=True)
class Grid:
    """What may be chosen; one value where the user has said it."""

    l2: tuple[float, ...]
    sigmas: tuple[float, ...]
    margins: tuple[float | None, ...]
    polish: tuple[bool, ...]
    # Whether the convex start itself may win.
    start: bool
    # Whether the path is followed at the next stronger and weaker L2, too.
    beside: bool = True
    # Whether there are smaller sigmas where the scores are small.
    sized: bool = False


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


class Folds:
    """Rows held out, and the objective of the others.

    Parameters
    ----------
    table : Standardized
    random : Generator
    """

    def __init__(self, table: Standardized, random: np.random.Generator) -> None:
        some, self.whole, self.all_rows = np.arange(table.rows), table, table.rows
        if table.rows > MOST_ROWS:
            some = np.sort(random.choice(table.rows, MOST_ROWS, replace=False))
            self.whole = table.part(some)
        if table.rows > ROWS:
            splits = [held_out_rows(self.whole.target, 0.5, random)]
        else:
            count = min(FOLDS if table.rows <= FEW_ROWS else FEWER_FOLDS, table.rows)
            parts = folds(table.target, count, random)
            splits = [rows for rows in parts if 0 < len(rows) < table.rows]
        self.splits = splits
        held_out = np.concatenate(splits)
        self.rows = some[held_out]
        self.target, self.weight = self.whole.target[held_out], self.whole.weight[held_out]
        ends = np.cumsum([len(rows) for rows in splits])
        # Of each fold, among all rows that are held out.
        self.places = [slice(e - len(rows), e) for e, rows in zip(ends, splits, strict=True)]
        size = len(splits) * self.whole.rows * self.whole.features
        self._keep = len(splits) == 1 or size <= KEEP
        self._kept: dict[int, tuple[Objective, Standardized]] = {}

    def __iter__(self) -> Iterator[tuple[slice, Objective, Standardized]]:
        """Each fold's place, the objective of the rows outside, and the rows inside."""
        for number, place in enumerate(self.places):
            found = self._kept.get(number) or self._made(number)
            if self._keep:
                self._kept[number] = found
            yield place, *found

    def scaled(self, l2: float, objective: Objective) -> float:
        """L2 that weighs as much against these rows as l2 does against all."""
        return l2 * self.all_rows / objective.table.rows

    def sized(self, grid: Grid, starts: list[Array]) -> Grid:
        """The grid with the sigmas that weak scores of these starts, one a fold, ask for."""
        if not grid.sized:
            return grid
        every = [own_sigma(o, start) for (_, o, _), start in zip(self, starts, strict=True)]
        own = float(np.mean(every))
        if own >= grid.sigmas[-1]:
            return grid
        return replace(grid, sigmas=(*grid.sigmas, *(share * own for share in grid.sigmas)))

    def _made(self, number: int) -> tuple[Objective, Standardized]:
        rows = self.splits[number]
        inside = np.delete(np.arange(self.whole.rows), rows)
        return Objective(self.whole.part(inside)), self.whole.part(rows)


def choose(
    table: Standardized, settings: Settings, grid: Grid, random: np.random.Generator
) -> Choice:
    """Cross validation along the path; of many rows, one split.

    The L2 to begin with is that of the convex start whose held-out likelihood is the highest,
    which varies less than accuracy does, among those that are accurate. From there sigma falls, and
    from the starts with the next stronger and weaker L2. The most accurate candidate on held-out
    rows is taken if it beats the first, the start, by more than a standard error of the difference.
    """
    tried = Folds(table, random)
    center, starts = _best_l2(tried, settings, grid)
    every = [k for k in _around(center, grid, table.rows) if 0 <= k < len(starts[0])]
    grids = {
        k: tried.sized(replace(grid, start=grid.start and k == center), [f[k] for f in starts])
        for k in every
    }
    candidates = [(k, *end) for k, here in grids.items() for end in _ends(here)]
    held_out = {
        each: np.zeros((len(tried.rows), table.classes - 1), np.float32) for each in candidates
    }
    for (place, objective, out), found in zip(tried, starts, strict=True):
        for k in every:
            here = replace(settings, l2=tried.scaled(grid.l2[k], objective))
            for end, theta in _fits(objective, here, grids[k], found[k], random):
                held_out[(k, *end)][place] = out.scores(theta)

    offsets: list[Array | float] = [0.0] * len(candidates)
    if table.goal is None:
        hits = [top(held_out[each]) == tried.target for each in candidates]
        number = smoothest(hits, tried.weight)
    else:
        judge = table.goal.judged
        judged = [judge(held_out[each], tried.target, tried.weight) for each in candidates]
        number = smoothest(
            [each.rows for each in judged], tried.weight, [each.score for each in judged]
        )
        offsets = [each.offsets for each in judged]
    best = candidates[number]
    k, sigma, margin, polished = best
    chosen = replace(settings, l2=grid.l2[k], sigma=sigma, margin=margin, polish=polished)
    # Along the path that was tried, each stage came to rest.
    chosen = replace(chosen, passing=settings.max_iter)
    near = np.mean([found[k] for found in starts], axis=0)
    return Choice(chosen, held_out[best] + offsets[number], tried.rows, near, offsets[number])


def _around(center: int, grid: Grid, rows: int) -> list[int]:
    """Places of the L2 at which paths begin; where there are none, some may be outside."""
    places = [center]
    if grid.beside:
        places += [center - 1, center + 1]
        if rows > ROWS and len(grid.l2) > 1:
            # Likelihood hardly tells weak L2 apart there, and along the path it matters.
            places.append(int(np.argmin(np.abs(np.log(np.array(grid.l2) * rows)))))
    return list(dict.fromkeys(places))


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


def _ends(grid: Grid) -> Iterator[End]:
    """What is compared at one L2, the smoothest first; infinite sigma is the convex start."""
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
) -> Iterator[tuple[End, Array]]:
    """Every candidate's theta on one fold's rows, at one L2."""
    if grid.start:
        yield (math.inf, None, False), start
    fall = falls_with_l2 if settings.l2 > 0 else falls
    for margin in grid.margins:
        # Along the path that is tried, each stage comes to rest.
        here = replace(settings, margin=margin, passing=settings.max_iter, told=False)
        stages = fall(objective, objective, here, start, grid.sigmas).stages
        for sigma, theta in zip(grid.sigmas, stages, strict=True):
            if False in grid.polish:
                yield (sigma, margin, False), theta
        if True in grid.polish and margin is grid.margins[0]:
            theta, _ = polish(
                objective.table, stages[-1], breakpoints=BREAKPOINTS // 16, random=random
            )
            yield (grid.sigmas[-1], margin, True), theta


def _best_l2(tried: Folds, settings: Settings, grid: Grid) -> tuple[int, list[list[Array]]]:
    """The place of the L2 whose convex starts have the highest held-out likelihood.

    Only those count whose held-out accuracy is within a standard error of the best. Beside it the
    starts of each fold, at every L2 that was tried.
    """
    options: dict[str, Any] = {"max_iter": settings.max_iter, "tol": settings.tol}
    starts: list[list[Array]] = [[] for _ in tried.splits]
    losses: list[float] = []
    hits: list[Array] = []
    for l2 in grid.l2:
        loss, right = 0.0, np.zeros(len(tried.rows))
        for found, (place, objective, out) in zip(starts, tried, strict=True):
            near = found[-1] if found else None
            scaled = tried.scaled(l2, objective)
            found.append(convex_start(objective, near, l2=scaled, **options).theta)
            scores = out.scores(found[-1])
            loss += float(tried.weight[place] @ _cross_entropy(scores, out.target))
            right[place] = top(scores) == out.target
        losses.append(loss)
        hits.append(right)
        if len(losses) > WORSE and min(losses[-WORSE:]) > min(losses):
            break
    found_losses = np.array(losses)
    if tried.whole.goal is None:
        # Of a goal thresholds come later: of the scores themselves likelihood says more.
        accuracy = np.array([tried.weight @ each for each in hits])
        top_one = int(accuracy.argmax())
        share = accuracy[top_one] / tried.weight.sum()
        error = np.linalg.norm(tried.weight * (hits[top_one] - share))
        found_losses[accuracy < accuracy[top_one] - error] = np.inf
    return int(np.argmin(np.round(found_losses, 12))), starts


def _cross_entropy(scores: Array, target: Array) -> Array:
    """-log softmax of the target (n,)."""
    every = np.pad(np.asarray(scores, np.float64), ((0, 0), (1, 0)))
    own = np.take_along_axis(every, target[:, None], 1)[:, 0]
    return np.asarray(special.logsumexp(every, axis=1) - own)
