"""What every estimator here makes of its scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate.sklearn.calibration import Calibration
from hitrate.sklearn.objective import top

Array = NDArray[Any]


class Predictions:
    """Classes and probabilities from `_scores`, (N, D) of all classes but the first."""

    classes_: Array
    calibration_: Calibration

    def _scores(self, X: Any) -> Array:
        """Scores of checked rows."""
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
        scores = self._scores(X)
        return self.calibration_.probabilities(scores)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms (N, C) of `predict_proba`.

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
