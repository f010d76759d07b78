"""Repeated cross-validation on real tables: fair, recorded, and the same however it is run."""

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest
from comparisons import timeless
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

import hitrate.sklearn.solvers.mlp_training as network
from hitrate_lab.bad_input import BadInput
from hitrate_lab.compare.comparison import Interrupted, compare
from hitrate_lab.compare.folds import fold_rows, inner_split, possible_folds
from hitrate_lab.models import linear
from hitrate_lab.runs.lock import only_one
from hitrate_lab.runs.store import Store
from hitrate_lab.seeds import seed_of
from hitrate_lab.tables import Columns, Table, read_table

QUICK = {"models": ["linear"], "folds": 3, "repeats": 2, "trials": 2, "jobs": 1}
# Where two methods and three folds are enough.
SMALL = {**QUICK, "repeats": 1, "trials": 1}


def small_table(labels):
    random = np.random.default_rng(0)
    target = pd.Series(labels)
    shift = target.factorize()[0]
    frame = pd.DataFrame(
        {"size": random.normal(shift, 0.3), "noise": random.normal(size=len(shift))}
    )
    return Table("small", frame, target, (), f"fingerprint of {sorted(labels)}", "label")


@pytest.fixture(scope="module")
def wine():
    return read_table("wine")


@pytest.fixture(scope="module")
def finished(wine, tmp_path_factory):
    """A comparison, its store and its events."""
    path = tmp_path_factory.mktemp("compare") / "runs.sqlite"
    events = []
    document = compare(wine, store=path, observer=events.append, **QUICK)
    with Store(path) as store:
        return document, store.runs(), events, path


def test_a_document_has_the_fields_that_readers_rely_on(finished):
    document, *_ = finished
    assert set(document) == {
        *("format", "version", "table", "settings", "complete", "done", "failed", "planned"),
        *("baseline", "best", "advice", "recommended", "methods", "changed", "environment"),
        "training",
    }
    for method in document["methods"]:
        assert set(method) == {
            *("name", "label", "model", "loss", "accuracy", "difference", "folds", "fit_seconds"),
            *("tune_seconds", "confusion", "reliability", "curve", "log_loss", "failures"),
            "train_accuracy",
        }
    # Not all are installed, and only a clone has a commit.
    assert set(document["environment"]) - {"xgboost", "lightgbm", "commit"} == {
        *("hitrate", "python", "torch", "scikit-learn", "numpy", "processor", "cores", "started"),
        *("seconds", "command"),
    }
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_complete_comparison_says_so(finished):
    document, *_ = finished
    assert (document["complete"], document["done"], document["planned"]) == (True, 12, 12)
    assert document["table"]["class_counts"] == [59, 71, 48]
    assert document["table"]["features"] == 13
    assert all(len(method["folds"]) == 6 for method in document["methods"])


def test_accuracies_of_the_baseline_are_those_of_scikit_learn(wine, tmp_path):
    untuned = {**QUICK, "losses": ["cross_entropy"], "trials": 1}
    document = compare(wine, store=tmp_path / "runs.sqlite", **untuned)
    scores, training = [], []
    for repeat in range(2):
        split = StratifiedKFold(3, shuffle=True, random_state=seed_of(0, repeat))
        for train, test in split.split(wine.features, wine.target):
            model = make_pipeline(Columns(), LogisticRegression(max_iter=1000))
            model.fit(wine.features.iloc[train], wine.target.iloc[train])
            scores.append(model.score(wine.features.iloc[test], wine.target.iloc[test]))
            training.append(model.score(wine.features.iloc[train], wine.target.iloc[train]))
    (method,) = document["methods"]
    assert [fold["accuracy"] for fold in method["folds"]] == pytest.approx(scores, abs=1e-12)
    assert method["accuracy"]["mean"] == pytest.approx(np.mean(scores), abs=1e-12)
    assert [fold["train_accuracy"] for fold in method["folds"]] == pytest.approx(training)


def test_all_methods_are_tested_on_the_same_rows_and_every_row_once_in_a_repeat(finished):
    _, runs, *_ = finished
    rows = {}
    for run in runs:
        place = run.specification["repeat"], run.specification["fold"]
        rows.setdefault(place, []).append(run.result["rows"])
    assert all(one == two for one, two in rows.values())
    for repeat in range(2):
        every = [row for (r, _), (one, _) in rows.items() if r == repeat for row in one]
        assert sorted(every) == list(range(178))
    assert rows[0, 0] != rows[1, 0]


def test_parameters_of_many_rows_are_chosen_on_some_of_every_class(wine, tmp_path, monkeypatch):
    target = np.repeat([0, 1, 2], [700, 280, 20])
    # 70, 28 and 2 of them, a fifth of each to judge by and one row at least.
    inside, judged = inner_split(target, 0, 100)
    assert not set(inside) & set(judged)
    assert np.bincount(target[inside]).tolist() == [56, 22, 1]
    assert np.bincount(target[judged]).tolist() == [14, 6, 1]
    # As many as there are: the same as without a limit.
    for one, other in zip(inner_split(target, 0, 1000), inner_split(target, 0), strict=True):
        np.testing.assert_array_equal(one, other)

    monkeypatch.setattr("hitrate_lab.compare.folds.CHOSEN_ON", 40)
    sizes = []
    monkeypatch.setattr(
        "hitrate_lab.compare.one_run.fitted",
        lambda method, parameters, seed, x, y: (
            sizes.append(len(y)) or method.build(parameters, seed).fit(x, y)
        ),
    )
    few = {**SMALL, "losses": ["cross_entropy"], "trials": 2}
    document = compare(wine, store=tmp_path / "runs.sqlite", **few)
    assert sizes == [32, 32, 118, 32, 32, 119, 32, 32, 119]
    assert any("chosen on 40 of a fold's" in note for note in document["table"]["notes"])
    with Store(tmp_path / "runs.sqlite") as store:
        assert {run.specification["chosen_on"] for run in store.runs()} == {40}


def test_a_fold_is_finished_by_all_methods_before_the_next_begins(finished):
    _, runs, *_ = finished
    places = [(run.specification["repeat"], run.specification["fold"]) for run in runs]
    assert places == sorted(places)


def test_the_chosen_parameters_are_the_first_of_those_most_accurate_on_the_inner_split(finished):
    _, runs, *_ = finished
    for run in runs:
        trials = run.result["trials"]
        candidates = run.specification["candidates"]
        if len(candidates) == 1:
            assert (trials, run.result["parameters"]) == ([], candidates[0])
            continue
        assert [each["parameters"] for each in trials] == candidates
        best = max(trials, key=lambda trial: trial["accuracy"])
        assert run.result["parameters"] == best["parameters"]


@pytest.mark.slow
def test_exact_beats_logistic_regression_on_car(tmp_path):
    settings = {**QUICK, "folds": 5, "repeats": 1, "trials": 4}
    document = compare(read_table("car"), store=tmp_path / "runs.sqlite", **settings)
    exact, plain = document["methods"]
    assert (exact["name"], plain["name"]) == ("linear/exact", "linear/cross_entropy")
    assert exact["accuracy"]["mean"] > 0.94
    assert exact["difference"]["mean"] > 0.01
    changed = document["changed"]
    net = (changed["gained"] - changed["lost"]) / 1728
    assert net == pytest.approx(exact["difference"]["mean"], abs=1e-4)


def test_the_curve_is_told_for_exact_and_sigma_falls(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.standard_normal((300, 2)), columns=["size", "noise"])
    target = frame["size"] > 0
    # One row in ten is far on the wrong side, which likelihood pays for by the distance.
    frame.loc[:30, "size"], target[:31] = 6.0, False
    table = Table("outliers", frame, target, (), "fingerprint of outliers", "label")
    document = compare(table, store=tmp_path / "runs.sqlite", **SMALL)
    curves = {method["name"]: method["curve"] for method in document["methods"]}
    assert curves["linear/cross_entropy"] is None
    curve = curves["linear/exact"]
    assert [stage["step"] for stage in curve] == list(range(len(curve)))
    sigmas = [stage["sigma"] for stage in curve]
    assert len(curve) > 2 and sigmas == sorted(sigmas, reverse=True) and sigmas[-1] < 1
    assert curve[-1]["expected"] > curve[0]["expected"]


def test_events_come_in_order_and_count_up(finished):
    _, _, events, _ = finished
    assert events[0].kind == "planned"
    assert [event.done for event in events if event.kind == "finished"] == list(range(1, 13))
    running = None
    for event in events[1:]:
        place = [event.specification[key] for key in ("method", "repeat", "fold")]
        if event.kind == "started":
            running = place
        else:
            assert place == running
            assert 0 < event.result["accuracy"] <= 1


def test_the_same_call_again_runs_nothing_and_gives_the_same_document(wine, finished):
    document, _, _, path = finished
    events = []
    again = compare(wine, store=path, observer=events.append, **QUICK)
    assert [event.kind for event in events] == ["planned"] + ["finished"] * 12
    assert all(event.stored for event in events[1:])
    for each in (document, again):
        assert each["methods"] == document["methods"]
    assert timeless(again) == timeless(document)


def test_more_methods_need_only_their_own_runs(wine, finished):
    _, runs, _, path = finished
    events = []
    more = {**QUICK, "losses": ["cross_entropy", "exact", "mixed"]}
    document = compare(wine, store=path, observer=events.append, **more)
    assert document["done"] == document["planned"] == 18
    begun = {event.specification["method"] for event in events if event.kind == "started"}
    assert begun == {"linear/mixed"}
    with Store(path) as store:
        assert store.runs()[:12] == runs


@pytest.mark.slow
def test_several_processes_give_the_same_document(wine, finished, tmp_path):
    document, *_ = finished
    parallel = compare(wine, store=tmp_path / "runs.sqlite", **{**QUICK, "jobs": 2})
    assert parallel["settings"]["jobs"] == 2
    assert timeless(parallel) == timeless(document)


def test_another_seed_deals_other_folds(wine, tmp_path):
    document = compare(wine, store=tmp_path / "one.sqlite", **SMALL)
    other = compare(wine, store=tmp_path / "other.sqlite", seed=1, **SMALL)
    assert other["methods"] != document["methods"]


def test_without_time_every_method_still_has_its_first_fold(wine, tmp_path):
    path = tmp_path / "runs.sqlite"
    document = compare(wine, store=path, time_budget=0, **SMALL)
    assert (document["complete"], document["done"], document["planned"]) == (False, 2, 6)
    for method in document["methods"]:
        assert [(fold["repeat"], fold["fold"]) for fold in method["folds"]] == [(0, 0)]
        assert method["accuracy"]["low"] is None
    assert document["advice"].startswith("So far, on 1 fold of 3: ")
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert compare(wine, store=path, **SMALL)["complete"]


def test_a_method_that_fails_is_kept_with_its_traceback_and_does_not_stop_others(
    wine, tmp_path, monkeypatch
):
    path = tmp_path / "runs.sqlite"
    events = []
    with monkeypatch.context() as patch:
        # AccuracyClassifier refuses it.
        grid = linear.Linear.grid
        patch.setattr(
            linear.Linear,
            "grid",
            lambda self, loss, n: [{"sigma": -1.0}] if loss == "exact" else grid(self, loss, n),
        )
        document = compare(wine, store=path, observer=events.append, **QUICK)
        methods = {method["name"]: method for method in document["methods"]}
        assert len(methods["linear/cross_entropy"]["folds"]) == 6
        failed = methods["linear/exact"]
        assert (failed["folds"], failed["accuracy"]["n"]) == ([], 0)
        assert len(failed["failures"]) == 6
        assert failed["failures"][0].startswith("repeat 1, fold 1: ValueError: ")
        assert "sigma=-1.0" in failed["failures"][0]
        assert (document["complete"], document["done"]) == (False, 6)
        assert "nothing to compare" in document["advice"]
        assert sum(event.kind == "failed" for event in events) == 6
        json.dumps(document, allow_nan=False)

        events.clear()
        compare(wine, store=path, observer=events.append, **QUICK)
        assert not [event for event in events if event.kind in ("started", "failed")]
        compare(wine, store=path, observer=events.append, retry=True, **QUICK)
        assert sum(event.kind == "failed" for event in events) == 6


def test_a_candidate_that_fails_is_passed_over(wine, tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    monkeypatch.setattr(linear, "STRENGTHS", (-1.0, 1.0))
    compare(wine, store=path, **{**QUICK, "losses": ["cross_entropy"], "repeats": 1})
    with Store(path) as store:
        for run in store.runs():
            assert run.result["parameters"] == {"C": 1.0}
            assert "InvalidParameterError" in run.result["trials"][0]["error"]


def test_ctrl_c_keeps_what_is_done_and_shows_it(wine, tmp_path):
    path = tmp_path / "runs.sqlite"

    def press(event):
        if event.kind == "finished" and event.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        compare(wine, store=path, observer=press, **SMALL)
    assert isinstance(caught.value, KeyboardInterrupt)
    partial = caught.value.document
    assert (partial["done"], partial["complete"]) == (3, False)
    assert compare(wine, store=path, **SMALL)["complete"]


@pytest.mark.skipif(os.name != "posix", reason="sends a signal to this process")
def test_a_network_that_ctrl_c_stopped_early_is_no_result(wine, tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    accuracy, epochs = network._accuracy, []

    # Pressed in the third epoch, after which a network is content to stop.
    def press(*arguments):
        epochs.append(len(epochs) + 1)
        if len(epochs) == 3:
            signal.raise_signal(signal.SIGINT)
        return accuracy(*arguments)

    monkeypatch.setattr(network, "_accuracy", press)
    with pytest.raises(Interrupted):
        compare(wine, store=path, models=["mlp"], jobs=1)
    assert epochs == [1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Store(path) as store:
        assert store.runs() == []


def test_two_comparisons_do_not_share_a_store_at_the_same_time(wine, tmp_path):
    path = tmp_path / "runs.sqlite"
    with only_one(path), pytest.raises(BadInput) as caught:
        compare(wine, store=path, **QUICK)
    assert f"process {os.getpid()}" in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_small_class_makes_fewer_folds_with_a_note(tmp_path):
    table = small_table(["a"] * 30 + ["b"] * 30 + ["c"] * 3)
    document = compare(table, store=tmp_path / "runs.sqlite", **{**SMALL, "folds": 5})
    assert document["settings"]["folds"] == 3
    assert document["complete"]
    assert "3 folds instead of 5: the smallest class has 3 rows" in document["table"]["notes"]


def test_a_class_of_two_rows_still_works(tmp_path):
    table = small_table(["a"] * 10 + ["b"] * 2 + ["c"] * 10)
    document = compare(table, store=tmp_path / "runs.sqlite", **SMALL)
    assert (document["settings"]["folds"], document["complete"]) == (2, True)


@pytest.mark.parametrize(
    ("labels", "complaint"), [(["a"] * 9, "one class only"), (["a"] * 9 + ["b"], "one row only")]
)
def test_classes_that_cannot_be_learned_are_refused(labels, complaint, tmp_path):
    with pytest.raises(BadInput, match=complaint):
        compare(small_table(labels), store=tmp_path / "runs.sqlite", **QUICK)


@pytest.mark.parametrize(
    "wrong", [{"folds": 1}, {"repeats": 0}, {"jobs": 0}, {"trials": 0}, {"time_budget": -1}]
)
def test_a_setting_that_cannot_be_is_named_with_its_value(wine, wrong, tmp_path):
    ((name, value),) = wrong.items()
    with pytest.raises(BadInput, match=f"{name}={value}"):
        compare(wine, store=tmp_path / "runs.sqlite", **{**QUICK, **wrong})
    assert not list(tmp_path.iterdir())


def test_folds_share_out_every_class():
    target = np.repeat([0, 1, 2], [50, 20, 7])
    assert possible_folds(target, 5) == (5, None)
    parts = fold_rows(target, 5, repeat=0, seed=0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(77))
    for part in parts:
        assert np.bincount(target[part])[:2].tolist() == [10, 4]
        assert (target[part] == 2).any()


def test_the_inner_split_holds_out_a_fifth_of_each_class_and_never_all_of_one():
    target = np.repeat([0, 1, 2, 3], [50, 10, 2, 1])
    inside, judged = inner_split(target, 0)
    assert sorted([*inside, *judged]) == list(range(63))
    assert np.bincount(target[judged], minlength=4).tolist() == [10, 2, 1, 0]
    assert set(target[inside]) == {0, 1, 2, 3}
