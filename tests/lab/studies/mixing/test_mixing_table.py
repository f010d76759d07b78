"""The study of Mixing's Table 4: its file, its runs and its statistics."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from broken_study import complaint_of

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets import names
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import document, markdown, read_study, run_study, status_of
from hitrate_lab.studies.mixing import table as mixing_table
from hitrate_lab.studies.mixing.summary import summary, tables
from hitrate_lab.studies.results import load
from hitrate_lab.training.batched import History, Optimizer, Setting, Split, Variant, train_one

PROTOCOL = mixing_table.MixingTable()
FOLDER = Path(__file__).resolve().parents[4] / "studies"
# The paper's losses, and these with more.
SIX, FILE = FOLDER / "mixing_table_4.toml", FOLDER / "mixing_table_4_more.toml"


@pytest.fixture(scope="module")
def study():
    return read_study(FILE)


def test_the_study_has_all_published_sets_but_miniboone(study, tmp_path):
    assert list(study.data_sets) == [
        f"uci121/{name}" for name in names("uci121", data_dir=tmp_path)
    ]
    assert len(study.data_sets) == 120


def test_the_plan_has_a_run_for_each_set_and_architecture(study):
    plan = PROTOCOL.plan(study)
    assert len({json.dumps(spec, sort_keys=True) for spec in plan}) == len(plan) == 240
    assert {(spec["data_set"], spec["model"]) for spec in plan} == {
        (name, model) for name in study.data_sets for model in ("linear", "one hidden layer")
    }
    for spec in plan[:1]:
        assert json.loads(json.dumps(spec)) == spec
        assert (spec["epochs"], spec["batch_size"]) == (50, 8)
        assert spec["learning_rates"] == [0.01, 0.005, 0.001]
        assert len(spec["seeds"]) == 2


def test_the_paper_ranks_methods_that_tie_at_the_best_of_their_places(study):
    # Mean places of six methods add up to 21, whatever ties.
    for model, total in (("linear", 15.78), ("one hidden layer", 16.64)):
        ranks = [
            numbers[model]["rank"]
            for method in study.methods
            if (numbers := mixing_table.printed(study, method))
        ]
        assert len(ranks) == 6
        assert sum(ranks) == pytest.approx(total)


@pytest.mark.parametrize("model", ["linear", "one hidden layer"])
def test_a_run_tells_what_plain_loops_find_and_validation_rows_choose(study, published, model):
    spec = next(
        spec
        for spec in PROTOCOL.plan(study)
        if (spec["data_set"], spec["model"]) == ("uci121/iris", model)
    )
    spec = {**spec, "epochs": 6}
    result = PROTOCOL.run(spec, Context(published))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    rows = result["train_rows"], result["validation_rows"], result["test_rows"]
    assert sum(rows) == 150
    assert (result["features"], result["classes"]) == (4, 3)
    assert (result["copies"], result["steps"]) == (72, 6 * -(-rows[0] // 8))
    assert result["not_finite"] == 0

    from hitrate_lab.datasets import read_uci

    split = Split.of(read_uci("iris", data_dir=published))
    setting = Setting(model, 6, 8, Optimizer(**spec["optimizer"]))
    for entry in (spec["methods"][0], spec["methods"][3], spec["methods"][5]):
        for place, seed in enumerate(spec["seeds"]):
            best = (-1, 0.0, 0, 0)
            for rate in spec["learning_rates"]:
                one = train_one(split, setting, Variant(**entry), rate, seed)
                epoch = int(one.validation.argmax())
                if one.validation[epoch] > best[0]:
                    best = int(one.validation[epoch]), rate, epoch + 1, int(one.test[epoch])
            assert result["chosen"][entry["name"]][place] == {
                "seed": seed,
                "learning_rate": best[1],
                "epoch": best[2],
                "validation_accuracy": best[0] / rows[1],
                "test_accuracy": best[3] / rows[2],
            }
    cells = PROTOCOL.cells(spec, result)
    assert len(cells) == 2 * len(study.methods)
    assert {cell[0] for cell in cells} <= set(study.measures)
    name, accuracy = cells[0][2], result["chosen"][cells[0][2]][0]["test_accuracy"]
    assert cells[0][1:] == ("uci121/iris", name, 100 * accuracy)


def test_the_engine_runs_the_study_and_reports_table_4(published, tmp_path):
    text = FILE.read_text(encoding="utf-8").replace("epochs = 50", "epochs = 2")
    listed = text[text.index("data_sets = [") : text.index("]\ndifferences")]
    text = text.replace(listed, 'data_sets = ["uci121/iris", "uci121/balloons"')
    path, store = tmp_path / FILE.name, tmp_path / "runs.sqlite"
    path.write_text(text, encoding="utf-8")
    study = read_study(path)
    status = run_study(study, store=store, jobs=1, data_dir=published)
    assert (status.planned, status.done, status.failed) == (4, 4, 0)
    report = document(study, store)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    titles = ["Table 4, linear", "Table 4, one hidden layer"]
    assert [table["title"] for table in report["extra_tables"]] == titles
    page = markdown(report)
    assert "| EL |" in page
    assert "2 data sets; each number is the mean over 2 seeds." in page


def test_the_first_of_epochs_that_tie_is_taken_and_the_last_is_told():
    validation = np.array([[[3, 1]], [[5, 5]], [[5, 2]]])
    history = History(validation, 10 * np.arange(6).reshape(3, 1, 2), [torch.zeros(1, 2, 1, 1)])
    assert mixing_table.best_of(history) == [
        [
            {"validation": 5, "epoch": 2, "test": 20, "last_epoch": 3, "last_test": 40},
            {"validation": 5, "epoch": 2, "test": 30, "last_epoch": 2, "last_test": 30},
        ]
    ]
    spec = {"seeds": [7], "learning_rates": [0.1, 0.01]}
    (found,) = mixing_table.chosen(history, spec, (10, 100))
    assert found == {
        "seed": 7,
        "learning_rate": 0.1,
        "epoch": 2,
        "validation_accuracy": 0.5,
        "test_accuracy": 0.2,
    }


def test_wins_gains_and_ranks_are_those_of_a_table_made_by_hand(study):
    # CE, F=0, F=0,0.5, F=0-0.5, EL, focal on two sets; the second seed has everything equal.
    table = {"a": [0.5, 0.6, 0.6, 0.7, 0.1, 0.2], "b": [0.9, 0.8, 0.9, 0.7, 0.9, 0.7]}
    listed = [method.name for method in study.methods]
    runs = []
    for data_set, row in table.items():
        row = row + [1.0] * (len(listed) - 6)
        chosen, best = {}, {}
        for name, each in zip(listed, row, strict=True):
            rates = [0.01, 0.001]
            chosen[name] = [
                {"test_accuracy": accuracy, "learning_rate": rate}
                for accuracy, rate in zip([each, 0.5], rates, strict=True)
            ]
            # The last epoch has one row of ten less.
            best[name] = [[{"last_test": 10 * each - 1}, {}], [{}, {"last_test": 5}]]
        spec = {"model": "linear", "split": 0, "seeds": [0, 1], "data_set": data_set}
        spec["learning_rates"] = rates
        best["EL"][0][0]["last_test"] -= 2
        runs.append((spec, {"chosen": chosen, "best": best, "test_rows": 10}))
    found = summary(study, runs)
    assert list(found) == ["linear"]
    methods = found["linear"]["methods"]
    assert list(methods) == listed[:6]
    assert found["linear"]["data_sets"] == 2
    wins = [(1 + 2) / 2, 1, 1.5, 1.5, 1.5, 1]
    assert [each["wins"] for each in methods.values()] == wins
    gains = [0, 0.0, 5.0, 0.0, -20.0, -25.0]
    assert [each["gain"] for each in methods.values()] == pytest.approx([g / 2 for g in gains])
    places = np.array([[4, 2, 2, 1, 6, 5], [1, 4, 1, 5, 1, 5], [1] * 6, [1] * 6])
    assert [each["rank"] for each in methods.values()] == pytest.approx(list(places.mean(0)))
    assert methods["EL"]["paper"] == {"wins": 33, "gain": -2.71, "rank": 3.25}
    assert found["linear"]["friedman"][1] == 1
    assert found["linear"]["apart"][1] == {}
    later = summary(study, runs, ties="last")["linear"]["methods"]
    assert [later[name]["gain"] for name in ("F=0,0.5", "EL")] == pytest.approx([2.5, -20.0])
    (table,) = tables(study, runs)
    assert table["rows"][4] == ["EL", "1.5", "33", "-10.00", "-2.71", "2.25", "3.25"]
    assert "EL -20.00" in table["text"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("epochs = 50", "epochs = 0", "settings.epochs: needs a whole number of 1 or more"),
        ("epochs = 50", "epochs = 50\nepoch = 3", "settings.epoch: is no field here"),
        ("splits = [0]", "splits = [4]", "settings.splits: needs some of 0, 1, 2, 3"),
        ('"linear", "one hidden layer"]', '"deep"]', "settings.models: 'deep' is none of linear"),
        ("[0.01, 0.005, 0.001]", "[0.01, 0]", "settings.learning_rates: needs .* above 0"),
        ('recipe = "mixed"', 'recipe = "mixd"', r"methods\[F=0\]: .*not one of 'annealed'"),
        (
            "sigma = 1.0 }",
            "sigma = 1.0, normalize = true }",
            r"methods\[EXACT\]: .*not a mean over rows",
        ),
        ('baseline = "CE"', 'baseline = "EXACT"', "baseline: 'EXACT' is no method with numbers"),
        ("linear = { wins = 33, gain = 0.00,", "linear = { wins = 33,", "gain: is missing"),
        ('"uci121/abalone"', '"exact/car"', "data_sets: 'exact/car' is none of uci121/NAME"),
        ('name = "sgd"', 'name = "sdg"', "settings.optimizer.name: needs one of"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_in_one_line(tmp_path, old, new, complaint):
    assert re.search(complaint, complaint_of(FILE, tmp_path, old, new, PROTOCOL.plan))


def test_methods_cannot_have_seeds_of_their_own(study):
    first = replace(study.methods[0], seeds=(5,))
    with pytest.raises(BadInput, match="all need the same seeds"):
        PROTOCOL.check(replace(study, methods=(first, *study.methods[1:])))


def test_the_study_of_the_paper_is_that_with_more_without_the_rest(study):
    six = read_study(SIX)
    assert six.data_sets == study.data_sets
    assert six.settings == study.settings
    assert list(six.methods) == list(study.methods)[:6]


def test_committed_runs_are_loaded_once(tmp_path):
    results = FOLDER / "results" / "mixing_table_4.jsonl.gz"
    store = tmp_path / "runs.sqlite"
    assert load(results, store) == 240
    assert load(results, store) == 0
    status = status_of(read_study(SIX), store)
    assert (status.done, status.failed, status.missing) == (240, 0, 0)


def test_a_file_that_holds_no_runs_is_said_in_one_line(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("{}\n")
    with pytest.raises(BadInput, match="is no file of runs"):
        load(path, tmp_path / "runs.sqlite")
    with pytest.raises(BadInput, match="is no file of runs"):
        load(tmp_path / "none.jsonl.gz", tmp_path / "runs.sqlite")
