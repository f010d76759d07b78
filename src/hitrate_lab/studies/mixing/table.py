"""Table 4 of "Mixing between the Cross Entropy and the Expectation Loss Terms": 121 UCI tables.

One run is a data set, an architecture and a split: all losses, learning rates and seeds of it are
trained together, which takes little longer than one of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.mixing.fields import (
    check_made,
    check_names,
    data_of,
    learning_rates_of,
    models_of,
    optimizer_of,
    setting_of,
)
from hitrate_lab.studies.protocol import Cell, Protocol

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod
    from hitrate_lab.training.batched import History

# A measure of the report for each architecture.
MEASURES = {"linear": "linear_accuracy", "one hidden layer": "hidden_accuracy"}
# Columns of Table 4.
STATISTICS = ("wins", "gain", "rank")


class MixingTable(Protocol):
    """All losses, learning rates and seeds on the 121 tables."""

    name = "mixing table"
    version = 1

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        _settings(study)
        fields = study.fields()
        check_names(study, MEASURES, "all need the same seeds, of which they are trained together")
        for method in study.methods:
            _variant(study, method)
            printed(study, method)
        baseline = study.settings["baseline"]
        if not any(method.name == baseline and printed(study, method) for method in study.methods):
            fields.wrong(
                "baseline", f"{baseline!r} is no method with numbers of the paper's, table_4"
            )

    def plan(self, study: Study) -> list[Specification]:
        """Specifications, one architecture after the other.

        Parameters
        ----------
        study : Study
        """
        from hitrate_lab.training.batched import Variant

        settings = _settings(study)
        splits, models = settings.pop("splits"), settings.pop("models")
        methods = [_variant(study, method) for method in study.methods]
        check_made(study, methods, lambda method: Variant(**method).plan(epochs=1))
        return [
            {
                "study": study.name,
                "protocol": self.signature,
                "data_set": data_set,
                "model": model,
                "split": split,
                "seeds": list(study.methods[0].seeds),
                "methods": methods,
                **settings,
            }
            for split in splits
            for model in models
            for data_set in study.data_sets
        ]

    def run(self, specification: Specification, context: Context) -> Result:
        """Train all models of a data set: for each method and seed what validation rows choose.

        Parameters
        ----------
        specification : dict
            One of `plan`.
        context : Context
        """
        from hitrate_lab.training.batched import Split, Variant, train_many

        spec = specification
        data, setting = data_of(spec, context), setting_of(spec, spec["epochs"])
        rows = Split.of(data)
        variants = [Variant(**each) for each in spec["methods"]]
        begun = time.perf_counter()
        trained = train_many(
            rows, setting, variants, spec["learning_rates"], spec["seeds"], device=spec["device"]
        )
        seconds = time.perf_counter() - begun
        held = len(rows.validation[1]), len(rows.test[1])
        copies = len(variants) * len(spec["learning_rates"]) * len(spec["seeds"])
        steps = spec["epochs"] * -(-len(rows.train[1]) // spec["batch_size"])
        return {
            "chosen": {name: chosen(history, spec, held) for name, history in trained.items()},
            "best": {name: best_of(history) for name, history in trained.items()},
            "not_finite": sum(_not_finite(history) for history in trained.values()),
            "train_rows": len(rows.train[1]),
            "validation_rows": held[0],
            "test_rows": held[1],
            "features": rows.inputs,
            "classes": rows.classes,
            "notes": list(data.notes),
            "copies": copies,
            "steps": steps,
            "seconds": round(seconds, 3),
            "processor": processor(),
        }

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Test accuracy in percent, for the report: one number for each method and seed."""
        return accuracy_cells(specification, result)

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Table 4 itself, for the report."""
        from hitrate_lab.studies.mixing.summary import tables

        return tables(study, [(run.specification, run.result) for run in runs])

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Test accuracies by data set and method, for the report's rankings."""
        from hitrate_lab.studies.mixing import summary as mixing_summary

        return mixing_summary.score_tables(study, [(run.specification, run.result) for run in runs])


def accuracy_cells(specification: Specification, result: Result) -> list[Cell]:
    """Test accuracy in percent: one number for each method and seed."""
    measure = MEASURES[specification["model"]]
    return [
        (measure, specification["data_set"], name, 100 * each["test_accuracy"])
        for name, seeds in result["chosen"].items()
        for each in seeds
    ]


def best_of(history: History) -> list[list[dict[str, int]]]:
    """For each seed and learning rate the best epoch on validation rows.

    Epochs that tie are common where these rows are few. `epoch` and `test` are of the first, as in
    `chosen`; `last_epoch` and `last_test` show what the last would have given. Epochs count from 1.
    """
    found = []
    for seed in range(history.validation.shape[1]):
        of_seed = []
        for rate in range(history.validation.shape[2]):
            validation, test = history.validation[:, seed, rate], history.test[:, seed, rate]
            best = (validation == validation.max()).nonzero()[0]
            of_seed.append(
                {
                    "validation": int(validation.max()),
                    "epoch": int(best[0]) + 1,
                    "test": int(test[best[0]]),
                    "last_epoch": int(best[-1]) + 1,
                    "last_test": int(test[best[-1]]),
                }
            )
        found.append(of_seed)
    return found


def chosen(
    history: History, specification: Mapping[str, Any], held: tuple[int, int]
) -> list[dict[str, Any]]:
    """For each seed the learning rate and epoch that validation rows choose, and their accuracy.

    Of rates that tie, the one that the study names first.
    """
    found = []
    for seed, rates in zip(specification["seeds"], best_of(history), strict=True):
        place = max(range(len(rates)), key=lambda k: rates[k]["validation"])
        best = rates[place]
        found.append(
            {
                "seed": seed,
                "learning_rate": specification["learning_rates"][place],
                "epoch": best["epoch"],
                "validation_accuracy": best["validation"] / held[0],
                "test_accuracy": best["test"] / held[1],
            }
        )
    return found


def _not_finite(history: History) -> int:
    """Copies that have lost their weights to infinity."""
    finite = [part.isfinite().flatten(2).all(2) for part in history.weights]
    both = finite[0] if len(finite) == 1 else finite[0] & finite[1]
    return int((~both).sum())


def _settings(study: Study) -> dict[str, Any]:
    """The table [settings], checked."""
    fields = study.fields()
    models = models_of(fields, MEASURES)
    rates = learning_rates_of(fields)
    splits = fields.seeds("splits")
    if max(splits) > 3:
        fields.wrong("splits", "needs some of 0, 1, 2, 3")
    optimizer = optimizer_of(fields)
    found = {
        "models": models,
        "splits": splits,
        "standardise": fields.flag("standardise"),
        "epochs": fields.whole("epochs", 1),
        "batch_size": fields.whole("batch_size", 1),
        "learning_rates": rates,
        "optimizer": optimizer,
        "device": fields.text("device", default="cpu"),
    }
    fields.text("baseline")
    fields.end()
    return found


def _variant(study: Study, method: StudyMethod) -> dict[str, Any]:
    """What a method trains with, as arguments of `Variant`."""
    fields = study.fields(method)
    fields.table("table_4", default={})
    found = {
        "name": method.name,
        "recipe": fields.text("recipe"),
        "settings": fields.taken("parameters", dict, "a table", default={}),
        "factor": fields.number("factor", default=1.0, above=True),
    }
    fields.end()
    return found


def printed(study: Study, method: StudyMethod) -> dict[str, dict[str, float | None]]:
    """What the paper has of a method, by model and statistic; nothing of one that is not in it.

    Parameters
    ----------
    study : Study
    method : StudyMethod
    """
    table = study.fields(method).table("table_4", default={})
    found: dict[str, dict[str, float | None]] = {}
    for model in table.keys():
        if model not in MEASURES:
            table.wrong(model, f"is none of {', '.join(MEASURES)}")
        numbers = table.table(model)
        found[model] = {key: numbers.number(key, least=-100.0) for key in STATISTICS}
        numbers.end()
    return found
