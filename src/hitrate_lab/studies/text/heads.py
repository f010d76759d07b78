"""Heads on texts: losses with the same candidates, chosen on training rows, then trained n times.

One run is a data set, features and a model. Of the training rows some are held out, by which each
method's learning rate and weight decay are chosen; then it is trained on all of them, once for each
seed, and looked at on training and test rows. Data sets are "texts/NAME", a NAME of `TEXT_SETS`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.changes import BALANCES, moving, told, told_before
from hitrate_lab.studies.mixing.fields import check_methods, learning_rates_of
from hitrate_lab.studies.protocol import Cell, Protocol
from hitrate_lab.studies.text.features import FEATURES, Features, features_of
from hitrate_lab.studies.text.settings import COLLECTION, held_out_of

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training.heads import Heads, Method, Training

# Units of the hidden layer; and what measures begin with.
MODELS = {"linear": 0, "hidden 16": 16, "hidden 32": 32}
KINDS = ("test", "train", "balanced")
# Of weights and orders while candidates are chosen, apart from the studies' seeds.
TUNING_SEED = 1000
# Rows that gradients are looked at on.
LOOKED_AT = 1000


class TextHeads(Protocol):
    """Linear classifiers and small networks on vectors of texts, under many losses."""

    name = "text heads"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        known = [
            measure_of(kind, features, model)
            for kind in KINDS
            for features in settings["features"]
            for model in settings["models"]
        ]
        for measure in study.measures:
            if measure not in known:
                study.wrong("measures", f"{measure!r} is none of {', '.join(known)}")
        for name in study.data_sets:
            if not name.startswith(COLLECTION):
                study.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
        if len({method.seeds for method in study.methods}) > 1:
            study.wrong("methods", "all need the same seeds, of which they are trained together")
        for method in study.methods:
            _method(study, method)

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, one kind of features and model after the other.

        Parameters
        ----------
        study : Study
        """
        from hitrate_lab.training.heads import Method

        settings = _settings(study)
        features, models = settings.pop("features"), settings.pop("models")
        # In specifications only where they are asked for.
        for key in ("imbalance", "tuning_seeds"):
            if settings[key] == 1:
                del settings[key]
        # No result depends on it.
        del settings["beside"]
        methods = [_method(study, each) for each in study.methods]
        for each in methods:
            try:
                _made(each, told_before(each["balance"]), Method).plan(1)
            except (TypeError, ValueError) as error:
                raise BadInput(f"{study.path}: methods[{each['name']}]: {error}") from error
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "features": each,
                "model": model,
                "seeds": list(study.methods[0].seeds),
                "methods": methods,
                **settings,
            }
            for each in features
            for model in models
            for data_set in study.data_sets
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Choose candidates, train, and look at what came of it.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        import torch

        from hitrate_lab.training.heads import Training

        spec = specification
        name, imbalance = spec["data_set"].removeprefix(COLLECTION), spec.get("imbalance", 1.0)
        data = features_of(
            name, spec["features"], context, imbalance=imbalance, validation=not spec["held_out"]
        )
        begun = time.perf_counter()
        methods = [_with_prior(each, data) for each in spec["methods"]]
        training = Training(spec["epochs"], spec["batch_size"], MODELS[spec["model"]])
        chosen = _chosen(spec, data, methods, training)
        tuned = time.perf_counter()
        rates, decays = (torch.tensor([[each[k]] for each in chosen]) for k in (0, 1))
        x, y = data.train
        heads = _heads(methods, training, data.train, data.classes, (rates, decays), spec["seeds"])
        at_start = _gradients(heads, x, y, 0)
        heads.fit(x, y)
        seen = _seen(heads, data.train, data.test, data.classes)
        at_end = _gradients(heads, x, y, spec["epochs"])
        result: Result = {
            "methods": {
                method.name: {
                    "learning_rate": chosen[k][0],
                    "weight_decay": chosen[k][1],
                    "validation": chosen[k][2],
                    **{key: values[k] for key, values in seen.items()},
                    "pull_at_start": at_start[k][0],
                    "pull_on_wrong": at_end[k][1],
                }
                for k, method in enumerate(methods)
            },
            "train_rows": len(y),
            "test_rows": len(data.test[1]),
            "inputs": x.shape[1],
            "classes": data.classes,
            "parameters": sum(w[0, 0, 0].numel() for w in heads.weights),
            "headroom": _headroom(heads, x, y) if data.classes <= spec["headroom"] else None,
            "tuning_seconds": round(tuned - begun, 3),
            "seconds": round(time.perf_counter() - begun, 3),
            "processor": processor(),
        }
        return result

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Accuracies in percent, for the report: one of each method and seed."""
        spec = specification
        return [
            (
                measure_of(kind, spec["features"], spec["model"]),
                spec["data_set"],
                name,
                100 * value,
            )
            for name, each in result["methods"].items()
            for kind in KINDS
            for value in each[kind]
        ]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Differences from the first method, and what gains go with."""
        from hitrate_lab.studies.text.heads_tables import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def pictures(self, study: Study, runs: Sequence[Run]) -> dict[str, str]:
        """The gain over training error and headroom."""
        from hitrate_lab.studies.text.heads_gain import pictures

        return pictures(study, [(run.specification, run.result) for run in runs])

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]] | None:
        """Test accuracies by data set and method, means over seeds."""
        names = [method.name for method in study.methods]
        found: dict[tuple[str, str], dict[str, list[float]]] = {}
        for run in runs:
            place = run.specification["features"], run.specification["model"]
            methods = run.result["methods"]
            scores = [100 * sum(methods[n]["test"]) / len(methods[n]["test"]) for n in names]
            found.setdefault(place, {})[run.specification["data_set"]] = scores
        return [
            {
                "title": f"{features}, {model}",
                "name": re.sub("[_ ]", "-", f"{study.name}-{features}-{model}"),
                "text": "A score is the test accuracy in percent, averaged over seeds.",
                "methods": names,
                "data_sets": list(of_sets),
                "scores": list(of_sets.values()),
            }
            for (features, model), of_sets in found.items()
        ]


def measure_of(kind: str, features: str, model: str) -> str:
    """What the report calls an accuracy."""
    return f"{features}_{model.replace(' ', '_')}_{kind}_accuracy"


def _chosen(
    spec: Specification, data: Features, methods: Sequence[Method], training: Training
) -> list[tuple[float, float, float | None]]:
    """Learning rate, weight decay and accuracy of the best candidate of each method.

    On rows that are held out of those for training, or published for this; of candidates that tie
    the first.
    """
    import torch

    candidates = [(r, d) for d in spec["weight_decays"] for r in spec["learning_rates"]]
    if len(candidates) == 1:
        return [(*candidates[0], None)] * len(methods)
    (x, y), held = data.train, data.validation
    if held is None:
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(TUNING_SEED))
        out = order[: int(spec["held_out"] * len(y))]
        kept = order[len(out) :]
        (x, y), held = (x[kept], y[kept]), (x[out], y[out])
    rates, decays = (
        torch.tensor([[each[k] for each in candidates]] * len(methods)) for k in (0, 1)
    )
    seeds = range(TUNING_SEED, TUNING_SEED + spec.get("tuning_seeds", 1))
    heads = _heads(methods, training, data.train, data.classes, (rates, decays), seeds)
    heads.fit(x, y)
    hit = heads.predict(held[0]).argmax(-1) == held[1][:, None, None]  # (S, N, M, L)
    share = hit.double().mean(0)
    score = _per_class(share, held[1]) if spec["balanced"] else share.mean(0)
    best = score.argmax(1).tolist()
    return [(*candidates[k], float(score[m, k])) for m, k in enumerate(best)]


def _heads(
    methods: Sequence[Method],
    training: Training,
    rows: tuple[Tensor, Tensor],
    classes: int,
    candidates: tuple[Tensor, Tensor],
    seeds: Sequence[int],
) -> Heads:
    from hitrate_lab.training.heads import Heads

    return Heads(methods, training, rows[0].shape[1], classes, *candidates, seeds)


def _per_class(hit: Tensor, y: Tensor) -> Tensor:
    """Balanced accuracy of hits (N, ...): the mean over classes that there are."""
    import torch

    flat = hit.double().flatten(1)
    total = torch.zeros(int(y.max()) + 1, flat.shape[1], dtype=torch.float64)
    total.index_add_(0, y, flat)
    count = torch.bincount(y)
    there = count > 0
    return (total[there] / count[there, None]).mean(0).view(hit.shape[1:])


def _seen(
    heads: Heads, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], classes: int
) -> dict[str, list[list[float]]]:
    """By what is measured: for each method one number for each seed."""
    import torch

    of_test, of_train = (heads.predict(x)[:, :, :, 0] for x, _ in (test, train))
    y = test[1]
    hits = of_test.argmax(-1) == y[None, :, None]  # (S, N, M)
    balanced = _per_class(hits.transpose(0, 1), y)  # (S, M)
    log_p = of_test.log_softmax(-1).gather(-1, y[None, :, None, None].expand(*hits.shape, 1))
    said = torch.nn.functional.one_hot(of_test.argmax(-1), classes).double().mean(1)  # (S, M, C)
    numbers = {
        "test": hits.double().mean(1),
        "train": (of_train.argmax(-1) == train[1][None, :, None]).double().mean(1),
        "balanced": balanced,
        "log_loss": -log_p[..., 0].double().mean(1),
        # How often the most frequent answer is given.
        "most_said": said.max(-1).values,
    }
    return {
        key: [[round(number, 6) for number in row] for row in values.T.tolist()]
        for key, values in numbers.items()
    }


def _gradients(heads: Heads, x: Tensor, y: Tensor, epoch: int) -> list[tuple[float, float]]:
    """Mean |d loss / d target's logit| of each method: of all rows, and of those that are wrong.

    Of each row's own loss, without what normalises gradients; means over seeds.
    """
    step = max(1, len(y) // LOOKED_AT)
    x, y = x[::step], y[::step]
    logits = heads.predict(x)
    logits.requires_grad_()
    target = y.expand(len(logits), -1)
    heads.losses(logits, target, max(epoch, 1)).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    place = target[:, :, None, None, None].expand(*logits.shape[:4], 1)
    slope = len(y) * logits.grad.gather(-1, place)[..., 0, 0].abs()  # (S, N, M)
    wrong = logits.detach().argmax(-1)[..., 0] != target[..., None]
    found = []
    for k in range(slope.shape[2]):
        some = slope[:, :, k][wrong[:, :, k]]
        found.append(
            (float(slope[:, :, k].mean()), float(some.mean()) if len(some) else float("nan"))
        )
    return [tuple(round(v, 6) if v == v else None for v in each) for each in found]  # type: ignore[misc]


def _headroom(heads: Heads, x: Tensor, y: Tensor) -> dict[str, float]:
    """What `hitrate.headroom` says of the first method's last layer, of the first seed."""
    from hitrate import headroom

    last = heads.weights[-1][0, 0, 0].detach()
    for layer in (w[0, 0, 0].detach() for w in heads.weights[:-1]):
        x = (x @ layer[:, :-1].T + layer[:, -1]).relu()
    found = headroom(x, y, (last[:, :-1], last[:, -1]), seed=heads.seeds[0])
    return {
        key: getattr(found, key) for key in ("now", "reachable", "noise", "gain", "low", "high")
    }


def _with_prior(method: dict[str, Any], data: Features) -> Method:
    """A method, with what it knows of classes taken from the training rows."""
    from hitrate_lab.training.heads import Method

    known = told(method["balance"], method["largest_margin"], data.train[1], data.classes)
    return _made(method, known, Method)


def _made(method: dict[str, Any], known: dict[str, Any], cls: type[Method]) -> Method:
    changes = {**moving(method["parameters"]), **known}
    return cls(method["name"], method["recipe"], changes, method["warm"])


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    models, features = fields.texts("models"), fields.texts("features")
    for each in models:
        if each not in MODELS:
            fields.wrong("models", f"{each!r} is none of {', '.join(MODELS)}")
    for each in features:
        if each not in FEATURES:
            fields.wrong("features", f"{each!r} is none of {', '.join(FEATURES)}")
    found: dict[str, Any] = {
        "features": features,
        "models": models,
        "epochs": fields.whole("epochs", 1),
        "batch_size": fields.whole("batch_size", 1),
        "learning_rates": learning_rates_of(fields),
        "weight_decays": fields.numbers("weight_decays"),
        # Of the training rows; with 0 candidates are chosen by the published validation rows.
        "held_out": held_out_of(fields),
        "tuning_seeds": fields.whole("tuning_seeds", 1, default=1),
        "balanced": fields.flag("balanced", default=False),
        # How many times as many rows the first class has as the last, by leaving out rows.
        "imbalance": fields.number("imbalance", 1.0, default=1.0),
        # Most classes with which `hitrate.headroom` is asked: with many it takes minutes.
        "headroom": fields.whole("headroom", default=0),
        "beside": fields.texts("beside", default=[]),
    }
    fields.end()
    check_methods(study, "beside", found["beside"])
    return found


def _method(study: Study, method: StudyMethod) -> dict[str, Any]:
    fields = study.fields(method)
    found = {
        "name": method.name,
        "recipe": fields.text("recipe"),
        "parameters": fields.taken("parameters", dict, "a table", default={}),
        "warm": fields.whole("warm", default=0),
        "balance": fields.choice("balance", BALANCES, default="none"),
        "largest_margin": fields.number("largest_margin", default=0.5),
    }
    fields.end()
    return found
