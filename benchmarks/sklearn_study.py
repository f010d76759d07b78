"""Accuracy and time of `AccuracyClassifier` beside scikit-learn's LogisticRegression.

    python benchmarks/sklearn_study.py --out build/sklearn.json
    python benchmarks/sklearn_study.py --only time growth --out benchmarks/results/sklearn.json

Parts that are not run keep what the file has. Data sets come from HITRATE_DATA, see sklearn_data.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from machine import machine
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn_certificate import fewest_errors
from sklearn_data import EXACT, UCI, exact, prepared, split, uci
from sklearn_growth import growth
from sklearn_rules import estimator_checks

from hitrate.sklearn import AccuracyClassifier

# Table 1 of the paper: training accuracy of EXACT, in percent.
PAPER = dict(
    zip(
        EXACT,
        (85.47, 100.0, 100.0, 91.60, 99.03, 96.67, 87.42, 92.67, 100.0, 100.0),
        strict=True,
    )
)
SEEDS = 5
TIMED = EXACT


def train_accuracy() -> dict[str, Any]:
    """Must show: without regularisation, on the training part of the ten."""
    rows = {}
    for name in EXACT:
        ours, theirs, test = [], [], []
        for seed in range(SEEDS):
            x, x_test, y, y_test = split(name, seed)
            model = AccuracyClassifier(l2=0, random_state=seed).fit(x, y)
            ours.append(100 * model.score(x, y))
            test.append(100 * model.score(x_test, y_test))
            plain = LogisticRegression(C=np.inf, max_iter=1000).fit(x, y)
            theirs.append(100 * plain.score(x, y))
        rows[name] = {
            "paper_exact": PAPER[name],
            "accuracy_classifier": spread(ours),
            "logistic_regression": spread(theirs),
            "accuracy_classifier_test": spread(test),
            "within_0.3_of_paper": bool(np.mean(ours) >= PAPER[name] - 0.3),
            "at_least_logistic_regression_each_time": bool(np.all(np.array(ours) >= theirs)),
        }
        tell(name, rows[name])
    return {
        "what": "training accuracy in percent, l2=0; fixed training part or 5 random 80% splits",
        "n": SEEDS,
        "sets": rows,
        "within_0.3_of_paper": sum(r["within_0.3_of_paper"] for r in rows.values()),
        "at_least_logistic_regression": sum(
            r["at_least_logistic_regression_each_time"] for r in rows.values()
        ),
    }


def optimum() -> dict[str, Any]:
    """Training error on two small sets beside the least that any linear classifier has."""
    rows = {}
    for name in ("haberman-survival", "blood"):
        x, y = uci(name)
        errors = []
        for seed in range(SEEDS):
            model = AccuracyClassifier(l2=0, random_state=seed).fit(x, y)
            errors.append(round(len(y) * (1 - model.score(x, y))))
        plain = LogisticRegression(C=np.inf).fit(x, y)
        least = fewest_errors(x, y, found=min(errors))
        rows[name] = {
            "rows": len(y),
            "errors": errors,
            "error_percent": spread([100 * e / len(y) for e in errors]),
            "logistic_regression_error_percent": 100 * (1 - plain.score(x, y)),
            "fewest_errors_of_any_linear_classifier": least,
            "fewest_error_percent": 100 * least / len(y),
        }
        tell(name, rows[name])
    return {
        "what": "training error with l2=0, all rows; least by exact enumeration of planes",
        "n": SEEDS,
        "sets": rows,
    }


def test_accuracy(ten: tuple[str, ...] = EXACT, others: tuple[str, ...] = UCI) -> dict[str, Any]:
    """5 x 2 cross-validation with all defaults, beside a LogisticRegression tuned by accuracy."""
    rows = {}
    for name in ten + others:
        if name in ten:
            raw, labels, _ = exact(name)
            target = labels.to_numpy().astype(str)
        else:
            table, target = uci(name)
        splitter = RepeatedStratifiedKFold(n_splits=2, n_repeats=5, random_state=0)
        ours, theirs, sigmas, seconds = [], [], [], np.zeros(2)
        for k, (train, test) in enumerate(splitter.split(target, target)):
            if name in ten:
                x, x_test = prepared(raw, train, test)
            else:
                x, x_test = table[train], table[test]
            begin = time.perf_counter()
            model = AccuracyClassifier(random_state=k).fit(x, target[train])
            middle = time.perf_counter()
            # As many values of C as our inner split has candidates, on the same number of folds.
            plain = LogisticRegressionCV(
                Cs=20, cv=5, max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False
            )
            plain.fit(x, target[train])
            seconds += middle - begin, time.perf_counter() - middle
            ours.append(100 * model.score(x_test, target[test]))
            theirs.append(100 * plain.score(x_test, target[test]))
            sigmas.append(model.sigma_)
        difference = np.array(ours) - theirs
        rows[name] = {
            "rows": len(target),
            "accuracy_classifier": spread(ours),
            "logistic_regression": spread(theirs),
            "difference": spread(difference),
            "fits_that_left_the_convex_start": int(np.sum(np.isfinite(sigmas))),
            "seconds_per_fit": [round(float(s) / len(ours), 3) for s in seconds],
        }
        tell(name, rows[name])
    parts = {"exact": ten, "uci": others, "all": ten + others}
    return {
        "what": "test accuracy in percent, 5 x 2 cross-validation; all defaults against "
        "LogisticRegressionCV(Cs=20, cv=5)",
        "n": 10,
        "sets": rows,
        "mean_difference": {
            part: over_sets([rows[name]["difference"]["mean"] for name in names])
            for part, names in parts.items()
            if names
        },
    }


def over_sets(differences: list[float]) -> dict[str, Any]:
    """Mean over data sets with its 95% t interval, and who wins."""
    values = np.array(differences)
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return {
        "sets": len(values),
        "mean": round(float(values.mean()), 3),
        "interval_95": [round(float(values.mean() + s * half), 3) for s in (-1, 1)],
        "wins": int((values > 1e-9).sum()),
        "ties": int((np.abs(values) <= 1e-9).sum()),
        "losses": int((values < -1e-9).sum()),
    }


def fit_time(rounds: int = 3) -> dict[str, Any]:
    """Fit time, each beside the logistic regression it compares with, interleaved."""
    makers: dict[str, Callable[[int], Any]] = {
        "logistic_regression": lambda n: LogisticRegression(max_iter=1000),
        "logistic_regression, C=inf": lambda n: LogisticRegression(C=np.inf, max_iter=1000),
        "logistic_regression, tuned": lambda n: LogisticRegressionCV(
            Cs=20, cv=5, max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False
        ),
        "l2=0": lambda n: AccuracyClassifier(l2=0, random_state=0),
        "l2=1/N, sigma=0.25": lambda n: AccuracyClassifier(
            l2=1 / n, sigma=0.25, margin=None, polish=False, random_state=0
        ),
        "all defaults": lambda n: AccuracyClassifier(random_state=0),
    }
    beside = {
        "l2=1/N, sigma=0.25": "logistic_regression",
        "l2=0": "logistic_regression, C=inf",
        "all defaults": "logistic_regression, tuned",
    }
    data = {name: split(name, 0) for name in TIMED}
    seconds = {name: {key: [] for key in makers} for name in TIMED}
    for number in range(rounds + 1):
        for name, (x, _, y, _) in data.items():
            for key, make in makers.items():
                # Of the processor: other programs may be running.
                begin = time.process_time()
                make(len(x)).fit(x, y)
                # The first round warms up.
                if number:
                    seconds[name][key].append(time.process_time() - begin)
    totals = {key: np.sum([seconds[name][key] for name in TIMED], axis=0) for key in makers}
    result = {
        "what": "processor seconds over training parts, interleaved rounds, one thread",
        "n": rounds,
        "total_seconds": {key: spread(list(value)) for key, value in totals.items()},
        "beside": beside,
        "ratio": {key: spread(list(totals[key] / totals[base])) for key, base in beside.items()},
        "median_seconds": {
            name: {key: round(float(np.median(v)), 4) for key, v in seconds[name].items()}
            for name in TIMED
        },
    }
    tell("ratio", result["ratio"])
    return result


def spread(values: Any) -> dict[str, float]:
    """Mean, standard deviation and range."""
    values = np.asarray(values, float)
    return {
        "mean": round(float(values.mean()), 4),
        "std": round(float(values.std(ddof=1)), 4),
        "min": round(float(values.min()), 4),
        "max": round(float(values.max()), 4),
    }


def tell(name: str, row: Any) -> None:
    print(name, json.dumps(row), flush=True)


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "train": train_accuracy,
    "optimum": optimum,
    "test": test_accuracy,
    "time": fit_time,
    "growth": growth,
    "checks": estimator_checks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in arguments.only:
        print(f"-- {part}", file=sys.stderr, flush=True)
        result = {**PARTS[part](), "machine": machine()}
        kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps({**kept, part: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
