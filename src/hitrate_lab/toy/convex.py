"""Cross entropy and hinge loss, minimised by methods of their own: both are convex in (w, c)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np


def design(points: Sequence[float], learn_weight: bool) -> tuple[np.ndarray, np.ndarray]:
    """Offset (N,) and columns (N, P) of f = offset + columns @ theta; theta is (w, c) or (c,)."""
    x = np.asarray(points, dtype=float)
    ones = np.ones_like(x)
    return (0 * x, np.stack([x, ones], 1)) if learn_weight else (x, ones[:, None])


def minimize_cross_entropy(
    offset: np.ndarray, columns: np.ndarray, labels: Sequence[int]
) -> tuple[float, np.ndarray]:
    """Minimum and minimiser of Σ log(1 + exp(-y f)) by Newton steps, halved until the loss falls.

    Converges to the global minimum of this convex function where there is one (data not separable).
    """
    y = np.asarray(labels, dtype=float)

    def value(theta: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * (offset + columns @ theta)).sum())

    theta = np.zeros(columns.shape[1])
    for _ in range(100):
        q = 1 / (1 + np.exp(y * (offset + columns @ theta)))  # probability given to the wrong class
        hessian = columns.T @ (columns * (q * (1 - q))[:, None])
        step = np.linalg.solve(hessian, columns.T @ (y * q))
        while np.abs(step).max() > 1e-12 and value(theta + step) > value(theta):
            step = step / 2
        theta = theta + step
        if np.abs(step).max() <= 1e-12:
            break
    return value(theta), theta


def minimize_hinge(
    offset: np.ndarray, columns: np.ndarray, labels: Sequence[int]
) -> tuple[float, np.ndarray]:
    """Minimum of Σ max(0, 1 - y f), and every vertex (V, P) that attains it.

    The sum is convex, and linear between the kinks y f = 1. With both classes present its
    minimisers form a polytope, and each corner is a point where P kinks meet: so try them all.
    A single vertex means a unique minimiser.
    """
    y = np.asarray(labels, dtype=float)
    vertices = []
    for subset in map(list, combinations(range(len(y)), columns.shape[1])):
        if abs(np.linalg.det(columns[subset])) > 1e-12:
            vertices.append(np.linalg.solve(columns[subset], (y - offset)[subset]))
    thetas = np.array(vertices)
    values = np.maximum(0, 1 - y * (offset + thetas @ columns.T)).sum(1)
    lowest = thetas[values <= values.min() + 1e-12]
    return float(values.min()), np.unique(lowest.round(12) + 0.0, axis=0)


SOLVERS = {"cross entropy": minimize_cross_entropy, "hinge": minimize_hinge}
