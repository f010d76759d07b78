"""Features as the solvers see them: standardised, read in blocks, dense or sparse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hitrate.sklearn.goals import Goal

Array = NDArray[Any]

# Below this many numbers a copy in float64 is cheap; above it float32 is twice as fast.
DOUBLE_UP_TO = 100_000
# Numbers in a block of a pass over all rows.
AT_ONCE = 250_000


class Standardized:
    r"""Rows :math:`(x - c) / s`, with centre c and scale s of each feature.

    Dense features are copied once, in the precision the solvers work in. Sparse ones are left as
    they are: centre and scale act on the weights, which is the same, and keeps zeros zero.

    Parameters
    ----------
    x : array or sparse matrix, shape (N, F)
    target : array of int, shape (N,)
    weight : array, shape (N,)
        Not negative; the copies kept here sum to one.
    classes : int
        C.
    center, scale : array, shape (F,), optional
        Of the features; by default their own mean and standard deviation.
    """

    def __init__(
        self,
        x: Any,
        target: Array,
        weight: Array,
        classes: int,
        center: Array | None = None,
        scale: Array | None = None,
    ) -> None:
        self.sparse = sparse.issparse(x)
        if center is None or scale is None:
            center, scale = center_and_scale(x, weight)
        self.center, self.scale = center, scale
        self.dtype = np.dtype(np.float64 if x.shape[0] * x.shape[1] <= DOUBLE_UP_TO else np.float32)
        self.x: Any = (
            sparse.csr_array(x) if self.sparse else _standardized(x, center, scale, self.dtype)
        )
        self.target = target
        self.weight = (weight / weight.sum()).astype(self.dtype)
        self.classes = classes
        # What decisions are judged by, where that is not their accuracy.
        self.goal: Goal | None = None

    @property
    def rows(self) -> int:
        """N."""
        return int(self.x.shape[0])

    @property
    def features(self) -> int:
        """F."""
        return int(self.x.shape[1])

    def part(self, rows: Array) -> Standardized:
        """Some of the rows, on the same scale."""
        part = object.__new__(Standardized)
        part.__dict__.update(self.__dict__)
        part.x, part.target = self.x[rows], self.target[rows]
        weight = self.weight[rows]
        part.weight = weight / weight.sum()
        return part

    def blocks(self, size: int) -> Iterator[slice]:
        """Slices of at most so many rows."""
        for start in range(0, self.rows, size):
            yield slice(start, min(start + size, self.rows))

    def scores(self, theta: Array, block: slice | Array = slice(None)) -> Array:
        """Scores (n, D) of classes 1, 2, ...; theta (F + 1, D) ends with the intercept.

        In memory they lie class by class.
        """
        weights, intercept = theta[:-1], theta[-1]
        if self.sparse:
            raw = weights / self.scale[:, None]
            return np.asarray(self.x[block] @ raw + (intercept - self.center @ raw))
        weights, intercept = weights.astype(self.dtype), intercept.astype(self.dtype)
        scores = weights.T @ self.x[block].T
        scores += intercept[:, None]
        return np.asarray(scores.T)

    def back(self, slopes: Array, block: slice | Array = slice(None)) -> Array:
        """Slopes in theta (F + 1, D) of slopes (n, D) in the scores."""
        total = slopes.sum(0, dtype=np.float64)
        inner = np.asarray(self.x[block].T @ slopes, dtype=np.float64)
        if self.sparse:
            inner = (inner - np.outer(self.center, total)) / self.scale[:, None]
        return np.vstack([inner, total])

    def dense(self, rows: Array) -> Array:
        """Some standardised rows, in float32."""
        x = self.x[rows]
        if self.sparse:
            x = (x.toarray() - self.center) / self.scale
        return np.asarray(x, np.float32)

    def values(self, rows: Array, features: Array) -> Array:
        """Standardised value (k,) of one feature in one row, for k pairs."""
        x = self.x[rows, features]
        if self.sparse:
            # Which of the two it is depends on the version of scipy.
            x = np.ravel(x.toarray() if sparse.issparse(x) else x)
            x = (x - self.center[features]) / self.scale[features]
        return np.asarray(x, np.float64)

    def gram(self) -> Array:
        """Second moments (F + 1, F + 1) of rows with a one appended."""
        count = self.features
        moments = np.zeros((count + 1, count + 1))
        mean = np.zeros(count)
        for block in self.blocks(max(1024, AT_ONCE // (count + 1))):
            rows, weight = self.x[block], self.weight[block].astype(np.float64)
            if self.sparse:
                rows = rows.toarray()
                rows = (rows - self.center) / self.scale
            moments[:-1, :-1] += np.asarray((rows * weight[:, None].astype(rows.dtype)).T @ rows)
            mean += weight @ rows
        moments[:-1, -1] = moments[-1, :-1] = mean
        moments[-1, -1] = 1.0
        return moments

    def inwards(self, coef: Array, intercept: Array) -> Array:
        """Theta of weights (D, F) and intercepts (D,) for the features as they were given."""
        weights = coef.T * self.scale[:, None]
        return np.vstack([weights, intercept + coef @ self.center])

    def outwards(self, theta: Array) -> tuple[Array, Array]:
        """Weights (D, F) and intercepts (D,) for the features as they were given."""
        coef = (theta[:-1] / self.scale[:, None]).T
        return coef, theta[-1] - coef @ self.center


def center_and_scale(x: Any, weight: Array) -> tuple[Array, Array]:
    """Weighted mean and standard deviation of each feature; 1 for one that is constant."""
    share = weight / weight.sum()
    if sparse.issparse(x):
        mean = np.asarray(share @ x, dtype=np.float64).ravel()
        square = np.asarray(share @ x.multiply(x), dtype=np.float64).ravel()
        variance = np.maximum(square - mean**2, 0.0)
        largest = np.sqrt(square)
    else:
        mean = np.asarray(share @ x, dtype=np.float64)
        variance = np.zeros(x.shape[1])
        size = max(1024, AT_ONCE // x.shape[1])
        for start in range(0, x.shape[0], size):
            rows = x[start : start + size] - mean
            variance += share[start : start + size] @ (rows * rows)
        largest = np.abs(mean)
    spread = np.sqrt(variance)
    # A feature that only rounding moves is constant.
    constant = (
        spread <= 1e-7 * np.maximum(largest, 1e-300)
        if sparse.issparse(x)
        else (spread <= 1e-12 * np.maximum(largest, 1e-300))
    )
    return mean, np.where(constant, 1.0, spread)


def _standardized(x: Array, center: Array, scale: Array, dtype: np.dtype[Any]) -> Array:
    """A copy (x - center) / scale, made in blocks so that nothing else of its size exists."""
    copy = np.empty(x.shape, dtype)
    size = max(1024, AT_ONCE // x.shape[1])
    for start in range(0, x.shape[0], size):
        copy[start : start + size] = (x[start : start + size] - center) / scale
    return copy
