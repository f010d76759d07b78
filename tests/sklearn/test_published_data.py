"""Accuracy on published data, where it is at hand, and what the committed results say of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hitrate.sklearn import AccuracyClassifier

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from sklearn_certificate import fewest_errors
from sklearn_data import EXACT, UCI, split, uci

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "sklearn.json"


@pytest.mark.parametrize(("name", "fewest"), [("haberman-survival", 66), ("blood", 151)])
def test_training_errors_are_within_a_percent_of_the_fewest_possible(name, fewest, data_folder):
    x, y = uci(name)
    errors = (AccuracyClassifier(l2=0, random_state=0).fit(x, y).predict(x) != y).sum()
    assert fewest <= errors <= fewest + 0.01 * len(y)


PAPER = {
    "balance-scale": 91.60,
    "breast-cancer-wisconsin": 99.03,
    "car": 96.67,
    "cylinder-bands": 87.42,
    "mice-protein": 100.0,
}


@pytest.mark.parametrize(("name", "paper"), PAPER.items())
def test_training_accuracy_is_that_of_the_paper(name, paper, data_folder):
    x, _, y, _ = split(name, seed=0)
    model = AccuracyClassifier(l2=0, random_state=0).fit(x, y)
    assert 100 * model.score(x, y) >= paper - 0.3


@pytest.mark.parametrize("seeds", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_the_certificate_is_what_line_searches_find_on_a_few_points(seeds):
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        x = random.integers(4, size=(30, 3)).astype(float)
        y = (x.sum(1) + 2 * random.standard_normal(30) > 4.5).astype(int)
        errors = int((AccuracyClassifier(l2=0, random_state=0).fit(x, y).predict(x) != y).sum())
        assert fewest_errors(x, y, found=len(y)) == errors


def test_the_committed_results_show_what_they_must():
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert results["train"]["within_0.3_of_paper"] >= 9
    assert results["train"]["at_least_logistic_regression"] == 10
    assert results["test"]["mean_difference"]["all"]["mean"] >= 0
    assert tuple(results["test"]["sets"]) == EXACT + UCI
    assert max(ratio["mean"] for ratio in results["time"]["ratio"].values()) <= 5
    for key in ("l2=1/N, sigma=0.25", "all defaults"):
        assert max(results["growth"][key]["times_longer_for_ten_times_the_rows"]) <= 12
        assert results["growth"][key]["rows"][-1]["memory_ratio"] <= 4
    assert all(not row.get("failed") for row in results["checks"]["counts"].values())
