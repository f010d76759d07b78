"""The control for the size of gradients: its equations, its file, its runs and what it found."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from broken_study import complaint_of
from scipy.integrate import dblquad, quad
from torch.nn.functional import cross_entropy

import hitrate
from hitrate.links import Focused
from hitrate_lab.datasets import names, read_uci
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import document, read_study
from hitrate_lab.studies.mixing import gradient_norm as control
from hitrate_lab.studies.mixing.gradient_norm_summary import tables
from hitrate_lab.studies.results import load
from hitrate_lab.training.batched import Optimizer, Setting, Split, train_one
from hitrate_lab.training.batched.one_by_one import build, epochs_of_one, weights_of
from hitrate_lab.training.batched.setting import Orders

PROTOCOL = control.MixingGradientNorm()
ROOT = Path(__file__).resolve().parents[4]
FILE = ROOT / "studies" / "mixing_gradient_norm.toml"
RESULTS = ROOT / "studies" / "results" / "mixing_gradient_norm.jsonl.gz"
FOCUSES = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.fixture(scope="module")
def study():
    return read_study(FILE)


def slopes(loss, p):
    """Gradients (N, C) at the logits of rows with probabilities p, the target's first."""
    logits = torch.as_tensor(p, dtype=torch.float64).log().requires_grad_()
    target = torch.zeros(len(logits), dtype=torch.long)
    return torch.autograd.grad(loss(logits, target, reduction="sum"), logits)[0].numpy()


def mixed(focus):
    return lambda logits, target, **options: hitrate.mixed_loss(logits, target, focus, **options)


@pytest.mark.parametrize("focus", FOCUSES)
def test_areas_are_integrals_of_the_gradients(focus):
    by_21, by_22 = control.factors(Focused(focus).mixture)
    area = quad(lambda p: -slopes(mixed(focus), [[p, 1 - p]])[0, 0], 0, 1)[0]
    of_ce = quad(lambda p: -slopes(cross_entropy, [[p, 1 - p]])[0, 0], 0, 1)[0]
    assert of_ce == pytest.approx(control.CROSS_ENTROPY)
    assert area / of_ce == pytest.approx(by_21)
    # Of another class as equation 13 has it: over the whole square, in half of which the two
    # probabilities add up to more than 1.
    loss = Focused(focus).mixture
    area = dblquad(lambda own, other: other * (loss.beta * own + loss.alpha), 0, 1, 0, 1)[0]
    assert area / 0.5 == pytest.approx(by_22)


@pytest.mark.parametrize("focus", FOCUSES)
def test_on_rows_that_there_can_be_all_logits_have_one_factor(focus):
    loss = Focused(focus).mixture
    p = np.random.default_rng(0).dirichlet(np.ones(4), 500)
    times = loss.alpha + loss.beta * p[:, :1]
    of_ce = slopes(cross_entropy, p)
    np.testing.assert_allclose(slopes(mixed(focus), p), times * of_ce, rtol=1e-10)
    # Uniform over rows of three classes it is alpha + beta / 4, for the target and for others.
    for slope in (lambda p, q: 1 - p, lambda p, q: q):
        mean = [
            dblquad(lambda q, p: slope(p, q) * (a + b * p), 0, 1, 0, lambda p: 1 - p)[0]  # noqa: B023
            for a, b in ((loss.alpha, loss.beta), (1, 0))
        ]
        assert mean[0] / mean[1] == pytest.approx(loss.alpha + loss.beta / 4)


def test_factors_of_the_file_are_those_of_the_equations(study):
    written = {method["name"]: method["factor"] for method in PROTOCOL.plan(study)[0]["methods"]}
    by_21, by_22 = zip(*(control.factors(Focused(f).mixture) for f in FOCUSES), strict=True)
    assert written["CE x (21)"] == pytest.approx(list(by_21), abs=1e-6)
    assert written["CE x (22)"] == pytest.approx(list(by_22), abs=1e-6)
    assert (written["CE x 4/3"], written["CE x 3/2"]) == pytest.approx((by_21[0], by_22[0]))


@pytest.mark.slow
def test_data_sets_are_all_of_middle_size(study, published):
    found = []
    for name in names("uci121", data_dir=published):
        data = read_uci(name, data_dir=published)
        rows, features = data.X_train.shape
        if len(data.y_test) >= 250 and rows <= 3000 and features <= 64:
            found.append(f"uci121/{name}")
    assert list(study.data_sets) == found


def test_factors_in_phases_are_those_of_a_plain_loop(study, published):
    split = Split.of(read_uci("iris", data_dir=published))
    setting = Setting("one hidden layer", 6, 8, Optimizer("sgd", 0.9, 1e-4))
    methods = {method["name"]: method for method in PROTOCOL.plan(study)[0]["methods"]}
    one = train_one(split, setting, control.variant(methods["CE x (21)"]), 0.01, seed=3)
    model = build(setting, split, seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    orders = Orders(3, len(split.train[1]))
    for factor in (4 / 3, 17 / 12, 14 / 9, 11 / 6, 8 / 3, 1 / 3):
        for some in torch.split(orders.next(), 8):
            optimizer.zero_grad()
            x, y = split.train[0][some], split.train[1][some]
            (factor * cross_entropy(model(x), y)).backward()
            optimizer.step()
    for own, plain in zip(one.weights, weights_of(model), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", ["linear", "one hidden layer"])
def test_a_run_measures_gradients_as_a_plain_loop_does(study, published, model):
    spec = next(spec for spec in PROTOCOL.plan(study) if spec["model"] == model)
    spec = {**spec, "data_set": "uci121/iris", "epochs": 6, "measured_at": [1, 5, 6]}
    result = PROTOCOL.run(spec, Context(published))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    split = Split.of(read_uci("iris", data_dir=published))
    setting = Setting(model, 6, 8, Optimizer("sgd", 0.9, 1e-4))
    x, y = split.train
    method = next(each for each in spec["methods"] if each["name"] == "F=0-0.5")
    # Epochs 1, 5 and 6 have F = 0, 0.4 and 0.5.
    losses = {1: (1, 1), 5: (1, 5), 6: (0, 1)}
    for seed, found in zip(spec["seeds"], result["norms"]["F=0-0.5"], strict=True):
        models = epochs_of_one(split, setting, control.variant(method), spec["norm_rate"], seed)
        told = {each["epoch"]: each for each in found}
        assert list(told) == [1, 5, 6]
        for epoch, network in enumerate(models, 1):
            if epoch not in losses:
                continue
            for (alpha, beta), ce in ((losses[epoch], ""), ((1, 0), "ce_")):
                at_logit, at_weights = [], []
                for row, label in zip(x, y, strict=True):
                    logits = network(row[None])
                    logits.retain_grad()
                    p = torch.softmax(logits, 1)[0, label]
                    network.zero_grad()
                    (-alpha * p.log() + beta * (1 - p)).backward()
                    at_logit.append(abs(float(logits.grad[0, label])))
                    parts = [each.grad.flatten() for each in network.parameters()]
                    at_weights.append(float(torch.cat(parts).norm()))
                assert told[epoch][f"{ce}logit"] == pytest.approx(np.mean(at_logit), rel=1e-3)
                assert told[epoch][f"{ce}weights"] == pytest.approx(np.mean(at_weights), rel=1e-3)
    cells = PROTOCOL.cells(spec, result)
    assert len(cells) == 2 * len(study.methods)
    (gradients, differences) = tables(study, [(spec, result)])
    rows = {(row[0], row[1]): row for row in gradients["rows"]}
    assert rows["F=0-0.5", "5"][2:4] == ["2.67", "3.50"]
    assert rows["EL", "6"][2:4] == ["0.33", "0.50"]
    assert len(differences["rows"]) == len(study.methods) - 1 + 5
    gain = 100 * np.mean(
        [
            one["test_accuracy"] - other["test_accuracy"]
            for one, other in zip(result["chosen"]["F=0"], result["chosen"]["CE x 2"], strict=True)
        ]
    )
    (row,) = (row for row in differences["rows"] if row[0] == "F=0 - CE x 2")
    assert row[1].split()[0] == f"{gain:+.2f}"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[9, 17, 25", "[0, 17, 25", "settings.measured_at: needs epochs from 1 to 50"),
        ('["F=0", "CE x 2"]', '["F=0"]', "settings.pairs: needs pairs of methods"),
        ('["F=0", "CE x 2"]', '["F=0", "CE x 9"]', "pairs: 'CE x 9' is no method"),
        ('measured = ["CE", ', "measured = [", "settings.measured: needs the baseline, 'CE'"),
        ("factor = 2.0", "factor = -2.0", r"methods\[CE x 2\].factor: needs numbers above 0"),
        ("factor = 2.0", "factor = [2.0, 0]", r"methods\[CE x 2\].factor: needs numbers above 0"),
        ('recipe = "mixed"', 'recipe = "mixed"\nfactor = [1, 2]', r"methods\[F=0\]: a list of"),
        ('recipe = "expectation"', 'recipe = "focal"', r"methods\[EL\]: .* is no sum of"),
        ("[0.01, 0.005, 0.001]", "[0.01, 0]", "settings.learning_rates: needs .* above 0"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_in_one_line(tmp_path, old, new, complaint):
    assert re.search(complaint, complaint_of(FILE, tmp_path, old, new, PROTOCOL.plan))


@pytest.fixture(scope="module")
def report(study, tmp_path_factory):
    store = tmp_path_factory.mktemp("norms") / "runs.sqlite"
    assert load(RESULTS, store) == 62
    return document(study, store)


@pytest.mark.slow
def test_the_committed_runs_show_what_the_page_says(report):
    linear, hidden = report["rankings"]
    for ranking in (linear, hidden):
        assert len(ranking["data_sets"]) == 31
        apart = np.array(ranking["ranks"]["adjusted"]) < 0.05
        of_el = ranking["methods"].index("EL")
        assert apart[of_el].any()
        assert not np.delete(np.delete(apart, of_el, 0), of_el, 1).any()
    scores = {name: np.array(hidden["scores"])[:, k] for k, name in enumerate(hidden["methods"])}
    for one, other, mean, without in (
        ("CE x (21)", "CE", "0.76", "0.26"),
        ("F=0-0.5", "CE x (21)", "-0.59", "-0.19"),
    ):
        apart = scores[one] - scores[other]
        assert f"{apart.mean():.2f}" == mean
        assert f"{apart[np.argsort(-abs(apart))[3:]].mean():.2f}" == without
