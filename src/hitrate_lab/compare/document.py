"""The comparison document: what the store has about one plan, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hitrate_lab.compare.advice import advise, paired
from hitrate_lab.compare.folds import codes
from hitrate_lab.compare.training_error import what_the_law_says
from hitrate_lab.metrics import BINS, DEFAULT, METRICS, Metric, bins
from hitrate_lab.models.methods import BASELINE, MODELS, Method, methods
from hitrate_lab.runs.store import Failure, Run
from hitrate_lab.statistics import corrected_estimate, holm
from hitrate_lab.tables import Table

Array = NDArray[Any]

FORMAT, VERSION = "hitrate comparison", 1
# What a page can show.
MOST_ROWS, MOST_COLUMNS = 200, 40


@dataclass(frozen=True)
class Settings:
    """What a comparison was asked for; `folds` as many as the smallest class allows."""

    models: tuple[str, ...]
    losses: tuple[str, ...] | None  # None for each model's own
    folds: int
    repeats: int
    trials: int
    seed: int
    time_budget: float | None = None
    jobs: int = 1
    notes: tuple[str, ...] = ()
    metric: Metric = METRICS[DEFAULT]

    @property
    def methods(self) -> list[Method]:
        """Every model under every loss."""
        return methods(self.models, self.losses)


def document(
    table: Table,
    settings: Settings,
    runs: Sequence[Run],
    failures: Sequence[Failure] = (),
    environment: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that is known about a comparison, whether or not it is complete.

    Parameters
    ----------
    table : Table
    settings : Settings
    runs : sequence of Run
        Of this plan; any number of them.
    failures : sequence of Failure
    environment : dict, optional
        Versions, machine and time, as they are to be shown.

    Returns
    -------
    dict
        Plain JSON; every number is finite or None.
    """
    classes = table.classes
    target = codes(table)
    metric = settings.metric
    every = settings.methods
    # A comparison without cross entropy has the first method to compare with.
    names = [method.name for method in every]
    named = [name for name in names if name.endswith("/cross_entropy")]
    baseline = BASELINE if BASELINE in names else (named or names)[0]
    entries = [
        _entry(
            method,
            [run for run in runs if run.specification["method"] == method.name],
            [each for each in failures if each.specification["method"] == method.name],
            target,
            len(classes),
            settings.folds,
            metric,
        )
        for method in every
    ]
    _add_differences(entries, baseline, settings.folds, metric)
    _rank(entries, baseline, metric)
    planned = len(every) * settings.folds * settings.repeats
    failed = sum(len(entry["failures"]) for entry in entries)
    advice = advise(
        entries,
        baseline,
        rows=len(target),
        folds=settings.folds,
        repeats=settings.repeats,
        ended=len(runs) + failed >= planned,
        metric=metric,
    )
    widths = [run.result["features"] for run in runs]
    return {
        "format": FORMAT,
        "version": VERSION,
        **({} if metric.is_default else {"metric": metric.described()}),
        "table": {
            "name": table.name,
            "rows": len(target),
            "columns": int(table.features.shape[1]),
            "features": max(widths) if widths else None,
            "target": table.target_name,
            "classes": classes,
            "class_counts": np.bincount(target, minlength=len(classes)).tolist(),
            "notes": [*table.notes, *settings.notes, *_mixed(runs)],
            "fingerprint": table.fingerprint,
        },
        "settings": {
            "folds": settings.folds,
            "repeats": settings.repeats,
            "seed": settings.seed,
            "trials": settings.trials,
            "models": list(settings.models),
            "losses": list(dict.fromkeys(method.loss for method in settings.methods)),
            **({} if metric.costs is None else {"costs": [*map(list, metric.costs)]}),
            "time_budget": settings.time_budget,
            "jobs": settings.jobs,
        },
        "complete": len(runs) == planned,
        "done": len(runs),
        "failed": failed,
        "planned": planned,
        "baseline": baseline,
        "best": entries[0]["name"] if entries[0]["folds"] else None,
        "advice": advice.sentence,
        "recommended": advice.method,
        "training": what_the_law_says(entries, baseline) if metric.is_default else None,
        "methods": entries,
        "changed": _changed(table, target, runs, entries, baseline, advice.method),
        "environment": environment or {},
    }


def _rank(entries: list[dict[str, Any]], baseline: str, metric: Metric) -> None:
    """Put the best first, by the folds that it shares with the baseline if it has some.

    Methods some of whose folds failed would else be judged by other folds than the rest. Ties keep
    the order they were asked for in; what never finished is last.
    """
    base = next(entry for entry in entries if entry["name"] == baseline)[metric.key]["mean"]

    def height(entry: dict[str, Any]) -> float:
        difference = entry["difference"]
        if base is None or difference is None:
            return metric.sign * (entry[metric.key]["mean"] or 0.0)
        return metric.sign * float(base + difference["mean"])

    entries.sort(key=lambda entry: (not entry["folds"], -height(entry)))


def _mixed(runs: Sequence[Run]) -> list[str]:
    """Notes if runs were made with different versions of something, or between changes of code."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            seen.setdefault(name, set()).add(version)
    commits = sorted(seen.pop("commit", ()))
    mixed = [f"{name} {' and '.join(sorted(each))}" for name, each in seen.items() if len(each) > 1]
    notes = [f"runs of different versions are mixed: {', '.join(mixed)}"] * bool(mixed)
    return notes + [f"runs are of hitrate's commits {', '.join(commits)}"] * (len(commits) > 1)


def _entry(
    method: Method,
    runs: list[Run],
    failures: list[Failure],
    target: Array,
    classes: int,
    folds: int,
    metric: Metric,
) -> dict[str, Any]:
    """One method: its folds, and what they add up to."""
    runs = sorted(runs, key=_place)
    # Accuracy is always told, and first.
    kinds = {each.key: each for each in (METRICS[DEFAULT], metric)}
    tested = [
        {
            "repeat": run.specification["repeat"],
            "fold": run.specification["fold"],
            **{
                name: run.result[name]
                for name in (*kinds, "log_loss", "fit_seconds", "tune_seconds")
            },
            # Runs of older versions do not have it.
            "train_accuracy": run.result.get("train_accuracy"),
            "rows": len(run.result["rows"]),
            "parameters": run.result["parameters"],
        }
        for run in runs
    ]
    rows, predicted, probability = (
        np.array([each for run in runs for each in run.result[name]], dtype)
        for name, dtype in (("rows", int), ("predicted", int), ("probability", float))
    )
    confusion = np.zeros((classes, classes), int)
    np.add.at(confusion, (target[rows], predicted), 1)
    first = next((run for run in runs if _place(run) == (0, 0)), None)
    return {
        "name": method.name,
        "label": method.label,
        "model": method.model,
        "loss": method.loss,
        **{
            key: _estimate([fold[key] for fold in tested], folds, each)
            for key, each in kinds.items()
        },
        "train_accuracy": _mean(
            [each["train_accuracy"] for each in tested if each["train_accuracy"] is not None]
        ),
        "difference": None,
        "folds": tested,
        "fit_seconds": _mean([each["fit_seconds"] for each in tested]),
        "tune_seconds": _mean([each["tune_seconds"] for each in tested]),
        "confusion": confusion.tolist(),
        "reliability": _reliability(probability, target[rows] == predicted),
        "curve": None if first is None else first.result["curve"],
        "log_loss": _mean([each["log_loss"] for each in tested]),
        "failures": [
            f"repeat {repeat + 1}, fold {fold + 1}: {each.error}"
            for each in failures
            for repeat, fold in [_place(each)]
        ],
    }


def _estimate(values: list[float], folds: int, metric: Metric) -> dict[str, Any]:
    """The mean over folds with its interval."""
    if not values:
        return {"mean": None, "low": None, "high": None, "std": None, "n": 0}
    found = corrected_estimate(values, 1 / (folds - 1))
    return {
        "mean": found.mean,
        "low": None if found.low is None else metric.clipped(found.low),
        "high": None if found.high is None else metric.clipped(found.high),
        "std": found.std,
        "n": found.n,
    }


def _place(run: Run | Failure) -> tuple[int, int]:
    return run.specification["repeat"], run.specification["fold"]


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _add_differences(
    entries: list[dict[str, Any]], baseline: str, folds: int, metric: Metric
) -> None:
    """How each method differs from the baseline, adjusted for the number of methods."""
    base = next(entry for entry in entries if entry["name"] == baseline)
    found = [
        (entry, pair)
        for entry in entries
        if entry is not base and (pair := paired(base, entry, folds, metric)) is not None
    ]
    adjusted = iter(holm([pair.p for _, pair in found if pair.p is not None]))
    for entry, pair in found:
        entry["difference"] = {
            "mean": pair.mean,
            "low": pair.low,
            "high": pair.high,
            "p": pair.p,
            "p_holm": None if pair.p is None else next(adjusted),
        }


def _reliability(probability: Array, right: Array) -> list[dict[str, Any]]:
    """How often predictions of about the same probability are right; bins without any left out."""
    at = bins(probability)
    return [
        {
            "low": k / BINS,
            "high": (k + 1) / BINS,
            "count": int((at == k).sum()),
            "confidence": float(probability[at == k].mean()),
            "accuracy": float(right[at == k].mean()),
        }
        for k in np.unique(at).tolist()
    ]


def _changed(
    table: Table,
    target: Array,
    runs: Sequence[Run],
    entries: list[dict[str, Any]],
    baseline: str,
    advised: str | None,
) -> dict[str, Any] | None:
    """Rows that cross entropy and EXACT differ on, of the simplest model that has both.

    Else those that the baseline and the advised method, or the best other one, differ on.
    """
    ran = {entry["name"] for entry in entries if entry["folds"]}
    twins = [(f"{model}/cross_entropy", f"{model}/exact") for model in MODELS]
    both = [pair for pair in twins if ran.issuperset(pair)]
    others = [entry["name"] for entry in entries if entry["name"] in ran - {baseline}]
    if both:
        source, other = both[0]
    elif others and baseline in ran:
        source, other = baseline, others[0]
        if advised is not None and advised in others:
            other = advised
    else:
        return None
    one, two = _predictions(runs, source), _predictions(runs, other)
    rows = np.array(sorted(one.keys() & two.keys()), int)
    if not len(rows):
        return None
    before, after = (np.array([each[row] for row in rows.tolist()]) for each in (one, two))
    was, now = before == target[rows], after == target[rows]
    classes = table.classes
    columns = list(table.features.columns[:MOST_COLUMNS])
    shown = np.flatnonzero(was != now)[:MOST_ROWS].tolist()
    return {
        "from": source,
        "to": other,
        "gained": int((now & ~was).sum()),
        "lost": int((was & ~now).sum()),
        "both_right": int((was & now).sum()),
        "both_wrong": int((~was & ~now).sum()),
        "rows": [
            {
                "row": int(table.row_numbers[rows[k]]),
                "truth": classes[target[rows[k]]],
                "from": classes[before[k]],
                "to": classes[after[k]],
                "features": {
                    str(name): _plain(table.features[name].iloc[rows[k]]) for name in columns
                },
            }
            for k in shown
        ],
    }


def _predictions(runs: Sequence[Run], name: str) -> dict[int, int]:
    """Predicted class of each row by one method, in the first repeat."""
    return {
        row: label
        for run in runs
        if run.specification["method"] == name and run.specification["repeat"] == 0
        for row, label in zip(run.result["rows"], run.result["predicted"], strict=True)
    }


def _plain(value: Any) -> Any:
    """A cell as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | str):
        return value
    if pd.isna(value) or value in (math.inf, -math.inf):
        return None
    if isinstance(value, float):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)
