"""The fewest training errors of any linear classifier on three whole-numbered features, exactly.

Classifiers that predict alike form cells, and the closure of every cell holds a plane through
three points that are not on a line, if the points span the space. Points beside such a plane are
decided; points on it can be split by any line in the plane, those on the line by any threshold. So

    fewest = min over planes (errors beside it + fewest errors of a line among points on it)

and a plane is out as soon as its first part, with the smaller class of every point on it, is no
better than an error that was reached. Planes through two points turn about their line, so all of
them take one sort; the numbers are integers, and so are all comparisons that decide.
"""

from __future__ import annotations

import numpy as np


def fewest_errors(x: np.ndarray, y: np.ndarray, found: int) -> int:
    """`found`, if no linear classifier makes fewer errors, or that smaller number.

    Parameters
    ----------
    x : array, shape (N, F)
        Of rank 3, each feature a shifted and scaled whole number.
    y : array of 0 and 1, shape (N,)
    found : int
        Errors of some linear classifier.
    """
    points, place = np.unique(whole_numbers(x), axis=0, return_inverse=True)
    ones = np.bincount(place.ravel(), y, len(points)).astype(np.int64)
    zeros = np.bincount(place.ravel(), 1 - y, len(points)).astype(np.int64)
    best, seen = found, set()
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            for k in promising_planes(points - points[i], j, zeros, ones, best):
                normal = np.cross(points[j] - points[i], points[k] - points[i])
                normal //= np.gcd.reduce(normal) * np.sign(normal[np.flatnonzero(normal)[0]])
                key = (*normal.tolist(), int(normal @ points[i]))
                if key not in seen:
                    seen.add(key)
                    best = min(best, errors_of_plane(points, zeros, ones, i, normal))
    return int(best)


def whole_numbers(x: np.ndarray) -> np.ndarray:
    """Three independent features in their smallest steps."""
    columns: list[np.ndarray] = []
    for column in x.T:
        values = np.unique(column)
        steps = (column - values[0]) / np.diff(values).min()
        whole = np.round(steps)
        # Printed with six digits, a standardised whole number is off by a little.
        if np.abs(np.corrcoef(whole, column)[0, 1] - 1) > 1e-9:
            raise ValueError(f"fewest_errors: a feature is no whole number: {values[:5]}")
        if np.linalg.matrix_rank(np.stack([*columns, whole, np.ones(len(x))])) == len(columns) + 2:
            columns.append(whole)
    if len(columns) != 3:
        raise ValueError(f"fewest_errors: x has rank {len(columns)}, not 3")
    return np.stack(columns, 1).astype(np.int64)


def promising_planes(
    from_i: np.ndarray, j: int, zeros: np.ndarray, ones: np.ndarray, best: int
) -> np.ndarray:
    """One point of each plane through points i and j whose bound is below `best`."""
    line = from_i[j]
    first = np.array([line[1], -line[0], 0]) if line[0] or line[1] else np.array([1, 0, 0])
    p, q = from_i @ first, from_i @ np.cross(line, first)
    on_line = (p == 0) & (q == 0)
    angle = np.arctan2(q.astype(float), p * np.sqrt(float(line @ line)))
    angle = np.where(q == 0, np.pi, np.where(angle <= 0, angle + np.pi, angle))
    above = (q > 0) | ((q == 0) & (p < 0))
    rest = np.flatnonzero(~on_line)
    order = rest[np.argsort(angle[rest], kind="stable")]
    # Angles of different planes through small whole numbers differ by far more than this.
    first_of = np.flatnonzero(np.append(True, np.diff(angle[order]) > 1e-10))
    end_of = np.append(first_of[1:], len(order))
    smaller = np.minimum(zeros, ones)
    bound = np.full(len(first_of), np.iinfo(np.int64).max)
    for up, down in ((zeros, ones), (ones, zeros)):
        cost = np.where(above, up, down)
        turned = np.append(0, np.cumsum((np.where(above, down, up) - cost)[order]))
        spared = np.append(0, np.cumsum((cost - smaller)[order]))
        here = smaller[on_line].sum() + cost[rest].sum() + turned[first_of]
        bound = np.minimum(bound, here - (spared[end_of] - spared[first_of]))
    return order[first_of[bound < best]]


def errors_of_plane(
    points: np.ndarray, zeros: np.ndarray, ones: np.ndarray, i: int, normal: np.ndarray
) -> int:
    """Errors beside the plane, and the fewest of a line among the points on it."""
    side = (points - points[i]) @ normal
    on = side == 0
    beside = min(
        zeros[side > 0].sum() + ones[side < 0].sum(), ones[side > 0].sum() + zeros[side < 0].sum()
    )
    group = points[on] - points[i]
    across = group[np.abs(group).sum(1).argmax()]
    flat = np.stack([group @ across, group @ np.cross(normal, across)], 1)
    return int(beside + errors_of_lines(flat, zeros[on], ones[on]))


def errors_of_lines(points: np.ndarray, zeros: np.ndarray, ones: np.ndarray) -> int:
    """The fewest errors of a line among points (n, 2)."""
    best = min(zeros.sum(), ones.sum())
    smaller = np.minimum(zeros, ones)
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            line = points[j] - points[i]
            side = (points - points[i]) @ np.array([-line[1], line[0]])
            up, down, on = side > 0, side < 0, side == 0
            beside = min(zeros[up].sum() + ones[down].sum(), ones[up].sum() + zeros[down].sum())
            if beside + smaller[on].sum() < best:
                place = (points[on] - points[i]) @ line
                best = min(best, beside + errors_of_threshold(place, zeros[on], ones[on]))
    return int(best)


def errors_of_threshold(place: np.ndarray, zeros: np.ndarray, ones: np.ndarray) -> int:
    """The fewest errors of a threshold among points on a line."""
    order = np.argsort(place)
    zeros_below = np.append(0, np.cumsum(zeros[order]))
    ones_below = np.append(0, np.cumsum(ones[order]))
    errors = ones_below + zeros.sum() - zeros_below
    return int(min(errors.min(), (zeros.sum() + ones.sum() - errors).min()))
