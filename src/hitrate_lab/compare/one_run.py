"""One method on one fold: encode, choose parameters, fit, predict."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.compare.folds import inner_split
from hitrate_lab.compare.interrupts import no_early_stop
from hitrate_lab.metrics import DEFAULT, METRICS, Metric, accuracy, log_loss
from hitrate_lab.models.methods import Method

Array = NDArray[Any]

# What comparisons are judged by unless they say so.
ACCURACY = METRICS[DEFAULT]


def one_run(
    features: Any,
    target: Array,
    classes: int,
    rows: Array,
    method: Method,
    candidates: list[dict[str, Any]],
    seed: int,
    metric: Metric = ACCURACY,
    encoded: tuple[Any, Any] | None = None,
    most: int | None = None,
) -> dict[str, Any]:
    """Fit a method to all rows but those of a fold, and predict these.

    Every candidate is fitted to four fifths of the training rows; the best on the others,
    the first of those that tie, is fitted to all of them. A candidate that cannot be fitted is
    passed over as long as another can.

    Parameters
    ----------
    features : DataFrame, shape (N, columns)
    target : array of int, shape (N,)
        Numbers of classes.
    classes : int
        C.
    rows : array of int
        To predict.
    method : Method
    candidates : list of dict
    seed : int
    metric : Metric
        What is best; accuracy is in the result in any case.
    encoded : pair of arrays, optional
        What `encoded_fold` makes of these features and rows, where it is known.
    most : int, optional
        Candidates are tried on so many of the training rows, if there are more.

    Returns
    -------
    dict
        Plain JSON, as the store keeps it.
    """
    x, unseen = encoded or encoded_fold(features, rows)
    y = np.delete(target, rows)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        begun = time.perf_counter()
        chosen, trials = best_candidate(x, y, method, candidates, seed, classes, metric, most)
        tuned = time.perf_counter()
        model = fitted(method, chosen, seed, x, y)
        ended = time.perf_counter()
        predicted = np.asarray(model.predict(unseen), np.int64)
        p = _probabilities(model, unseen, classes)
        fits = np.asarray(model.predict(x), np.int64) == y
    truth = target[rows]
    sure = p[np.arange(len(rows)), predicted]
    return {
        "accuracy": accuracy(truth, predicted, p, classes),
        "train_accuracy": float(fits.mean()),
        "log_loss": log_loss(truth, predicted, p, classes),
        **({} if metric.is_default else {metric.key: metric(truth, predicted, p, classes)}),
        "fit_seconds": round(ended - tuned, 4),
        "tune_seconds": round(tuned - begun, 4),
        "parameters": chosen,
        "trials": trials,
        "features": int(x.shape[1]),
        "rows": rows.tolist(),
        "predicted": predicted.tolist(),
        "probability": [round(float(each), 4) for each in sure],
        "curve": _curve(model),
        "warnings": sorted({f"{each.category.__name__}: {each.message}" for each in said}),
    }


def encoded_fold(features: Any, rows: Array) -> tuple[Any, Any]:
    """Numbers of all rows but those of a fold, and of these, by what the first show.

    Parameters
    ----------
    features : DataFrame, shape (N, columns)
    rows : array of int
        The fold's.
    """
    from hitrate_lab.tables import Columns

    train = features.iloc[np.delete(np.arange(len(features)), rows)]
    columns = Columns().fit(train)
    return columns.transform(train), columns.transform(features.iloc[rows])


def fitted(method: Method, parameters: dict[str, Any], seed: int, x: Any, y: Array) -> Any:
    """A method's estimator, trained to its end or not at all."""
    with no_early_stop():
        return method.build(parameters, seed).fit(x, y)


def best_candidate(
    x: Any,
    y: Array,
    method: Method,
    candidates: list[dict[str, Any]],
    seed: int,
    classes: int,
    metric: Metric = ACCURACY,
    most: int | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The best candidate on held-out rows, and how each did; one alone needs no trial."""
    inside, judged = inner_split(y, seed, most)
    if len(candidates) == 1 or not len(judged):
        return candidates[0], []
    trials: list[dict[str, Any]] = []
    best, highest, failed = candidates[0], -np.inf, None
    for parameters in candidates:
        try:
            model = fitted(method, parameters, seed, x[inside], y[inside])
            predicted = np.asarray(model.predict(x[judged]), np.int64)
            p = _probabilities(model, x[judged], classes) if metric.needs_probabilities else None
            found = {DEFAULT: accuracy(y[judged], predicted, p, classes)}
            found[metric.key] = metric(y[judged], predicted, p, classes)
        except Exception as error:
            trials.append({"parameters": parameters, "error": f"{type(error).__name__}: {error}"})
            failed = error
            continue
        trials.append({"parameters": parameters, **found})
        if metric.sign * found[metric.key] > highest:
            best, highest = parameters, metric.sign * found[metric.key]
    if highest == -np.inf and failed is not None:
        raise failed
    return best, trials


def _probabilities(model: Any, x: Any, classes: int) -> Array:
    """Of all classes (n, C); those that the training rows did not have get 0."""
    p = np.zeros((x.shape[0], classes))
    p[:, np.asarray(model.classes_, np.int64)] = model.predict_proba(x)
    return p


def _curve(model: Any) -> list[dict[str, float]] | None:
    """Expected and actual accuracy on the training rows along the falling sigma."""
    path = getattr(model, "path_", [])
    # A start and one stage are no fall.
    return [{"step": step, **stage} for step, stage in enumerate(path)] if len(path) > 2 else None
