"""Estimators trained for balanced accuracy and macro F1, on twenty imbalanced tables.

    python benchmarks/imbalanced.py --out benchmarks/results/imbalanced.json
    python benchmarks/imbalanced.py --table

Tables were named by a rule before any result was seen: of the 121 of UCI the first twenty by name
with 200 to 5000 rows, at most 100 features and 10 classes, a smallest class of ten rows or more and
of less than two thirds of an equal share, and no `notes` in `TABLE_SETS`. Three times two
stratified folds; within a fold every method has five inner folds and eight strengths of L2 to
choose from. Data sets come from HITRATE_DATA, see sklearn_data.
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
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold
from sklearn_data import folder, uci

from hitrate.sklearn import AccuracyClassifier
from hitrate_lab.datasets.table_sets import TABLE_SETS

TABLES, ROWS, SMALLEST, SHARE = 20, (200, 5000), 10, 2 / 3
FEATURES, CLASSES = 100, 10
REPEATS, INNER = 3, 5
STRENGTHS = tuple(10.0**k for k in range(-3, 5))
# Places of a threshold that are tried for each class, and rounds over the classes.
PLACES, ROUNDS = 60, 3
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
        known = TABLE_SETS.get(f"uci121/{path.name}")
        if known is None or known.notes or not file.is_file():
            continue
        counts = np.bincount(np.loadtxt(file, dtype=np.int64))
        rows, classes = counts.sum(), len(counts)
        if not ROWS[0] <= rows <= ROWS[1] or classes > CLASSES:
            continue
        if (
            SMALLEST <= counts.min() < SHARE * rows / classes
            and uci(path.name)[0].shape[1] <= FEATURES
        ):
            found.append(path.name)
    return found[:TABLES]


def balanced_accuracy(y: np.ndarray, said: np.ndarray) -> float:
    """scikit-learn's, in a hundredth of its time."""
    rows = np.bincount(y)
    hits = np.bincount(y[said == y], minlength=len(rows))
    return float((hits[rows > 0] / rows[rows > 0]).mean())


def f1_macro(y: np.ndarray, said: np.ndarray) -> float:
    """scikit-learn's too: over the classes that are right or said somewhere."""
    classes = int(max(y.max(), said.max())) + 1
    both = np.bincount(y, minlength=classes) + np.bincount(said, minlength=classes)
    hits = np.bincount(y[said == y], minlength=classes)
    return float((2 * hits[both > 0] / both[both > 0]).mean())


METRICS = {"balanced_accuracy": balanced_accuracy, "f1_macro": f1_macro}


class Logistic:
    """Logistic regression with its log probabilities on inner folds, for every C.

    Each C starts from the weights of the one before.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, class_weight: str | None, seed: int) -> None:
        self.x, self.y, self.class_weight = x, y, class_weight
        self.held_out = np.empty((len(STRENGTHS), len(y), y.max() + 1))
        for rows, others in StratifiedKFold(INNER, shuffle=True, random_state=seed).split(x, y):
            model = self._model()
            for k, strength in enumerate(STRENGTHS):
                model.set_params(C=strength).fit(x[rows], y[rows])
                self.held_out[k, others] = log_of(model, x[others])

    def best(self, score: Callable[[np.ndarray], float]) -> int:
        """The C whose held-out log probabilities have the highest score."""
        return int(np.argmax([score(log_p) for log_p in self.held_out]))

    def fit(self, which: int) -> LogisticRegression:
        """All rows with that C."""
        model = self._model()
        for strength in STRENGTHS[: which + 1]:
            model.set_params(C=strength).fit(self.x, self.y)
        return model

    def _model(self) -> LogisticRegression:
        return LogisticRegression(max_iter=300, class_weight=self.class_weight, warm_start=True)


def log_of(model: LogisticRegression, x: np.ndarray) -> np.ndarray:
    """Log probabilities (N, C)."""
    return np.log(np.maximum(model.predict_proba(x), 1e-300))


def offsets(scores: np.ndarray, y: np.ndarray, metric: Callable[..., float]) -> np.ndarray:
    """What to add to each class's scores, one class after the other, for the best decisions."""
    classes = scores.shape[1]
    found = np.zeros(classes)
    highest = metric(y, scores.argmax(1))
    for _ in range(ROUNDS):
        for c in range(classes):
            now = scores + found
            others = now.copy()
            others[:, c] = -np.inf
            rival = others.argmax(1)
            gap = others.max(1) - now[:, c]
            chosen = 0.0
            for shift in np.unique(np.quantile(gap, (np.arange(PLACES) + 0.5) / PLACES)):
                score = metric(y, np.where(gap < shift, c, rival))
                if score > highest + 1e-12:
                    highest, chosen = score, shift
            found[c] += chosen
    return found


def one_split(x: Any, y: Any, x_test: Any, y_test: Any, seed: int) -> dict[str, dict[str, float]]:
    """Every method's metrics on one fold, and the seconds it took to fit."""
    mean, spread = x.mean(0), x.std(0)
    spread = np.where(spread > 1e-12, spread, 1.0)
    x, x_test = (x - mean) / spread, (x_test - mean) / spread
    found: dict[str, dict[str, float]] = {name: {} for name in LABELS}

    start = time.process_time()
    plain = Logistic(x, y, None, seed)
    which = plain.best(lambda log_p: log_p[np.arange(len(y)), y].mean())
    log_p = log_of(plain.fit(which), x_test)
    found["plain"]["seconds"] = time.process_time() - start
    start = time.process_time()
    weighted = Logistic(x, y, "balanced", seed)
    found["weighted"]["seconds"] = time.process_time() - start
    for metric, function in METRICS.items():
        found["plain"][metric] = function(y_test, log_p.argmax(1))
        moved = log_p + offsets(plain.held_out[which], y, function)
        found["thresholds"][metric] = function(y_test, moved.argmax(1))
        best = weighted.best(lambda log_p, function=function: function(y, log_p.argmax(1)))
        found["weighted"][metric] = function(y_test, weighted.fit(best).predict(x_test))
        start = time.process_time()
        ours = AccuracyClassifier(objective=metric, random_state=seed).fit(x, y)
        found["ours"][f"{metric}_seconds"] = time.process_time() - start
        found["ours"][metric] = function(y_test, ours.predict(x_test))
        found["ours"][f"{metric}_sigma"] = min(ours.sigma_, 1e9)
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
    """One row per method: its mean over tables, and ours less it with a 95 % interval."""
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
