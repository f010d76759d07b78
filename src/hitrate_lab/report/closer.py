"""A closer look: folds, mistakes, confidence, training, and the rows that change."""

from __future__ import annotations

from typing import Any

from hitrate_lab.metrics import Description
from hitrate_lab.pictures.hits.confusion import NUMBERED
from hitrate_lab.pictures.svg import padded
from hitrate_lab.wording import (
    MINUS,
    between,
    count,
    duration,
    number,
    percent,
    plural,
    shorten,
    significant,
)

Document = dict[str, Any]
View = dict[str, Any]

# Wider rows of a table are cut on the page; the document has them all.
FEATURES = 12
CELL = 60
NAME = 40
ROWS = 200

GROUPS = {
    "both_right": "both right",
    "gained": "gained",
    "lost": "lost",
    "both_wrong": "both wrong",
}


def folds(document: Document, methods: list[View], metric: Description) -> View | None:
    """The metric per fold, paired with the baseline's on the same fold."""
    raw = document.get("methods") or []
    found = [_by_fold(method, metric) for method in raw]
    values = [value for scores in found for value in scores.values()]
    if not values:
        return None
    low, high = padded(values, 0.02)
    reference = next((s for s, m in zip(found, methods, strict=True) if m["is_baseline"]), None)
    panels = []
    for method, scores in zip(methods, found, strict=True):
        if not scores or (method["is_baseline"] and len(found) > 1):
            continue
        common = [key for key in scores if reference and key in reference]
        if not common or reference is None or method["is_baseline"]:
            pairs, summary = None, plural(len(scores), "test fold")
        else:
            pairs = [(reference[key], scores[key]) for key in common]
            summary = _tally(pairs, metric)
        panel = {"index": method["index"], "label": method["label"], "pairs": pairs}
        panels.append({**panel, "values": list(scores.values()), "summary": summary})
    return {
        "panels": panels,
        "domain": (metric.clipped(low), metric.clipped(high)),
        "is_paired": any(panel["pairs"] for panel in panels),
        "table": _fold_table(methods, raw, metric),
    }


def confusions(document: Document, methods: list[View]) -> list[View]:
    """Square matrices of counts with the classes' names, and the commonest mistakes."""
    classes = [str(label) for label in (document.get("table") or {}).get("classes") or []]
    views = []
    for method, raw in zip(methods, document.get("methods") or [], strict=True):
        counts = raw.get("confusion") or []
        if not counts or any(len(row) != len(counts) for row in counts):
            continue
        names = classes if len(classes) == len(counts) else [str(i) for i in range(len(counts))]
        numbers = [[number(value) or 0.0 for value in row] for row in counts]
        total = sum(map(sum, numbers))
        if not total:
            continue
        right = sum(numbers[i][i] for i in range(len(numbers)))
        mistakes = sorted(
            (-value, i, j)
            for i, row in enumerate(numbers)
            for j, value in enumerate(row)
            if i != j and value
        )
        common = [
            {
                "truth": shorten(names[i], NAME),
                "predicted": shorten(names[j], NAME),
                "count": count(-value),
            }
            for value, i, j in mistakes[: 3 if len(names) <= NUMBERED else 10]
        ]
        summary = f"{count(right)} of {count(total)} predictions are right. " + " ".join(
            f"{one['truth']} is taken for {one['predicted']} {one['count']} times."
            for one in common
        )
        view = {"index": method["index"], "label": method["label"], "classes": names}
        views.append({**view, "counts": numbers, "mistakes": common, "summary": summary.strip()})
    return views


def diagrams(document: Document, methods: list[View]) -> list[View]:
    """Bins of confidence, and the mean distance between confidence and accuracy."""
    views = []
    for method, raw in zip(methods, document.get("methods") or [], strict=True):
        bins = []
        for part in raw.get("reliability") or []:
            keys = ("low", "high", "count", "confidence", "accuracy")
            numbers = {key: value for key in keys if (value := number(part.get(key))) is not None}
            # A bin without rows has neither confidence nor accuracy.
            if len(numbers) == len(keys) and numbers["count"]:
                bins.append(numbers)
        if not bins:
            continue
        total = sum(part["count"] for part in bins)
        excess = [part["count"] * (part["confidence"] - part["accuracy"]) for part in bins]
        words = "too sure" if sum(excess) > 0 else "not sure enough"
        gap = percent(sum(map(abs, excess)) / total)
        rows = [
            {
                "range": between(percent(part["low"], 0), percent(part["high"], 0)),
                "count": count(part["count"]),
                "confidence": percent(part["confidence"]),
                "accuracy": percent(part["accuracy"]),
            }
            for part in bins
        ]
        view = {"index": method["index"], "label": method["label"], "bins": bins, "rows": rows}
        summary = f"On average {gap} off the diagonal (expected calibration error)"
        views.append(
            {**view, "summary": f"{summary}, mostly {words}." if any(excess) else f"{summary}."}
        )
    return views


def curves(document: Document, methods: list[View]) -> list[View]:
    """Training curves of the methods that have one."""
    views = []
    for method, raw in zip(methods, document.get("methods") or [], strict=True):
        keys = ("step", "sigma", "expected", "actual")
        steps = [{key: number(step.get(key)) for key in keys} for step in raw.get("curve") or []]
        if not any(s[key] is not None for s in steps for key in ("expected", "actual")):
            continue
        first, last = steps[0], steps[-1]
        summary = (
            f"Expected accuracy goes from {percent(first['expected'])} to "
            f"{percent(last['expected'])}, actual accuracy from {percent(first['actual'])} to "
            f"{percent(last['actual'])}."
        )
        rows = [
            {
                "sigma": significant(step["sigma"]),
                "expected": percent(step["expected"]),
                "actual": percent(step["actual"]),
            }
            for step in steps
        ]
        view = {"index": method["index"], "label": method["label"], "steps": steps}
        views.append({**view, "rows": rows, "summary": summary})
    return views


def changed(document: Document, methods: list[View]) -> View | None:
    """Rows that one method gets right and the other wrong."""
    raw = document.get("changed")
    if not raw:
        return None
    labels = {method["name"]: method["label"] for method in methods}
    before, after = (str(raw.get(key) or "") for key in ("from", "to"))
    before, after = labels.get(before, before), labels.get(after, after)
    counts = {kind: number(raw.get(kind)) or 0.0 for kind in GROUPS}
    total = sum(counts.values())
    groups = [
        {
            "kind": kind,
            "words": words,
            "count": counts[kind],
            "count_text": count(counts[kind]),
            "share": percent(counts[kind] / total) if total else "",
        }
        for kind, words in GROUPS.items()
    ]
    rows = (raw.get("rows") or [])[:ROWS]
    columns = list(dict.fromkeys(key for row in rows for key in row.get("features") or {}))
    shown = columns[:FEATURES]
    return {
        "from": before,
        "to": after,
        "short_from": shorten(before, 26),
        "short_to": shorten(after, 20),
        "groups": groups,
        "summary": (
            f"{after} gets {plural(counts['gained'], 'row')} right that {before} gets wrong, and "
            f"{count(counts['lost'])} wrong that {before} gets right."
        ),
        "columns": [shorten(str(column), NAME) for column in shown],
        "hidden_columns": len(columns) - len(shown),
        "rows": [_changed_row(row, shown) for row in rows],
        "total": int(counts["gained"] + counts["lost"]),
    }


def _changed_row(row: dict[str, Any], columns: list[str]) -> View:
    truth, before, after = row.get("truth"), row.get("from"), row.get("to")
    kind = "gained" if after == truth else "lost" if before == truth else "both_wrong"
    features = row.get("features") or {}
    return {
        "row": row.get("row"),
        "kind": kind,
        "words": GROUPS[kind],
        "truth": _cell(truth)["text"],
        "from": _cell(before)["text"],
        "to": _cell(after)["text"],
        "cells": [_cell(features.get(column)) for column in columns],
    }


def _cell(value: Any) -> View:
    """What a cell shows, and its number where it is one: cells sort as what they are."""
    found = number(value)
    if value is None:
        return {"text": "", "number": None}
    if found is not None and isinstance(value, float):
        return {"text": f"{found:.5g}".replace("-", MINUS), "number": found}
    return {"text": shorten(str(value), CELL), "number": found}


def _by_fold(method: dict[str, Any], metric: Description) -> dict[tuple[Any, Any], float]:
    """The metric of each fold that has one."""
    scores = {}
    for position, fold in enumerate(method.get("folds") or []):
        value = number(fold.get(metric.key))
        if value is not None:
            scores[fold.get("repeat", 0), fold.get("fold", position)] = value
    return scores


def _tally(pairs: list[tuple[float, float]], metric: Description) -> str:
    better = sum(metric.sign * (after - before) > 0 for before, after in pairs)
    equal = sum(after == before for before, after in pairs)
    words = f"better on {better} of {plural(len(pairs), 'fold')}"
    return f"{words}, equal on {equal}" if equal else words


def _fold_table(methods: list[View], raw: list[dict[str, Any]], metric: Description) -> list[View]:
    """One row per method and fold: all that was measured, and the parameters chosen."""
    rows = []
    for method, document in zip(methods, raw, strict=True):
        for fold in document.get("folds") or []:
            chosen = fold.get("parameters") or {}
            accuracy, log_loss = number(fold.get("accuracy")), number(fold.get("log_loss"))
            score = number(fold.get(metric.key))
            parameters = ", ".join(f"{key} = {_short(value)}" for key, value in chosen.items())
            rows.append(
                {
                    "method": method["label"],
                    "repeat": _ordinal(fold.get("repeat")),
                    "fold": _ordinal(fold.get("fold")),
                    "score": score,
                    "score_text": metric.text(score, 2),
                    "accuracy": accuracy,
                    "accuracy_text": percent(accuracy, 2),
                    "log_loss": log_loss,
                    "log_loss_text": significant(log_loss),
                    "fit": number(fold.get("fit_seconds")),
                    "fit_text": duration(number(fold.get("fit_seconds"))),
                    "tune": number(fold.get("tune_seconds")),
                    "tune_text": duration(number(fold.get("tune_seconds"))),
                    "parameters": shorten(parameters, 160),
                }
            )
    return rows


def _ordinal(value: Any) -> str:
    """Folds count from one for people."""
    found = number(value)
    return "" if found is None else str(int(found) + 1)


def _short(value: Any) -> str:
    if value is None:
        return "none"
    found = number(value)
    return f"{found:.4g}" if found is not None else shorten(str(value), 40)
