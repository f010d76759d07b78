"""What mistakes cost: a small table of the user's, from the file to the report."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hitrate_lab.bad_input import BadInput
from hitrate_lab.cli.app import app
from hitrate_lab.compare.comparison import compare
from hitrate_lab.compare.costs import read_costs
from hitrate_lab.metrics import METRICS, metric_named
from hitrate_lab.tables import Table

CLASSES = ["ill", "well"]
COSTS = [[0.0, 50.0], [1.0, 0.0]]
GOOD = "truth,well,ill\nill,50,0\nwell,0,1\n"


@pytest.fixture(scope="module")
def patients():
    """Few are ill, and they are hard to tell."""
    random = np.random.default_rng(0)
    label = np.repeat(["ill", "well"], [30, 90])
    frame = pd.DataFrame({"fever": random.normal(label == "ill"), "age": random.normal(size=120)})
    return Table("patients", frame, pd.Series(label), (), "fingerprint of patients", "state")


@pytest.fixture
def folder(patients, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patients.features.assign(state=patients.target).to_csv("patients.csv", index=False)
    (tmp_path / "costs.csv").write_text(GOOD)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "\ufeff,ill,well\n ill , 0, 50\n\nwell,1,0\n",
        "truth;ill;well\r\nwell;1;0\r\nill;0;50\r\n",
        'truth\till\twell\n"well"\t1e0\t0\nill\t0\t50.0\n',
    ],
)
def test_costs_are_read_in_the_order_of_the_classes(text, tmp_path):
    (tmp_path / "costs.csv").write_text(text, encoding="utf-8")
    assert read_costs(tmp_path / "costs.csv", CLASSES).tolist() == COSTS


def test_classes_that_are_numbers_and_truths_are_found_however_they_are_written(tmp_path):
    (tmp_path / "costs.csv").write_text("truth,true,0\nfalse,3,0\n1,0,7\n")
    for classes in ([False, True], [0, 1]):
        assert read_costs(tmp_path / "costs.csv", classes).tolist() == [[0.0, 3.0], [7.0, 0.0]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is no table of costs"),
        ("truth,ill,well\n", "is no table of costs"),
        ("truth\nill\n", "is no table of costs"),
        ("truth,ill,dead\nill,0,1\nwell,1,0\n", "column 'dead' is no class; there are 'ill'"),
        ("truth,ill,well\nill,0,1\ndead,1,0\n", "row 'dead' is no class; there are 'ill'"),
        ("truth,ill,well,ill\nill,0,1,0\nwell,1,0,0\n", "has two columns for class 'ill'"),
        ("truth,ill,well\nill,0,1\nill,1,0\n", "has two rows for class 'ill'"),
        ("truth,ill\nill,0\nwell,1\n", "has no column for 'well'"),
        ("truth,ill,well\nwell,1,0\n", "has no row for 'ill'"),
        ("truth,ill,well\nill,0\nwell,1,0\n", "row 'ill' has 1 costs and not 2"),
        ("truth,ill,well\nill,0,much\nwell,1,0\n", "row 'ill', column 'well': needs a number, not"),
        ("truth,ill,well\nill,0,nan\nwell,1,0\n", "needs a number, not 'nan'"),
        ("truth,ill,well\nill,0,1\nwell,1,", "needs a number, not ''"),
        ('truth,ill,well\n"ill,0,1\n', "is not CSV"),
    ],
)
def test_a_table_that_says_too_little_or_too_much_is_refused(text, complaint, tmp_path):
    (tmp_path / "costs.csv").write_text(text)
    with pytest.raises(BadInput) as caught:
        read_costs(tmp_path / "costs.csv", CLASSES)
    assert complaint in str(caught.value) and str(caught.value).startswith(str(tmp_path))
    assert len(str(caught.value).splitlines()) == 1


def test_files_that_are_no_text_are_refused(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_costs(tmp_path / "none.csv", CLASSES)
    (tmp_path / "costs.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        read_costs(tmp_path / "costs.csv", CLASSES)


def test_the_cost_is_that_of_what_was_decided():
    random = np.random.default_rng(0)
    truth, said = random.integers(3, size=(2, 200))
    costs = random.normal(size=(3, 3))
    metric = metric_named("cost", 3, costs)
    # Row by row.
    slow = sum(costs[y][k] for y, k in zip(truth, said, strict=True)) / 200
    assert metric(truth, said, None, 3) == pytest.approx(slow)
    assert metric.bounds == (costs.min(), costs.max()) and not metric.is_better_higher
    assert METRICS["cost"](truth, said, None, 3) == np.mean(truth != said)


@pytest.mark.parametrize(
    ("name", "costs", "complaint"),
    [
        ("cost", None, "metric 'cost' needs the costs of decisions (--cost FILE)"),
        ("accuracy", COSTS, "metric 'accuracy' has no use for costs"),
        ("cost", [[0, 1, 1]] * 3, "a row and a column for each class, not (3, 3)"),
        ("cost", [0, 1], "a row and a column for each class, not (2,)"),
        ("cost", [[0, np.inf], [1, 0]], "finite numbers"),
        ("cost", [[1, 1], [2, 2]], "decisions that differ in cost"),
    ],
)
def test_costs_that_say_nothing_are_refused(name, costs, complaint, patients, tmp_path):
    with pytest.raises(BadInput) as caught:
        compare(patients, store=tmp_path / "runs.sqlite", metric=name, costs=costs)
    assert complaint in str(caught.value)


def test_other_costs_run_anew(patients, tmp_path):
    settings = {"models": ["linear"], "folds": 3, "repeats": 1, "trials": 1, "jobs": 1}
    events = []
    for costs in (COSTS, [[0, 2], [1, 0]], COSTS):
        compare(
            patients,
            store=tmp_path / "runs.sqlite",
            metric="cost",
            costs=costs,
            observer=events.append,
            **settings,
        )
    assert sum(event.kind == "started" for event in events) == 12


def test_the_command_reads_costs_and_names_them_everywhere(folder):
    words = ["patients.csv", "--target", "state", "--metric", "cost", "--cost", "costs.csv"]
    quick = ["--models", "linear", "--repeats", "1", "--trials", "2", "--jobs", "1"]
    found = CliRunner().invoke(app, ["compare", *words, *quick])
    assert found.exit_code == 0, found.stderr
    assert " cost " in found.stdout.splitlines()[0]
    kept = json.loads((folder / "hitrate-patients" / "comparison.json").read_text())
    assert kept["settings"]["costs"] == COSTS
    assert kept["metric"]["bounds"] == [0.0, 50.0]
    page = (folder / "hitrate-patients" / "report.html").read_text(encoding="utf-8")
    assert "Lowest mean cost" in page and "0, 50; 1, 0" in page
    (following,) = re.findall(r"Next: +hitrate (.*)", found.stdout)
    assert " --metric cost --cost costs.csv " in following
    fitted = CliRunner().invoke(app, following.split())
    assert fitted.exit_code == 0, fitted.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--metric", "cost"], "needs the costs of decisions (--cost FILE)"),
        (["--cost", "costs.csv"], "metric 'accuracy' has no use for costs"),
        (["--metric", "cost", "--cost", "none.csv"], "none.csv: cannot be read"),
    ],
)
@pytest.mark.parametrize("command", [["compare"], ["fit", "--out", "model"]])
def test_metric_and_costs_go_together(command, words, complaint, folder):
    before = sorted(folder.iterdir())
    found = CliRunner().invoke(app, [*command, "patients.csv", "--target", "state", *words])
    assert found.exit_code == 2
    (line,) = found.stderr.splitlines()
    assert complaint in line
    assert sorted(folder.iterdir()) == before
