"""Several comparisons together: which method ranks best over all data sets."""

from __future__ import annotations

from typing import Any

from hitrate_lab.report.closer import View
from hitrate_lab.report.ranks import (
    average_ranks,
    critical_difference,
    friedman_p,
    indistinct,
)
from hitrate_lab.report.view import ALPHA, one
from hitrate_lab.report.wording import p_value, plural


def several(document: dict[str, Any]) -> View:
    """The view of several comparisons: each of them, their table, and average ranks."""
    views = [one(part) for part in document.get("comparisons") or []]
    labels = {m["name"]: m["label"] for view in views for m in view["methods"]}
    baselines = {m["name"] for view in views for m in view["methods"] if m["is_baseline"]}
    scores = [{m["name"]: m for m in view["methods"] if m["mean"] is not None} for view in views]
    common = [name for name in labels if scores and all(name in found for found in scores)]
    diagram = _diagram(common, labels, baselines, scores)
    if diagram:
        ranked = [method["name"] for method in diagram["methods"]]
        labels = {name: labels[name] for name in dict.fromkeys([*ranked, *labels])}
    return {
        "headline": _headline(diagram, len(views)),
        "facts": [plural(len(views), "data set"), plural(len(labels), "method")],
        "comparisons": views,
        "columns": list(labels.values()),
        "table": [
            _row(view, found, list(labels)) for view, found in zip(views, scores, strict=True)
        ],
        "ranks": diagram,
        "left_out": [labels[name] for name in labels if name not in common],
    }


def _diagram(
    names: list[str],
    labels: dict[str, str],
    baselines: set[str],
    scores: list[dict[str, View]],
) -> View | None:
    """Average ranks; None where there are not two data sets with two methods in common."""
    if len(names) < 2 or len(scores) < 2:
        return None
    table = [[found[name]["mean"] for name in names] for found in scores]
    ranks = average_ranks(table)
    order = sorted(range(len(names)), key=ranks.__getitem__)
    difference = critical_difference(len(names), len(scores))
    groups = indistinct([ranks[i] for i in order], difference)
    methods = [
        {
            "name": names[i],
            "label": labels[names[i]],
            "rank": ranks[i],
            "is_baseline": names[i] in baselines,
        }
        for i in order
    ]
    p = friedman_p(table)
    words = "; ".join(f"{method['label']} {method['rank']:.2f}" for method in methods)
    return {
        "methods": methods,
        "critical_difference": difference,
        "groups": groups,
        "data_sets": len(scores),
        "friedman": None if p is None else p_value(p),
        "is_clear": p is None or p < ALPHA,
        "summary": f"Average ranks: {words}. Critical difference: {difference:.2f}.",
    }


def _headline(diagram: View | None, data_sets: int) -> str:
    if diagram is None:
        return f"{plural(data_sets, 'data set')}, each compared on its own."
    best, *rest = diagram["methods"]
    clear = [m for m in rest if m["rank"] - best["rank"] > diagram["critical_difference"]]
    start = f"{best['label']} ranks best on average over {plural(data_sets, 'data set')}"
    if not diagram["is_clear"] or not clear:
        return f"{start}, but not clearly ahead of any other method."
    if len(clear) == len(rest):
        return f"{start}, clearly ahead of every other method."
    return f"{start}, clearly ahead of {_listed([m['label'] for m in clear])}."


def _row(view: View, found: dict[str, View], names: list[str]) -> View:
    """One data set: the mean accuracy of each method, the highest marked."""
    highest = max((method["mean"] for method in found.values()), default=None)
    cells = []
    for name in names:
        method = found.get(name)
        value = None if method is None else method["mean"]
        text = "–" if method is None else method["accuracy_text"]
        cells.append(
            {"value": value, "text": text, "is_best": value is not None and value == highest}
        )
    return {"name": view["name"], "cells": cells}


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
