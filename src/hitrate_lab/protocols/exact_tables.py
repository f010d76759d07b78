"""Tables 1, 2, 4, 5 and 6 of "EXACT: How to Train Your Accuracy": linear models on ten tables.

One run is a data set, a method and a seed. The split is the same for all of them.
"""

from __future__ import annotations

import functools
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.data.published import PublishedSet, read_exact
from hitrate_lab.protocols.compare import processor

if TYPE_CHECKING:
    from hitrate_lab.study.file import Study, StudyMethod

# Changes when the same specification would give another result.
PROTOCOL = 1
COLLECTION = "exact/"
LOSSES = ("cross_entropy", "hinge", "exact")
MEASURES = ("train_accuracy", "test_accuracy")
# Of logistic regression: where it stops is far beyond what the accuracy sees.
MOST_ITERATIONS, TOLERANCE = 5000, 1e-6


def check(study: Study) -> None:
    """Complain of a field that this protocol cannot use."""
    _settings(study)
    for name in study.data_sets:
        if not name.startswith(COLLECTION):
            study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
    for measure in study.measures:
        if measure not in MEASURES:
            study.wrong("measures", f"{measure!r} is none of {', '.join(MEASURES)}")
    for method in study.methods:
        _trainings(study, method)


def plan(study: Study) -> list[dict[str, Any]]:
    """Specifications, seed by seed: each cell has its first number early.

    Parameters
    ----------
    study : Study
    """
    settings = _settings(study)
    trainings = {method.name: _trainings(study, method) for method in study.methods}
    seeds = sorted({seed for method in study.methods for seed in method.seeds})
    return [
        {
            "study": study.name,
            "protocol": f"exact tables {PROTOCOL}",
            "data_set": data_set,
            "follow": settings["follow"],
            "split": settings["split"],
            "method": method.name,
            "training": trainings[method.name][data_set],
            "seed": seed,
        }
        for seed in seeds
        for data_set in study.data_sets
        for method in study.methods
        if seed in method.seeds
    ]


def run(specification: dict[str, Any], data_dir: Path | None) -> dict[str, Any]:
    """Train once: accuracy on both parts, and the time.

    Parameters
    ----------
    specification : dict
        One of `plan`.
    data_dir : Path, optional
    """
    name = specification["data_set"].removeprefix(COLLECTION)
    data = _read(name, specification["split"], specification["follow"], data_dir)
    training, seed = specification["training"], specification["seed"]
    begun = time.perf_counter()
    if training["model"] == "logistic regression":
        found, more = _logistic_regression(data, training)
    else:
        found, more = _trained(data, training, seed)
    seconds = time.perf_counter() - begun
    return {
        "train_accuracy": float(np.mean(found[0] == data.y_train)),
        "test_accuracy": float(np.mean(found[1] == data.y_test)),
        "train_rows": len(data.y_train),
        "test_rows": len(data.y_test),
        "features": data.X_train.shape[1],
        "classes": len(data.classes),
        "seconds": round(seconds, 3),
        "processor": processor(),
        **more,
    }


def cells(
    specification: dict[str, Any], result: dict[str, Any]
) -> list[tuple[str, str, str, float]]:
    """Accuracy in percent, for the report."""
    place = (specification["data_set"], specification["method"])
    return [(measure, *place, 100 * result[measure]) for measure in MEASURES]


@functools.lru_cache(maxsize=4)
def _read(name: str, split: int, follow: str, data_dir: Path | None) -> PublishedSet:
    return read_exact(name, seed=split, follow=follow, data_dir=data_dir)


def _logistic_regression(
    data: PublishedSet, training: dict[str, Any]
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    strength = training["regularization"]
    model = LogisticRegression(
        C=1 / strength if strength else np.inf, max_iter=MOST_ITERATIONS, tol=TOLERANCE
    )
    with warnings.catch_warnings():
        # Told in the result instead. Rows that can be separated have no minimum to arrive at.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X_train, data.y_train)
    iterations = int(np.max(model.n_iter_))
    more = {"iterations": iterations, "converged": iterations < MOST_ITERATIONS}
    return (model.predict(data.X_train), model.predict(data.X_test)), more


def _trained(
    data: PublishedSet, training: dict[str, Any], seed: int
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    from hitrate_lab.protocols.exact_training import predicted, train_linear

    weights = train_linear(data.X_train, data.y_train, len(data.classes), training, seed)
    if not np.isfinite(weights).all():
        raise FloatingPointError("training diverged: weights are not finite")
    return (predicted(weights, data.X_train), predicted(weights, data.X_test)), {}


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    found: dict[str, Any] = {
        "follow": fields.choice("follow", ("tables", "text")),
        "split": fields.whole("split"),
        "steps": fields.whole("steps", 1),
        "batch_size": fields.whole("batch_size", 2),
        "momentum": fields.number("momentum"),
        "last_learning_rate": fields.number("last_learning_rate", above=True),
        "sigma": [fields.number(f"sigma_{end}", above=True) for end in ("first", "last")],
    }
    if not found["momentum"] < 1:
        fields.wrong("momentum", f"needs a number below 1, not {found['momentum']:g}")
    fields.end()
    return found


def _trainings(study: Study, method: StudyMethod) -> dict[str, dict[str, Any]]:
    """How a method is trained on each data set, checked."""
    fields = study.fields(method)
    if fields.choice("model", ("logistic regression", "sgd")) == "logistic regression":
        given = fields.table("regularization")
        fields.end()
        found = {
            name: {"model": "logistic regression", "regularization": given.number(name)}
            for name in study.data_sets
        }
        given.end()
        return found
    settings = _settings(study)
    loss = fields.choice("loss", LOSSES)
    exact = loss == "exact"
    common = {
        "model": "sgd",
        "loss": loss,
        **{key: settings[key] for key in ("steps", "batch_size", "momentum")},
        "last_learning_rate": settings["last_learning_rate"],
        "normalize_gradient": fields.flag("normalize_gradient"),
        "sigma": None,
    }
    if exact:
        sigma = fields.choice("sigma", ("scheduled", "learned"))
        common["sigma"] = settings["sigma"] if sigma == "scheduled" else sigma
    table = fields.table("parameters")
    fields.end()
    trainings = {}
    for name in study.data_sets:
        given = table.table(name)
        trainings[name] = {
            **common,
            "learning_rate": given.number("learning_rate", above=True),
            "clip": given.number("clip", default=None, above=True),
            "margin": given.number("margin", default=None),
            "weight_decay": given.number("weight_decay", default=0.0),
        }
        if loss == "cross_entropy" and trainings[name]["margin"] is not None:
            given.wrong("margin", "cross entropy has none")
        given.end()
    table.end()
    return trainings
