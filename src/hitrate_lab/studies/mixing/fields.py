"""Fields that the files of all studies of Mixing have, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitrate_lab.studies.fields import Fields
    from hitrate_lab.studies.study_file import Study

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
