"""A leaf: accuracy as an objective of LightGBM; needs ``pip install lightgbm``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hitrate.integrations.boosting import Array, BoostingObjective
from hitrate.probability import class_probabilities

try:
    from lightgbm import LGBMClassifier
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.lightgbm needs LightGBM: pip install 'hitrate[lightgbm]'"
    ) from error

__all__ = ["AccuracyLGBMClassifier", "AccuracyObjective"]


class AccuracyObjective(BoostingObjective):
    r"""An objective for LightGBM, in its scikit-learn classes and in ``lightgbm.train``.

    The loss of a row is :math:`\ell(\log p)`: by default cross entropy plus expected error. The
    parameters are those of `BoostingObjective`. Weights of rows are taken into account. For
    ``lightgbm.train({"objective": AccuracyObjective(), "num_class": 3}, ...)`` a prediction is a
    score: of class 1, above 0 for a hit, or of every class. So it is for LightGBM's own
    `LGBMClassifier`; `AccuracyLGBMClassifier` makes classes of them.
    """

    def __call__(self, a: Any, b: Any, weight: Any | None = None) -> tuple[Array, Array]:
        """Slopes and curvatures, for either of LightGBM's ways to ask.

        Parameters
        ----------
        a, b
            Targets and scores, or scores and a `Dataset`.
        weight : array, shape (N,), optional
        """
        if hasattr(b, "get_label"):
            return self.derivatives(a, b.get_label(), b.get_weight())
        return self.derivatives(b, a, weight)


class AccuracyLGBMClassifier(LGBMClassifier):  # type: ignore[misc]
    """LightGBM's classifier, that predicts classes under an `AccuracyObjective` too.

    `LGBMClassifier` gives raw scores for any objective that is not its own. Everything else is as
    there; with another objective it is the same.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from hitrate.integrations.lightgbm import AccuracyLGBMClassifier, AccuracyObjective
    >>> X, y = load_wine(return_X_y=True)
    >>> model = AccuracyLGBMClassifier(
    ...     objective=AccuracyObjective(), n_estimators=20, n_jobs=1, verbose=-1
    ... )
    >>> model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
    True
    """

    def predict(self, X: Any, **options: Any) -> Array:
        """The class (N,) with the highest score.

        Parameters
        ----------
        X : array, shape (N, F)
        **options
            As in `LGBMClassifier.predict`.
        """
        if not self._is_ours(options):
            return np.asarray(super().predict(X, **options))
        # The host's own predict asks predict_proba, which is the one below.
        best = self.predict_proba(X, **options).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any, **options: Any) -> Array:
        """How often the objective's noise makes each class win, (N, C).

        Parameters
        ----------
        X : array, shape (N, F)
        **options
            As in `LGBMClassifier.predict_proba`.
        """
        if not self._is_ours(options):
            return np.asarray(super().predict_proba(X, **options))
        scores = np.asarray(super().predict_proba(X, raw_score=True, **options), np.float64)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        objective = self.objective
        logits = torch.from_numpy(scores)
        return class_probabilities(logits, objective.sigma, noise=objective.noise).numpy()

    def _is_ours(self, options: dict[str, Any]) -> bool:
        """Whether scores are to be made into classes or probabilities here."""
        other = ("raw_score", "pred_leaf", "pred_contrib")
        ours = isinstance(self.objective, AccuracyObjective)
        return ours and not any(options.get(name) for name in other)
