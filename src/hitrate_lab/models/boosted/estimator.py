"""Boosted trees of any host, under its own loss or one of hitrate's."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from hitrate.losses import LOSSES, LinkLoss
from hitrate_lab.models.boosted.family import Boosted

Array = NDArray[Any]

# Losses that are a link of log p, as an objective needs them; cross entropy is the host's own.
OBJECTIVES = tuple(
    name for name, loss in LOSSES.items() if issubclass(loss, LinkLoss) and name != "cross_entropy"
)
TREE_LOSSES = ("cross_entropy", *OBJECTIVES)


class BoostedTrees(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A hundred trees, one thread; labels of any kind, features dense or sparse.

    XGBoost takes the zeros of a sparse matrix for missing values.

    Parameters
    ----------
    host : str
        A name of `hitrate_lab.models.methods.MODELS`: "xgboost" or "lightgbm".
    loss : str
        "cross_entropy" is the host's own; one of `OBJECTIVES` is an `AccuracyObjective`.
    learning_rate : float
    size : int
        Of a tree: its depth in XGBoost, its leaves in LightGBM.
    rounds : int
        Trees for each class.
    random_state : int

    Attributes
    ----------
    classes_ : array, shape (C,)
    model_ : XGBClassifier or AccuracyLGBMClassifier
        Fitted to the classes' numbers.
    """

    def __init__(
        self,
        host: str = "xgboost",
        loss: str = "cross_entropy",
        *,
        learning_rate: float = 0.1,
        size: int = 6,
        rounds: int = 100,
        random_state: int = 0,
    ) -> None:
        self.host = host
        self.loss = loss
        self.learning_rate = learning_rate
        self.size = size
        self.rounds = rounds
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit to rows X (N, F) and their classes y (N,).

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        y : array, shape (N,)
        """
        self.classes_, target = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("BoostedTrees.fit: needs rows of two classes or more, got one class")
        self.model_ = self._model().fit(_rows(X), target)
        return self

    def predict(self, X: Any) -> Array:
        """The most likely class (N,).

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (N, C).

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        check_is_fitted(self)
        return np.asarray(self.model_.predict_proba(_rows(X)), np.float64)

    def _model(self) -> Any:
        """The host's classifier."""
        from hitrate_lab.models.methods import MODELS

        host = MODELS[self.host]
        assert isinstance(host, Boosted)
        options = {
            "n_estimators": self.rounds,
            "learning_rate": self.learning_rate,
            "random_state": self.random_state,
            "n_jobs": 1,
        }
        return host.classifier(self.loss, self.size, options)


def _rows(x: Any) -> Any:
    """Rows as both hosts take them: LightGBM knows sparse matrices, not sparse arrays."""
    return sparse.csr_matrix(x) if sparse.issparse(x) else x


def link_and_noise(loss: str) -> dict[str, Any]:
    """The link and noise that make a loss, as an objective takes them."""
    made = LOSSES[loss]()
    assert isinstance(made, LinkLoss)
    return {"link": made.link, "noise": made.noise}
