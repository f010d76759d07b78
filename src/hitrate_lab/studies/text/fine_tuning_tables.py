"""What fine-tuned encoders show: differences between losses, and how training went."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hitrate_lab.studies.text import heads_tables

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
MODEL = "fine-tuned"
KINDS = ("test", "train")
# Fewer seeds have no spread.
FEWEST = 2


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Tables of the report.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    gathered = _gathered(study, runs)
    whole = [each for each in gathered if _is_whole(study, each[1])]
    found = []
    if whole:
        found += [heads_tables.differences(study, whole, "test", study.methods[0].name)]
        found += [heads_tables.summary(study, whole, "test")]
    return [*found, _course(study, gathered)] if gathered else []


def scores(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """What methods are ranked by: test accuracies, means over seeds.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    names = [method.name for method in study.methods]
    whole = [each for each in _gathered(study, runs) if _is_whole(study, each[1])]
    return [
        {
            "title": "Fine-tuned",
            "name": study.name.replace("_", "-"),
            "methods": names,
            "data_sets": [spec["data_set"] for spec, _ in whole],
            "scores": [
                [100 * statistics.fmean(result["methods"][name]["test"]) for name in names]
                for _, result in whole
            ],
        }
    ]


def _gathered(study: Study, runs: Runs) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """A pair for each data set, with all seeds of each method, as studies of heads have them."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    encoder = ""
    for spec, result in runs:
        if spec["stage"] == "final":
            encoder = spec["encoder"]
            methods = found.setdefault(spec["data_set"], {})
            methods.setdefault(spec["method"], []).append(result)
    return [
        (
            {"data_set": name, "features": encoder, "model": MODEL},
            {"methods": {key: _seeds(each) for key, each in found[name].items()}},
        )
        for name in study.data_sets
        if name in found
    ]


def _seeds(results: list[dict[str, Any]]) -> dict[str, Any]:
    of_seeds = {kind: [each[f"{kind}_accuracy"] for each in results] for kind in KINDS}
    return {**of_seeds, "results": results}


def _is_whole(study: Study, result: dict[str, Any]) -> bool:
    """Whether every method has runs that can be compared."""
    methods = result["methods"]
    return all(
        method.name in methods and len(methods[method.name]["test"]) >= FEWEST
        for method in study.methods
    )


def _course(study: Study, gathered: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """Chosen rates, training accuracy in each epoch and at the end, and the commonest answer."""
    rows = []
    epochs = max(
        len(result["curve"])
        for _, found in gathered
        for each in found["methods"].values()
        for result in each["results"]
    )
    for spec, found in gathered:
        for method in study.methods:
            if method.name not in found["methods"]:
                continue
            results = found["methods"][method.name]["results"]
            curves = zip(*(each["curve"] for each in results), strict=True)
            course = [_percent(values) for values in curves]
            rows.append(
                [
                    spec["data_set"].split("/")[-1],
                    method.name,
                    f"{results[0]['learning_rate']:g}",
                    *course,
                    *[""] * (epochs - len(course)),
                    _percent(each["train_accuracy"] for each in results),
                    _percent(each["most_said"] for each in results),
                ]
            )
    numbers = [f"epoch {k + 1}" for k in range(epochs)]
    return {
        "title": "How training went",
        "head": ["", "method", "rate", *numbers, "at the end", "commonest answer"],
        "rows": rows,
        "text": (
            "The learning rate, of several that which held-out training rows chose; training "
            "accuracy in percent, in each epoch, with dropout, while weights still move, and of "
            "the last weights; share of test rows that get the commonest answer, in percent. "
            "Means over seeds."
        ),
    }


def _percent(values: Iterable[float]) -> str:
    return f"{100 * statistics.fmean(values):.1f}"
