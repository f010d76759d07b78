"""What a fitted estimator is made of: arrays, plain JSON, and a booster's own text. No pickle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.lightgbm_trees import checked_lightgbm
from hitrate_lab.models.xgboost_trees import checked_xgboost

Array = NDArray[Any]

# Files of boosted trees.
TREES = ("trees.json", "trees.txt")


@dataclass(frozen=True)
class State:
    """All that an estimator needs to predict.

    Parameters
    ----------
    kind : str
        A key of `RESTORE`.
    settings : dict
        Plain JSON.
    arrays : dict of arrays of float64
    files : dict of bytes
        In the host's own format, by the name of the file.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def state_of(estimator: Any) -> State:
    """The state of an estimator that was fitted to classes 0, 1, ..."""
    name = type(estimator).__name__
    if name == "LogisticRegression":
        arrays = {"coef": estimator.coef_, "intercept": estimator.intercept_}
        return State("logistic regression", {"solver": estimator.solver}, arrays)
    if name == "AccuracyClassifier":
        arrays = {"coef": estimator.coef_, "intercept": estimator.intercept_}
        return State("linear", {"calibration": asdict(estimator.calibration_)}, arrays)
    if name == "AccuracyMLPClassifier":
        (w, v), (b, c) = estimator.coefs_, estimator.intercepts_
        arrays = {"hidden": w, "hidden_bias": b, "output": v, "output_bias": c}
        return State("mlp", {"calibration": asdict(estimator.calibration_)}, arrays)
    if name == "BoostedTrees" and estimator.host == "xgboost":
        booster = estimator.model_.get_booster()
        # What could not be read again is not written.
        text = checked_xgboost(
            bytes(booster.save_raw("json")), booster.num_features(), len(estimator.classes_)
        )
        return State("xgboost", files={"trees.json": text})
    if name == "BoostedTrees":
        trees = estimator.model_
        # What was loaded knows its noise; what was fitted has an objective, or the host's own.
        said = trees if isinstance(trees, LightGBMTrees) else trees.objective
        noise, sigma = getattr(said, "noise", None), getattr(said, "sigma", None)
        booster = trees.booster_
        text = checked_lightgbm(
            booster.model_to_string().encode(),
            booster.num_feature(),
            len(estimator.classes_),
            own=noise is None,
        )
        return State("lightgbm", {"noise": noise, "sigma": sigma}, files={"trees.txt": text})
    raise BadInput(f"a {name} cannot be saved")


def estimator_from(state: State, features: int, classes: int) -> Any:
    """An estimator that predicts what the one behind a state did.

    Parameters
    ----------
    state : State
    features, classes : int
        F and C, that arrays and trees must agree with.
    """
    if state.kind not in RESTORE:
        raise BadInput(
            f"the model is of a kind that this version does not know: {state.kind!r:.40}"
        )
    for name, array in state.arrays.items():
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise BadInput(f"the model's array {name!r:.40} holds what is no finite number")
    try:
        estimator = RESTORE[state.kind](state, features, classes)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"the model's state is not one of hitrate's ({error!r})") from None
    estimator.classes_ = np.arange(classes)
    estimator.n_features_in_ = features
    return estimator


def _arrays(state: State, shapes: Mapping[str, tuple[int, ...]]) -> list[Array]:
    """The arrays in this order, if there are these and they have these shapes."""
    if set(state.arrays) != set(shapes) or state.files:
        raise BadInput(f"the model has the arrays {sorted(state.arrays)} and not {sorted(shapes)}")
    for name, shape in shapes.items():
        if state.arrays[name].shape != shape:
            found = state.arrays[name].shape
            raise BadInput(f"the model's array {name!r} has the shape {found} and not {shape}")
    return [state.arrays[name] for name in shapes]


def _calibration(state: State) -> Any:
    """The calibration, if it is one."""
    from hitrate.calibration import NOISES, Calibration

    found = Calibration(**state.settings["calibration"])
    _number("temperature", found.temperature, 0.0, math.inf)
    _number("lapse", found.lapse, -1.0, 1.0)
    if found.noise not in NOISES or found.lapse < 0:
        raise ValueError(f"noise={found.noise!r:.40}, lapse={found.lapse!r}")
    return found


def _number(name: str, value: Any, above: float, below: float) -> None:
    # As a float: that of a whole number with hundreds of digits is none.
    if type(value) not in (int, float) or not above < float(value) < below:
        raise ValueError(f"{name}={value!r:.40}")


def _logistic_regression(state: State, features: int, classes: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    rows = 1 if classes == 2 else classes
    solver = state.settings["solver"]
    if solver not in ("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"):
        raise ValueError(f"solver={solver!r:.40}")
    estimator = LogisticRegression(solver=solver)
    estimator.coef_, estimator.intercept_ = _arrays(
        state, {"coef": (rows, features), "intercept": (rows,)}
    )
    return estimator


def _linear(state: State, features: int, classes: int) -> Any:
    from hitrate.sklearn import AccuracyClassifier

    rows = 1 if classes == 2 else classes
    estimator = AccuracyClassifier()
    estimator.coef_, estimator.intercept_ = _arrays(
        state, {"coef": (rows, features), "intercept": (rows,)}
    )
    estimator.calibration_ = _calibration(state)
    return estimator


def _mlp(state: State, features: int, classes: int) -> Any:
    from hitrate.sklearn import AccuracyMLPClassifier

    bias = state.arrays["hidden_bias"]
    units = bias.shape[0] if bias.ndim else 0
    w, b, v, c = _arrays(
        state,
        {
            "hidden": (features, units),
            "hidden_bias": (units,),
            "output": (units, classes),
            "output_bias": (classes,),
        },
    )
    estimator = AccuracyMLPClassifier()
    estimator.coefs_, estimator.intercepts_ = [w, v], [b, c]
    estimator.calibration_ = _calibration(state)
    return estimator


def _xgboost(state: State, features: int, classes: int) -> Any:
    try:
        from xgboost import XGBClassifier
        from xgboost.core import XGBoostError
    except ImportError:
        raise BadInput("the model needs XGBoost: pip install 'hitrate[xgboost]'") from None
    from hitrate_lab.models.boosted import BoostedTrees

    text = checked_xgboost(_trees(state, "trees.json"), features, classes)
    model = XGBClassifier(n_jobs=1)
    try:
        model.load_model(bytearray(text))
        found = model.get_booster().num_features(), model.n_classes_
    except XGBoostError:
        raise BadInput("the model's trees cannot be read by XGBoost") from None
    return _boosted(BoostedTrees("xgboost"), model, found, (features, classes))


def _lightgbm(state: State, features: int, classes: int) -> Any:
    try:
        from lightgbm import Booster
        from lightgbm.basic import LightGBMError
    except ImportError:
        raise BadInput("the model needs LightGBM: pip install 'hitrate[lightgbm]'") from None
    from hitrate.integrations.boosting import NOISES
    from hitrate_lab.models.boosted import BoostedTrees

    noise, sigma = state.settings["noise"], state.settings["sigma"]
    if noise is not None:
        _number("sigma", sigma, 0.0, math.inf)
        if noise not in NOISES:
            raise ValueError(f"noise={noise!r:.40}")
    elif sigma is not None:
        raise ValueError(f"sigma={sigma!r:.40} without a noise")
    text = checked_lightgbm(_trees(state, "trees.txt"), features, classes, own=noise is None)
    try:
        booster = Booster(model_str=text.decode())
    except LightGBMError:
        raise BadInput("the model's trees cannot be read by LightGBM") from None
    scores = booster.num_model_per_iteration()
    found = booster.num_feature(), 2 if scores == 1 else scores
    trees = LightGBMTrees(booster, noise, sigma)
    return _boosted(BoostedTrees("lightgbm"), trees, found, (features, classes))


def _trees(state: State, name: str) -> bytes:
    if set(state.files) != {name} or state.arrays:
        raise BadInput(f"the model needs the file {name} and nothing else")
    return state.files[name]


def _boosted(estimator: Any, model: Any, found: tuple[int, int], needed: tuple[int, int]) -> Any:
    if found != needed:
        raise BadInput(f"the model's trees are for {found} features and classes, not {needed}")
    estimator.model_ = model
    return estimator


@dataclass(frozen=True)
class LightGBMTrees:
    """Probabilities of trees that LightGBM has read.

    Parameters
    ----------
    booster_ : lightgbm.Booster
    noise, sigma
        Of the objective; None for LightGBM's own.
    """

    booster_: Any
    noise: str | None
    sigma: float | None

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (N, C).

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        import torch

        from hitrate.probability import class_probabilities

        own = self.noise is None
        found = np.asarray(self.booster_.predict(X, raw_score=not own, num_threads=1), np.float64)
        if found.ndim == 1:
            first = 1.0 - found if own else np.zeros_like(found)
            found = np.column_stack([first, found])
        if own or self.sigma is None or self.noise is None:
            return found
        return class_probabilities(torch.from_numpy(found), self.sigma, noise=self.noise).numpy()


RESTORE = {
    "logistic regression": _logistic_regression,
    "linear": _linear,
    "mlp": _mlp,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
}
