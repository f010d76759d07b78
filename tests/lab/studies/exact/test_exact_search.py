"""A search for parameters: what is tried, by which rows it is judged, and what is chosen."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from watched import environment

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import document, find_study, plan_of, read_study, run_study
from hitrate_lab.studies.exact import search as exact_search
from hitrate_lab.studies.exact import tables as exact_tables

PROTOCOL = exact_search.ExactSearch()
pytest.importorskip("optuna")

METHODS = ("scikit-learn", "EXACT")
DATA_SETS = ("exact/wine", "exact/car")


def written(folder, more="", trials=4, values="learning_rate = [0.05, 0.5, 5]"):
    """A short search by two methods, and perhaps more of them."""
    path = folder / "short.toml"
    path.write_text(f"""
name = "short"
title = "Short"
reproduces = "nothing"
protocol = "exact search"
seeds = [3, 4]
data_sets = {json.dumps(DATA_SETS)}

[measures]
train_accuracy = "Training accuracy, %"
test_accuracy = "Test accuracy, %"

[settings]
follow = "tables"
split = 0
steps = 40
batch_size = 64
momentum = 0.9
weight_decay = 0.01
first_weights = "small"
last_learning_rate = 1e-4
sigma_first = 10
sigma_last = 0.01

[settings.search]
trials = {trials}
validation = 0.2
seed = 1

[[methods]]
name = "scikit-learn"
model = "logistic regression"
seeds = [0]

[methods.values]
regularization = [0, 0.1, 10, 1000]

[[methods]]
name = "EXACT"
model = "sgd"
loss = "exact"
sigma = "geometric"
normalize_gradient = true

[methods.values]
{values}
margin = [0.1, 1]
{more}""")
    return path


@pytest.fixture(scope="module")
def searched(published, tmp_path_factory):
    """A search that has ended: the study, its store, and results by place and stage."""
    folder = tmp_path_factory.mktemp("search")
    study, store = read_study(written(folder)), folder / "runs.sqlite"
    status = run_study(study, store=store, jobs=1, data_dir=published)
    assert (status.planned, status.done) == (2 * 2 * 4 + 2 * 3, 22)
    return study, store, by_place(stored(store))


def stored(store):
    with Store(store) as runs:
        return [(run.specification, run.result) for run in runs.runs()]


def by_place(runs):
    found = {}
    for spec, result in runs:
        place = found.setdefault((spec["data_set"], spec["method"]), {"trial": [], "final": []})
        place[spec["stage"]].append((spec, result))
    return found


def first_best(trials):
    """The number of the trial with the highest accuracy, the first where several have it."""
    assert [spec["trial"] for spec, _ in trials] == list(range(len(trials)))
    return int(np.argmax([result["validation_accuracy"] for _, result in trials]))


def test_trials_are_drawn_from_the_values_and_each_method_has_as_many():
    study = find_study("exact_search")
    trials = [spec for spec in plan_of(study) if spec["stage"] == "trial"]
    places = by_place((spec, None) for spec in trials)
    assert len(places) == 10 * 5
    for method in study.methods:
        of_sets = [
            [spec["training"] for spec, _ in places[data_set, method.name]["trial"]]
            for data_set in study.data_sets
        ]
        # All data sets get the same fifty.
        assert all(each == of_sets[0] for each in of_sets) and len(of_sets[0]) == 50
        values = method.settings["values"]
        for key, listed in values.items():
            assert {training[key] for training in of_sets[0]} == set(listed)
        rest = [
            {key: value for key, value in training.items() if key not in values}
            for training in of_sets[0]
        ]
        assert all(each == rest[0] for each in rest)
    assert plan_of(study) == plan_of(find_study("exact_search"))


def test_a_seed_fixes_the_trials_and_what_is_not_tuned_stays_as_it_is(tmp_path):
    values = {"learning_rate": [0.1, 1.0], "margin": [0.0, 1.0, 2.0]}
    first, again, other = (exact_search.draw(values, 20, seed) for seed in (0, 0, 1))
    assert first == again != other
    study = read_study(written(tmp_path))
    for spec in plan_of(study):
        if spec["method"] == "EXACT" and spec["stage"] == "trial":
            assert (spec["training"]["weight_decay"], spec["training"]["clip"]) == (0.01, None)


def test_all_that_a_choice_depends_on_is_in_the_specification(tmp_path):
    path = written(tmp_path)
    before = {key_of(spec) for spec in plan_of(read_study(path))}
    for old, new in (("steps = 40", "steps = 50"), ("seed = 1", "seed = 2")):
        content = path.read_text()
        path.write_text(content.replace(old, new))
        after = {key_of(s) for s in plan_of(read_study(path)) if s["method"] == "EXACT"}
        assert len(after) == 2 * (4 + 2) and not after & before
        path.write_text(content)


def test_trials_are_judged_by_a_fifth_of_the_training_rows_and_by_no_test_row(published):
    # No two rows of car are the same.
    data = exact_tables.read("car", 0, "tables", published)
    (x, y), (x_held, y_held) = exact_search.held_out(data.X_train, data.y_train, 0.2, 0)
    assert len(y_held) == np.ceil(0.2 * len(data.y_train)) and len(y) + len(y_held) == 1382
    rows = {
        name: {(*row, label) for row, label in zip(*part, strict=True)}
        for name, part in {
            "train": (data.X_train, data.y_train),
            "fitted": (x, y),
            "held": (x_held, y_held),
            "test": (data.X_test, data.y_test),
        }.items()
    }
    assert len(rows["train"]) == 1382 and len(rows["test"]) == 346
    assert rows["fitted"] | rows["held"] == rows["train"]
    assert not rows["fitted"] & rows["held"] and not rows["held"] & rows["test"]


@pytest.mark.parametrize("data_set", DATA_SETS)
def test_accuracies_of_trials_are_those_of_scikit_learn(data_set, searched, published):
    data = exact_tables.read(data_set.removeprefix("exact/"), 0, "tables", published)
    fitted, held = exact_search.held_out(data.X_train, data.y_train, 0.2, 0)
    for spec, result in searched[2][data_set, "scikit-learn"]["trial"]:
        strength = spec["training"]["regularization"]
        model = LogisticRegression(C=1 / strength if strength else np.inf, max_iter=5000, tol=1e-6)
        model.fit(*fitted)
        assert result["fitted_accuracy"] == pytest.approx(model.score(*fitted))
        assert result["validation_accuracy"] == pytest.approx(model.score(*held))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("data_set", DATA_SETS)
def test_the_best_trial_is_used_with_each_seed_on_all_training_rows(
    data_set, method, searched, published
):
    study, store, places = searched
    trials, finals = (places[data_set, method][stage] for stage in ("trial", "final"))
    chosen = first_best(trials)
    data = exact_tables.read(data_set.removeprefix("exact/"), 0, "tables", published)
    parts = (data.X_train, data.y_train), (data.X_test, data.y_test)
    pairs = [(trials[chosen][0]["training"], spec["seed"]) for spec, _ in finals]
    assert [seed for _, seed in pairs] == ([0] if method == "scikit-learn" else [3, 4])
    expected = exact_tables.accuracies(parts, len(data.classes), pairs, "cpu")
    for (_, result), each in zip(finals, expected, strict=True):
        assert result["trial"] == chosen
        assert result["training"] == trials[chosen][0]["training"]
        assert result["validation_accuracy"] == trials[chosen][1]["validation_accuracy"]
        assert [result["train_accuracy"], result["test_accuracy"]] == each["accuracy"]
    report = document(study, store)
    for table, measure in zip(report["tables"], exact_tables.MEASURES, strict=True):
        (row,) = [row for row in table["rows"] if row["data_set"] == data_set]
        mean = 100 * np.mean([result[measure] for _, result in finals])
        assert row["cells"][method]["mean"] == pytest.approx(mean)
        assert row["cells"][method]["n"] == len(finals)
    (shown,) = [
        row
        for row in report["extra_tables"][0]["rows"]
        if row[:2] == [data_set.removeprefix("exact/"), method]
    ]
    assert shown[2] == str(chosen)


def test_a_trial_that_diverges_is_no_failure_and_never_chosen(published, tmp_path):
    hinge = """
[[methods]]
name = "hinge"
model = "sgd"
loss = "hinge"
rivals = "mean_over_rivals"
normalize_gradient = false

[methods.values]
learning_rate = [1e38, 0.1]
"""
    values = "learning_rate = [1e38, 0.5]"
    study = read_study(written(tmp_path, hinge, values=values))
    store = tmp_path / "runs.sqlite"
    status = run_study(study, store=store, jobs=1, data_dir=published)
    assert (status.done, status.failed) == (status.planned, 0)
    sound_rate = {"EXACT": 0.5, "hinge": 0.1}
    for (_, method), stages in by_place(stored(store)).items():
        if method not in sound_rate:
            continue
        rates = [spec["training"]["learning_rate"] for spec, _ in stages["trial"]]
        assert set(rates) == {1e38, sound_rate[method]}
        diverged = ["diverged" in result for _, result in stages["trial"]]
        assert diverged == [rate == 1e38 for rate in rates]
        chosen = {result["training"]["learning_rate"] for _, result in stages["final"]}
        assert chosen == {sound_rate[method]}
        # The others are as good as they are without it.
        sound = [pair for pair in stages["trial"] if "diverged" not in pair[1]]
        alone = PROTOCOL.run_batch([spec for spec, _ in sound], Context(published))
        assert [each["validation_accuracy"] for each in alone] == [
            result["validation_accuracy"] for _, result in sound
        ]


def test_of_trials_that_tie_the_first_is_taken_and_one_that_is_never_right_beats_none():
    def trial(number, accuracy, **more):
        return {"trial": number, "training": {}, "validation_accuracy": accuracy, **more}

    lost = trial(0, 0.0, diverged=True)
    assert exact_search.best_of([lost, trial(2, 0.5), trial(1, 0.5)])["trial"] == 1
    assert exact_search.best_of([lost, trial(1, 0.0)])["trial"] == 1
    with pytest.raises(FloatingPointError, match="all trials diverged"):
        exact_search.best_of([lost])


# What is replaced in the file, by what, and what is said about it.
WRONG = {
    "trials = 4": ("trials = 0", "settings.search.trials: needs a whole number of 1 or more"),
    "validation = 0.2": ("validation = 1", "settings.search.validation: needs a number below 1"),
    "seed = 1": ("seeds = 1", "settings.search.seed: is missing"),
    "[settings.search]": ("[settings.find]", "settings.search: is missing"),
    "sigma_last = 0.01": ("sigma_last = 0.01\ngradient_norms = 5", "settings.gradient_norms: "),
    "margin = [0.1, 1]": ("margin = 1", "methods[EXACT].values.margin: needs a list of numbers"),
    "regularization = [0,": ("margin = [0,", "values.margin: is no parameter here; there are reg"),
    'loss = "exact"\nsigma = "geometric"': (
        'loss = "cross_entropy"',
        "methods[EXACT].values.margin: is no parameter here; there are learning_rate, clip, weight",
    ),
    "learning_rate = [0.05,": ("clip = [0.05,", "values.learning_rate: is missing"),
    "learning_rate = [0.05, 0.5,": (
        "learning_rate = [0, 0.5,",
        "methods[EXACT].values.learning_rate: needs numbers above 0",
    ),
    '"exact/wine"': ('"uci121/wine"', "data_sets: 'uci121/wine' is none of exact/NAME"),
}


@pytest.mark.parametrize("old", WRONG)
def test_fields_of_this_protocol_are_checked(old, tmp_path):
    new, expected = WRONG[old]
    path = written(tmp_path)
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with pytest.raises(BadInput) as caught:
        read_study(path)
    assert str(caught.value).startswith(f"{path}: ") and expected in str(caught.value)


def test_without_optuna_one_line_says_what_to_install(tmp_path):
    command = """
import sys
sys.modules["optuna"] = None
from hitrate_lab.cli.app import app
app()
"""
    ended = subprocess.run(
        [sys.executable, "-c", command, "study", "run", written(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "hitrate: a search needs Optuna: pip install 'hitrate[search]'"
    ]


def test_the_committed_search_has_all_trials_and_used_the_best_of_each():
    study = find_study("exact_search")
    path = study.path.parent / "results" / "exact_search.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        runs = [(run["specification"], run["result"]) for run in map(json.loads, lines)]
    assert sorted(key_of(spec) for spec, _ in runs) == sorted(map(key_of, plan_of(study)))
    places = by_place(runs)
    assert len(places) == len(study.data_sets) * len(study.methods)
    seeds = {method.name: list(method.seeds) for method in study.methods}
    for (_, method), stages in places.items():
        trials = stages["trial"]
        # The same budget for all.
        assert len(trials) == 50 and {spec["seed"] for spec, _ in trials} == {0}
        assert all(0 <= result["validation_accuracy"] <= 1 for _, result in trials)
        assert all(result["training"] == spec["training"] for spec, result in trials)
        chosen = first_best(trials)
        assert "diverged" not in trials[chosen][1]
        assert [spec["seed"] for spec, _ in stages["final"]] == seeds[method]
        for _, result in stages["final"]:
            assert result["trial"] == chosen
            assert result["training"] == trials[chosen][0]["training"]
            assert result["validation_accuracy"] == trials[chosen][1]["validation_accuracy"]
