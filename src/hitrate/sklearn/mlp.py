"""The estimator with a hidden layer: a small network trained for accuracy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from hitrate.losses import LOSSES
from hitrate.recipes import RECIPES, current_name
from hitrate.sklearn.base import AccuracyEstimator, calibrated
from hitrate.sklearn.goals import OF_NETWORK, Goal, refuse_others
from hitrate.sklearn.solvers.mlp_training import (
    Network,
    Training,
    TrainingOptions,
    random_network,
    train_network,
)
from hitrate.sklearn.solvers.standardized import Standardized
from hitrate.sklearn.tuning import held_out_rows
from hitrate.sklearn.validation import Validation

Array = NDArray[Any]

BLOCK = 65_536


class AccuracyMLPClassifier(AccuracyEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A network with one hidden layer, trained for accuracy.

    .. math::

        \mu(x) = V^T \max(W^T x + b, 0) + c

    is trained with AdamW on the mean of a loss that may move during training: by default cross
    entropy plus expected error, whose focus rises until only the error is left. Features are
    standardised inside; `coefs_` and `intercepts_` are for the features as they were given.

    Parameters
    ----------
    loss : str
        A name of `hitrate.recipes.RECIPES` or `hitrate.losses.LOSSES`, but for
        "max_mahalanobis_center".
    loss_params : dict, optional
        Changes of its arguments, a schedule in the place of a number included: what
        `hitrate.recipe` takes, such as ``{"link": "gce", "q": schedules.linear(0.0, 1.0)}`` for
        "exact".
    objective : {"accuracy", "balanced_accuracy", "cost", "f1_macro"}
        What decisions are trained and judged by: see `AccuracyClassifier`. The last, and costs that
        depend on what is decided for instead, are trained by an objective of their own, which takes
        over from cross entropy as training goes on; there are no thresholds.
    cost : array, shape (C, C), optional
        For "cost": that of deciding for each class (column) where another is right (row), in the
        order of `classes_`.
    hidden_size : int or "features"
        Units of the hidden layer; "features" is the paper's, as many as there are features.
    weight_decay : float
        AdamW's, of both layers' weights.
    learning_rate : float
        Of the first step; it falls to zero along a cosine.
    batch_size : int or "auto"
        Rows in a step, about: the rows of an epoch are dealt into equal parts. "auto" is a
        twentieth of the rows, from 16 to 256.
    max_iter : int
        Epochs.
    class_weight : dict, "balanced" or None
        Factors for the weights of rows.
    early_stopping : bool
        Hold rows out, choose the epoch that has most of them right, and stop when these have not
        become more for `n_iter_no_change` epochs. Without it training has `max_iter` epochs on all
        rows, after a first training that the probabilities are calibrated by: it takes twice as
        long.
    refit : bool
        With early stopping, train again on all rows, to the epoch that was chosen; else the weights
        are those that have not seen the rows held out.
    validation_fraction : float
        Part of the rows to hold out.
    n_iter_no_change : int
        Patience of early stopping.
    warm_start : bool
        Start from the weights of the last fit, if they have the same shape.
    device : str or torch.device
        Where to train; "auto" takes a GPU where there is one. Weights are kept, and predictions
        made, on the CPU.
    random_state : int, RandomState instance or None
        Of the first weights, the split and the order of rows. torch's own random state is not used.

    Attributes
    ----------
    classes_ : array, shape (C,)
    coefs_ : list of arrays, shape (F, H) and (H, C)
    intercepts_ : list of arrays, shape (H,) and (C,)
    n_iter_ : int
        Epochs that were trained, beside those of a refit.
    best_epoch_ : int
        The epoch that the weights are from, counted from 1.
    loss_curve_ : list of float
        Mean loss of each epoch, of the training without the rows held out if there is early
        stopping. Where the loss moves, so does its scale.
    validation_scores_ : list of float or None
        Held-out accuracy after each epoch, or what `objective` says, with early stopping.
    calibration_ : Calibration
        What `predict_proba` adds to the scores: see `AccuracyClassifier`.
    n_features_in_ : int
    feature_names_in_ : array of str
        Where X has names.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from hitrate.sklearn import AccuracyMLPClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> classifier = AccuracyMLPClassifier(max_iter=50, random_state=0).fit(X[::2], y[::2])
    >>> classifier.score(X[1::2], y[1::2]) > 0.9
    True

    References
    ----------
    Battash, Hazan, Wolf. Mixing between the Cross Entropy and the Expectation Loss Terms. 2021. UCI
    Datasets.
    """

    def __init__(
        self,
        loss: str = "mixed_gradual",
        *,
        loss_params: Mapping[str, Any] | None = None,
        objective: str = "accuracy",
        cost: ArrayLike | None = None,
        hidden_size: int | str = 128,
        weight_decay: float = 0.01,
        learning_rate: float = 0.003,
        batch_size: int | str = "auto",
        max_iter: int = 100,
        class_weight: Mapping[Any, float] | str | None = None,
        early_stopping: bool = True,
        refit: bool = True,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 30,
        warm_start: bool = False,
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.loss = loss
        self.loss_params = loss_params
        self.objective = objective
        self.cost = cost
        self.hidden_size = hidden_size
        self.weight_decay = weight_decay
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.refit = refit
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to rows X (N, F), dense or sparse, and their classes y (N,).

        Ctrl-C ends the training, with a warning, at the best epoch so far.

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        y : array, shape (N,)
            Numbers or strings.
        sample_weight : array, shape (N,), optional
            Not negative; 0 leaves a row out.

        Returns
        -------
        AccuracyMLPClassifier
            The estimator itself.
        """
        call = f"AccuracyMLPClassifier(loss={self.loss!r}).fit"
        parameters = NetworkParameters(call, self.get_params(deep=False))
        before = getattr(self, "classes_", None)
        table = self._table(X, y, sample_weight, call)
        plan = parameters.plan(table.goal)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        random = np.random.default_rng(seed)
        start = self._start(table, before, random)
        found = self._trained(table, start, plan, random)
        coef, intercept = table.outwards(found.network.hidden)
        self.coefs_ = [coef.T, found.network.output[:-1]]
        self.intercepts_ = [intercept, found.network.output[-1]]
        self.n_iter_, self.best_epoch_ = len(found.losses), found.best_epoch
        self.loss_curve_ = found.losses
        self.validation_scores_ = found.accuracies if self.early_stopping else None
        if found.interrupted:
            warnings.warn(
                f"{call}: interrupted after {self.n_iter_} of {plan.epochs} epochs; "
                f"kept epoch {self.best_epoch_}",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _scores(self, X: Any) -> Array:
        """Scores (N, D) of all classes but the first, whose own are subtracted."""
        X = self._checked(X)
        (w, v), (b, c) = self.coefs_, self.intercepts_
        scores = np.empty((X.shape[0], v.shape[1] - 1))
        for start in range(0, X.shape[0], BLOCK):
            active = np.maximum(X[start : start + BLOCK] @ w + b, 0)
            scores[start : start + BLOCK] = active @ (v[:, 1:] - v[:, :1]) + (c[1:] - c[0])
        return scores

    def _start(
        self, table: Standardized, classes: Array | None, random: np.random.Generator
    ) -> Network:
        """The last fit's weights if they are wanted and fit, else random ones."""
        size = table.features if self.hidden_size == "features" else int(self.hidden_size)
        if self.warm_start and classes is not None and np.array_equal(classes, self.classes_):
            (w, v), (b, c) = self.coefs_, self.intercepts_
            if w.shape == (table.features, size):
                return Network(table.inwards(w.T, b), np.vstack([v, c]))
        return random_network(table.features, size, table.classes, random)

    def _trained(
        self,
        table: Standardized,
        start: Network,
        plan: TrainingOptions,
        random: np.random.Generator,
    ) -> Training:
        """Train, and calibrate on rows that the training had not seen."""
        rows = held_out_rows(table.target, self.validation_fraction, random)
        held_out = table.part(rows)
        inside = table.part(np.delete(np.arange(table.rows), rows))
        found = train_network(
            inside, held_out if self.early_stopping else None, start, plan, random
        )
        scores = found.network.scores(held_out)
        self.calibration_ = calibrated(scores, held_out.target, held_out.weight, random)
        if found.interrupted:
            return found
        if not self.early_stopping:
            return train_network(table, None, start, plan, random)
        return self._refitted(table, start, plan, random, found) if self.refit else found

    def _refitted(
        self,
        table: Standardized,
        start: Network,
        plan: TrainingOptions,
        random: np.random.Generator,
        found: Training,
    ) -> Training:
        """What was found, with the weights of a training on all rows that is as long."""
        try:
            whole = train_network(table, None, start, plan, random, last=found.best_epoch)
        except KeyboardInterrupt:
            return replace(found, interrupted=True)
        if whole.interrupted:
            return replace(found, interrupted=True)
        return replace(found, network=whole.network)


@dataclass(frozen=True)
class NetworkParameters(Validation):
    """The parameters of `AccuracyMLPClassifier`, checked."""

    def __post_init__(self) -> None:
        given = self.given
        names = [name for name in (*RECIPES, *LOSSES) if name != "max_mahalanobis_center"]
        if not isinstance(given["loss"], str) or current_name(given["loss"]) not in names:
            self.complain("loss", f"is not one of {', '.join(map(repr, names))}")
        if given["loss_params"] is not None and not isinstance(given["loss_params"], Mapping):
            self.complain("loss_params", "must be None or a dict of the loss's arguments")
        if isinstance(given["hidden_size"], str):
            if given["hidden_size"] != "features":
                self.complain("hidden_size", "is no word but 'features'")
        else:
            self.whole("hidden_size")
        if isinstance(given["batch_size"], str):
            if given["batch_size"] != "auto":
                self.complain("batch_size", "is no word but 'auto'")
        else:
            self.whole("batch_size")
        self.whole("max_iter")
        self.whole("n_iter_no_change")
        self.number("weight_decay", low=0.0)
        self.number("learning_rate", above=0.0)
        self.number("validation_fraction", above=0.0, below=1.0)

    def plan(self, goal: Goal | None = None) -> TrainingOptions:
        """What the training needs to know; towards a goal it starts as cross entropy."""
        given = self.given
        if goal is not None:
            refuse_others(given, OF_NETWORK, self.call)
        return TrainingOptions(
            call=self.call,
            loss=current_name(given["loss"]) if goal is None else "cross_entropy",
            loss_params=dict(given["loss_params"] or {}),
            weight_decay=float(given["weight_decay"]),
            learning_rate=float(given["learning_rate"]),
            batch_size=None if given["batch_size"] == "auto" else int(given["batch_size"]),
            epochs=int(given["max_iter"]),
            patience=int(given["n_iter_no_change"]),
            device=self._device(),
        )

    def _device(self) -> torch.device:
        """The device that was named, if it is there."""
        name = self.given["device"]
        if name == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ValueError(f"{self.call}: device={name!r} is not there: {error}") from error
        return device
