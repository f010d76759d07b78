"""What heads on texts show: differences, what they go with, and where gradients go."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.statistics import spearman
from hitrate_lab.studies.gain.pairs import PREDICTORS
from hitrate_lab.studies.networks.differences import Difference, in_points, welch
from hitrate_lab.studies.text import heads_gain
from hitrate_lab.wording import points

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
# Fewer pairs of a data set and a model have no correlation worth a number.
FEWEST = 8


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Tables of the report, each beside the study's first method; differences beside others too.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    runs = list(runs)
    if not runs:
        return []
    kind = "balanced" if runs[0][0]["balanced"] else "test"
    found = [differences(study, runs, kind, base) for base in beside_of(study)]
    found += [summary(study, runs, kind), _pulls(study, runs)]
    if any(result["headroom"] for _, result in runs):
        found.append(_headroom(study, runs))
    fitted = heads_gain.table(study, runs)
    return found if fitted is None else [*found, fitted]


def beside_of(study: Study) -> list[str]:
    """Methods that the others are compared with; by default the first."""
    found: list[str] = study.settings.get("beside", [study.methods[0].name])
    return found


def _name(spec: dict[str, Any]) -> str:
    return f"{spec['data_set'].split('/')[-1]}, {spec['features']}, {spec['model']}"


def difference(result: dict[str, Any], name: str, base: str, kind: str) -> Difference | None:
    """Of means over seeds, with Welch's interval."""
    a, b = (np.array(result["methods"][each][kind]) for each in (name, base))
    return welch(a, b)


def differences(study: Study, runs: list[Any], kind: str, base: str) -> dict[str, Any]:
    """Each method beside a base, a row for each data set and model."""
    others = [method.name for method in study.methods if method.name != base]
    rows = []
    for spec, result in runs:
        of_base = 100 * np.array(result["methods"][base][kind])
        row = [_name(spec), f"{of_base.mean():.2f} ± {of_base.std(ddof=1):.2f}"]
        for name in others:
            found = difference(result, name, base, kind)
            row.append("" if found is None else in_points(found))
        rows.append(row)
    what = "Balanced accuracy" if kind == "balanced" else "Accuracy"
    return {
        "title": f"{what} of {base}, and differences from it",
        "head": ["", f"{base}, %", *others],
        "rows": rows,
        "text": (
            f"Means over {len(study.methods[0].seeds)} seeds on the same test rows; differences in "
            "points, with Welch's interval of 95 % over seeds, which says nothing of other test "
            "rows. Nothing is corrected for the number of comparisons."
        ),
    }


def summary(study: Study, runs: list[Any], kind: str) -> dict[str, Any]:
    """Differences from the first method over all data sets and models."""
    base, *others = (method.name for method in study.methods)
    rows = []
    for name in others:
        found = [(difference(result, name, base, kind), _name(spec)) for spec, result in runs]
        known = [(each, pair) for each, pair in found if each is not None]
        values = [each.value for each, _ in known]
        trained = [
            statistics.fmean(result["methods"][name]["train"])
            - statistics.fmean(result["methods"][base]["train"])
            for _, result in runs
        ]
        low, at = min(((each.value, pair) for each, pair in known), default=(0.0, ""))
        rows.append(
            [
                name,
                points(statistics.fmean(values), 2),
                points(statistics.median(values), 2),
                f"{points(low, 2)} ({at})",
                str(sum(each.low > 0 for each, _ in known)),
                str(sum(each.high < 0 for each, _ in known)),
                points(statistics.fmean(trained), 2),
            ]
        )
    head = ["", "mean", "median", "worst", "better", "worse", "in training, mean"]
    return {
        "title": f"Over {len(runs)} pairs of a data set and a model",
        "head": head,
        "rows": rows,
        "text": (
            f"Differences from {base} in points; better and worse: pairs whose interval of 95 % "
            "over seeds is on that side of nothing."
        ),
    }


def _pulls(study: Study, runs: list[Any]) -> dict[str, Any]:
    """Gradients at the target's logit."""
    rows = []
    parts = [("to 6 classes", 2, 6), ("77 classes or more", 77, 1000)]
    there = [
        (words, some)
        for words, low, high in parts
        if (some := [result for _, result in runs if low <= result["classes"] <= high])
    ]
    for method in study.methods:
        row = [method.name]
        for _, some in there:
            of = [result["methods"][method.name] for result in some]
            row.append(f"{statistics.fmean(each['pull_at_start'] for each in of):.3f}")
            wrong = [each["pull_on_wrong"] for each in of if each["pull_on_wrong"] is not None]
            row.append(f"{statistics.fmean(wrong):.3f}" if wrong else "")
        rows.append(row)
    head = [
        f"{when}, {words}" for words, _ in there for when in ("at the start", "wrong at the end")
    ]
    return {
        "title": "Gradient at the target's logit",
        "head": ["", *head],
        "rows": rows,
        "text": (
            "Mean of |∂ loss / ∂ target's logit| over training rows: of all before the first step, "
            "then of those that are wrong after the last; averaged over pairs. Of each loss as it "
            "stands then (after its first epoch, where that is another one), without what "
            "normalises gradients."
        ),
    }


def _headroom(study: Study, runs: list[Any]) -> dict[str, Any]:
    """Gains beside what the study of the gain's law takes to predict them."""
    base, judged = study.methods[0].name, heads_gain.judged_of(study)
    known: dict[str, list[float | None]] = {key: [] for key in PREDICTORS if "held-out" not in key}
    gains: dict[str, list[float]] = {name: [] for name in judged}
    rows = []
    for spec, result in runs:
        seen = {
            "methods": {
                name: {"train": statistics.fmean(each["train"])}
                for name, each in result["methods"].items()
            },
            **{key: result[key] for key in ("parameters", "classes", "train_rows", "headroom")},
        }
        row = [_name(spec)]
        for key, values in known.items():
            asks = key.startswith("headroom()") and result["headroom"] is None
            value = None if asks else PREDICTORS[key](seen, base, judged[0])
            values.append(value)
            row.append("" if value is None else points(value, 1))
        for name in judged:
            found = difference(result, name, base, "test")
            gains[name].append(0.0 if found is None else found.value)
            row.append(points(gains[name][-1], 2))
        rows.append(row)
    if len(rows) >= FEWEST:
        for name in judged:
            ranks = [_correlation(values, gains[name]) for values in known.values()]
            rows.append([f"Spearman's correlation with {name}", *ranks, *[""] * len(judged)])
    return {
        "title": "Gain, training error and headroom",
        "head": ["", *known, *judged],
        "rows": rows,
        "text": (
            "What could be known before looking at test rows, as on the page of the gain's law, "
            f"with {judged[0]} as the method that is judged; then gains over {base} on test rows. "
            "All in points."
        ),
    }


def _correlation(values: list[float | None], gains: list[float]) -> str:
    """Of those that are known."""
    both = [(value, gain) for value, gain in zip(values, gains, strict=True) if value is not None]
    return f"{spearman(*zip(*both, strict=True)):+.2f}" if len(both) >= FEWEST else ""
