"""What all studies of Mixing have: fields of their files, checked, data sets and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput

if TYPE_CHECKING:
    from hitrate_lab.datasets import PublishedSet
    from hitrate_lab.runs.work import Context, Specification
    from hitrate_lab.studies.fields import Fields
    from hitrate_lab.studies.study_file import Study
    from hitrate_lab.training.batched import Setting

COLLECTION = "uci121/"


def check_names(study: Study, measures: Mapping[str, str], seeds: str) -> None:
    """Complain of data sets and measures that there are not, and of methods' different seeds.

    Parameters
    ----------
    study : Study
    measures : mapping
        A measure for each architecture.
    seeds : str
        What is said of different ones.
    """
    fields = study.fields()
    for name in study.data_sets:
        if not name.startswith(COLLECTION):
            fields.wrong("data_sets", f"{name!r} is none of {COLLECTION}NAME")
    for measure in study.measures:
        if measure not in measures.values():
            fields.wrong("measures", f"{measure!r} is none of {', '.join(measures.values())}")
    if len({method.seeds for method in study.methods}) > 1:
        fields.wrong("methods", seeds)


def check_methods(study: Study, key: str, names: Iterable[str]) -> None:
    """Complain of a field that names a method which is not there."""
    known = [method.name for method in study.methods]
    for name in names:
        if name not in known:
            study.fields().wrong(key, f"{name!r} is no method of this study")


def check_made(
    study: Study, methods: Iterable[dict[str, Any]], make: Callable[[dict[str, Any]], object]
) -> None:
    """Complain of a method that cannot be made.

    For `plan` and not for `check`: to read a study's file should not load torch.
    """
    for method in methods:
        try:
            make(method)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{study.path}: methods[{method['name']}]: {error}") from error


def data_of(specification: Specification, context: Context) -> PublishedSet:
    """The data set of a run; the first split, as published, if it does not say otherwise."""
    from hitrate_lab.datasets import read_uci

    name = specification["data_set"].removeprefix(COLLECTION)
    options = {key: specification[key] for key in ("split", "standardise") if key in specification}
    return read_uci(name, data_dir=context.data_dir, **options)


def setting_of(specification: Specification, epochs: int) -> Setting:
    """What the models of a run are, and what they are trained with."""
    from hitrate_lab.training.batched import Optimizer, Setting

    spec = specification
    return Setting(spec["model"], epochs, spec["batch_size"], Optimizer(**spec["optimizer"]))


def models_of(fields: Fields, known: Mapping[str, str]) -> list[str]:
    """Architectures, of those that are known."""
    models = fields.texts("models")
    for model in models:
        if model not in known:
            fields.wrong("models", f"{model!r} is none of {', '.join(known)}")
    return models


def learning_rates_of(fields: Fields) -> list[float]:
    """Different numbers above 0."""
    rates = fields.taken("learning_rates", list, "a list of numbers")
    fields.unique("learning_rates", rates)
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
            fields.wrong("learning_rates", f"needs a list of numbers above 0, but has {rate!r}")
    return [float(rate) for rate in rates]


def optimizer_of(fields: Fields) -> dict[str, Any]:
    """Arguments of `hitrate_lab.training.Optimizer`."""
    rule = fields.table("optimizer")
    found = {
        "name": rule.choice("name", ("sgd", "adam")),
        "momentum": rule.number("momentum", default=0.0),
        "weight_decay": rule.number("weight_decay", default=0.0),
    }
    rule.end()
    return found
