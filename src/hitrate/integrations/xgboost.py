"""A leaf: accuracy as an objective of XGBoost; needs ``pip install xgboost`` or xgboost-cpu."""

from __future__ import annotations

from typing import Any

from hitrate.integrations.boosting import Array, BoostingObjective

try:
    import xgboost as _xgboost  # noqa: F401
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.xgboost needs XGBoost: pip install 'hitrate[xgboost]'"
    ) from error

__all__ = ["AccuracyObjective"]


class AccuracyObjective(BoostingObjective):
    r"""An objective for ``XGBClassifier(objective=...)`` and ``xgboost.train(..., obj=...)``.

    The loss of a row is :math:`\ell(\log p)`: by default cross entropy plus expected error. The
    parameters are those of `BoostingObjective`. XGBoost's own probabilities are those of noise
    "gumbel" with `sigma` 1, whatever the objective's are. Weights of rows are taken into account.
    With `xgboost.train`, "num_class" has to be said for more than two classes, and a prediction is
    a score: of class 1, above 0 for a hit, or of every class.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from xgboost import XGBClassifier
    >>> from hitrate.integrations.xgboost import AccuracyObjective
    >>> X, y = load_wine(return_X_y=True)
    >>> model = XGBClassifier(objective=AccuracyObjective(), n_estimators=20, n_jobs=1)
    >>> model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
    True
    """

    def __call__(self, a: Any, b: Any, sample_weight: Any | None = None) -> tuple[Array, Array]:
        """Slopes and curvatures, for either of XGBoost's ways to ask.

        Parameters
        ----------
        a, b
            Targets and scores, or scores and a `DMatrix`.
        sample_weight : array, shape (N,), optional
        """
        if hasattr(b, "get_label"):
            return self.derivatives(a, b.get_label(), b.get_weight())
        return self.derivatives(b, a, sample_weight)
