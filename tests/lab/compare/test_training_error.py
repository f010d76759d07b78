"""The sentence on training errors, and the counts that it quotes."""

import gzip
import json
import math
from pathlib import Path

import pytest
from comparisons import run
from test_comparison_document import CE, EXACT, MLP, RUNS, SETTINGS, TABLE

from hitrate_lab.compare.document import Settings, document
from hitrate_lab.compare.training_error import FIT, FITTED, STUDY
from hitrate_lab.report import render
from hitrate_lab.studies import read_study
from hitrate_lab.studies.gain.pairs import BEYOND, pairs

ROOT = Path(__file__).resolve().parents[3]
BOTH = Settings(("linear", "mlp"), ("cross_entropy", "exact"), 2, 1, 1, 0)


def trained(**accuracies):
    """What is said where methods have these training accuracies, one for each of two folds."""
    names = {"ce": CE, "exact": EXACT, "mlp": MLP}
    runs = [
        run(names[name], 0, fold, [0, 1, 2], [0, 1, 1], accuracy=0.9, train_accuracy=value)
        for name, values in accuracies.items()
        for fold, value in enumerate(values)
    ]
    return document(TABLE, BOTH, runs)


def test_training_accuracy_is_the_mean_over_folds():
    found = trained(ce=(0.8, 0.9), exact=(0.9, 0.9))
    means = {method["name"]: method["train_accuracy"] for method in found["methods"]}
    assert (means[CE], means[EXACT]) == pytest.approx((0.85, 0.9))
    assert means[MLP] is None


@pytest.mark.parametrize(
    ("rise", "words"), [(0.03, "rose by a point"), (0.005, "rose by less"), (-0.02, "fell")]
)
def test_a_rise_is_told_with_what_came_of_such_ones(rise, words):
    said = trained(ce=(0.8, 0.9), exact=(0.8 + rise, 0.9 + rise), mlp=(1.0, 1.0))["training"]
    # A network's training error says nothing of the loss.
    assert f"leaves 15.0 % wrong and linear, EXACT {100 * (0.15 - rise):.1f} %" in said
    assert f"training accuracy {words}" in said


def test_what_fits_has_little_to_gain():
    assert "leaves 0.2 % of the training rows wrong" in trained(ce=(0.998, 0.998))["training"]
    said = trained(ce=(1.0, 1.0), exact=(1.0, 1.0))["training"]
    assert "leaves no training row wrong" in said
    assert f"({FIT.pairs} pairs of a table and a model)" in said


def test_alone_cross_entropy_says_how_much_there_could_be():
    assert trained(ce=(0.7, 0.7))["training"] == (
        "Of the training rows logistic regression leaves 30.0 % wrong; another loss can gain no "
        "more than that there."
    )


def test_only_folds_that_both_have_are_compared():
    said = trained(ce=(0.6, 0.9), exact=(0.65,))["training"]
    assert "leaves 25.0 % wrong and linear, EXACT 20.0 %" in said


def test_runs_of_older_versions_are_shown_as_before():
    found = document(TABLE, SETTINGS, RUNS)
    assert found["training"] is None
    assert {method["train_accuracy"] for method in found["methods"]} == {None}
    assert "Training accuracy" not in render(found)
    # Some with and some without: those that have it count.
    mixed = [*RUNS[:2], *(run(*_plain(each), train_accuracy=0.75) for each in RUNS[2:])]
    found = document(TABLE, SETTINGS, mixed)
    assert {method["train_accuracy"] for method in found["methods"]} == {0.75}
    assert "Training accuracy" in render(found) and "leaves 25.0 % wrong" in render(found)


def _plain(each):
    spec, result = each.specification, each.result
    return spec["method"], spec["repeat"], spec["fold"], result["rows"], result["predicted"]


def test_other_metrics_and_other_baselines_have_no_sentence():
    only = Settings(("linear",), ("exact", "mixed"), 2, 1, 1, 0)
    runs = [run(EXACT, 0, fold, [0], [0], train_accuracy=0.5) for fold in range(2)]
    assert document(TABLE, only, runs)["training"] is None


def test_the_counts_are_those_of_the_study():
    study = read_study(ROOT / "studies" / "gain_law.toml")
    with gzip.open(ROOT / "studies" / "results" / "gain_law.jsonl.gz", "rt") as file:
        runs = [(each["specification"], each["result"]) for each in map(json.loads, file)]
    judged = study.settings["judged"]
    every = pairs(study, runs)

    def check(seen, some):
        distances = [each.methods[judged][1] for each in some]
        gained = sum(distance > BEYOND for distance in distances)
        lost = sum(distance < -BEYOND for distance in distances)
        assert (len(distances), gained, lost) == (seen.pairs, seen.gained, seen.lost)

    above = math.inf
    for seen in STUDY:
        rises = ((each.predictors["training accuracy gained"], each) for each in every)
        check(seen, [each for rise, each in rises if seen.above <= rise < above])
        above = seen.above
    check(FIT, [each for each in every if each.predictors["training error"] < FITTED])
