"""The law's study: small runs of it, and made-up ones whose law is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import read_study
from hitrate_lab.studies.gain import law as law_module
from hitrate_lab.studies.gain import summary as summary_module
from hitrate_lab.studies.gain.law import GainLaw, features_of, hits
from hitrate_lab.studies.gain.pairs import PREDICTORS, is_aside, noise, pairs
from hitrate_lab.studies.gain.summary import law, pictures, tables
from hitrate_lab.training.batched import Split

FILE = Path(__file__).resolve().parents[4] / "studies" / "gain_law.toml"


@pytest.fixture(scope="module")
def study():
    return read_study(FILE)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(summary_module, "RESAMPLES", 30)


def result(gain, reachable, better=30, worse=10):
    """A result whose headroom is known, of 100 training rows."""
    methods = {
        "CE": {"train": 0.8, "test": 0.7, "better": 0, "worse": 0},
        "annealed": {"train": 0.85, "test": 0.7 + gain, "better": better, "worse": worse},
    }
    refit = {"now": 0.8, "reachable": reachable, "noise": 0.01, "gain": reachable - 0.82}
    refit |= {"low": -0.1, "high": 0.1, "q": 0.5, "test": 0.7 + gain, "better": 1, "worse": 1}
    return {
        "methods": methods,
        "headroom": refit,
        "train_rows": 100,
        "test_rows": 500,
        "classes": 2,
        "parameters": 20,
    }


def made_up(study, models=("linear",), noisy=0.0):
    """Runs in which the gain goes with what headroom() says is reachable."""
    random = np.random.default_rng(0)
    for data_set in study.data_sets:
        for model in models:
            reachable = 0.8 + 0.1 * random.random()
            gain = reachable - 0.85 + noisy * random.standard_normal()
            yield {"data_set": data_set, "model": model}, result(gain, reachable)


def test_the_predictor_that_decides_is_found_and_tested_on_what_was_kept_aside(study):
    found = pairs(study, made_up(study))
    known = law(study, found)
    assert known["predictor"].startswith("headroom():")
    for both in known["correlations"].values():
        assert all(each.low <= each.value <= each.high for each in both)
    assert known["correlations"][known["predictor"]][1].value == 1.0
    assert known["correlations"]["training error"][0].value == 0.0
    aside = sum(map(is_aside, study.data_sets))
    assert known["pairs"] == [120 - aside, aside] and 30 <= aside <= 50
    # Gain is reachable less 0.85, and so is the line.
    x, y, low, high = np.array(known["line"]).T
    assert (low - 1e-9 <= y).all() and (y <= high + 1e-9).all()
    assert np.polyfit(x, y, 1)[0] == pytest.approx(1.0)


def test_what_was_kept_aside_has_no_part_in_the_choice(study):
    runs = list(made_up(study, noisy=0.01))
    turned = [
        (spec, result(-3 * (each["headroom"]["reachable"] - 0.85), each["headroom"]["reachable"]))
        if is_aside(spec["data_set"])
        else (spec, each)
        for spec, each in runs
    ]
    one, other = (law(study, pairs(study, some)) for some in (runs, turned))
    assert one["predictor"] == other["predictor"]
    assert other["correlations"][one["predictor"]][1].value == -1.0


def test_predictors_are_what_they_are_called(study):
    (pair,) = pairs(study, [({"data_set": "a", "model": "linear"}, result(0.02, 0.9))])
    # Of two classes' twenty parameters ten are free.
    less = noise(10, 100, 0.8)
    assert less == pytest.approx(0.5 * (0.1 * 0.16) ** 0.5)
    expected = [0.2, 0.05, 0.05 - less, 0.05 - less, 0.1, 0.09, 0.08]
    assert list(pair.predictors.values()) == pytest.approx(expected)
    assert list(pair.predictors) == list(PREDICTORS)
    assert pair.methods["annealed"] == pytest.approx((0.02, 20 / 40**0.5))


def test_splits_are_means_and_tables_of_few_rows_are_left_out(study):
    spec = {"data_set": "a", "model": "linear"}
    runs = [(spec, result(0.02, 0.9)), (spec, result(0.04, 0.86)), (spec, result(0.0, 0.8))]
    runs[-1][1]["headroom"] = None
    (pair,) = pairs(study, runs)
    assert pair.methods["annealed"][0] == pytest.approx(0.03)
    assert pair.predictors["headroom(): reachable less now"] == pytest.approx(0.08)


def test_a_report_has_its_tables_and_pictures(study):
    runs = list(made_up(study, models=("linear", "one hidden layer"), noisy=0.02))
    shown = tables(study, runs)
    assert [each["title"] for each in shown] == [
        "What predicts the gain",
        "Gain by what was known before",
        "Looked at afterwards: where test rows are many",
        "What is gained over tuned CE",
        "The last layer of headroom(), by where its path ended",
    ]
    assert sum(int(row[1]) for row in shown[1]["rows"]) == 240
    assert any(row[0].startswith("**headroom") for row in shown[0]["rows"])
    drawn = pictures(study, runs)
    assert set(drawn) == {"gain-law", "gain-refit"}
    assert drawn["gain-law"].count("<circle") + drawn["gain-law"].count("<polygon") == 242
    assert tables(study, []) == [] and pictures(study, []) == {}


def test_a_hidden_layer_is_what_it_computes():
    random = torch.Generator().manual_seed(0)
    weights = [torch.randn(4, 3, generator=random), torch.randn(3, 5, generator=random)]
    x, y = torch.randn(20, 2, generator=random), torch.randint(3, (20,), generator=random)
    layers = [torch.nn.Linear(2, 4), torch.nn.Linear(4, 3)]
    with torch.no_grad():
        for layer, each in zip(layers, weights, strict=True):
            layer.weight.copy_(each[:, :-1])
            layer.bias.copy_(each[:, -1])
        hidden = layers[0](x).relu()
        torch.testing.assert_close(features_of(weights, x), hidden)
        assert hits(weights, (x, y)).tolist() == (layers[1](hidden).argmax(1) == y).tolist()


class Published:
    notes = ()


@pytest.mark.parametrize("model", ["linear", "one hidden layer"])
def test_a_run_has_what_the_law_needs(study, model, monkeypatch):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(150, 3, generator=random)
    y = (x[:, 0] > 0).long()
    parts = [(x[k : k + 50], y[k : k + 50]) for k in (0, 50, 100)]
    monkeypatch.setattr(law_module, "read_uci", lambda *_, **__: Published())
    monkeypatch.setattr(Split, "of", staticmethod(lambda _: Split(*parts, 2)))
    spec = next(each for each in GainLaw().plan(study) if each["model"] == model)
    spec |= {"steps": 30, "epochs": 5, "rows": 40, "test_rows": 30}
    found = GainLaw().run(spec, Context())
    assert (found["train_rows"], found["validation_rows"], found["test_rows"]) == (40, 40, 30)
    assert set(found["methods"]) == {each["name"] for each in spec["methods"]}
    base = found["methods"]["CE"]
    for each in found["methods"].values():
        assert each["test"] - base["test"] == pytest.approx((each["better"] - each["worse"]) / 30)
    assert found["headroom"]["now"] == pytest.approx(base["train"])
    assert found["parameters"] == (8 if model == "linear" else 4 * 8 + 9 * 2)
    again = GainLaw().run(spec, Context())
    assert {**again, "seconds": 0} == {**found, "seconds": 0}


def test_a_loss_with_an_integral_is_for_tables_of_two_classes(study):
    plan = GainLaw().plan(study)
    having = {each["data_set"] for each in plan if each["methods"][-1]["name"] == "EXACT"}
    assert "uci121/pima" in having and "uci121/iris" not in having


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("judged", "hinge", "judged: 'hinge' is no method"), ("hidden", 0, "hidden: needs a whole")],
)
def test_a_wrong_setting_is_named(study, key, value, said):
    wrong = replace(study, settings={**study.settings, key: value})
    with pytest.raises(BadInput, match=said):
        GainLaw().check(wrong)
