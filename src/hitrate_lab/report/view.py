"""The document as the page shows it: a plain dictionary of words and numbers, no markup."""

from __future__ import annotations

from typing import Any

from hitrate_lab.metrics import METRICS, Description, described_metric
from hitrate_lab.report import closer
from hitrate_lab.report.closer import Document, View
from hitrate_lab.wording import (
    between,
    count,
    decimals,
    duration,
    number,
    p_value,
    percent,
    plural,
    shorten,
    significant,
)

# A difference counts below this p-value, after its correction for several methods.
ALPHA = 0.05
# Of an interval.
ENDS = ("low", "high")

SETTINGS = {
    "folds": "Folds",
    "repeats": "Repeats",
    "seed": "Seed",
    "trials": "Settings tried per method and fold",
    "models": "Models",
    "losses": "Losses",
    "costs": "Costs of decisions, a row for each true class",
    "time_budget": "Time budget",
    "jobs": "Processes",
}


def one(document: Document) -> View:
    """The view of one comparison. Any part may be missing; the page then does without it."""
    table = document.get("table") or {}
    digits = decimals(number(table.get("rows")))
    metric = described_metric(document)
    methods = _methods(document, metric, digits)
    best = next((method for method in methods if method["is_best"]), None)
    name = str(table.get("name") or "a table")
    environment = document.get("environment") or {}
    return {
        "name": name,
        "metric": metric,
        "headline": document.get("advice") or _headline(best, metric),
        "facts": _facts(table, document.get("settings") or {}, methods),
        "incomplete": _incomplete(document, environment),
        "tiles": _tiles(methods, best, metric),
        "methods": methods,
        "has": {
            key: any(method[key] is not None for method in methods)
            for key in ("difference", "p", "accuracy", "train", "fit", "tune", "log_loss")
        },
        "notes": [str(note) for note in table.get("notes") or []],
        "failures": [
            f"{method['label']}: {failure}" for method in methods for failure in method["failures"]
        ],
        "classes": _classes(table),
        "training": str(document.get("training") or ""),
        "side_by_side": _side_by_side(methods),
        "folds": closer.folds(document, methods, metric),
        "confusions": closer.confusions(document, methods),
        "reliability": closer.diagrams(document, methods),
        "curves": closer.curves(document, methods),
        "changed": closer.changed(document, methods),
        "settings": _settings(document.get("settings") or {}, metric),
        "environment": _environment(table, environment),
        "command": str(environment.get("command") or ""),
    }


def _methods(document: Document, metric: Description, digits: int) -> list[View]:
    """The ranking: numbers for the pictures, words for the table."""
    raw = document.get("methods") or []
    means = [number((method.get(metric.key) or {}).get("mean")) for method in raw]
    heights = [metric.sign * mean for mean in means if mean is not None]
    rows = []
    for index, (method, mean) in enumerate(zip(raw, means, strict=True)):
        score, gap = method.get(metric.key) or {}, method.get("difference")
        is_baseline = method.get("name") == document.get("baseline")
        low, high = (_clipped(score.get(end), metric) for end in ENDS)
        label = shorten(str(method.get("label") or method.get("name") or f"method {index + 1}"), 60)
        words = metric.text(mean, digits)
        interval = between(metric.text(low, digits), metric.text(high, digits))
        row = {
            "index": index,
            "rank": None if mean is None else 1 + sum(h > metric.sign * mean for h in heights),
            "name": str(method.get("name") or label),
            "label": label,
            "is_baseline": is_baseline,
            "is_best": method.get("name") == document.get("best"),
            "is_advised": method.get("name") == document.get("recommended"),
            "mean": mean,
            "low": low,
            "high": high,
            "score_text": words,
            "score_interval": interval,
            "score_title": f"{label}: {words}" + (f" ({interval})" if interval else ""),
            **_accuracy(method.get("accuracy") or {}, digits),
            **_difference(label, gap, metric, digits),
            "train": (train := number(method.get("train_accuracy"))),
            "train_text": METRICS["accuracy"].text(train, digits),
            "verdict": "baseline" if is_baseline else _verdict(gap, metric),
            "failures": [str(failure) for failure in method.get("failures") or []],
        }
        for key, wording in (("fit", duration), ("tune", duration), ("log_loss", significant)):
            value = number(method.get(key if key == "log_loss" else f"{key}_seconds"))
            row[key], row[f"{key}_text"] = value, wording(value)
        rows.append(row)
    return rows


def _accuracy(found: dict[str, Any], digits: int) -> View:
    """The share of right rows, which stands beside any other metric."""
    accuracy = METRICS["accuracy"]
    mean = number(found.get("mean"))
    low, high = (accuracy.text(_clipped(found.get(end), accuracy), digits) for end in ENDS)
    return {
        "accuracy": mean,
        "accuracy_text": accuracy.text(mean, digits),
        "accuracy_interval": between(low, high),
    }


def _difference(label: str, gap: dict[str, Any] | None, metric: Description, digits: int) -> View:
    """The difference to the baseline; none for the baseline itself."""
    gap = gap or {}
    mean, low, high = (number(gap.get(key)) for key in ("mean", "low", "high"))
    holm = number(gap.get("p_holm"))
    words = metric.difference_text(mean, digits)
    low_text, high_text = (metric.difference_text(end, digits) for end in (low, high))
    interval = between(low_text, high_text)
    return {
        "difference": None if mean is None else {"mean": mean, "low": low, "high": high},
        "difference_text": words,
        "difference_interval": interval,
        "difference_title": f"{label}: {words}{metric.unit}"
        + (f" ({interval})" if interval else ""),
        "p": holm,
        "p_text": p_value(holm),
    }


def _verdict(gap: dict[str, Any] | None, metric: Description) -> str:
    """better, worse or unclear, by Holm's p-value; other where nothing was tested."""
    gap = gap or {}
    mean, p = number(gap.get("mean")), number(gap.get("p_holm"))
    if mean is None:
        return "other"
    if p is None or p >= ALPHA:
        return "unclear"
    return "better" if metric.sign * mean > 0 else "worse"


def _headline(best: View | None, metric: Description) -> str:
    if best is None or best["mean"] is None:
        return "Nothing has been measured yet."
    return f"{best['label']} has the {metric.best} mean {metric.words}: {best['score_text']}."


def _facts(table: dict[str, Any], settings: dict[str, Any], methods: list[View]) -> list[str]:
    """What was compared on what, in a few words each."""
    sizes = [
        (number(table.get("rows")), "row"),
        (number(table.get("columns")), "column"),
        (float(len(table.get("classes") or [])) or None, "class"),
    ]
    facts = [plural(value, word) for value, word in sizes if value is not None]
    facts.append(plural(len(methods), "method"))
    folds, repeats = number(settings.get("folds")), number(settings.get("repeats"))
    if folds:
        times = f", {plural(repeats, 'time')}" if repeats and repeats > 1 else ""
        facts.append(f"{folds:.0f}-fold cross-validation{times}")
    return facts


def _incomplete(document: Document, environment: dict[str, Any]) -> View | None:
    """How far an unfinished run got; None for a finished one."""
    if document.get("complete", True) is not False:
        return None
    done, planned = number(document.get("done")), number(document.get("planned"))
    known = done is not None and planned is not None and planned > 0
    failed = number(document.get("failed")) or 0.0
    ended = known and (done or 0.0) + failed >= (planned or 0.0)
    return {
        # With nothing left to run, what is missing has failed.
        "failed": count(failed) if ended else None,
        "done": count(done),
        "planned": count(planned),
        "share": int(100 * (done or 0.0) / (planned or 1.0)) if known else None,
        "command": str(environment.get("command") or ""),
    }


def _tiles(methods: list[View], best: View | None, metric: Description) -> list[View]:
    """The figures that a reader takes home."""
    baseline = next((method for method in methods if method["is_baseline"]), None)
    tiles = []
    if best and best["mean"] is not None:
        title = f"{metric.best.capitalize()} mean {metric.words}"
        title += " (the baseline)" if best is baseline else ""
        tiles.append(_tile(title, best["score_text"], best["label"], best["score_interval"]))
    if baseline and baseline is not best and baseline["mean"] is not None:
        interval = baseline["score_interval"]
        tiles.append(_tile("Baseline", baseline["score_text"], baseline["label"], interval))
    if best and best["difference"]:
        p = "" if best["p"] is None else f"Holm p = {best['p_text']}".replace("= <", "< ")
        interval = best["difference_interval"]
        gain = f"{best['difference_text']}{metric.unit}"
        tiles.append(_tile("Difference", gain, p, interval))
    return tiles


def _tile(title: str, value: str, words: str, interval: str) -> View:
    return {"title": title, "value": value, "words": words, "interval": interval}


def _side_by_side(methods: list[View]) -> list[int]:
    """The two methods that a reader compares first: the baseline and the best of the others."""
    chosen = [m for m in methods if m["is_baseline"]] + [m for m in methods if m["is_best"]]
    chosen += methods
    return list(dict.fromkeys(method["index"] for method in chosen))[:2]


def _classes(table: dict[str, Any]) -> list[View]:
    """Each class with its rows."""
    classes, counts = table.get("classes") or [], table.get("class_counts") or []
    if len(classes) != len(counts) or not sum(counts):
        return []
    total = sum(counts)
    return [
        {"label": str(label), "count": count(rows), "share": percent(rows / total)}
        for label, rows in zip(classes, counts, strict=True)
    ]


def _settings(settings: dict[str, Any], metric: Description) -> list[tuple[str, str]]:
    rows = [] if metric.is_default else [("Metric", metric.words)]
    for key, value in settings.items():
        if value is None:
            words = "none"
        elif key == "costs":
            words = _matrix(value)
        elif isinstance(value, list):
            words = ", ".join(map(str, value))
        elif key == "time_budget":
            words = duration(number(value))
        else:
            words = str(value)
        rows.append((SETTINGS.get(key, key), words))
    return rows


def _matrix(value: Any) -> str:
    """Rows of numbers in one line."""
    rows = value if isinstance(value, list) else [value]
    return "; ".join(
        ", ".join(f"{number(each) or 0:g}" for each in row) if isinstance(row, list) else str(row)
        for row in rows
    )


def _environment(table: dict[str, Any], environment: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("Duration", duration(number(environment.get("seconds"))))]
    if started := environment.get("started"):
        rows.append(("Started", str(started).replace("T", " ").replace("Z", " UTC")))
    known = ("seconds", "started", "command")
    found = [(key, value) for key, value in environment.items() if value is not None]
    rows += [(str(key), str(value)) for key, value in found if key not in known]
    for key, words in (("target", "Target column"), ("features", "Features after encoding")):
        if table.get(key) is not None:
            rows.append((words, str(table[key])))
    if table.get("fingerprint"):
        rows.append(("Data fingerprint", str(table["fingerprint"])))
    return rows


def _clipped(value: Any, metric: Description) -> float | None:
    found = number(value)
    return None if found is None else metric.clipped(found)
