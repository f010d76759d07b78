"""Escaping efficiency: equations 15 to 18 of Mixing, between cross entropy and expectation loss.

Tr(H Σ) of several losses at the same weights, along training with some of them. One run is a data
set, an architecture and a seed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.mixing.fields import (
    check_made,
    check_methods,
    check_names,
    data_of,
    models_of,
    optimizer_of,
    setting_of,
)
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate.links import Mixed
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training.batched import Setting, Split

# A measure of the report for each architecture.
MEASURES = {"linear": "linear_scale_free", "one hidden layer": "hidden_scale_free"}
# What results call the weights at which a loss with its weight decay is lowest.
MINIMUM = "minimum"
# Digits of the numbers that are kept.
DIGITS = 6


class MixingEscape(Protocol):
    """Tr(H Σ) of several losses at the same weights."""

    name = "mixing escape"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        check_names(study, MEASURES, "all need the same seeds")
        for method in study.methods:
            _method(study, method)
        check_methods(study, "baseline", [settings["baseline"]])
        for key in ("trained_with", "shown"):
            check_methods(study, key, settings[key])

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, one architecture after the other.

        Parameters
        ----------
        study : Study
        """
        settings = _settings(study)
        models = settings.pop("models")
        # Of the report alone.
        settings.pop("shown")
        methods = [_method(study, method) for method in study.methods]
        check_made(study, methods, mixture)
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "model": model,
                "seed": seed,
                "methods": methods,
                **settings,
            }
            for model in models
            for data_set in study.data_sets
            for seed in study.methods[0].seeds
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train with some losses, and measure all of them on the way.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context

        Returns
        -------
        dict
            "points" has, for each loss that was trained with, the weights that were looked at:
            after which "epoch", the "terms" of equation 18, the mean of p, and the "noise" of each
            loss.
        """
        from hitrate_lab.training.batched import Split

        spec = specification
        begun = time.perf_counter()
        split, setting = Split.of(data_of(spec, context)), setting_of(spec, max(spec["epochs"]))
        points = {
            method["name"]: [
                {"epoch": epoch, **measured(spec, setting, split, weights)}
                for epoch, weights in _weights(spec, setting, split, method)
            ]
            for method in spec["methods"]
            if method["name"] in spec["trained_with"]
        }
        return {
            "points": points,
            "exact": _is_exact(spec, split),
            "train_rows": len(split.train[1]),
            "features": split.inputs,
            "classes": split.classes,
            "weights": sum((a + 1) * b for a, b in setting.layers(split)),
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": processor(),
        }

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Tr(H Σ) over the baseline's, each loss scaled to the baseline's mean norm.

        At the weights of the last epoch that the baseline was trained for; nothing where its own
        trace is not positive.
        """
        baseline = specification["baseline"]
        last = max(specification["epochs"])
        found = []
        for point in result["points"][baseline]:
            if point["epoch"] == last:
                for name in point["noise"]:
                    ratio = scale_free(point["noise"], name, baseline)
                    if ratio is not None:
                        measure = MEASURES[specification["model"]]
                        found.append((measure, specification["data_set"], name, ratio))
        return found

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Which of the paper's claims hold where, for the report."""
        from hitrate_lab.studies.mixing.escape_summary import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """None: a larger trace is not a better score."""
        return []


def scale_free(noise: dict[str, dict[str, float]], name: str, baseline: str) -> float | None:
    """Tr(H Σ) of a loss over a baseline's, if rows' gradients of both had the same mean norm.

    A loss times k has a trace times k³. None where the baseline's trace is not positive, or a loss
    has no gradient left.
    """
    one, base = noise[name], noise[baseline]
    if base["trace"] <= 0 or one["norm"] == 0:
        return None
    return one["trace"] / base["trace"] * (base["norm"] / one["norm"]) ** 3


def mixture(method: dict[str, Any]) -> Mixed:
    """A method's loss as alpha and beta."""
    from hitrate_lab.training.batched import Variant
    from hitrate_lab.training.batched.variants import softmax_link

    planned = Variant(**method).plan(epochs=1)
    link = softmax_link(planned.loss)
    mixed = None if link is None else link.mixture
    if mixed is None or method["recipe"] in ("mixed_switch", "mixed_gradual"):
        raise ValueError(f"{method['recipe']!r} is no sum of cross entropy and expectation loss")
    return mixed


def measured(
    spec: dict[str, Any], setting: Setting, split: Split, weights: Tensor
) -> dict[str, Any]:
    """All losses at weights (P,), in float64.

    Exactly where there are few rows, or else by an estimator: "error" is then not 0.
    """
    from hitrate_lab.training.curvature import (
        estimated_noise,
        exact_noise,
        log_p,
        network_logits,
    )

    logits = network_logits(setting.layers(split))
    x, y = split.train[0].double(), split.train[1]
    losses = [mixture(method) for method in spec["methods"]]
    if _is_exact(spec, split):
        noise, terms = exact_noise(logits, weights, x, y, losses)
    else:
        noise, terms = estimated_noise(
            logits, weights, x, y, losses, draws=spec["draws"], seed=spec["seed"]
        )
    names = [method["name"] for method in spec["methods"]]
    return {
        "p": _rounded(float(log_p(logits(weights, x), y).exp().mean())),
        "terms": {key: _rounded(value) for key, value in asdict(terms).items()},
        "noise": {
            name: {key: _rounded(value) for key, value in asdict(each).items()}
            for name, each in zip(names, noise, strict=True)
        },
    }


def _is_exact(spec: dict[str, Any], split: Split) -> bool:
    return bool(len(split.train[1]) <= spec["exact_up_to"])


def _weights(
    spec: dict[str, Any], setting: Setting, split: Split, method: dict[str, Any]
) -> Iterator[tuple[int | str, Tensor]]:
    """Weights (P,) after each epoch that is looked at, and at the minimum nearby."""
    from hitrate_lab.training.batched import Variant
    from hitrate_lab.training.batched.one_by_one import build, epochs_of_one, weights_of
    from hitrate_lab.training.curvature import flat

    if 0 in spec["epochs"]:
        yield 0, flat(weights_of(build(setting, split, spec["seed"])))
    models = epochs_of_one(split, setting, Variant(**method), spec["learning_rate"], spec["seed"])
    for epoch, model in enumerate(models, 1):
        if epoch in spec["epochs"]:
            yield epoch, flat(weights_of(model))
    if spec["minimum_steps"]:
        yield MINIMUM, lowest(spec, setting, split, mixture(method), flat(weights_of(model)))


def lowest(
    spec: dict[str, Any], setting: Setting, split: Split, loss: Mixed, weights: Tensor
) -> Tensor:
    """Weights (P,) where the loss plus its weight decay is lowest, by L-BFGS.

    Without the decay, the lowest weights of rows that can be separated are infinite.
    """
    import torch

    from hitrate_lab.training.curvature import log_p, network_logits

    logits = network_logits(setting.layers(split))
    x, y = split.train[0].double(), split.train[1]
    w = weights.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [w],
        max_iter=spec["minimum_steps"],
        history_size=20,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def value() -> Tensor:
        optimizer.zero_grad()
        total = loss(log_p(logits(w, x), y)).mean() + setting.optimizer.weight_decay / 2 * (w @ w)
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(value)  # type: ignore[no-untyped-call]
    return w.detach()


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    models = models_of(fields, MEASURES)
    epochs = fields.seeds("epochs")
    if max(epochs) < 1:
        fields.wrong("epochs", "needs one of 1 or more")
    optimizer = optimizer_of(fields)
    found: dict[str, Any] = {
        "models": models,
        "baseline": fields.text("baseline"),
        "trained_with": fields.texts("trained_with"),
        "shown": fields.texts("shown"),
        "epochs": sorted(epochs),
        "minimum_steps": fields.whole("minimum_steps"),
        "batch_size": fields.whole("batch_size", 1),
        "learning_rate": fields.number("learning_rate", above=True),
        "optimizer": optimizer,
        "exact_up_to": fields.whole("exact_up_to"),
        "draws": fields.whole("draws", 2),
    }
    fields.end()
    if found["baseline"] not in found["trained_with"]:
        fields.wrong("trained_with", f"needs the baseline, {found['baseline']!r}")
    return found


def _method(study: Study, method: StudyMethod) -> dict[str, Any]:
    """A loss, as arguments of `Variant`."""
    fields = study.fields(method)
    found = {
        "name": method.name,
        "recipe": fields.text("recipe"),
        "settings": fields.taken("parameters", dict, "a table", default={}),
    }
    fields.end()
    return found
