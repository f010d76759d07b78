"""The study of escaping efficiency: its file, its runs and what it found."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from broken_study import complaint_of
from scipy.optimize import minimize

from hitrate.links import Mixed
from hitrate_lab.datasets import names, read_uci
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import read_study
from hitrate_lab.studies.mixing import escape as mixing_escape
from hitrate_lab.studies.report import stored_runs
from hitrate_lab.studies.results import load
from hitrate_lab.training.batched import Optimizer, Setting, Split, Variant, train_one
from hitrate_lab.training.curvature import Terms, exact_noise, flat, network_logits

PROTOCOL = mixing_escape.MixingEscape()
ROOT = Path(__file__).resolve().parents[4]
FILE = ROOT / "studies" / "mixing_escape.toml"
RESULTS = ROOT / "studies" / "results" / "mixing_escape.jsonl.gz"


@pytest.fixture(scope="module")
def study():
    return read_study(FILE)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("escape") / "runs.sqlite"
    load(RESULTS, path)
    return path


def spec_of(study, data_set, model, **changes):
    for spec in PROTOCOL.plan(study):
        if (spec["data_set"], spec["model"], spec["seed"]) == (f"uci121/{data_set}", model, 0):
            return {**spec, **changes}
    raise AssertionError(data_set)


@pytest.mark.slow
def test_data_sets_are_every_eleventh_by_their_training_rows(study, published):
    sizes = []
    for name in names("uci121", data_dir=published):
        rows, features = read_uci(name, data_dir=published).X_train.shape
        if features <= 64:
            sizes.append((rows, name))
    assert list(study.data_sets) == [f"uci121/{name}" for _, name in sorted(sizes)[5::11]]


def test_the_plan_has_a_run_for_each_set_architecture_and_seed(study):
    plan = PROTOCOL.plan(study)
    assert len({json.dumps(spec, sort_keys=True) for spec in plan}) == len(plan) == 40
    assert json.loads(json.dumps(plan[0])) == plan[0]
    mixtures = [mixing_escape.mixture(method) for method in plan[0]["methods"]]
    assert [(each.alpha, each.beta) for each in mixtures] == [
        (1, 0),
        (1, 1),
        (1, pytest.approx(5 / 3)),
        (1, pytest.approx(5)),
        (0, 1),
    ]


@pytest.mark.parametrize("model", ["linear", "one hidden layer"])
def test_a_run_measures_at_the_weights_of_a_plain_loop(study, published, model):
    changes = {"epochs": [0, 2], "minimum_steps": 0, "trained_with": ["CE", "EL"]}
    spec = spec_of(study, "wine", model, **changes)
    result = PROTOCOL.run(spec, Context(published))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["exact"]
    assert list(result["points"]) == ["CE", "EL"]
    split = Split.of(read_uci("wine", data_dir=published))
    setting = Setting(model, 2, 8, Optimizer("sgd", 0.9, 1e-4))
    x, y = split.train[0].double(), split.train[1]
    for name, recipe in (("CE", "cross_entropy"), ("EL", "expectation")):
        before, after = result["points"][name]
        assert (before["epoch"], after["epoch"]) == (0, 2)
        one = train_one(split, setting, Variant(name, recipe), spec["learning_rate"], 0)
        losses = [Mixed(1, 0), Mixed(1, 1), Mixed(0, 1)]
        logits = network_logits(setting.layers(split))
        noise, terms = exact_noise(logits, flat(one.weights), x, y, losses)
        for loss, each in zip(("CE", "F=0", "EL"), noise, strict=True):
            assert after["noise"][loss]["trace"] == pytest.approx(each.trace, rel=1e-5)
            assert after["noise"][loss]["norm"] == pytest.approx(each.norm, rel=1e-5)
        assert after["terms"]["hf"] == pytest.approx(terms.hf, rel=1e-5)
    assert result["points"]["CE"][0] == result["points"]["EL"][0]
    cells = PROTOCOL.cells(spec, result)
    assert {cell[0] for cell in cells} == {mixing_escape.MEASURES[model]}
    assert cells[0][1:] == ("uci121/wine", "CE", 1.0)
    tripled = {
        "a": {"trace": 27 * 0.3, "norm": 3 * 0.2},
        "b": {"trace": 0.3, "norm": 0.2},
        "c": {"trace": -1.0, "norm": 0.2},
    }
    assert mixing_escape.scale_free(tripled, "a", "b") == pytest.approx(1)
    assert mixing_escape.scale_free(tripled, "a", "c") is None


def test_many_rows_are_estimated_within_the_errors_that_are_told(study, published):
    changes = {"epochs": [1], "minimum_steps": 0, "trained_with": ["CE"], "draws": 200}
    spec = spec_of(study, "wine", "one hidden layer", **changes)
    (exact,) = PROTOCOL.run(spec, Context(published))["points"]["CE"]
    about = PROTOCOL.run({**spec, "exact_up_to": 0}, Context(published))
    assert not about["exact"]
    for name, each in about["points"]["CE"][0]["noise"].items():
        assert 0 < each["error"] < abs(each["trace"])
        assert abs(each["trace"] - exact["noise"][name]["trace"]) < 4 * each["error"]


def test_the_minimum_is_the_one_that_scipy_finds(study, published):
    spec = spec_of(study, "wine", "linear", minimum_steps=500)
    split = Split.of(read_uci("wine", data_dir=published))
    setting = Setting("linear", 1, 8, Optimizer("sgd", 0.9, 1e-2))
    start = torch.zeros(14 * 3, dtype=torch.float64)
    found = mixing_escape.lowest(spec, setting, split, Mixed(1, 0), start)
    x, y = split.train[0].double(), split.train[1]
    logits = network_logits([(13, 3)])

    def value(w):
        w = torch.from_numpy(w).requires_grad_()
        total = torch.nn.functional.cross_entropy(logits(w, x), y) + 0.005 * (w @ w)
        (slope,) = torch.autograd.grad(total, w)
        return total.item(), slope.numpy()

    other = minimize(value, start.numpy(), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert abs(value(found.numpy())[1]).max() < 1e-7
    torch.testing.assert_close(found, torch.from_numpy(other.x), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("epochs = [0, 1, 5", "epochs = [-1, 1, 5", "settings.epochs: needs a list of whole"),
        ("draws = 50", "draws = 1", "settings.draws: needs a whole number of 2 or more"),
        ('"F=0", "EL"]\n# Losses', '"F=1"]\n# Losses', "trained_with: 'F=1' is no method"),
        ('trained_with = ["CE", ', "trained_with = [", "trained_with: needs the baseline, 'CE'"),
        ('recipe = "expectation"', 'recipe = "focal"', r"methods\[EL\]: 'focal' is no sum of"),
        ('recipe = "expectation"', 'recipe = "mixed_gradual"', r"methods\[EL\]: .* is no sum of"),
        ('"uci121/wine"', '"exact/wine"', "data_sets: 'exact/wine' is none of uci121/NAME"),
        ("linear_scale_free =", "trace =", "measures: 'trace' is none of linear_scale_free"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_in_one_line(tmp_path, old, new, complaint):
    assert re.search(complaint, complaint_of(FILE, tmp_path, old, new, PROTOCOL.plan))


def test_the_committed_runs_show_what_the_page_says(study, store):
    traces = [
        (point["epoch"], point["noise"], Terms(**point["terms"]), run.specification["data_set"])
        for run in stored_runs(study, store)
        for point in run.result["points"]["CE"]
    ]
    assert len(traces) == 280
    later = [each for each in traces if each[0] not in (0, 1)]
    betas = {"F=0": 1, "F=0.2": 5 / 3, "F=0.4": 5}
    held = dict.fromkeys(betas, 0)
    below = set()
    for _, noise, terms, data_set in later:
        for name, beta in betas.items():
            left = noise[name]["trace"] - noise["CE"]["trace"]
            held[name] += left > terms.printed(beta)
            if left <= terms.of_equal_p(beta):
                below.add(data_set)
        assert noise["F=0"]["trace"] > noise["CE"]["trace"]
    assert (len(later), held) == (200, {"F=0": 132, "F=0.2": 100, "F=0.4": 19})
    assert below == {"uci121/acute-nephritis"}
    assert any(noise["F=0"]["trace"] < noise["CE"]["trace"] for _, noise, *_ in traces)
    for epoch, noise, *_ in traces:
        for name in ("EL", *betas):
            apart = abs(noise[name]["trace"] - noise["CE"]["trace"])
            error = math.hypot(noise[name]["error"], noise["CE"]["error"])
            assert apart > 2 * error or (epoch == 0 and name != "EL")
        assert noise["CE"]["trace"] > noise["EL"]["trace"]
        for name, beta in betas.items():
            assert mixing_escape.scale_free(noise, name, "CE") < 1
            assert noise[name]["trace"] < (1 + beta) ** 3 * noise["CE"]["trace"]
