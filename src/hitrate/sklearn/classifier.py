"""The estimator: a linear classifier trained for accuracy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from hitrate.sklearn.base import AccuracyEstimator, calibrated
from hitrate.sklearn.parameters import Parameters
from hitrate.sklearn.solvers.linear_fit import COARSE, Solution, solve
from hitrate.sklearn.solvers.objective import top
from hitrate.sklearn.solvers.settings import Settings
from hitrate.sklearn.solvers.sgd import train
from hitrate.sklearn.solvers.standardized import Standardized
from hitrate.sklearn.solvers.zero_one_search import polish
from hitrate.sklearn.tuning import Choice, choose, held_out_rows

Array = NDArray[Any]

BLOCK = 65_536


class AccuracyClassifier(AccuracyEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A linear classifier trained for accuracy.

    The score of the first class is 0, those of the others are linear in the features, and

    .. math::

        \frac{1}{N} \sum_n \ell\big(\mu(x_n), y_n; \sigma\big) + \frac{l_2}{2} \lVert W \rVert^2

    is minimised, by default with EXACT's :math:`\ell`: the probability that noise of size
    :math:`\sigma` on the scores makes the prediction wrong. Features are standardised inside,
    `coef_` and `intercept_` are for the features as they were given.

    Parameters
    ----------
    loss : str
        A name of `hitrate.losses.LOSSES`, but for "max_mahalanobis_center".
    loss_params : dict, optional
        More arguments of the loss, such as ``{"link": "gce"}`` for "exact".
    objective : {"accuracy", "balanced_accuracy", "cost", "f1_macro"}
        What decisions are trained, tuned and judged by. "balanced_accuracy" gives all classes the
        same weight; "cost" is the mean of `cost`; "f1_macro" the F1 of expected counts, averaged
        over classes. The last, and costs that depend on what is decided for instead, are trained by
        an objective of their own, with Gumbel noise, and with a threshold for each class that is
        chosen on held-out rows.
    cost : array, shape (C, C), optional
        For "cost": that of deciding for each class (column) where another is right (row), in the
        order of `classes_`.
    l2 : float or "auto"
        Weight of the squared length of the standardised features' weights;
        :math:`1 / (N l_2)` is C of scikit-learn's `LogisticRegression`. "auto" chooses by
        the start's held-out likelihood and accuracy, and tries the next stronger and weaker one
        with each sigma, above 20,000 rows 1/N too. 0 is for the best accuracy on the training rows.
    sigma : float or "auto"
        Where sigma ends. Without L2 it is in units of the scores' spread. "auto" chooses by
        held-out accuracy of 0.5, 0.25, smaller ones where scores are small, and the convex start
        of the path (`sigma_` is then infinite), but is 0.01 without L2.
    margin : float, None or "auto"
        Distances :math:`\mu_y - \mu_i` are clipped at this value from above. "auto" is 1; where the
        convex start is chosen, or without L2, it is none.
    polish : bool or "auto"
        Whether exact line searches on the 0-1 error of the training rows end the fit. "auto"
        chooses by held-out accuracy; without L2 it is yes.
    solver : {"homotopy", "sgd"}
        "homotopy" uses all rows: L-BFGS from the minimum of cross entropy along a falling sigma.
        "sgd" is the paper's: momentum, normalised gradients and logits, sigma from 10 to 0.01;
        "auto" chooses between l2 of 0 and 0.001 and margins of 0.1 and 1 there, on held-out rows.
    class_weight : dict, "balanced" or None
        Factors for the weights of rows.
    max_iter : int, optional
        Iterations for each stage of "homotopy", 100 if not given; steps of "sgd", 8000.
    tol : float
        A stage ends when the objective falls by a smaller part than this.
    batch_size : int
        Rows in a step of "sgd".
    learning_rate : float
        Of the first step of "sgd"; it falls to 1e-4.
    early_stopping : bool
        Stop where held-out accuracy is highest, along the path of "homotopy" by the inner split,
        in "sgd" when it has not risen for `n_iter_no_change` of 40 looks.
    validation_fraction : float
        Rows that are held out for the temperature, and for early stopping in "sgd", where no
        inner split has held-out scores.
    n_iter_no_change : int
        Patience of early stopping in "sgd".
    warm_start : bool
        Start from the weights of the last fit, if they have the same shape.
    random_state : int, RandomState instance or None
        Of inner splits, the polish's directions and "sgd".

    Attributes
    ----------
    classes_ : array, shape (C,)
    coef_ : array, shape (1, F) for two classes, else (C, F)
        Weights; for more than two classes the first row is 0.
    intercept_ : array, shape (1,) or (C,)
    n_iter_ : int
        Iterations of the final fit, all stages together, or steps.
    l2_, sigma_, margin_, polish_
        What was used.
    path_ : list of dict
        Along the falling sigma of "homotopy": `sigma`, and on the training rows `expected`, the
        accuracy under normal noise of that size, and `actual`, without noise. The first is the
        convex start, seen with the first sigma; then each stage, before any polish. Empty where the
        start is the answer, and for "sgd".
    calibration_ : Calibration
        What `predict_proba` adds to the scores, by held-out likelihood: `noise`, "normal" for
        probit or "gumbel" for softmax probabilities, its size `temperature`, and `lapse`, the
        share of rows whose class is anyone's guess.
    n_features_in_ : int
    feature_names_in_ : array of str
        Where X has names.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from hitrate.sklearn import AccuracyClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> classifier = AccuracyClassifier(random_state=0).fit(X[::2], y[::2])
    >>> classifier.score(X[1::2], y[1::2]) > 0.95
    True

    References
    ----------
    Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. 2022. Section 5.1.
    """

    def __init__(
        self,
        loss: str = "exact",
        *,
        loss_params: Mapping[str, Any] | None = None,
        objective: str = "accuracy",
        cost: ArrayLike | None = None,
        l2: float | str = "auto",
        sigma: float | str = "auto",
        margin: float | str | None = "auto",
        polish: bool | str = "auto",
        solver: str = "homotopy",
        class_weight: Mapping[Any, float] | str | None = None,
        max_iter: int | None = None,
        tol: float = 1e-4,
        batch_size: int = 256,
        learning_rate: float = 0.2,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.loss = loss
        self.loss_params = loss_params
        self.objective = objective
        self.cost = cost
        self.l2 = l2
        self.sigma = sigma
        self.margin = margin
        self.polish = polish
        self.solver = solver
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to rows X (N, F), dense or sparse, and their classes y (N,).

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        y : array, shape (N,)
            Numbers or strings.
        sample_weight : array, shape (N,), optional
            Not negative. A weight of 2 counts a row twice, 0 leaves it out.

        Returns
        -------
        AccuracyClassifier
            The estimator itself.
        """
        call = f"AccuracyClassifier(loss={self.loss!r}, solver={self.solver!r}).fit"
        Parameters(call, self.get_params(deep=False))
        before = getattr(self, "classes_", None)
        table = self._table(X, y, sample_weight, call)
        parameters = Parameters(call, self.get_params(deep=False), table.goal)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        random = np.random.default_rng(seed)
        theta = self._last_theta(table, before) if self.warm_start else None
        solution, used = self._solved(table, theta, parameters, random)
        self.l2_, self.sigma_ = used.l2, used.sigma
        self.margin_, self.polish_ = used.margin, used.polish
        coef, intercept = table.outwards(solution.theta)
        if table.classes > 2:
            coef, intercept = np.vstack([0 * coef[:1], coef]), np.append(0.0, intercept)
        self.coef_, self.intercept_ = coef, intercept
        self.n_iter_ = solution.iterations
        self.path_ = solution.path
        if not solution.converged:
            warnings.warn(
                f"{call}: the last stage did not converge in {used.max_iter} iterations; "
                "raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _scores(self, X: Any) -> Array:
        """Scores (N, D) of all classes but the first."""
        X = self._checked(X)
        coef, intercept = self.coef_, self.intercept_
        if len(self.classes_) > 2:
            coef, intercept = coef[1:], intercept[1:]
        scores = np.empty((X.shape[0], len(coef)))
        # In blocks, or float32 rows would all be copied to float64.
        for start in range(0, X.shape[0], BLOCK):
            scores[start : start + BLOCK] = X[start : start + BLOCK] @ coef.T + intercept
        return scores

    def _last_theta(self, table: Standardized, classes: Array | None) -> Array | None:
        """The weights of the last fit, if they fit this one's features and classes."""
        if classes is None or not np.array_equal(classes, self.classes_):
            return None
        coef, intercept = self.coef_, self.intercept_
        if len(classes) > 2:
            coef, intercept = coef[1:], intercept[1:]
        if coef.shape[1] != table.features:
            return None
        return table.inwards(coef, intercept)

    def _solved(
        self,
        table: Standardized,
        theta: Array | None,
        parameters: Parameters,
        random: np.random.Generator,
    ) -> tuple[Solution, Settings]:
        """Choose what is free, fit the temperature on held-out scores, then fit all rows."""
        settings = parameters.settings()
        grid = parameters.grid(table.rows)
        if grid is not None:
            choice = choose(table, settings, grid, random)
        else:
            candidates = [settings] if self.solver != "sgd" else parameters.sgd_candidates()
            choice = self._piloted(table, candidates, random)
        settings, rows, offsets = choice.settings, choice.rows, choice.offsets
        self.calibration_ = calibrated(
            choice.scores, table.target[rows], table.weight[rows], random
        )
        solution = self._fitted(table, theta, settings, random, choice.near)
        moved = solution.theta.copy()
        moved[-1] += offsets
        return replace(solution, theta=moved), settings

    def _piloted(
        self, table: Standardized, candidates: list[Settings], random: np.random.Generator
    ) -> Choice:
        """The most accurate candidate on held-out rows, fitted to the others."""
        some = np.arange(table.rows)
        if table.rows > COARSE:
            some = np.sort(random.choice(table.rows, COARSE, replace=False))
        held_out = held_out_rows(table.target[some], self.validation_fraction, random)
        inside, held_out = np.delete(some, held_out), some[held_out]
        part, best, highest = table.part(inside), None, -math.inf
        for settings in candidates:
            quick = replace(settings, breakpoints=settings.breakpoints // 8, told=False)
            pilot = self._fitted(part, None, quick, random)
            scores = table.scores(pilot.theta, held_out)
            target, weight = table.target[held_out], table.weight[held_out]
            offsets: Array | float = 0.0
            accuracy = float(weight @ (top(scores) == target))
            if table.goal is not None:
                accuracy, _, offsets = table.goal.judged(scores, target, weight)
            if accuracy > highest:
                found = Choice(settings, scores + offsets, held_out, pilot.start, offsets)
                best, highest = found, accuracy
        assert best is not None
        return best

    def _fitted(
        self,
        table: Standardized,
        theta: Array | None,
        settings: Settings,
        random: np.random.Generator,
        near: Array | None = None,
    ) -> Solution:
        """One fit at fixed settings by the solver that was asked for."""
        if self.solver == "homotopy":
            return solve(table, settings, random, theta, near)
        held_out = None
        if self.early_stopping:
            rows = held_out_rows(table.target, self.validation_fraction, random)
            held_out = table.part(rows)
            table = table.part(np.delete(np.arange(table.rows), rows))
        weights, steps = train(
            table,
            theta,
            settings,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            held_out=held_out,
            patience=self.n_iter_no_change,
            random=random,
        )
        if settings.polish:
            weights, _ = polish(table, weights, breakpoints=settings.breakpoints, random=random)
        return Solution(weights, steps, True)
