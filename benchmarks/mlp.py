"""`AccuracyMLPClassifier` beside scikit-learn's MLPClassifier, both with all defaults.

    python benchmarks/mlp.py --out benchmarks/results/mlp.json
    python benchmarks/mlp.py --list

A method that has been measured on a set stays as it is, so that an interrupted run goes on. Sets
come from HITRATE_DATA, see sklearn_data.

The sets were named before any of their results was seen: every one of the 121 of UCI with at most
10,000 rows, but for the forty that defaults were looked at on (sklearn_data, and breast-cancer-
wisc-diag, which is one of them by another name), and the four whose published training and test
rows are on different scales. Twice two stratified folds; above 2500 rows once two.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn_data import EXACT, UCI, uci

from hitrate.sklearn import AccuracyMLPClassifier
from hitrate_lab.datasets.table_sets import TABLE_SETS

ROWS, MANY = 10_000, 2500
AGAIN = "breast-cancer-wisc-diag"
METHODS: dict[str, Callable[[int], Any]] = {
    "scikit-learn": lambda seed: MLPClassifier(random_state=seed),
    # As the defaults were: the weights that were best on rows held out, which they never saw.
    "before": lambda seed: AccuracyMLPClassifier(refit=False, random_state=seed),
    "after": lambda seed: AccuracyMLPClassifier(random_state=seed),
}


def sets() -> list[str]:
    """Names of the sets, by the rule, the smallest first."""
    found = []
    for name, known in TABLE_SETS.items():
        kind, _, short = name.rpartition("/")
        if kind != "uci121" or known.rows > ROWS or short in {*EXACT, *UCI, AGAIN}:
            continue
        if not any("not on the scale" in note for note in known.notes):
            found.append(short)
    return sorted(found, key=lambda name: (TABLE_SETS[f"uci121/{name}"].rows, name))


def measured(name: str, build: Callable[[int], Any]) -> dict[str, Any]:
    """Test and training accuracy in percent of each fit, and seconds of a fit."""
    x, y = uci(name)
    repeats = 2 if len(x) <= MANY else 1
    test, train, seconds = [], [], 0.0
    folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=repeats, random_state=0)
    for seed, (inside, outside) in enumerate(folds.split(x, y)):
        start = time.process_time()
        model = build(seed).fit(x[inside], y[inside])
        seconds += time.process_time() - start
        test.append(round(100 * model.score(x[outside], y[outside]), 3))
        train.append(round(100 * model.score(x[inside], y[inside]), 3))
    return {
        "rows": len(x),
        "test": test,
        "train": train,
        "seconds": round(seconds / len(test), 3),
    }


def main() -> None:
    """Measure what the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/mlp.json"))
    parser.add_argument("--only", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--list", action="store_true", help="name the sets, and stop")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(sets()))
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in sets():
        for method in arguments.only:
            kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
            found = kept.setdefault(method, {"sets": {}})["sets"]
            if name in found:
                continue
            found[name] = measured(name, METHODS[method])
            kept[method]["machine"] = machine()
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            part = arguments.out.with_suffix(".part")
            part.write_text(json.dumps(kept, indent=1) + "\n")
            part.replace(arguments.out)
            print(method, name, np.mean(found[name]["test"]).round(2), flush=True)


if __name__ == "__main__":
    main()
