"""Comparison documents for tests of the report: made from published counts, nothing is trained."""

from __future__ import annotations

import math
from itertools import cycle, product
from typing import Any

import numpy as np
from scipy import stats

# The car data of the UCI repository: every combination of these, and how many are of each class.
CAR_COLUMNS = {
    "buying": ("vhigh", "high", "med", "low"),
    "maint": ("vhigh", "high", "med", "low"),
    "doors": ("2", "3", "4", "5more"),
    "persons": ("2", "4", "more"),
    "lug_boot": ("small", "med", "big"),
    "safety": ("low", "med", "high"),
}
CAR_CLASSES = {"acc": 384, "good": 69, "unacc": 1210, "vgood": 65}

# Name, label, model, loss, accuracy to aim at, seconds to fit, mean confidence minus accuracy.
METHODS = [
    ("mlp/exact", "network, EXACT", "mlp", "exact", 0.978, 3.4, 0.004),
    ("mlp/cross_entropy", "network, cross entropy", "mlp", "cross_entropy", 0.971, 2.1, 0.012),
    ("linear/exact", "linear, EXACT", "linear", "exact", 0.936, 0.79, 0.03),
    ("linear/cross_entropy", "logistic regression", "linear", "cross_entropy", 0.918, 0.063, 0.002),
    ("linear/hinge", "linear, hinge", "linear", "hinge", 0.897, 0.21, -0.06),
]
BASELINE = "linear/cross_entropy"
KEPT = {"hitrate comparison", *(method[0] for method in METHODS)}

HOSTILE = [
    "</script><script>alert(1)</script>",
    '" onload="alert(1)" x="',
    "<img src=x onerror=alert(1)>",
    "' autofocus onfocus='alert(1)",
    "</title></svg><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eright to left\u0000\ud800",
    "&lt;b&gt; &amp; ]]> --> */ \\",
]

# Area under the curve of four variants of C4.5 on fourteen data sets, and the average ranks that
# Demšar (2006) finds.
DEMSAR_METHODS = ("C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf")
DEMSAR = {
    "adult": (0.763, 0.768, 0.771, 0.798),
    "breast-cancer": (0.599, 0.591, 0.590, 0.569),
    "wisconsin": (0.954, 0.971, 0.968, 0.967),
    "cmc": (0.628, 0.661, 0.654, 0.657),
    "ionosphere": (0.882, 0.888, 0.886, 0.898),
    "iris": (0.936, 0.931, 0.916, 0.931),
    "bupa": (0.661, 0.668, 0.609, 0.685),
    "lung": (0.583, 0.583, 0.563, 0.625),
    "lymphography": (0.775, 0.838, 0.866, 0.875),
    "mushroom": (1.000, 1.000, 1.000, 1.000),
    "primary-tumor": (0.940, 0.962, 0.965, 0.962),
    "rheum": (0.619, 0.666, 0.614, 0.669),
    "voting": (0.972, 0.981, 0.9751, 0.975),
    "wine": (0.957, 0.978, 0.946, 0.970),
}
DEMSAR_RANKS = (3.143, 2.000, 2.893, 1.964)


def comparison(
    *,
    methods: int = 4,
    classes: int = 4,
    complete: bool = True,
    words: list[str] | None = None,
    rows: int = 1728,
    name: str = "car",
) -> dict[str, Any]:
    """A document of the size of the car data; the same one every time.

    Words take the place of every text that a stranger's file or a library can hold.
    """
    random = np.random.default_rng(0)
    labels = list(CAR_CLASSES) if classes == 4 else [f"class {i + 1:02d}" for i in range(classes)]
    shares = np.array(list(CAR_CLASSES.values()) if classes == 4 else np.arange(classes) + 5.0)
    counts = np.maximum(np.round(shares / shares.sum() * rows).astype(int), 1 if rows > 3 else 0)
    counts[counts.argmax()] += rows - counts.sum()
    folds, repeats = (5, 2) if rows > 20 else (rows, 1)
    plain = [m for m in METHODS if m[0] == BASELINE] if methods == 1 else METHODS[:methods]
    entries = [_method(m, counts, folds, repeats, random) for m in plain]
    reference = next((e for e in entries if e["name"] == BASELINE), None)
    p_values = {}
    for entry in entries:
        if reference and entry is not reference:
            entry["difference"] = _difference(entry, reference, folds)
            p_values[entry["name"]] = entry["difference"]["p"]
    for rank, found in enumerate(sorted(p_values, key=p_values.__getitem__)):
        holm = min(1.0, p_values[found] * (len(p_values) - rank))
        next(e for e in entries if e["name"] == found)["difference"]["p_holm"] = holm
    entries.sort(key=lambda entry: -entry["accuracy"]["mean"])
    best, planned = entries[0], len(entries) * folds * repeats
    document = {
        "format": "hitrate comparison",
        "version": 1,
        "table": {
            "name": name,
            "rows": rows,
            "columns": 6,
            "features": 21,
            "target": "class",
            "classes": labels,
            "class_counts": counts.tolist(),
            "notes": ["Classes 'good' and 'vgood' have fewer than 70 rows each."],
            "fingerprint": "5f" * 32,
        },
        "settings": {
            "folds": folds,
            "repeats": repeats,
            "seed": 0,
            "trials": 4,
            "models": ["linear", "mlp"],
            "losses": ["cross_entropy", "exact"],
            "time_budget": None,
            "jobs": 2,
        },
        "complete": complete,
        "done": planned if complete else planned * 3 // 5,
        "planned": planned,
        "baseline": BASELINE,
        "best": best["name"],
        "advice": _advice(best, reference),
        "methods": entries,
        "changed": _changed(labels, rows),
        "environment": {
            "hitrate": "0.1.0",
            "python": "3.11.9",
            "torch": "2.13.0",
            "scikit-learn": "1.7.2",
            "numpy": "2.3.4",
            "processor": "x86_64",
            "cores": 2,
            "started": "2026-01-31T12:00:00Z",
            "seconds": 61.2,
            "command": f"hitrate compare {name}",
        },
    }
    return _with_words(document, words) if words else document


def comparisons(copies: int = 1) -> dict[str, Any]:
    """The fourteen data sets of Demšar (2006), fewest fields that a document may have.

    Copies of the methods have longer names and lower scores.
    """
    parts = []
    for name, scores in DEMSAR.items():
        methods = [
            {
                "name": f"{label}{copy or ''}",
                "label": label + f", with a longer name {copy}" * bool(copy),
                "accuracy": {"mean": score - 0.02 * copy, "n": 5},
            }
            for copy in range(copies)
            for label, score in zip(DEMSAR_METHODS, scores, strict=True)
        ]
        methods.sort(key=lambda method: -method["accuracy"]["mean"])
        parts.append(
            {
                "format": "hitrate comparison",
                "version": 1,
                "table": {"name": name},
                "baseline": "C4.5",
                "best": methods[0]["name"],
                "methods": methods,
            }
        )
    return {"format": "hitrate comparisons", "version": 1, "comparisons": parts}


def _method(
    plain: tuple[Any, ...],
    counts: np.ndarray,
    folds: int,
    repeats: int,
    random: np.random.Generator,
) -> dict[str, Any]:
    name, label, model, loss, aim, seconds, excess = plain
    size = math.ceil(counts.sum() / folds)
    scores = np.clip(random.normal(aim, 0.009, folds * repeats), 0, 1)
    # Accuracies are shares of a fold's rows.
    scores = np.round(scores * size) / size
    classes = len(counts)
    confusion = np.zeros((classes, classes), int)
    for i, rows in enumerate(counts * repeats):
        # Small classes are harder, and are taken for their neighbours.
        wrong = random.binomial(rows, min(1.0, (1 - aim) * (counts.max() / max(rows, 1)) ** 0.3))
        confusion[i, i] = rows - wrong
        for j in random.integers(1, max(2, min(classes, 6)), wrong):
            confusion[i, (i + j) % classes] += 1
    mean, (low, high) = scores.mean(), _interval(scores, folds)
    is_exact = loss == "exact"
    return {
        "name": name,
        "label": label,
        "model": model,
        "loss": loss,
        "accuracy": {
            "mean": mean,
            "low": low,
            "high": high,
            "std": scores.std(ddof=1),
            "n": len(scores),
        },
        "difference": None,
        "folds": [
            {
                "repeat": i // folds,
                "fold": i % folds,
                "accuracy": float(score),
                "log_loss": 2.4 * (1 - float(score)),
                "fit_seconds": seconds * (1 + 0.1 * (i % 3)),
                "tune_seconds": 4 * seconds,
                "rows": size,
                "parameters": {"l2": 10.0 ** -(i % 4), "margin": None if i % 2 else 2.0},
            }
            for i, score in enumerate(scores)
        ],
        "fit_seconds": seconds,
        "tune_seconds": 4 * seconds,
        "confusion": confusion.tolist(),
        "reliability": _reliability(counts.sum() * repeats, aim, excess),
        "curve": _curve(aim) if is_exact else None,
        "log_loss": 2.4 * (1 - mean),
        "failures": [],
    }


def _interval(values: np.ndarray, folds: int) -> tuple[float, float]:
    """95 % interval of the mean by the corrected resampled t-test, written out."""
    n = len(values)
    width = stats.t.ppf(0.975, n - 1) * math.sqrt((1 / n + 1 / (folds - 1)) * values.var(ddof=1))
    return values.mean() - width, values.mean() + width


def _difference(entry: dict[str, Any], reference: dict[str, Any], folds: int) -> dict[str, Any]:
    pairs = zip(entry["folds"], reference["folds"], strict=True)
    gaps = np.array([a["accuracy"] - b["accuracy"] for a, b in pairs])
    low, high = _interval(gaps, folds)
    spread = math.sqrt((1 / len(gaps) + 1 / (folds - 1)) * gaps.var(ddof=1))
    p = 2 * stats.t.sf(abs(gaps.mean()) / spread, len(gaps) - 1) if spread else 1.0
    return {"mean": gaps.mean(), "low": low, "high": high, "p": p, "p_holm": p}


def _reliability(rows: int, aim: float, excess: float) -> list[dict[str, Any]]:
    weights = np.array([0, 0, 0, 2, 9, 21, 31, 55, 141, 741], float)
    middles = np.arange(10) / 10 + 0.05
    parts = []
    for i, weight in enumerate(weights / weights.sum()):
        confidence = middles[i] + (0.03 if i == 9 else 0.004 * (i % 3 - 1))
        wobble = 0.02 * math.sin(2.3 * i) * (1 - middles[i])
        accuracy = min(max(confidence - 3 * excess * (1 - middles[i]) - excess + wobble, 0), 1)
        number = round(weight * rows)
        parts.append(
            {
                "low": i / 10,
                "high": (i + 1) / 10,
                "count": number,
                "confidence": confidence if number else None,
                "accuracy": accuracy if number else None,
            }
        )
    return parts


def _curve(aim: float) -> list[dict[str, float]]:
    steps = []
    for step in range(9):
        sigma = 10.0 * 10 ** (-step / 4)
        actual = aim + 0.012 - 0.05 * math.exp(-step / 2)
        expected = actual - 0.6 * sigma / (sigma + 4)
        steps.append({"step": step, "sigma": sigma, "expected": expected, "actual": actual})
    return steps


def _changed(labels: list[str], rows: int) -> dict[str, Any]:
    """Every fortieth car changes sides; two in three to the right one."""
    gained = lost = 0
    changed = []
    for i, values in enumerate(product(*CAR_COLUMNS.values())):
        if i >= rows or i % 40 != 17:
            continue
        truth, other = (labels[(i // 40 + k) % len(labels)] for k in (0, 1))
        is_gain = i % 3 != 2
        gained, lost = gained + is_gain, lost + (not is_gain)
        changed.append(
            {
                "row": i,
                "truth": truth,
                "from": other if is_gain else truth,
                "to": truth if is_gain else other,
                "features": dict(zip(CAR_COLUMNS, values, strict=True)),
            }
        )
    both_wrong = rows // 20
    return {
        "from": "linear/cross_entropy",
        "to": "linear/exact",
        "gained": gained,
        "lost": lost,
        "both_right": rows - gained - lost - both_wrong,
        "both_wrong": both_wrong,
        "rows": changed,
    }


def _advice(best: dict[str, Any], reference: dict[str, Any] | None) -> str:
    if reference is None or best is reference:
        return f"Stay with {best['label']}: nothing here is more accurate."
    gap = 100 * best["difference"]["mean"]
    return f"Use {best['label']}: {gap:.1f} points more accurate than {reference['label']}."


def _with_words(document: dict[str, Any], words: list[str]) -> dict[str, Any]:
    names = [method["name"] for method in document["methods"]]
    following = cycle(words)

    def replaced(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            if key in ("features", "parameters", "environment"):
                return {next(following): replaced(one) for one in value.values()}
            return {name: replaced(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [replaced(one, key) for one in value]
        # Which method is which must survive; its label need not.
        is_fixed = key in ("format", "baseline", "best", "name") and value in KEPT
        return value if is_fixed or not isinstance(value, str) else next(following)

    document = replaced(document)
    document["changed"]["from"], document["changed"]["to"] = names[-1], names[0]
    document["environment"]["command"] = words[0]
    return document
