"""Other metrics than accuracy: their numbers, and comparisons that are tuned and ranked by them."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from comparisons import run, timeless
from rich.console import Console
from sklearn import metrics as theirs
from typer.testing import CliRunner

from hitrate_lab.bad_input import BadInput
from hitrate_lab.cli.app import app
from hitrate_lab.cli.ranking import show
from hitrate_lab.cli.watching import ComparisonWatcher
from hitrate_lab.compare.advice import advise
from hitrate_lab.compare.comparison import compare, plan_of
from hitrate_lab.compare.document import Settings, document
from hitrate_lab.compare.fit import fit_table
from hitrate_lab.compare.folds import codes, fold_rows
from hitrate_lab.metrics import METRICS, Metric, described_metric, metric_named
from hitrate_lab.models.methods import Method
from hitrate_lab.report import render
from hitrate_lab.report.page import view
from hitrate_lab.runs.events import Event
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.tables import Table, read_table

CE, EXACT = "linear/cross_entropy", "linear/exact"
QUICK = {"models": ["linear"], "folds": 4, "repeats": 1, "trials": 2, "jobs": 1}
# Of "often", "rare" and "some": to miss the rare class is the worst.
COSTS = [[0, 1, 1], [5, 0, 5], [1, 0.5, 0]]
SETTINGS = Settings(("linear",), ("cross_entropy", "exact"), folds=2, repeats=1, trials=1, seed=0)


def predictions(rows=200, classes=7, missing=()):
    """Truth, predictions and probabilities; some classes may be without rows."""
    random = np.random.default_rng(0)
    there = np.setdiff1d(np.arange(classes), missing)
    truth = random.choice(there, rows)
    p = random.dirichlet(np.full(classes, 0.7), rows)
    p[np.arange(rows), truth] += random.uniform(0, 0.5, rows)
    p /= p.sum(1, keepdims=True)
    return truth, p.argmax(1), p, classes


@pytest.fixture(scope="module")
def uneven():
    """A table with a rare class that is hard to tell, so that the metrics disagree."""
    random = np.random.default_rng(3)
    label = np.repeat(["often", "rare", "some"], [90, 18, 42])
    shift = {"often": 0.0, "rare": 1.2, "some": -1.5}
    frame = pd.DataFrame(
        {
            "size": [random.normal(shift[each]) for each in label],
            "age": [random.normal(shift[each] ** 2 / 2) for each in label],
        }
    )
    return Table("uneven", frame, pd.Series(label), (), "fingerprint of uneven", "label")


@pytest.mark.parametrize("missing", [(), (2, 6)])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("accuracy", lambda y, said, p, c: theirs.accuracy_score(y, said)),
        ("balanced_accuracy", lambda y, said, p, c: theirs.balanced_accuracy_score(y, said)),
        ("macro_f1", lambda y, said, p, c: theirs.f1_score(y, said, average="macro")),
        ("log_loss", lambda y, said, p, c: theirs.log_loss(y, p, labels=range(c))),
        *(
            (
                f"top_{k}",
                lambda y, said, p, c, k=k: theirs.top_k_accuracy_score(y, p, k=k, labels=range(c)),
            )
            for k in (2, 3, 5)
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
def test_numbers_are_those_of_scikit_learn(name, function, missing):
    found = predictions(missing=missing)
    assert METRICS[name](*found) == pytest.approx(function(*found), abs=1e-12)


def test_every_metric_is_within_its_bounds_and_best_where_all_is_right():
    right = np.arange(7)
    for metric in METRICS.values():
        value = metric(*predictions())
        assert metric.clipped(value) == value
        best = metric(right, right, np.eye(7), 7)
        assert best == metric.bounds[1 if metric.is_better_higher else 0]


def test_top_k_of_equal_probabilities_is_that_of_scikit_learn():
    truth, p = np.arange(6) % 3, np.full((6, 3), 1 / 3)
    p[:2] = [0.4, 0.4, 0.2]
    expected = theirs.top_k_accuracy_score(truth, p, k=2, labels=range(3))
    assert METRICS["top_2"](truth, p.argmax(1), p, 3) == expected


def test_the_calibration_error_is_that_of_the_report():
    truth, said, p, _ = predictions(rows=6, classes=2)
    # The store keeps four digits.
    p = np.round(p, 4)
    sure = p[np.arange(6), said].tolist()
    table = Table(
        "six", pd.DataFrame({"x": range(6)}), pd.Series(truth).map({0: "a", 1: "b"}), (), "", "y"
    )
    found = document(table, SETTINGS, [run(CE, 0, 0, range(6), said.tolist(), sure)])
    (entry,) = (entry for entry in found["methods"] if entry["name"] == CE)
    gap = sum(
        each["count"] * abs(each["confidence"] - each["accuracy"]) for each in entry["reliability"]
    )
    assert METRICS["calibration_error"](truth, said, p, 2) == pytest.approx(gap / 6, abs=1e-12)


def test_a_number_that_is_none_is_refused():
    metric = Metric("odd", "odd", function=lambda *_: float("nan"))
    with pytest.raises(ValueError, match="metric 'odd' of 200 rows is nan"):
        metric(*predictions())
    truth, said, _, classes = predictions()
    with pytest.raises(ValueError, match="metric 'log_loss' needs probabilities"):
        METRICS["log_loss"](truth, said, None, classes)


@pytest.mark.parametrize("name", METRICS)
def test_a_description_survives_the_way_through_json(name):
    metric = METRICS[name]
    read = described_metric(json.loads(json.dumps({"metric": metric.described()})))
    assert read.described() == metric.described()
    assert described_metric({}) is METRICS["accuracy"]


@pytest.mark.parametrize(
    "given", [{}, {"bounds": [None]}, {"bounds": 5}, {"bounds": ["x", True, 3], "words": 5}]
)
def test_a_damaged_description_still_reads(given):
    assert described_metric({"metric": given}).text(0.5)


@pytest.mark.parametrize("name", [name for name in METRICS if name not in ("accuracy", "top_3")])
def test_a_comparison_is_about_its_metric(uneven, name, tmp_path, capsys):
    settings, metric = QUICK, METRICS[name]
    if metric.needs_costs:
        settings = {**QUICK, "costs": COSTS}
        metric = metric_named(name, 3, COSTS)
    if metric.fewest_classes > 3:
        with pytest.raises(BadInput, match="'top_5' needs 6 classes or more, and the table has 3"):
            compare(uneven, store=tmp_path / "runs.sqlite", metric=name, **settings)
        return
    found = compare(uneven, store=tmp_path / "runs.sqlite", metric=name, **settings)
    assert found["complete"] and found["metric"] == metric.described()
    with Store(tmp_path / "runs.sqlite") as store:
        runs = store.runs()
    target = codes(uneven)
    for each in runs:
        assert metric.specification.items() <= each.specification.items()
        # What the fold's predictions give, where these are all that it takes.
        if not metric.needs_probabilities:
            rows, said = each.result["rows"], np.array(each.result["predicted"])
            assert each.result["score"] == metric(target[rows], said, None, 3)
        # The first of the best candidates was taken, where there are several.
        tried = each.result["trials"] or [{"parameters": {}, "score": 0.0}]
        scores = [metric.sign * trial["score"] for trial in tried]
        assert each.result["parameters"] == tried[int(np.argmax(scores))]["parameters"]
    if name == "log_loss":
        assert all(each.result["score"] == each.result["log_loss"] for each in runs)
    means = [metric.sign * method["score"]["mean"] for method in found["methods"]]
    assert means == sorted(means, reverse=True)
    methods = {method["name"]: method for method in found["methods"]}
    for method in methods.values():
        folds = [fold["score"] for fold in method["folds"]]
        assert method["score"]["mean"] == pytest.approx(np.mean(folds))
        assert method["accuracy"]["mean"] == pytest.approx(
            np.mean([fold["accuracy"] for fold in method["folds"]])
        )
    gap = methods[EXACT]["score"]["mean"] - methods[CE]["score"]["mean"]
    assert methods[EXACT]["difference"]["mean"] == pytest.approx(gap)
    assert metric.words in found["advice"]

    show(found)
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert f" {metric.words} " in head and " accuracy " in head and " training " in head
    # Both accuracies are shares, whatever the metric is.
    assert first.count("%") == (3 if metric.is_share else 2)
    page = render(found)
    assert f"Mean {metric.words}" in page and "Mean accuracy" not in page
    assert f"{metric.best.capitalize()} mean {metric.words}" in page
    assert ("Difference, points" in page) == metric.is_share
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_another_metric_runs_anew_and_the_first_is_as_it_was(uneven, tmp_path):
    path, before = tmp_path / "runs.sqlite", []
    first = compare(uneven, store=path, observer=before.append, **QUICK)
    assert "metric" not in first
    assert all("score" not in method for method in first["methods"])
    events = []
    compare(uneven, store=path, metric="macro_f1", observer=events.append, **QUICK)
    assert sum(event.kind == "started" for event in events) == 8
    again = compare(uneven, store=path, metric="accuracy", observer=events.append, **QUICK)
    assert timeless(again) == timeless(first)
    assert all(event.stored for event in events[-8:])
    with Store(path) as store:
        assert len(store.runs()) == 16


def test_keys_of_accuracy_do_not_mention_it(uneven):
    plan = plan_of(uneven, SETTINGS)
    assert all("metric" not in spec for spec in plan)
    other = plan_of(uneven, replace(SETTINGS, metric=METRICS["top_2"]))
    assert [{**spec, "metric": "top_2"} for spec in plan] == other
    assert not {key_of(spec) for spec in plan} & {key_of(spec) for spec in other}


def test_folds_are_the_same_for_every_metric(uneven, tmp_path):
    found = {}
    for name in ("accuracy", "balanced_accuracy"):
        path = tmp_path / f"{name}.sqlite"
        compare(uneven, store=path, metric=name, **QUICK)
        with Store(path) as store:
            found[name] = [run.result["rows"] for run in store.runs()]
    assert found["accuracy"] == found["balanced_accuracy"]
    assert found["accuracy"][0] == fold_rows(codes(uneven), 4, 0, 0)[0].tolist()


def worst_class(y_true, y_pred, probabilities, classes):
    """The share of right rows of the class that has the smallest."""
    return min(np.mean(y_pred[y_true == k] == k) for k in np.unique(y_true))


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_metric_is_added_in_one_place(uneven, jobs, tmp_path, monkeypatch, capsys):
    own = Metric("worst_class", "accuracy of the worst class", function=worst_class)
    monkeypatch.setitem(METRICS, own.name, own)
    settings = {**QUICK, "jobs": jobs}
    found = compare(uneven, store=tmp_path / "runs.sqlite", metric=own.name, **settings)
    assert found["complete"]
    with Store(tmp_path / "runs.sqlite") as store:
        for each in store.runs():
            rows, said = each.result["rows"], np.array(each.result["predicted"])
            assert each.result["score"] == worst_class(codes(uneven)[rows], said, None, 3)
    monkeypatch.undo()
    # The document says all that its readers need.
    show(found)
    assert "accuracy of the worst class" in capsys.readouterr().out.splitlines()[0]
    assert "Mean accuracy of the worst class, %" in render(found)


def test_a_metric_that_is_none_is_told_with_those_that_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["compare", "wine"], ["fit", "wine", "--out", "model"]):
        found = CliRunner().invoke(app, [*words, "--metric", "f1"])
        assert found.exit_code == 2
        (line,) = found.stderr.splitlines()
        assert line.endswith(f"metric 'f1' is not one of {', '.join(METRICS)}")
    found = CliRunner().invoke(app, ["compare", "digits", "wine", "--metric", "top_3"])
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []


class Silent:
    """An estimator without probabilities."""

    def fit(self, x, y):
        raise AssertionError("is not to be fitted")


def test_a_method_without_probabilities_is_named(uneven, tmp_path, monkeypatch):
    build = Method.build

    def silent(method, parameters, seed):
        return Silent() if method.name == EXACT else build(method, parameters, seed)

    monkeypatch.setattr(Method, "build", silent)
    with pytest.raises(BadInput, match="'log_loss' needs probabilities, and linear/exact has none"):
        compare(uneven, store=tmp_path / "runs.sqlite", metric="log_loss", **QUICK)


def test_the_command_names_the_metric_everywhere(uneven, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    uneven.features.assign(label=uneven.target).to_csv("uneven.csv", index=False)
    words = ["compare", "uneven.csv", "--target", "label", "--models", "linear", "--jobs", "1"]
    words += ["--repeats", "1", "--trials", "2", "--metric", "balanced_accuracy"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.stderr
    assert "balanced accuracy" in found.stdout.splitlines()[0]
    (following,) = re.findall(r"Next: +hitrate (.*)", found.stdout)
    assert " --metric balanced_accuracy " in following
    fitted = CliRunner().invoke(app, following.split())
    assert fitted.exit_code == 0, fitted.stderr
    kept = json.loads((tmp_path / "hitrate-uneven" / "comparison.json").read_text())
    assert kept["metric"]["name"] == "balanced_accuracy"


def test_a_fit_chooses_by_the_metric(uneven, monkeypatch):
    backwards = replace(METRICS["log_loss"], name="backwards", is_better_higher=True)
    monkeypatch.setitem(METRICS, "backwards", backwards)
    monkeypatch.setattr(Method, "candidates", lambda *_: [{"C": 1e-4}, {"C": 100.0}])
    for name, strength in (("log_loss", 100.0), ("backwards", 1e-4)):
        assert fit_table(uneven, CE, metric=name).about.parameters == {"C": strength}


def entries(scores, metric):
    """Methods of a document with these numbers of folds."""
    found = []
    for name, values in scores.items():
        gains = np.subtract(values, scores[CE])
        found.append(
            {
                "name": name,
                "label": "logistic regression" if name == CE else "linear, EXACT",
                "model": "linear",
                "difference": None
                if name == CE
                else {"mean": gains.mean(), "low": None, "high": None, "p_holm": 0.001},
                "folds": [{"repeat": 0, "fold": k, "score": v} for k, v in enumerate(values)],
                "fit_seconds": 1.0,
            }
        )
    return sorted(found, key=lambda entry: -metric.sign * entry["folds"][0]["score"])


@pytest.mark.parametrize(
    ("name", "gains", "sentence"),
    [
        ("balanced_accuracy", 0.02, "balanced accuracy 2.5 points higher than with"),
        ("log_loss", -0.02, "log loss 0.025 lower than with"),
        ("calibration_error", -0.02, "calibration error 2.5 points lower than with"),
    ],
)
def test_the_advice_says_how_much_better_the_metric_is(name, gains, sentence):
    metric = METRICS[name]
    base = [0.5, 0.51, 0.52, 0.5, 0.53]
    other = [each + gains * step for each, step in zip(base, [1, 1.5, 1, 1.5, 1.25], strict=True)]
    options = {"rows": 500, "folds": 5, "repeats": 1, "metric": metric}
    found = advise(entries({CE: base, EXACT: other}, metric), CE, **options)
    assert found.method == EXACT
    assert f"Use linear, EXACT: {sentence} logistic regression (95 % interval " in found.sentence
    low, high = map(float, re.search(r"interval (\S+) to (\S+)\)", found.sentence).groups())
    assert 0 < low < high
    # The other way round, nothing is gained.
    worse = advise(entries({CE: other, EXACT: base}, metric), CE, **options)
    assert worse.method == CE
    assert worse.sentence == f"No method beats logistic regression in {metric.words} here; keep it."
    few = advise(entries({CE: other, EXACT: base}, metric), CE, **{**options, "rows": 60})
    assert few.sentence.startswith(f"With 60 rows differences in {metric.words} cannot be told")


def test_several_tables_are_ranked_by_the_metric(uneven, tmp_path):
    tables = [uneven, *map(read_table, ("iris", "wine"))]
    parts = [
        compare(table, store=tmp_path / "runs.sqlite", metric="log_loss", **QUICK)
        for table in tables
    ]
    together = {"format": "hitrate comparisons", "version": 1, "comparisons": parts}
    shown = view(together)
    scores = [{m["name"]: m["score"]["mean"] for m in part["methods"]} for part in parts]
    first = [1 + (each[CE] > each[EXACT]) for each in scores]
    ranks = {method["label"]: method["rank"] for method in shown["ranks"]["methods"]}
    assert ranks["logistic regression"] == pytest.approx(np.mean(first))
    for row in shown["table"]:
        best = min(cell["value"] for cell in row["cells"])
        assert all(cell["is_best"] == (cell["value"] == best) for cell in row["cells"])
    assert " ranks best in log loss on average over 3 data sets" in shown["headline"]
    page = render(together)
    assert "Mean log loss over the test folds; the lowest of each data set" in page
    assert "the method with the lowest mean log loss has rank 1" in page
    # Ranks of different metrics are not mixed.
    mixed = {**together, "comparisons": [parts[0], compare_quick(tables[1], tmp_path)]}
    assert view(mixed)["ranks"] is None
    assert "2 data sets, each compared on its own." in render(mixed)


def compare_quick(table, folder):
    return compare(table, store=folder / "runs.sqlite", **QUICK)


def test_what_is_lower_and_better_looks_better_on_the_page():
    metric = METRICS["log_loss"]
    table = Table("four", pd.DataFrame({"x": range(4)}), pd.Series(list("abab")), (), "", "y")
    runs = [
        run(name, 0, fold, [2 * fold, 2 * fold + 1], [0, 1], score=score, log_loss=score)
        for name, scores in ((CE, (0.7, 0.6)), (EXACT, (0.3, 0.21)))
        for fold, score in enumerate(scores)
    ]
    found = document(table, replace(SETTINGS, metric=metric), runs)
    shown = view(found)
    best, base = shown["methods"]
    assert (best["name"], best["rank"], base["rank"]) == (EXACT, 1, 2)
    assert (best["score_text"], best["difference_text"]) == ("0.255", "−0.40")
    assert best["difference_interval"] == "−0.51 to −0.28"
    assert shown["folds"]["panels"][0]["summary"] == "better on 2 of 2 folds"
    assert best["accuracy_text"] == "50.0\u00a0%"
    page = render(found)
    assert "the further left, the better" in page
    assert page.count('class="fold better"') == 2


def test_what_runs_is_told_by_the_metric():
    where = Console(file=StringIO(), force_terminal=True, width=80, highlight=False)
    watch = ComparisonWatcher("wine", {EXACT: "EXACT"}, where, METRICS["log_loss"])
    spec = {"method": EXACT, "repeat": 0, "fold": 0}
    watch(Event("finished", 1, 0, 2, spec, {"accuracy": 0.5, "score": 0.25}))
    where.print(watch)
    shown = where.file.getvalue()
    assert "log loss so far" in shown and "0.2500" in shown and "%" not in shown


def test_the_page_has_a_row_for_every_metric():
    page = (Path(__file__).parents[3] / "docs" / "command_line.md").read_text(encoding="utf-8")
    table = page.split("## Other metrics")[1].split("## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")][1:]
    told = {
        name: better.strip()
        for first, _, better in (row[1:4] for row in rows)
        for name in re.findall("`([a-z0-9_]+)`", first)
    }
    assert told == {
        name: "higher" if metric.is_better_higher else "lower" for name, metric in METRICS.items()
    }


def test_metric_names_are_what_the_registry_has():
    assert [metric.name for metric in METRICS.values()] == list(METRICS)
    assert metric_named("top_3", 4).words == "top-3 accuracy"
