"""What every estimator here takes, and what it makes of its scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from hitrate.calibration import ENOUGH, Calibration, calibrate
from hitrate.sklearn.goals import Wanted
from hitrate.sklearn.parameters import class_weights
from hitrate.sklearn.solvers.objective import top
from hitrate.sklearn.solvers.standardized import Standardized

Array = NDArray[Any]
DTYPES = [np.float64, np.float32]


class AccuracyEstimator:
    """Classes and probabilities from `_scores`, (N, D) of all classes but the first."""

    classes_: Array
    calibration_: Calibration
    class_weight: Any
    objective: str
    cost: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        return tags

    def _table(self, X: Any, y: Any, sample_weight: Any | None, call: str) -> Standardized:
        """Checked rows, targets and weights to fit, without rows of weight 0; sets `classes_`."""
        wanted = Wanted(self.objective, self.cost, call)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=DTYPES)
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_, target = np.unique(y, return_inverse=True)
        weight = wanted.balanced(target, weight, len(self.classes_))
        weight = class_weights(self.class_weight, self.classes_, target, weight, call)
        weight, goal = wanted.weighted(target, weight, len(self.classes_))
        if not weight.all():
            counted = np.flatnonzero(weight)
            X, target, weight = X[counted], target[counted], weight[counted]
        if len(np.unique(target)) < 2:
            raise ValueError(f"{call}: needs rows of two classes or more, got one class")
        table = Standardized(X, target.astype(np.int64), weight, len(self.classes_))
        table.goal = goal
        return table

    def _checked(self, X: Any) -> Any:
        """Rows to predict, of a fitted estimator."""
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=DTYPES, reset=False)

    def _scores(self, X: Any) -> Array:
        """Scores of rows."""
        raise NotImplementedError

    def decision_function(self, X: Any) -> Array:
        """Scores (N, C), the first class's 0; for two classes (N,), those of the second.

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return scores[:, 0]
        return np.pad(scores, ((0, 0), (1, 0)))

    def predict(self, X: Any) -> Array:
        """The class (N,) with the highest score; the first of those that tie.

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        best = top(self._scores(X))
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (N, C): how often the noise of `calibration_` makes each class win.

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        logits = logits_of(self._scores(X))
        return self.calibration_.probabilities(logits).numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms (N, C) of `predict_proba`.

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


def logits_of(scores: Array) -> torch.Tensor:
    """Of all classes (N, C), from scores (N, D) of all but the first, whose score is 0."""
    return torch.from_numpy(np.pad(np.asarray(scores, np.float64), ((0, 0), (1, 0))))


def calibrated(
    scores: Array, target: Array, weight: Array, random: np.random.Generator
) -> Calibration:
    """The calibration for scores (N, D), by fits that had not seen these rows.

    Parameters
    ----------
    scores : array, shape (N, D)
    target : array of int, shape (N,)
    weight : array, shape (N,)
    random : Generator
        Of the rows that are used, if there are many.
    """
    generator = None
    if len(scores) > ENOUGH:
        generator = torch.Generator().manual_seed(int(random.integers(2**63)))
    rows = torch.from_numpy(target), torch.from_numpy(weight)
    return calibrate(logits_of(scores), rows[0], weight=rows[1], generator=generator)
