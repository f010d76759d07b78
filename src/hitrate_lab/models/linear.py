"""Linear models: scikit-learn's logistic regression, and hitrate's estimator under other losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hitrate_lab.models.family import Family, State, arrays_in, calibration_in

# C of LogisticRegression, which is 1 / (rows * l2) elsewhere: the same for every linear method that
# is tried with candidates, so that these differ in their loss alone. These and the networks'
# settings were settled with car, wine, breast-cancer, balance-scale and cylinder-bands in view.
STRENGTHS = (1.0, 100.0, 0.1, 1e4, 10.0, 0.01, 1000.0, 1e-3, 3.0, 30.0, 0.3, 300.0)
SOLVERS = ("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga")


class Linear(Family):
    """`LogisticRegression` under cross entropy, `AccuracyClassifier` under every other loss.

    Under EXACT that is the estimator as it comes: it chooses L2 and sigma on inner folds of its
    own, the way back to the likelihood's minimum included.
    """

    name = words = "linear"
    is_linear = True
    kinds = ("logistic regression", "linear")

    def losses(self) -> Sequence[str]:
        """All but distances to centres, which have no lower bound in scores not held back."""
        from hitrate.losses import LOSSES

        return [loss for loss in LOSSES if loss != "max_mahalanobis_center"]

    def label(self, loss: str) -> str:
        """Under cross entropy it has a name of its own."""
        return "logistic regression" if loss == "cross_entropy" else super().label(loss)

    def grid(self, loss: str, rows: int) -> Sequence[dict[str, Any]]:
        """Strengths of regularisation, which L2 has by the row."""
        if loss == "cross_entropy":
            return [{"C": strength} for strength in STRENGTHS]
        if loss == "exact":
            return [{}]
        fixed = {"sigma": 1.0, "margin": None, "polish": False}
        return [{"l2": float(f"{1 / (rows * strength):.3g}"), **fixed} for strength in STRENGTHS]

    def build(self, loss: str, parameters: dict[str, Any], seed: int) -> Any:
        """Scikit-learn's estimator, or hitrate's."""
        if loss == "cross_entropy":
            from sklearn.linear_model import LogisticRegression

            return LogisticRegression(max_iter=1000, random_state=seed, **parameters)
        from hitrate.sklearn import AccuracyClassifier

        return AccuracyClassifier(loss, random_state=seed, **parameters)

    def state_of(self, estimator: Any) -> State | None:
        """Coefficients, and what they were found by or how their scores become probabilities."""
        from sklearn.linear_model import LogisticRegression

        from hitrate.sklearn import AccuracyClassifier

        if type(estimator) is LogisticRegression:
            kind, settings = "logistic regression", {"solver": estimator.solver}
        elif type(estimator) is AccuracyClassifier:
            kind, settings = "linear", {"calibration": asdict(estimator.calibration_)}
        else:
            return None
        return State(kind, settings, {"coef": estimator.coef_, "intercept": estimator.intercept_})

    def restore(self, state: State, features: int, classes: int) -> Any:
        """One row of coefficients tells two classes apart."""
        rows = 1 if classes == 2 else classes
        estimator = self._unfitted(state)
        estimator.coef_, estimator.intercept_ = arrays_in(
            state, {"coef": (rows, features), "intercept": (rows,)}
        )
        return estimator

    @staticmethod
    def _unfitted(state: State) -> Any:
        """The estimator with its settings."""
        if state.kind == "linear":
            from hitrate.sklearn import AccuracyClassifier

            estimator = AccuracyClassifier()
            estimator.calibration_ = calibration_in(state)
            return estimator
        from sklearn.linear_model import LogisticRegression

        solver = state.settings["solver"]
        if solver not in SOLVERS:
            raise ValueError(f"solver={solver!r:.40}")
        return LogisticRegression(solver=solver)
