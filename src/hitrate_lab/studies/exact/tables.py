"""Tables 1, 2, 4, 5 and 6 of "EXACT: How to Train Your Accuracy": linear models on ten tables.

One run is a data set, a method and a seed. The split is the same for all of them. Runs of a data
set and a loss are trained together, which takes little longer than one of them.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.datasets import PublishedSet, read_exact
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.store import canonical
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.fields import Fields
    from hitrate_lab.studies.study_file import Study, StudyMethod

COLLECTION = "exact/"
LOSSES = ("cross_entropy", "hinge", "exact")
MEASURES = ("train_accuracy", "test_accuracy")
# Settings of every training.
COMMON = ("start", "steps", "batch_size", "momentum", "weight_decay", "last_learning_rate")
SIGMAS = ("geometric", "linear", "learned")
LEARNED_FROM = 1.0
# Of logistic regression: where it stops is far beyond what the accuracy sees.
MOST_ITERATIONS, TOLERANCE = 5000, 1e-6


class ExactTables(Protocol):
    """Linear models on the ten tables, with the parameters of the paper."""

    name = "exact tables"
    version = 2
    uses_device = True

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        check_names(study)
        settings_of(study)
        for method in study.methods:
            _trainings(study, method)

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, seed by seed: each cell has its first number early.

        Parameters
        ----------
        study : Study
        """
        settings = settings_of(study)
        trainings = {method.name: _trainings(study, method) for method in study.methods}
        seeds = sorted({seed for method in study.methods for seed in method.seeds})
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "follow": settings["follow"],
                "split": settings["split"],
                "method": method.name,
                "training": trainings[method.name][data_set],
                "windows": settings["windows"],
                "seed": seed,
            }
            for seed in seeds
            for data_set in study.data_sets
            for method in study.methods
            if seed in method.seeds
        ]

    def batch_of(self, specification: Specification) -> str:
        """Runs for which this is the same are trained together."""
        from hitrate_lab.training.batched import linear

        spec, training = specification, specification["training"]
        place = [spec["data_set"], spec["follow"], spec["split"], spec["windows"]]
        if training["model"] == "logistic regression":
            return canonical([*place, training])
        return canonical([*place, *(training[key] for key in linear.COMMON)])

    def run_batch(
        self, specifications: Sequence[Specification], context: Context
    ) -> list[Result | Exception]:
        """Train all of a batch: accuracy on both parts, and each one's share of the time.

        Parameters
        ----------
        specifications : sequence of dict
            Some of `plan` that share `batch_of`.
        context : Context
        """
        spec = specifications[0]
        name = spec["data_set"].removeprefix(COLLECTION)
        data = read(name, spec["split"], spec["follow"], context.data_dir)
        parts = (data.X_train, data.y_train), (data.X_test, data.y_test)
        pairs = [(each["training"], each["seed"]) for each in specifications]
        begun = time.perf_counter()
        found = accuracies(parts, len(data.classes), pairs, context.device, spec["windows"])
        shape = {
            "train_rows": len(data.y_train),
            "test_rows": len(data.y_test),
            "features": data.X_train.shape[1],
            "classes": len(data.classes),
            "seconds": round((time.perf_counter() - begun) / len(pairs), 3),
            "trained_together": len(pairs),
            "processor": processor(),
            "device": device_name(context.device),
        }
        return [
            each
            if isinstance(each, Exception)
            else {**dict(zip(MEASURES, each.pop("accuracy"), strict=True)), **shape, **each}
            for each in found
        ]

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Accuracy in percent, for the report."""
        return accuracy_cells(specification, result)

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Norms of gradients, for the report, if the study keeps them."""
        from hitrate_lab.studies.exact.norms import tables

        return tables(study, runs)

    def pictures(self, study: Study, runs: Sequence[Run]) -> dict[str, str]:
        """Figure 5 as SVG, by the name of its file, if the study keeps norms.

        Parameters
        ----------
        study : Study
        runs : sequence of Run
            Those that are done.
        """
        from hitrate_lab.studies.exact.norms import figures

        return figures(study, runs)


def check_names(study: Study) -> None:
    """Complain of data sets and measures that there are not."""
    for name in study.data_sets:
        if not name.startswith(COLLECTION):
            study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
    for measure in study.measures:
        if measure not in MEASURES:
            study.wrong("measures", f"{measure!r} is none of {', '.join(MEASURES)}")


def accuracy_cells(specification: Specification, result: Result) -> list[Cell]:
    """Accuracy in percent on both parts."""
    place = (specification["data_set"], specification["method"])
    return [(measure, *place, 100 * result[measure]) for measure in MEASURES]


@functools.lru_cache(maxsize=4)
def read(name: str, split: int, follow: str, data_dir: Path | None) -> PublishedSet:
    """A data set, prepared as the paper's; kept for the next run."""
    return read_exact(name, seed=split, follow=follow, data_dir=data_dir)


def accuracies(
    parts: tuple[tuple[Any, Any], tuple[Any, Any]],
    classes: int,
    pairs: Sequence[tuple[dict[str, Any], int]],
    device: str,
    windows: int = 0,
) -> list[dict[str, Any] | Exception]:
    """Train for each pair of a training and a seed on the first part of the rows.

    Returns
    -------
    list
        For each pair a dict with its "accuracy" on both parts and what else is known of it, or what
        went wrong.
    """
    different = {canonical(training): training for training, _ in pairs}
    if pairs[0][0]["model"] == "logistic regression":
        fitted = {key: _logistic_regression(parts, each) for key, each in different.items()}
        return [dict(fitted[canonical(training)]) for training, _ in pairs]
    from hitrate_lab.training.batched.linear import train_linears

    seeds = sorted({seed for _, seed in pairs})
    (x, y), _ = parts
    trained = train_linears(
        x, y, classes, list(different.values()), seeds, device=device, windows=windows
    )
    right = [(trained.predicted(x) == y).mean(2) for x, y in parts]
    finite = trained.weights.isfinite().all(3).all(2).cpu()
    found: list[dict[str, Any] | Exception] = []
    for training, seed in pairs:
        at = seeds.index(seed), list(different).index(canonical(training))
        if not finite[at]:
            found.append(FloatingPointError("training diverged: weights are not finite"))
            continue
        norms = [float(f"{norm:.4g}") for norm in trained.norms[at].tolist()]
        more = {"gradient_norms": norms} if windows else {}
        found.append({"accuracy": [float(each[at]) for each in right], **more})
    return found


def _logistic_regression(
    parts: tuple[tuple[Any, Any], tuple[Any, Any]], training: dict[str, Any]
) -> dict[str, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    strength = training["regularization"]
    model = LogisticRegression(
        C=1 / strength if strength else np.inf, max_iter=MOST_ITERATIONS, tol=TOLERANCE
    )
    with warnings.catch_warnings():
        # Told in the result instead. Rows that can be separated have no minimum to arrive at.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(*parts[0])
    iterations = int(np.max(model.n_iter_))
    return {
        "accuracy": [float(np.mean(model.predict(x) == y)) for x, y in parts],
        "iterations": iterations,
        "converged": iterations < MOST_ITERATIONS,
    }


def device_name(device: str) -> str:
    """What computes: the name of a GPU, or cpu."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)


def settings_of(study: Study, fields: Fields | None = None) -> dict[str, Any]:
    """The table [settings], checked; if `fields` are given, more of them may be taken."""
    own = fields is None
    fields = study.fields() if fields is None else fields
    found: dict[str, Any] = {
        "follow": fields.choice("follow", ("tables", "text")),
        "split": fields.whole("split"),
        "steps": fields.whole("steps", 1),
        "batch_size": fields.whole("batch_size", 2),
        "momentum": fields.number("momentum"),
        "weight_decay": fields.number("weight_decay"),
        "start": fields.choice("first_weights", ("uniform", "small")),
        "last_learning_rate": fields.number("last_learning_rate", above=True),
        "sigma": [fields.number(f"sigma_{end}", above=True) for end in ("first", "last")],
        "windows": fields.whole("gradient_norms", default=0),
    }
    if not found["momentum"] < 1:
        fields.wrong("momentum", f"needs a number below 1, not {found['momentum']:g}")
    if own:
        fields.end()
    return found


def _trainings(study: Study, method: StudyMethod) -> dict[str, dict[str, Any]]:
    """How a method is trained on each data set, checked."""
    fields = study.fields(method)
    common = training_of(fields, settings_of(study))
    if common["model"] == "logistic regression":
        given = fields.table("regularization")
        fields.end()
        found = {name: {**common, "regularization": given.number(name)} for name in study.data_sets}
        given.end()
        return found
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
        }
        if common["loss"] == "cross_entropy" and trainings[name]["margin"] is not None:
            given.wrong("margin", "cross entropy has none")
        given.end()
    table.end()
    return trainings


def training_of(fields: Fields, settings: dict[str, Any]) -> dict[str, Any]:
    """What a method's trainings have in common, checked; the parameters of each are not in it."""
    if fields.choice("model", ("logistic regression", "sgd")) == "logistic regression":
        return {"model": "logistic regression"}
    common = {
        "model": "sgd",
        "loss": fields.choice("loss", LOSSES),
        **{key: settings[key] for key in COMMON},
        "weight_decay": fields.number("weight_decay", default=settings["weight_decay"]),
        "normalize_gradient": fields.flag("normalize_gradient"),
        "sigma": None,
        "samples": None,
        "rivals": None,
    }
    if common["loss"] == "hinge":
        common["rivals"] = fields.choice("rivals", ("mean_over_rivals", "max"))
    if common["loss"] == "exact":
        sigma = fields.choice("sigma", SIGMAS)
        first, last = settings["sigma"]
        # In the middle of the schedule that it replaces.
        common["sigma"] = [LEARNED_FROM if sigma == "learned" else first, last, sigma]
        common["samples"] = fields.whole("samples", 1, default=None)
    return common
