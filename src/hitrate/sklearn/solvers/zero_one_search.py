"""Exact line searches on the 0-1 error: the last hits that a smooth objective leaves behind."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate.sklearn.solvers.standardized import Standardized

Array = NDArray[Any]

# Only so many rows, those closest to a change of sides, are sorted at a time.
NEAREST = 4096
# Breakpoints sorted in one go.
AT_ONCE = 1 << 17
# Lines to look at before each step, at least.
LINES = 16
# Rows this close to the boundary, of the largest score, may be on either side for others.
ROUNDING = {"float32": 1e-6, "float64": 1e-12}
# What a step costs at least, in rows.
FEWEST = 64
# Rounds over all classes without a better error before the search starts from elsewhere.
PATIENCE = 5


def polish(
    table: Standardized, theta: Array, *, breakpoints: int, random: np.random.Generator
) -> tuple[Array, float]:
    """Move one class's score at a time, to where on a line fewest rows are wrong.

    Along a direction each row changes sides at most once, at its breakpoint, so sorting these
    gives the error everywhere on the line. A step goes to the middle of the best piece; among
    equally good ones to the widest, and to another as good as the present one where none is
    better. Directions are the features, the intercept and random ones. When nothing helps any more
    the search goes on from a point nearby, or from a threshold on one feature.

    Parameters
    ----------
    table : Standardized
    theta : array, shape (F + 1, D)
    breakpoints : int
        How many to look at in all.
    random : Generator

    Returns
    -------
    theta : array, shape (F + 1, D)
        The best point that was met.
    error : float
        Weighted share of rows that are wrong there.
    """
    search = LineSearch(table, theta)
    best, lowest = theta, search.error
    length = float(np.linalg.norm(theta)) or 1.0
    size = theta.shape[0]
    near = min(table.rows, NEAREST)
    count = max(1, min(max(size, LINES), AT_ONCE // near, 8 * AT_ONCE // size))
    movable = [1] if table.classes == 2 else list(range(table.classes))
    left, stale, leap = breakpoints, 0, False
    while left > 0 and lowest > 0:
        if stale == PATIENCE:
            leap = not leap
            search, stale = LineSearch(table, best if leap else kicked(best, random)), 0
            if leap:
                search.leap(int(random.choice(movable)), pivoted(table, count, random))
        stale += 1
        for c in movable:
            for lines in (pivoted(table, count, random), random_lines(size, count, random)):
                search.step(c, lines)
                left -= max(near, FEWEST) * lines.shape[1]
                if search.error < lowest - 1e-12:
                    # The error does not depend on the length, which must not run away. Scores
                    # that many steps have added to may hide that rows lie on the boundary.
                    search = LineSearch(table, search.theta * (length / search.length))
                    if search.error < lowest - 1e-12:
                        best, lowest, stale = search.theta.copy(), search.error, 0
            if left <= 0:
                break
    return best, lowest


def pivoted(table: Standardized, count: int, random: np.random.Generator) -> Array:
    """Lines (F + 1, k): one feature's weight each, and the intercept so that one row stands still.

    Far out on such a line the boundary is a threshold on the feature, and rows that share the
    row's value of it stay as they were: whole numbers and categories have many of these.
    """
    size = table.features + 1
    which = random.permutation(size)
    which = which[:count] if count <= size else np.resize(which, count)
    lines = np.zeros((size, len(which)))
    rows = random.integers(table.rows, size=len(which))
    moving = np.flatnonzero(which < table.features)
    values = table.values(rows[moving], which[moving])
    lines[which, np.arange(len(which))] = 1.0
    lines[-1, moving] = -values
    return lines


def random_lines(size: int, count: int, random: np.random.Generator) -> Array:
    """Lines in any direction, about as long as those of single features."""
    return np.asarray(random.standard_normal((size, count)) / np.sqrt(size))


def kicked(theta: Array, random: np.random.Generator) -> Array:
    """Another point to search from: theta, moved at random by a hundredth to all of its length."""
    far = 10 ** random.uniform(-2, 0) * np.linalg.norm(theta) / np.sqrt(theta.size)
    return np.asarray(theta + far * random.standard_normal(theta.shape))


class LineSearch:
    """Scores of all rows, kept up to date as theta moves."""

    def __init__(self, table: Standardized, theta: Array) -> None:
        self.table = table
        self.theta = theta.copy()
        self.scores = np.zeros((table.rows, table.classes), table.dtype)
        self.scores[:, 1:] = table.scores(theta)
        self.weight = table.weight.astype(np.float64)
        self.all = np.arange(table.rows)
        rounding = ROUNDING[self.scores.dtype.name] * np.abs(self.scores).max()
        self.error = self._error_of(self._gaps() - rounding)

    @property
    def length(self) -> float:
        """Of all weights."""
        return float(np.linalg.norm(self.theta))

    def step(self, c: int, lines: Array) -> None:
        """Search along lines (F + 1, k) of class c's score and move along the best one."""
        rows, gap, sign = self._that_depend_on(c)
        if not len(rows):
            return
        near = np.arange(len(rows))
        if len(rows) > NEAREST:
            near = np.argpartition(np.abs(gap), NEAREST)[:NEAREST]
        there = rows[near]
        slope = sign[near, None] * self.table.scores(lines, there)  # (n, k)
        found = best_piece(gap[near], slope, self.weight[there])
        if found is None:
            return
        line, step = found
        # Rows that were too far away to be sorted have the last word.
        moved = gap + step * sign * self.table.scores(lines[:, line : line + 1], rows)[:, 0]
        weight = self.weight[rows]
        change = float(weight @ (moved <= 0)) - float(weight @ (gap <= 0))
        if change <= 1e-12:
            self._move(c, step * lines[:, line])
            self.error += change

    def leap(self, c: int, lines: Array) -> None:
        """Go to the far end of the line (F + 1, k) with the fewest errors there, be they more."""
        rows, gap, sign = self._that_depend_on(c)
        if not len(rows):
            return
        if len(rows) > NEAREST:
            some = np.argpartition(np.abs(gap), NEAREST)[:NEAREST]
            rows, gap, sign = rows[some], gap[some], sign[some]
        slope = sign[:, None] * self.table.scores(lines, rows)
        still = np.abs(slope) <= 1e-6 * np.abs(slope).max(0)
        stays = still & (gap <= 0)[:, None]
        weight = self.weight[rows]
        errors = np.stack([weight @ (stays | (~still & (way * slope < 0))) for way in (1, -1)])
        way, line = np.unravel_index(int(errors.argmin()), errors.shape)
        reach = np.abs(gap[:, None] / np.where(still, np.inf, slope))[:, line].max()
        self._move(c, (1 - 2 * way) * (1.5 * reach + 1e-9) * lines[:, line])
        self.error = self._error_of(self._gaps())

    def _move(self, c: int, direction: Array) -> None:
        """Add to class c's weights; the first class's are kept at 0 by moving all others."""
        if c == 0:
            self.theta -= direction[:, None]
        else:
            self.theta[:, c - 1] += direction
        self.scores[:, c] += self.table.scores(direction[:, None])[:, 0]

    def _that_depend_on(self, c: int) -> tuple[Array, Array, Array]:
        """Rows that class c's score can turn, how far they are on the right side, and its sign."""
        target, scores = self.table.target, self.scores
        own = np.take_along_axis(scores, target[:, None], 1)[:, 0]
        if scores.shape[1] == 2:
            gap = own - scores[self.all, 1 - target]
            return self.all, gap, np.where(target == c, 1.0, -1.0).astype(scores.dtype)
        others = scores.copy()
        others[self.all, target] = -np.inf
        mine = target == c
        others[~mine, c] = -np.inf
        rival = others.max(1)
        # A row of another class that a third class has taken is lost whatever class c does.
        rows = np.flatnonzero(mine | (own > rival))
        mine = mine[rows]
        gap = np.where(mine, own[rows] - rival[rows], own[rows] - scores[rows, c])
        return rows, gap, np.where(mine, 1.0, -1.0).astype(scores.dtype)

    def _gaps(self) -> Array:
        """How far each row's own score is above the best other one."""
        others = self.scores.copy()
        others[self.all, self.table.target] = -np.inf
        return np.asarray(self.scores[self.all, self.table.target] - others.max(1))

    def _error_of(self, gaps: Array) -> float:
        return float(self.weight @ (gaps <= 0))


def best_piece(gap: Array, slope: Array, weight: Array) -> tuple[int, float] | None:
    """Where ``gap + s slope > 0`` holds for most weight: the line, and s, not on the piece at 0.

    Parameters
    ----------
    gap : array, shape (n,)
    slope : array, shape (n, k)
        Of k lines.
    weight : array, shape (n,)

    Returns
    -------
    (line, s), or None where every other piece has a larger error, or there is none
    """
    if len(gap) < 2:
        return None
    slope = np.ascontiguousarray(slope.T)  # (k, n): sorted fastest along memory
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        at = -gap / slope
    # Rows that no step turns come last, after all pieces.
    at[~np.isfinite(at)] = np.inf
    # Going up, a row with a rising gap turns right at its breakpoint, one with a falling gap wrong.
    change = np.where(slope > 0, -weight, weight)
    order = at.argsort(1)
    order += np.arange(0, at.size, at.shape[1])[:, None]
    at = at.take(order)
    error = change.take(order).cumsum(1)
    below = (at < 0).sum(1)
    lines = np.arange(len(at))
    now = np.where(below > 0, error[lines, np.maximum(below - 1, 0)], 0.0)
    scale = np.sqrt(np.mean(slope.astype(np.float64) ** 2, 1)) + 1e-300
    with np.errstate(invalid="ignore"):
        width = (at[:, 1:] - at[:, :-1]) * scale[:, None]
    # A piece thinner than rounding is none, and the present one is no news.
    usable = (width > 1e-9 * (1.0 + np.abs(gap).max())) & (width < np.inf)
    here = below - 1
    inside = (here >= 0) & (here < width.shape[1])
    usable[lines[inside], here[inside]] = False
    gain = np.where(usable, now[:, None] - error[:, :-1], -np.inf)
    most = gain.max()
    if most < -1e-12:
        return None
    equal = np.flatnonzero(gain >= most - 1e-12)
    line, piece = np.unravel_index(int(equal[width.take(equal).argmax()]), width.shape)
    return int(line), float(0.5 * (at[line, piece] + at[line, piece + 1]))
