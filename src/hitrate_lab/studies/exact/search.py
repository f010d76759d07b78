"""EXACT's Tables 1 and 2 with parameters of our own search: fifty random trials for every method.

A trial trains on 80 % of the training rows, the rest says how good it is. The best trial's
parameters are then used on all training rows, once for each seed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import processor
from hitrate_lab.runs.store import canonical
from hitrate_lab.runs.work import Context, Result, Specification
from hitrate_lab.studies.exact import tables as exact_tables
from hitrate_lab.studies.protocol import Cell, Protocol
from hitrate_lab.studies.trials import trials_of

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study, StudyMethod

# What each model can be searched for, beside weight decay; what is not tuned has no effect.
PARAMETERS: dict[str, dict[str, float | None]] = {
    "logistic regression": {"regularization": 0.0},
    "sgd": {"learning_rate": None, "clip": None, "margin": None},
}


class ExactSearch(Protocol):
    """Linear models with parameters of our own search."""

    name = "exact search"
    version = 1
    uses_device = True

    def check(self, study: Study) -> None:
        """Complain of a field that this protocol cannot use."""
        exact_tables.check_names(study)
        _settings(study)
        for method in study.methods:
            _method(study, method)

    def plan(self, study: Study) -> list[Specification]:
        """Specifications: all trials, then what their best ones are used for.

        Parameters
        ----------
        study : Study
        """
        settings, search = _settings(study)
        common = {
            "study": study.name,
            "protocol": self.signature,
            "follow": settings["follow"],
            "split": settings["split"],
            "validation": search["validation"],
        }
        trials, finals = [], []
        for method in study.methods:
            training, values = _method(study, method)
            drawn = draw(values, search["trials"], search["seed"])
            # What is chosen depends on all of this.
            searched = {
                "trials": len(drawn),
                "search_seed": search["seed"],
                "values": values,
                "training": training,
            }
            for data_set in study.data_sets:
                place = {**common, "data_set": data_set, "method": method.name}
                trials += [
                    {
                        **place,
                        "stage": "trial",
                        "trial": k,
                        "training": {**training, **each},
                        "seed": 0,
                    }
                    for k, each in enumerate(drawn)
                ]
                finals += [
                    {**place, "stage": "final", **searched, "seed": seed} for seed in method.seeds
                ]
        return trials + finals

    def batch_of(self, specification: Specification) -> str:
        """Trials of a method on a data set are trained together, and so are the last seeds."""
        return canonical([specification[key] for key in ("data_set", "method", "stage")])

    def needs(
        self, specification: Specification, plan: Sequence[Specification]
    ) -> list[Specification]:
        """The trials of which the best is to be used."""
        return trials_of(specification, plan)

    def run_batch(
        self, specifications: Sequence[Specification], context: Context
    ) -> list[Result | Exception]:
        """Run all trials of a method on a data set, or train with the best one's parameters.

        Parameters
        ----------
        specifications : sequence of dict
            Some of `plan` that share `batch_of`.
        context : Context
            Knows, at the end, results of all trials.
        """
        spec = specifications[0]
        name = spec["data_set"].removeprefix(exact_tables.COLLECTION)
        data = exact_tables.read(name, spec["split"], spec["follow"], context.data_dir)
        train, test = (data.X_train, data.y_train), (data.X_test, data.y_test)
        if spec["stage"] == "trial":
            parts = held_out(*train, spec["validation"], spec["split"])
            names = ("fitted_accuracy", "validation_accuracy")
            used = [{key: each[key] for key in ("trial", "training")} for each in specifications]
        else:
            parts, names = (train, test), exact_tables.MEASURES
            used = [best_of(context.known.values())] * len(specifications)
        pairs = [
            (own["training"], each["seed"]) for own, each in zip(used, specifications, strict=True)
        ]
        begun = time.perf_counter()
        found = exact_tables.accuracies(parts, len(data.classes), pairs, context.device)
        common = {
            "seconds": round((time.perf_counter() - begun) / len(pairs), 3),
            "trained_together": len(pairs),
            "processor": processor(),
            "device": exact_tables.device_name(context.device),
        }
        results: list[dict[str, Any] | Exception] = []
        for own, each in zip(used, found, strict=True):
            if isinstance(each, FloatingPointError) and spec["stage"] == "trial":
                # Bad parameters are no failure of the search: such a trial is never the best.
                each = {"accuracy": [0.0, 0.0], "diverged": True}
            if isinstance(each, Exception):
                results.append(each)
                continue
            accuracy = dict(zip(names, each.pop("accuracy"), strict=True))
            results.append({**own, **accuracy, **common, **each})
        return results

    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """Accuracy in percent of what was trained at the end, for the report."""
        if specification["stage"] == "trial":
            return []
        return exact_tables.accuracy_cells(specification, result)

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """What the search has chosen, with the accuracy on the rows that it was judged by."""
        rows: dict[tuple[str, str], list[str]] = {}
        for run in runs:
            spec, result = run.specification, run.result
            place = spec["data_set"], spec["method"]
            # All seeds use the same trial.
            if spec["stage"] == "trial" or place in rows:
                continue
            chosen = [
                f"{key} {result['training'][key]:g}"
                for key in spec["values"]
                if result["training"][key] is not None
            ]
            rows[place] = [
                spec["data_set"].split("/")[-1],
                spec["method"],
                str(result["trial"]),
                ", ".join(chosen),
                f"{100 * result['validation_accuracy']:.2f}",
            ]
        return [
            {
                "title": "What the search has chosen",
                "head": ["data set", "method", "trial", "parameters", "validation accuracy, %"],
                "rows": list(rows.values()),
                "text": "Of trials with the same validation accuracy the first is taken.",
            }
        ]


def draw(values: Mapping[str, list[Any]], trials: int, seed: int) -> list[dict[str, Any]]:
    """Parameters of random trials, by Optuna.

    Parameters
    ----------
    values : mapping of lists
        What each parameter may be, all equally likely.
    trials : int
    seed : int
    """
    try:
        import optuna
    except ImportError as error:
        raise BadInput("a search needs Optuna: pip install 'hitrate[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    kinds: dict[str, Any] = {
        key: optuna.distributions.CategoricalDistribution(each) for key, each in values.items()
    }
    return [dict(study.ask(kinds).params) for _ in range(trials)]


def best_of(trials: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Number, training and validation accuracy of the best trial; of several, the first.

    Parameters
    ----------
    trials : iterable of mappings
        Their results.
    """
    sound = [each for each in trials if not each.get("diverged")]
    if not sound:
        raise FloatingPointError("all trials diverged")
    best = max(sound, key=lambda each: (each["validation_accuracy"], -each["trial"]))
    return {key: best[key] for key in ("trial", "training", "validation_accuracy")}


def held_out(x: Any, y: Any, share: float, seed: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Rows to train on, and rows to judge a trial by."""
    from sklearn.model_selection import train_test_split

    x, x_held, y, y_held = train_test_split(x, y, test_size=share, random_state=seed)
    return (x, y), (x_held, y_held)


def _settings(study: Study) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table [settings], and [settings.search] in it, checked."""
    fields = study.fields()
    settings = exact_tables.settings_of(study, fields)
    if settings["windows"]:
        fields.wrong("gradient_norms", "a search keeps none")
    given = fields.table("search")
    search = {
        "trials": given.whole("trials", 1),
        "validation": given.number("validation", above=True),
        "seed": given.whole("seed"),
    }
    share = search["validation"]
    if share is not None and not share < 1:
        given.wrong("validation", f"needs a number below 1, not {share:g}")
    given.end()
    fields.end()
    return settings, search


def _method(study: Study, method: StudyMethod) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What a method's trainings have in common, and what its parameters may be, checked."""
    fields = study.fields(method)
    training = exact_tables.training_of(fields, _settings(study)[0])
    table, values = fields.table("values"), {}
    fields.end()
    known = PARAMETERS[training["model"]]
    free = [*known, "weight_decay"] if training["model"] == "sgd" else [*known]
    if training.get("loss") == "cross_entropy":
        free.remove("margin")
    for key in table.keys():
        if key not in free:
            table.wrong(key, f"is no parameter here; there are {', '.join(free)}")
        values[key] = table.numbers(key)
        if key in ("learning_rate", "clip") and 0 in values[key]:
            table.wrong(key, "needs numbers above 0")
    if "learning_rate" in free and "learning_rate" not in values:
        table.wrong("learning_rate", "is missing; needs a list of numbers")
    return {**known, **training}, values
