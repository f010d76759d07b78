"""When does it pay? What could be gained in training, beside what was gained on test rows.

One run is a data set, a model and a split: all methods, learning rates and weight decays of it are
trained together. Of each method validation rows choose one; it is looked at on training and test
rows. Then `hitrate.headroom` gets the last layer of the baseline, and training rows alone.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets import read_uci
from hitrate_lab.datasets.files import known_sets
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.mixing.fields import COLLECTION, check_names, learning_rates_of, models_of
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training.batched import History, Split

# Test accuracy of each model, and training accuracy.
TEST = {"linear": "linear_accuracy", "one hidden layer": "hidden_accuracy"}
TRAINING = {"linear": "linear_training", "one hidden layer": "hidden_training"}
FEWEST_ROWS = 10


class GainLaw(Protocol):
    """Training accuracies, headroom and gains of many pairs of a table and a model."""

    name = "gain law"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        settings = _settings(study)
        known = {**TEST, **{f"{key} training": name for key, name in TRAINING.items()}}
        check_names(study, known, "all need the same seeds, of which they are trained together")
        names = [_variant(study, method)[0]["name"] for method in study.methods]
        for key in ("baseline", "judged"):
            if settings[key] not in names:
                study.fields().wrong(key, f"{settings[key]!r} is no method of this study")

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, one model after the other.

        Parameters
        ----------
        study : Study
        """
        from hitrate_lab.training.batched import Variant

        settings = _settings(study)
        splits, models = settings.pop("splits"), settings.pop("models")
        del settings["judged"]
        known = known_sets()
        methods = [_variant(study, method) for method in study.methods]
        for method, *_ in methods:
            try:
                Variant(**method).plan(epochs=1)
            except (TypeError, ValueError) as error:
                raise BadInput(f"{study.path}: methods[{method['name']}]: {error}") from error
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "model": model,
                "split": split,
                "seed": study.methods[0].seeds[0],
                "methods": [
                    method
                    for method, most, only in methods
                    if (most is None or known[data_set].classes <= most) and model in only
                ],
                **settings,
            }
            for split in splits
            for model in models
            for data_set in study.data_sets
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train all models of a data set, and look at those that validation rows choose.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        from hitrate_lab.training.batched import Optimizer, Setting, Split, Variant, train_many

        spec = specification
        data = read_uci(
            spec["data_set"].removeprefix(COLLECTION),
            split=spec["split"],
            standardise=True,
            data_dir=context.data_dir,
        )
        rows = _capped(Split.of(data), spec)
        batches = -(-len(rows.train[1]) // spec["batch_size"])
        epochs = max(spec["epochs"], -(-spec["steps"] // batches))
        variants = [Variant(**each) for each in spec["methods"]]
        # What is looked at after every epoch is of no use here, where the last one counts.
        one = rows.train[0][:1], rows.train[1][:1]
        alone = Split(rows.train, one, one, rows.classes)
        begun = time.perf_counter()
        trained: dict[str, list[tuple[float, float, list[Tensor]]]] = {}
        for decay in spec["weight_decays"]:
            setting = Setting(
                spec["model"],
                epochs,
                spec["batch_size"],
                Optimizer("adam", weight_decay=decay),
                spec["hidden"],
            )
            done = train_many(alone, setting, variants, spec["learning_rates"], [spec["seed"]])
            for name, history in done.items():
                trained.setdefault(name, []).extend(_ends(history, spec, decay))
        chosen = {name: _chosen(ends, rows) for name, ends in trained.items()}
        base = chosen[spec["baseline"]]
        result: Result = {
            "methods": {name: _seen(each, base, rows) for name, each in chosen.items()},
            "headroom": _headroom(base[2], rows, spec["seed"]),
            "train_rows": len(rows.train[1]),
            "validation_rows": len(rows.validation[1]),
            "test_rows": len(rows.test[1]),
            "features": rows.inputs,
            "classes": rows.classes,
            "parameters": sum(part.numel() for part in base[2]),
            "epochs": epochs,
            "steps": epochs * batches,
            "notes": list(data.notes),
        }
        result["seconds"] = round(time.perf_counter() - begun, 3)
        result["processor"] = processor()
        return result

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Test and training accuracy in percent, for the report: one of each for each method."""
        model, data_set = specification["model"], specification["data_set"]
        return [
            (measure[model], data_set, name, 100 * each[of])
            for measure, of in ((TEST, "test"), (TRAINING, "train"))
            for name, each in result["methods"].items()
        ]

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """The law, and what each method gains, for the report."""
        from hitrate_lab.studies.gain.summary import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def pictures(self, study: Study, runs: Sequence[Run]) -> dict[str, str]:
        """Predicted against real gain."""
        from hitrate_lab.studies.gain.summary import pictures

        return pictures(study, [(run.specification, run.result) for run in runs])

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]] | None:
        """Nothing is ranked here."""
        return []


def _capped(rows: Split, spec: Specification) -> Split:
    """Some of the rows where there are many: the same ones for every model."""
    import torch

    from hitrate_lab.training.batched import Split

    parts = []
    for part, most in ((rows.train, "rows"), (rows.validation, "rows"), (rows.test, "test_rows")):
        x, y = part
        if len(y) > spec[most]:
            seed = zlib.crc32(f"{spec['data_set']} {spec['split']}".encode())
            random = torch.Generator().manual_seed(seed)
            some = torch.randperm(len(y), generator=random)[: spec[most]]
            x, y = x[some], y[some]
        parts.append((x, y))
    return Split(parts[0], parts[1], parts[2], rows.classes)


def _ends(
    history: History, spec: Specification, decay: float
) -> list[tuple[float, float, list[Tensor]]]:
    """Learning rate, weight decay and last weights of a method's copies, one for each rate."""
    return [
        (rate, decay, [part[0, place] for part in history.weights])
        for place, rate in enumerate(spec["learning_rates"])
    ]


def features_of(weights: list[Tensor], x: Tensor) -> Tensor:
    """What the last layer gets: the inputs, or the hidden layer.

    Parameters
    ----------
    weights : list of Tensor
        (outputs, inputs + 1) for each layer, the bias last.
    x : Tensor, shape (N, I)
    """
    for layer in weights[:-1]:
        x = (x @ layer[:, :-1].T + layer[:, -1]).relu()
    return x


def hits(weights: list[Tensor], part: tuple[Tensor, Tensor]) -> Tensor:
    """Which rows (N,) a model has right.

    Parameters
    ----------
    weights : list of Tensor
        As for `features_of`.
    part : (Tensor, Tensor)
        Inputs and classes.
    """
    x, y = part
    last = weights[-1]
    return (features_of(weights, x) @ last[:, :-1].T + last[:, -1]).argmax(1) == y


def _chosen(
    ends: list[tuple[float, float, list[Tensor]]], rows: Split
) -> tuple[float, float, list[Tensor]]:
    """The one with the most validation rows right; of those that tie the first."""
    return max(ends, key=lambda end: int(hits(end[2], rows.validation).sum()))


def _seen(
    end: tuple[float, float, list[Tensor]], base: tuple[float, float, list[Tensor]], rows: Split
) -> dict[str, Any]:
    """Accuracies, and test rows that one of a method and the baseline has right alone."""
    rate, decay, weights = end
    test, other = hits(weights, rows.test), hits(base[2], rows.test)
    return {
        "learning_rate": rate,
        "weight_decay": decay,
        "train": float(hits(weights, rows.train).double().mean()),
        "validation": float(hits(weights, rows.validation).double().mean()),
        "test": float(test.double().mean()),
        "better": int((test & ~other).sum()),
        "worse": int((other & ~test).sum()),
    }


def _headroom(weights: list[Tensor], rows: Split, seed: int) -> dict[str, float] | None:
    """What `hitrate.headroom` says of the baseline's last layer, and its head on test rows.

    None where there are too few rows to say anything, or where training has diverged.
    """
    import torch

    from hitrate import headroom

    y = rows.train[1]
    x = features_of(weights, rows.train[0])
    last = weights[-1]
    if len(y) < FEWEST_ROWS or int(y.min()) == int(y.max()) or not bool(last.isfinite().all()):
        return None
    found = headroom(x, y, (last[:, :-1], last[:, -1]), seed=seed)
    refitted = [*weights[:-1], torch.cat([found.weight, found.bias[:, None]], 1)]
    test, other = hits(refitted, rows.test), hits(weights, rows.test)
    return {
        "now": found.now,
        "reachable": found.reachable,
        "noise": found.noise,
        "gain": found.gain,
        "low": found.low,
        "high": found.high,
        "q": found.q,
        "test": float(test.double().mean()),
        "better": int((test & ~other).sum()),
        "worse": int((other & ~test).sum()),
    }


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    models = models_of(fields, TEST)
    splits = fields.seeds("splits")
    if max(splits) > 3:
        fields.wrong("splits", "needs some of 0, 1, 2, 3")
    found = {
        "models": models,
        "splits": splits,
        "hidden": fields.whole("hidden", 1),
        "rows": fields.whole("rows", FEWEST_ROWS),
        "test_rows": fields.whole("test_rows", FEWEST_ROWS),
        "epochs": fields.whole("epochs", 1),
        "steps": fields.whole("steps", 1),
        "batch_size": fields.whole("batch_size", 1),
        "learning_rates": learning_rates_of(fields),
        "weight_decays": fields.numbers("weight_decays"),
        "baseline": fields.text("baseline"),
        "judged": fields.text("judged"),
    }
    fields.end()
    return found


def _variant(study: Study, method: StudyMethod) -> tuple[dict[str, Any], int | None, list[str]]:
    """What a method trains with, as arguments of `Variant`; its most classes, and its models."""
    fields = study.fields(method)
    most = fields.whole("most_classes", 2, default=None)
    models = models_of(fields, TEST) if "models" in method.settings else list(TEST)
    found = {
        "name": method.name,
        "recipe": fields.text("recipe"),
        "settings": fields.taken("parameters", dict, "a table", default={}),
    }
    fields.end()
    return found, most, models
