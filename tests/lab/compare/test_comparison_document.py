"""The document and its advice, from runs made by hand: every number can be worked out on paper."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from comparisons import run

from hitrate_lab.compare.advice import advise
from hitrate_lab.compare.document import Settings, document
from hitrate_lab.runs.store import Failure
from hitrate_lab.statistics import corrected_estimate, holm
from hitrate_lab.tables import Table

CE, EXACT, MLP = "linear/cross_entropy", "linear/exact", "mlp/exact"
SETTINGS = Settings(("linear",), ("cross_entropy", "exact"), folds=2, repeats=1, trials=1, seed=0)
TABLE = Table(
    "six rows",
    pd.DataFrame(
        {
            "size": [1.0, np.nan, np.inf, 4.0, 5.0, 6.0],
            "day": pd.to_datetime(["2024-02-29", None, *["2024-03-01"] * 4]),
            "colour": ["red", None, "blue", "red", "red", "blue"],
        }
    ),
    pd.Series(["no", "yes", "yes", "no", "no", "yes"]),
    ("a note",),
    "abc",
    "won",
)
# Classes are no = 0, yes = 1, and the truth is 0 1 1 0 0 1.
RUNS = [
    run(CE, 0, 0, [0, 1, 2], [0, 0, 1], [0.9, 0.55, 1.0], accuracy=2 / 3),
    run(EXACT, 0, 0, [0, 1, 2], [0, 1, 0], [0.9, 0.95, 0.6], accuracy=2 / 3, curve=[{"step": 0}]),
    run(CE, 0, 1, [3, 4, 5], [1, 1, 1], [0.5, 0.52, 0.97], accuracy=1 / 3),
    run(EXACT, 0, 1, [3, 4, 5], [0, 0, 1], [0.5, 0.6, 0.7], accuracy=1.0, fit_seconds=0.3),
]


def method(found, name):
    (entry,) = (entry for entry in found["methods"] if entry["name"] == name)
    return entry


def test_methods_are_ranked_and_counted():
    found = document(TABLE, SETTINGS, RUNS)
    assert [entry["name"] for entry in found["methods"]] == [EXACT, CE]
    assert (found["best"], found["baseline"]) == (EXACT, CE)
    assert (found["done"], found["planned"], found["complete"]) == (4, 4, True)
    assert method(found, EXACT)["accuracy"]["mean"] == pytest.approx(5 / 6)
    assert method(found, EXACT)["fit_seconds"] == pytest.approx(0.2)


def test_confusion_has_a_row_for_each_truth():
    found = document(TABLE, SETTINGS, RUNS)
    assert method(found, CE)["confusion"] == [[1, 2], [1, 2]]
    assert method(found, EXACT)["confusion"] == [[3, 0], [1, 2]]


def test_reliability_is_the_share_of_hits_of_predictions_that_are_as_sure():
    bins = method(document(TABLE, SETTINGS, RUNS), CE)["reliability"]
    # 0.5, 0.52 and 0.55 are all wrong; 0.9, 0.97 and 1.0 are all right.
    assert [(each["low"], each["high"], each["count"]) for each in bins] == [
        (0.5, 0.6, 3),
        (0.9, 1.0, 3),
    ]
    assert [each["accuracy"] for each in bins] == [0.0, 1.0]
    assert bins[0]["confidence"] == pytest.approx(1.57 / 3)


def test_rows_that_changed_are_shown_as_they_are_in_the_table():
    changed = document(TABLE, SETTINGS, RUNS)["changed"]
    assert (changed["from"], changed["to"]) == (CE, EXACT)
    counts = [changed[name] for name in ("gained", "lost", "both_right", "both_wrong")]
    assert counts == [3, 1, 2, 0]
    # Of the file, counted from 1.
    assert [row["row"] for row in changed["rows"]] == [2, 3, 4, 5]
    assert changed["rows"][0] == {
        "row": 2,
        "truth": "yes",
        "from": "no",
        "to": "yes",
        "features": {"size": None, "day": None, "colour": None},
    }
    assert changed["rows"][1]["features"] == {
        "size": None,
        "day": "2024-03-01T00:00:00",
        "colour": "blue",
    }


def test_differences_are_the_corrected_test_of_the_paired_folds():
    found = document(TABLE, SETTINGS, RUNS)
    # Two folds: as many test rows as training rows.
    truth = corrected_estimate([0.0, 2 / 3], 1.0)
    difference = method(found, EXACT)["difference"]
    assert difference["mean"] == pytest.approx(truth.mean)
    assert (difference["p"], difference["p_holm"]) == pytest.approx((truth.p, truth.p))
    assert method(found, CE)["difference"] is None


def test_p_values_are_adjusted_for_the_number_of_methods():
    settings = Settings(("linear",), ("cross_entropy", "exact", "mixed"), 2, 2, 1, 0)
    accuracies = {CE: [0.5, 0.6, 0.4, 0.5], EXACT: [0.7, 0.7, 0.6, 0.8], "linear/mixed": [0.6] * 4}
    runs = [
        run(name, k // 2, k % 2, [0], [0], accuracy=values[k])
        for name, values in accuracies.items()
        for k in range(4)
    ]
    found = document(TABLE, settings, runs)
    p = [method(found, name)["difference"]["p"] for name in (EXACT, "linear/mixed")]
    adjusted = [method(found, name)["difference"]["p_holm"] for name in (EXACT, "linear/mixed")]
    assert adjusted == pytest.approx(holm(p))


def test_folds_that_only_one_method_has_are_not_paired():
    found = document(TABLE, SETTINGS, RUNS[:3])
    difference = method(found, EXACT)["difference"]
    assert difference["mean"] == 0.0
    assert difference["p"] is None
    assert method(found, CE)["accuracy"]["n"] == 2


def test_nothing_at_all_is_a_document_too():
    found = document(TABLE, SETTINGS, [])
    assert (found["best"], found["changed"], found["complete"]) == (None, None, False)
    assert found["table"]["notes"] == ["a note"]
    assert "nothing to compare" in found["advice"]
    json.dumps(found, allow_nan=False)


def test_a_failure_is_told_with_its_fold():
    specification = {"method": EXACT, "repeat": 0, "fold": 1}
    failure = Failure("key", specification, "ValueError: no", "Traceback", "2026", {})
    found = document(TABLE, SETTINGS, RUNS[:3], [failure])
    assert method(found, EXACT)["failures"] == ["repeat 1, fold 2: ValueError: no"]
    assert method(found, CE)["failures"] == []


def test_a_curve_is_that_of_the_first_fold():
    found = document(TABLE, SETTINGS, RUNS)
    assert method(found, EXACT)["curve"] == [{"step": 0}]
    assert method(found, CE)["curve"] is None


def test_without_logistic_regression_another_cross_entropy_or_the_first_is_the_baseline():
    def baseline(models, losses):
        return document(TABLE, Settings(models, losses, 2, 1, 1, 0), [])["baseline"]

    assert baseline(("mlp",), ("exact", "cross_entropy")) == "mlp/cross_entropy"
    assert baseline(("mlp",), ("exact", "mixed")) == "mlp/exact"


def test_an_interval_of_accuracies_stays_between_zero_and_one():
    found = document(TABLE, SETTINGS, RUNS)
    accuracy = method(found, EXACT)["accuracy"]
    assert (accuracy["low"], accuracy["high"]) == (0.0, 1.0)


# Ten folds of each method; the mean gains can be seen.
STEADY = [0.90, 0.91, 0.92, 0.90, 0.91, 0.90, 0.92, 0.91, 0.90, 0.91]
BETTER = [each + gain for each, gain in zip(STEADY, [0.03, 0.02] * 5, strict=True)]
AS_GOOD = [each + gain for each, gain in zip(BETTER, [0.004, -0.002] * 5, strict=True)]
BEST = [each + 0.03 for each in BETTER]


def advice(accuracies, rows=1000, seconds=None, folds=5, repeats=2):
    """The sentence for methods with these accuracies of folds."""
    entries = []
    base = accuracies.get(CE, [])
    names = [name for name in accuracies if name != CE]
    gains = {
        name: corrected_estimate(np.subtract(accuracies[name], base[: len(accuracies[name])]), 0.25)
        for name in names
        if base and accuracies[name]
    }
    tested = [name for name in gains if gains[name].p is not None]
    adjusted = dict(zip(tested, holm([gains[name].p for name in tested]), strict=True))
    for name, values in accuracies.items():
        model, loss = name.split("/")
        gain = gains.get(name)
        entries.append(
            {
                "name": name,
                "label": "logistic regression" if name == CE else f"{model}, {loss}",
                "model": model,
                "difference": gain and {"mean": gain.mean, "p_holm": adjusted.get(name)},
                "folds": [
                    {"repeat": k // folds, "fold": k % folds, "accuracy": value}
                    for k, value in enumerate(values)
                ],
                "fit_seconds": (seconds or {}).get(name, 1.0),
                "mean": np.mean(values) if values else -1,
            }
        )
    entries.sort(key=lambda entry: -entry["mean"])
    return advise(entries, CE, rows=rows, folds=folds, repeats=repeats)


def test_without_a_winner_the_baseline_stays():
    noise = [each + 0.01 * (-1) ** k for k, each in enumerate(STEADY)]
    found = advice({CE: STEADY, EXACT: noise})
    assert found.sentence == "No method beats logistic regression here; keep it."
    assert found.method == CE


def test_a_method_with_few_folds_is_no_winner():
    few = [STEADY[0] + 0.05, STEADY[1] + 0.06]
    found = advice({CE: STEADY, EXACT: STEADY, MLP: few})
    assert found.method == CE


def test_a_gain_that_is_the_same_in_every_fold_has_no_interval():
    equal = [each + 0.05 for each in [0.5] * 10]
    found = advice({CE: [0.5] * 10, EXACT: equal})
    assert "5.0 points more accurate than logistic regression (the same in all 10 folds)" in (
        found.sentence
    )


def test_a_method_is_ranked_by_the_folds_that_it_shares_with_the_baseline():
    # EXACT is right on all of the one fold that it has, and so is the baseline.
    easy = run(CE, 0, 0, [0, 1, 2], [0, 1, 1], [0.9, 0.9, 0.9], accuracy=1.0)
    hard = run(CE, 0, 1, [3, 4, 5], [1, 1, 1], [0.5, 0.5, 0.9], accuracy=1 / 3)
    same = run(EXACT, 0, 0, [0, 1, 2], [0, 1, 1], [0.9, 0.9, 0.9], accuracy=1.0)
    lost = Failure("key", {"method": EXACT, "repeat": 0, "fold": 1}, "gone", "", "", {})
    found = document(TABLE, SETTINGS, [easy, hard, same], [lost])
    assert [entry["name"] for entry in found["methods"]] == [CE, EXACT]
    assert (found["done"], found["failed"], found["planned"]) == (3, 1, 4)
    assert not found["complete"]
    assert "So far" not in found["advice"]


def test_runs_of_different_versions_are_told():
    assert document(TABLE, SETTINGS, RUNS)["table"]["notes"] == ["a note"]
    old = replace(RUNS[0], versions={"numpy": "2.4", "python": "3.11"})
    new = [replace(each, versions={"numpy": "2.5", "python": "3.11"}) for each in RUNS[1:]]
    *_, note = document(TABLE, SETTINGS, [old, *new])["table"]["notes"]
    assert note == "runs of different versions are mixed: numpy 2.4 and 2.5"
    # Code that changed between runs is told as well, but is no mixture of versions.
    made = [{"numpy": "2.5", "commit": f"c{k % 2}"} for k in range(len(RUNS))]
    runs = [replace(run, versions=each) for run, each in zip(RUNS, made, strict=True)]
    notes = document(TABLE, SETTINGS, runs)["table"]["notes"]
    assert notes == ["a note", "runs are of hitrate's commits c0, c1"]


def test_a_method_that_is_worse_is_no_winner():
    found = advice({CE: BEST, EXACT: STEADY})
    assert found.sentence == "No method beats logistic regression here; keep it."


def test_a_winner_is_named_with_its_gain_and_interval():
    found = advice({CE: STEADY, EXACT: BETTER})
    gain = corrected_estimate(np.subtract(BETTER, STEADY), 0.25)
    low, high = 100 * gain.low, 100 * gain.high
    assert found.sentence == (
        "Use linear, exact: 2.5 points more accurate than logistic regression "
        f"(95 % interval {low:.1f} to {high:.1f})."
    )
    assert found.method == EXACT


def test_of_winners_within_noise_the_simplest_model_is_named():
    found = advice({CE: STEADY, EXACT: BETTER, MLP: AS_GOOD}, seconds={EXACT: 9.0})
    assert found.method == EXACT
    assert found.sentence.endswith("; mlp, exact is within noise of it, but less simple.")


def test_of_the_same_model_the_fastest_is_named():
    seconds = {"mlp/cross_entropy": 1.0, MLP: 3.0, "mlp/mixed": 4.0}
    found = advice(
        {CE: STEADY, "mlp/cross_entropy": BETTER, MLP: AS_GOOD, "mlp/mixed": AS_GOOD},
        seconds=seconds,
    )
    assert found.method == "mlp/cross_entropy"
    assert found.sentence.endswith(
        "; mlp, exact and mlp, mixed are within noise of it, but slower."
    )


def test_many_winners_within_noise_are_counted():
    found = advice(
        {CE: STEADY, EXACT: BETTER, MLP: AS_GOOD, "linear/mixed": AS_GOOD, "mlp/mixed": AS_GOOD}
    )
    assert found.sentence.endswith("; 3 others are within noise of it, but less simple or slower.")


def test_a_winner_that_is_better_by_more_than_noise_is_named_although_less_simple():
    found = advice({CE: STEADY, EXACT: BETTER, MLP: BEST})
    assert found.method == MLP
    assert "noise" not in found.sentence


def test_an_incomplete_comparison_says_on_how_many_folds_it_stands():
    found = advice({CE: STEADY[:5], EXACT: BETTER[:5]})
    assert found.sentence.startswith("So far, on 5 folds of 10: use linear, exact: 2.6 points")


def test_few_folds_tell_nothing_even_if_they_agree():
    found = advice({CE: [0.5, 0.5, 0.5], EXACT: [0.9, 0.9, 0.9]})
    assert found.sentence == (
        "So far, on 3 folds of 10: differences cannot be told on fewer than 4 folds; run more."
    )
    assert found.method is None


def test_a_tiny_table_tells_no_small_difference():
    noise = [each + 0.01 * (-1) ** k for k, each in enumerate(STEADY)]
    found = advice({CE: STEADY, EXACT: noise}, rows=60)
    assert found.sentence == "With 60 rows differences cannot be told; keep logistic regression."


def test_what_has_nothing_beside_it_is_not_compared():
    assert "Only logistic regression has finished" in advice({CE: STEADY, EXACT: []}).sentence
    assert "No fold of linear/cross_entropy" in advice({CE: [], EXACT: STEADY}).sentence
    assert "nothing to compare" in advice({CE: [], EXACT: []}).sentence
