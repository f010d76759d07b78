"""A ranking over data sets as a study's page shows it: ranks, differences, profiles and pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hitrate_lab.report.closer import View
from hitrate_lab.report.ranks import diagram, friedman_words
from hitrate_lab.report.view import ALPHA
from hitrate_lab.wording import (
    MISSING,
    between,
    count,
    p_value,
    percent,
    plural,
    points,
    shorten,
)

LABEL = 60
DIGITS = 2


def ranking(found: dict[str, Any]) -> View:
    """The view of one of a document's rankings."""
    labels = [shorten(str(name), LABEL) for name in found["methods"]]
    names, ranks, data_sets = found["methods"], found["ranks"], len(found["data_sets"])
    view: View = {
        "title": str(found["title"]),
        "name": str(found["name"]),
        "text": str(found["text"]),
        "data_sets": data_sets,
        "first": labels[0],
        "diagram": None,
        "equals": [],
        "profiles": _profiles(labels, found["profiles"], data_sets),
        "adjusted": None,
    }
    order = list(range(len(labels)))
    if ranks is not None:
        groups = [[names.index(name) for name in group] for group in ranks["groups"]]
        shown = diagram(labels, ranks["mean"], groups, {0})
        order = [method["index"] for method in shown["methods"]]
        equals = [i for group in groups if order[0] in group for i in group if i != order[0]]
        view["diagram"] = {
            **shown,
            "tests": friedman_words(ranks["friedman"], len(labels), data_sets),
        }
        view["equals"] = [labels[i] for i in equals]
        view["adjusted"] = _matrix(labels, order, _p_cells(ranks["adjusted"]))
    means = None if ranks is None else ranks["mean"]
    return {
        **view,
        "wins": _matrix(labels, order, _win_cells(found["wins"], data_sets)),
        "methods": _effects(labels, found["effects"], means, order),
        "rope": f"{found['rope']:g} " + ("point" if found["rope"] == 1 else "points"),
        "has_ranks": ranks is not None,
    }


def _effects(
    labels: list[str],
    effects: Sequence[dict[str, Any]],
    means: Sequence[float] | None,
    order: list[int],
) -> list[View]:
    """Rows of the table of differences, which the picture of them takes as well; best first."""
    rows = []
    for i in order:
        row: View = {
            "label": labels[i],
            "is_baseline": i == 0,
            "is_best": i == order[0] and means is not None,
            # The picture leaves out methods without a mean; here all have one.
            "mean": 0.0,
            "rank": None if means is None else means[i],
            "rank_text": MISSING if means is None else f"{means[i]:.2f}",
            "difference": None,
            "difference_text": MISSING,
            "difference_title": labels[i],
            "verdict": "baseline",
            "sizes": [],
            "counts": MISSING,
            "bayes": MISSING,
        }
        if i > 0:
            row |= _effect(labels[i], effects[i - 1])
        rows.append(row)
    return rows


def _effect(label: str, effect: dict[str, Any]) -> View:
    mean = {
        key: effect["mean"][name] / 100
        for key, name in (("mean", "value"), ("low", "low"), ("high", "high"))
    }
    sizes = [_size(effect[key]) for key in ("mean", "median", "rank_biserial")]
    verdict = "better" if mean["low"] > 0 else "worse" if mean["high"] < 0 else "unclear"
    bayes = effect["bayes"]
    shares = (percent(bayes[how]).split("\u00a0")[0] for how in ("worse", "equal", "better"))
    return {
        "difference": mean,
        "difference_text": sizes[0]["text"],
        "difference_title": f"{label}: {sizes[0]['text']} points ({sizes[0]['interval']})",
        "verdict": verdict,
        "sizes": sizes,
        "counts": f"{effect['wins']} / {effect['ties']} / {effect['losses']}",
        "net": effect["wins"] - effect["losses"],
        "bayes": " / ".join(shares),
        "better": bayes["better"] - bayes["worse"],
    }


def _size(interval: dict[str, float]) -> View:
    """A size with its interval, in words; the value sorts."""
    text, low, high = (points(interval[key] / 100, DIGITS) for key in ("value", "low", "high"))
    return {"value": interval["value"], "text": text, "interval": between(low, high)}


def _win_cells(wins: Sequence[Sequence[int]], data_sets: int) -> list[list[View]]:
    cells = []
    for i, row in enumerate(wins):
        shown = []
        for j, won in enumerate(row):
            lost = wins[j][i]
            kind = "ahead" if won > lost else "behind" if won < lost else ""
            text = f"{count(won)} / {count(data_sets - won - lost)} / {count(lost)}"
            shown.append({"text": text, "kind": kind})
        cells.append(shown)
    return cells


def _p_cells(adjusted: Sequence[Sequence[float]]) -> list[list[View]]:
    return [
        [{"text": p_value(p), "kind": "apart" if p < ALPHA else ""} for p in row]
        for row in adjusted
    ]


def _matrix(labels: list[str], order: list[int], cells: list[list[View]]) -> View:
    """A square table in the order of the ranking; nothing stands on the diagonal."""
    return {
        "columns": [labels[i] for i in order],
        "rows": [
            {
                "label": labels[i],
                "cells": [{"text": "", "kind": "self"} if i == j else cells[i][j] for j in order],
            }
            for i in order
        ],
    }


def _profiles(
    labels: list[str], found: Sequence[dict[str, Any]] | None, data_sets: int
) -> View | None:
    """Curves with the threshold that the picture begins at: nine in ten scores lie above it."""
    if found is None:
        return None
    curves: list[View] = [
        {"index": i, "label": label, **each}
        for i, (label, each) in enumerate(zip(labels, found, strict=True))
    ]
    low = min(_quantile(curve) for curve in curves)
    low = min(math.floor(20 * low + 1e-9) / 20, 0.95)
    below = sum(round((1 - _share_at(curve, low)) * data_sets) for curve in curves)
    words = "; ".join(f"{curve['label']} {percent(_share_at(curve, 1.0))}" for curve in curves)
    caption = f"Where τ is 1 is the share of data sets on which no method is better: {words}."
    if below:
        scores = plural(len(labels) * data_sets, "score")
        are = "is" if below == 1 else "are"
        caption += f" Further left than the picture {are} {count(below)} of {scores}."
    return {"curves": curves, "low": low, "summary": caption}


def _share_at(curve: View, tau: float) -> float:
    """The share of data sets with at least τ times the best score."""
    return next(
        (
            share
            for threshold, share in zip(curve["thresholds"], curve["shares"], strict=True)
            if threshold >= tau
        ),
        0.0,
    )


def _quantile(curve: View) -> float:
    """The last threshold that nine in ten data sets reach."""
    reached = zip(curve["thresholds"], curve["shares"], strict=True)
    return float(max(threshold for threshold, share in reached if share >= 0.9))
