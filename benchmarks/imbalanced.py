"""Estimators trained for balanced accuracy and macro F1, on twenty imbalanced tables.

    python benchmarks/imbalanced.py --out benchmarks/results/imbalanced.json
    python benchmarks/imbalanced.py --table

Tables were named by a rule before any result was seen: of the 121 of UCI the first twenty by name
with 200 to 5000 rows, at most 100 features and 10 classes, a smallest class of ten rows or more and
of less than two thirds of an equal share, and nothing unusual about their files (`NOTES` of the reader). Five
times two stratified folds; within a fold every method has five inner folds and eight strengths of L2
to choose from. Data sets come from HITRATE_DATA, see sklearn_data.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn_data import folder, uci

from hitrate.sklearn import AccuracyClassifier
from hitrate_lab.datasets.uci import NOTES

TABLES, ROWS, SMALLEST, SHARE = 20, (200, 5000), 10, 2 / 3
FEATURES, CLASSES = 100, 10
REPEATS, INNER = 5, 5
STRENGTHS = tuple(10.0**k for k in range(-3, 5))
# Places of a threshold that are tried for each class, and rounds over the classes.
PLACES, ROUNDS = 60, 3
METRICS: dict[str, Callable[..., float]] = {
    "balanced_accuracy": balanced_accuracy_score,
    "f1_macro": lambda y, said: f1_score(y, said, average="macro", zero_division=0.0),
}
LABELS = {
    "plain": "logistic regression, C by log loss",
    "weighted": "class-weighted logistic regression, C by the metric",
    "thresholds": "logistic regression, thresholds by the metric",
    "ours": "`AccuracyClassifier(objective=...)`",
}


def tables() -> list[str]:
    """Names of the twenty, by the rule."""
    found = []
    for path in sorted((folder() / "uci121").iterdir()):
        file = path / "labels_py.dat.gz"
        if path.name in NOTES or not file.is_file():
            continue
        counts = np.bincount(np.loadtxt(file, dtype=np.int64))
        rows, classes = counts.sum(), len(counts)
        if not ROWS[0] <= rows <= ROWS[1] or classes > CLASSES:
            continue
        if SMALLEST <= counts.min() < SHARE * rows / classes and uci(path.name)[0].shape[1] <= FEATURES:
            found.append(path.name)
    return found[:TABLES]


def logistic(strength: float, class_weight: str | None = None) -> Any:
    """Logistic regression of standardised features."""
    model = LogisticRegression(C=strength, max_iter=500, class_weight=class_weight)
    return make_pipeline(StandardScaler(), model)


class Weighted:
    """Class-weighted, with the C whose decisions on inner folds have the best metric."""

    def __init__(self, metric: str, seed: int) -> None:
        self.metric, self.seed = METRICS[metric], seed

    def fit(self, x: np.ndarray, y: np.ndarray) -> Weighted:
        folds = StratifiedKFold(INNER, shuffle=True, random_state=self.seed)
        scores = [
            self.metric(y, cross_val_predict(logistic(c, "balanced"), x, y, cv=folds))
            for c in STRENGTHS
        ]
        self.model = logistic(STRENGTHS[int(np.argmax(scores))], "balanced").fit(x, y)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.model.predict(x)


class Thresholds:
    """C by log loss on inner folds; then an offset for each class, by the metric on the same folds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, x: np.ndarray, y: np.ndarray) -> Thresholds:
        folds = StratifiedKFold(INNER, shuffle=True, random_state=self.seed)
        best, highest = np.empty(0), -np.inf
        for c in STRENGTHS:
            p = cross_val_predict(logistic(c), x, y, cv=folds, method="predict_proba")
            log_p = np.log(np.maximum(p, 1e-300))
            likelihood = log_p[np.arange(len(y)), y].mean()
            if likelihood > highest:
                best, highest, strength = log_p, likelihood, c
        self.model = logistic(strength).fit(x, y)
        self.offsets = {name: offsets(best, y, metric) for name, metric in METRICS.items()}
        return self

    def predict(self, x: np.ndarray, metric: str | None = None) -> np.ndarray:
        log_p = np.log(np.maximum(self.model.predict_proba(x), 1e-300))
        return (log_p + (0.0 if metric is None else self.offsets[metric])).argmax(1)


def offsets(scores: np.ndarray, y: np.ndarray, metric: Callable[..., float]) -> np.ndarray:
    """What to add to each class's scores, one class after the other, for the best decisions."""
    classes = scores.shape[1]
    found = np.zeros(classes)
    highest = metric(y, scores.argmax(1))
    for _ in range(ROUNDS):
        for c in range(classes):
            now = scores + found
            gap = np.delete(now, c, 1).max(1) - now[:, c]
            places = np.unique(np.quantile(gap, (np.arange(PLACES) + 0.5) / PLACES))
            chosen = 0.0
            for shift in places:
                moved = now.copy()
                moved[:, c] += shift
                score = metric(y, moved.argmax(1))
                if score > highest + 1e-12:
                    highest, chosen = score, shift
            found[c] += chosen
    return found


def one_split(x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> dict[str, dict[str, float]]:
    """Every method's metrics on one fold, and the seconds it took to fit."""
    found: dict[str, dict[str, float]] = {name: {} for name in LABELS}
    start = time.process_time()
    thresholds = Thresholds(seed).fit(x, y)
    spent = time.process_time() - start
    for metric, function in METRICS.items():
        found["plain"][metric] = function(y_test, thresholds.predict(x_test))
        found["thresholds"][metric] = function(y_test, thresholds.predict(x_test, metric))
        found["thresholds"][f"{metric}_seconds"] = spent
        for name, model in (
            ("weighted", Weighted(metric, seed)),
            ("ours", AccuracyClassifier(objective=metric, random_state=seed)),
        ):
            start = time.process_time()
            model.fit(x, y)
            found[name][f"{metric}_seconds"] = time.process_time() - start
            found[name][metric] = function(y_test, model.predict(x_test))
    return found


def measure(out: Path) -> None:
    """All tables, one after the other; what the file has is kept."""
    document = json.loads(out.read_text()) if out.is_file() else {"tables": {}}
    document["hardware"] = f"{platform.processor() or platform.machine()}, one core"
    document["versions"] = {"scikit-learn": sklearn.__version__, "numpy": np.__version__}
    for name in tables():
        if name in document["tables"]:
            continue
        x, y = uci(name)
        folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=REPEATS, random_state=0)
        start, splits = time.process_time(), []
        for seed, (train, test) in enumerate(folds.split(x, y)):
            splits.append(one_split(x[train], y[train], x[test], y[test], seed))
        counts = np.bincount(y)
        document["tables"][name] = {
            "rows": len(y),
            "features": x.shape[1],
            "classes": len(counts),
            "smallest_share": round(float(counts.min() / len(y)), 4),
            "seconds": round(time.process_time() - start, 1),
            "splits": splits,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(document, indent=1) + "\n")
        print(name, document["tables"][name]["seconds"], flush=True)


def summary(document: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    """One row per method: the mean over tables, and ours less it with a 95 % interval over tables."""
    every = document["tables"].values()
    means = {
        name: np.array([np.mean([s[name][metric] for s in t["splits"]]) for t in every])
        for name in LABELS
    }
    rows = []
    for name, label in LABELS.items():
        gain = 100 * (means["ours"] - means[name])
        row = {"label": label, "mean": 100 * means[name].mean()}
        if name != "ours":
            low, high = stats.t.interval(0.95, len(gain) - 1, gain.mean(), stats.sem(gain))
            p = stats.wilcoxon(gain).pvalue
            row |= {"gain": gain.mean(), "low": low, "high": high, "p": p}
            row |= {"better": int((gain > 0).sum()), "worse": int((gain < 0).sum())}
        rows.append(row)
    return rows


def table(document: dict[str, Any], metric: str) -> str:
    """Markdown for the documentation."""
    count = len(document["tables"])
    lines = [
        f"| method | mean of {count} tables, % | ours less it, points | better / worse | p |",
        "|---|---|---|---|---|",
    ]
    for row in summary(document, metric):
        told = "| | |"
        if "gain" in row:
            told = (
                f"{row['gain']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f}) "
                f"| {row['better']} / {row['worse']} | {row['p']:.2g} |"
            )
        lines.append(f"| {row['label']} | {row['mean']:.1f} | {told}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, or print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/imbalanced.json"))
    parser.add_argument("--table", action="store_true", help="only print the tables of --out")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not given.table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measure(given.out)
    document = json.loads(given.out.read_text())
    for metric in METRICS:
        print(f"\n{metric}\n{table(document, metric)}")


if __name__ == "__main__":
    main()
