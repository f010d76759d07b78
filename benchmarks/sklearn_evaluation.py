"""Defaults of `AccuracyClassifier` on tables that took no part in making them.

    python benchmarks/sklearn_evaluation.py --as before
    python benchmarks/sklearn_evaluation.py --as after

The tables were named before any of their results was seen: all of the 121 of UCI that are none of
the forty of sklearn_data, by this or another name, and whose published training and test rows are
on one scale: *small* ones of 50 to 5000 rows and at most a million numbers times classes, by
5 x 2 cross-validation, and *large* ones of more than 5000 rows and at most six million, by one
2-fold cross-validation. Left out for their size: arrhythmia, letter, miniboone, plant-margin,
plant-shape, plant-texture and semeion; for their scale: monks-1, monks-2, monks-3 and spectf; for
being too small: balloons, lenses, lung-cancer and trains.

Every fold is kept, and what the other method had on it; folds are the same whatever is judged.
Repetitions come one after another over all tables, so that a run that ends early has each table
as often as the others, or once more.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn_data import ROOT, uci

from hitrate.sklearn import AccuracyClassifier

SMALL = """
    acute-inflammation acute-nephritis audiology-std breast-cancer-wisc-prog breast-tissue
    conn-bench-vowel-deterding echocardiogram fertility flags hayes-roth heart-switzerland hepatitis
    hill-valley horse-colic image-segmentation iris libras lymphography molec-biol-promoter musk-1
    oocytes_trisopterus_states_5b ozone parkinsons pima pittsburg-bridges-MATERIAL
    pittsburg-bridges-REL-L pittsburg-bridges-SPAN pittsburg-bridges-T-OR-D
    pittsburg-bridges-TYPE planning post-operative primary-tumor seeds soybean spambase spect
    statlog-australian-credit statlog-german-credit statlog-heart statlog-image statlog-vehicle
    steel-plates synthetic-control teaching tic-tac-toe titanic vertebral-column-2clases
    vertebral-column-3clases waveform waveform-noise wine-quality-red wine-quality-white yeast zoo
""".split()
LARGE = """
    page-blocks wall-following ringnorm twonorm thyroid mushroom magic nursery statlog-landsat
    pendigits musk-2 statlog-shuttle optical connect-4 chess-krvk
""".split()
SIZES = {"small": SMALL, "large": LARGE}
RESULTS = ROOT / "benchmarks" / "results" / "sklearn_evaluation.json"
LOGISTIC = "logistic_regression"


def logistic() -> LogisticRegressionCV:
    """As many values of C as there are candidates on the other side, on as many folds."""
    return LogisticRegressionCV(
        Cs=20, cv=5, max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False
    )


def folds(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows."""
    _, target = uci(name)
    splitter = RepeatedStratifiedKFold(
        n_splits=2, n_repeats=5 if name in SMALL else 1, random_state=0
    )
    return list(splitter.split(target, target))


def judge(kept: dict[str, Any], name: str, method: str, repeat: int) -> None:
    """Add test accuracy in percent, seconds and the last sigma on two folds, if not there yet."""
    row = kept.setdefault(name, {}).setdefault(method, {"accuracy": [], "seconds": [], "sigma": []})
    if len(row["accuracy"]) > 2 * repeat:
        return
    x, y = uci(name)
    for k, (train, test) in list(enumerate(folds(name)))[2 * repeat : 2 * repeat + 2]:
        model = logistic() if method == LOGISTIC else AccuracyClassifier(random_state=k)
        begin = time.perf_counter()
        model.fit(x[train], y[train])
        row["seconds"].append(round(time.perf_counter() - begin, 3))
        row["accuracy"].append(round(100 * model.score(x[test], y[test]), 4))
        sigma = getattr(model, "sigma_", np.inf)
        row["sigma"].append(sigma if np.isfinite(sigma) else None)
    # Accuracies are not shown: whoever makes defaults must not see them by the way.
    print(repeat, name, method, round(sum(row["seconds"]), 1), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--as", dest="method", required=True, help="before, after, ...")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--repeats", type=int, nargs="*", default=range(5))
    parser.add_argument("--only", choices=("small", "large"), help="by default both")
    parser.add_argument("--rows", type=int, help="tables of so many rows at most")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for repeat in arguments.repeats:
        names = [*SMALL, *LARGE] if repeat == 0 else SMALL
        if arguments.only:
            names = [name for name in names if name in SIZES[arguments.only]]
        if arguments.rows:
            names = [name for name in names if len(uci(name)[1]) <= arguments.rows]
        for name in names:
            for method in (LOGISTIC, arguments.method):
                kept = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
                judge(kept, name, method, repeat)
                write(arguments.out, kept)


def write(path: Path, kept: dict[str, Any]) -> None:
    """One line for each table and method."""
    tables = []
    for name, methods in kept.items():
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in methods.items())
        tables.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
    whole = path.with_suffix(".part")
    whole.write_text("{\n" + ",\n".join(tables) + "\n}\n")
    whole.replace(path)


if __name__ == "__main__":
    main()
