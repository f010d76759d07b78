"""Several comparisons together: which method ranks best over all data sets."""

from __future__ import annotations

import math
from typing import Any

from hitrate_lab.metrics import Description
from hitrate_lab.report.closer import View
from hitrate_lab.report.ranks import diagram, friedman_words
from hitrate_lab.report.view import ALPHA, one
from hitrate_lab.wording import plural


def several(document: dict[str, Any]) -> View:
    """The view of several comparisons: each of them, their table, and average ranks."""
    views = [one(part) for part in document.get("comparisons") or []]
    metrics = list(dict.fromkeys(view["metric"] for view in views))
    labels = {m["name"]: m["label"] for view in views for m in view["methods"]}
    baselines = {m["name"] for view in views for m in view["methods"] if m["is_baseline"]}
    scores = [{m["name"]: m for m in view["methods"] if m["mean"] is not None} for view in views]
    common = [name for name in labels if scores and all(name in found for found in scores)]
    # Ranks are of one metric.
    ranks = _ranks(common, labels, baselines, scores, metrics[0]) if len(metrics) == 1 else None
    if ranks:
        ranked = [common[method["index"]] for method in ranks["methods"]]
        labels = {name: labels[name] for name in dict.fromkeys([*ranked, *labels])}
    return {
        "headline": _headline(ranks, len(views), metrics),
        "metric": metrics[0] if len(metrics) == 1 else None,
        "facts": [plural(len(views), "data set"), plural(len(labels), "method")],
        "comparisons": views,
        "columns": list(labels.values()),
        "table": [
            _row(view, found, list(labels)) for view, found in zip(views, scores, strict=True)
        ],
        "ranks": ranks,
        "left_out": [labels[name] for name in labels if name not in common],
    }


def _ranks(
    names: list[str],
    labels: dict[str, str],
    baselines: set[str],
    scores: list[dict[str, View]],
    metric: Description,
) -> View | None:
    """Mean ranks; None where there are not two data sets with two methods in common.

    "behind" are the methods that the best is told apart from. If Friedman's test does not tell the
    methods apart, no pair is.
    """
    if len(names) < 2 or len(scores) < 2:
        return None
    from hitrate_lab.statistics import conover, friedman

    table = [[metric.sign * found[name]["mean"] for name in names] for found in scores]
    test, pairs = friedman(table), conover(table)
    shown = [labels[name] for name in names]
    marked = {i for i, name in enumerate(names) if name in baselines}
    is_clear = test.p < ALPHA
    best, *rest = pairs.order
    behind = [shown[i] for i in rest if is_clear and pairs.adjusted[best, i] < ALPHA]
    groups = pairs.groups(ALPHA) if is_clear else [pairs.order]
    numbers = {**vars(test), "f": test.f if math.isfinite(test.f) else None}
    return {
        **diagram(shown, pairs.ranks, groups, marked),
        "behind": behind,
        "tests": friedman_words(numbers, len(names), len(scores)),
    }


def _headline(ranks: View | None, data_sets: int, metrics: list[Description]) -> str:
    if ranks is None:
        return f"{plural(data_sets, 'data set')}, each compared on its own."
    best, *rest = ranks["methods"]
    over = f"on average over {plural(data_sets, 'data set')}"
    start = f"{best['label']} ranks best{metrics[0].within} {over}"
    if not ranks["behind"]:
        return f"{start}, but not clearly ahead of any other method."
    if len(ranks["behind"]) == len(rest):
        return f"{start}, clearly ahead of every other method."
    return f"{start}, clearly ahead of {_listed(ranks['behind'])}."


def _row(view: View, found: dict[str, View], names: list[str]) -> View:
    """One data set: the mean of each method, the best marked."""
    means = [method["mean"] for method in found.values()]
    best = max(means, key=lambda mean: view["metric"].sign * mean, default=None)
    cells = []
    for name in names:
        method = found.get(name)
        value = None if method is None else method["mean"]
        text = "–" if method is None else method["score_text"]
        cells.append({"value": value, "text": text, "is_best": value is not None and value == best})
    return {"name": view["name"], "cells": cells}


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
