"""One run of EXACT's tables: what is planned, how it is trained, and what the paper prints."""

import numpy as np
import pytest
from broken_study import complaint_of
from sklearn.datasets import load_breast_cancer, load_wine

from hitrate.sklearn.solvers.settings import Settings
from hitrate.sklearn.solvers.sgd import train
from hitrate.sklearn.solvers.standardized import Standardized
from hitrate_lab.runs.work import Context
from hitrate_lab.studies import find_study, plan_of
from hitrate_lab.studies.exact import tables as exact_tables
from hitrate_lab.training.batched.linear import train_linears
from hitrate_lab.training.batched.linear_one import predicted, train_linear

PROTOCOL = exact_tables.ExactTables()
STUDIES = ("exact_table_1_2", "exact_table_4", "exact_table_5", "exact_table_6")
SGD = {
    "model": "sgd",
    "loss": "exact",
    "start": "small",
    "steps": 60,
    "batch_size": 64,
    "momentum": 0.9,
    "weight_decay": 0.0,
    "learning_rate": 0.2,
    "last_learning_rate": 1e-4,
    "clip": None,
    "margin": 0.1,
    "sigma": [10.0, 0.01, "geometric"],
    "samples": None,
    "rivals": None,
    "normalize_gradient": True,
}
LEARNED = [1.0, 0.01, "learned"]


def standardised(load):
    x, y = load(return_X_y=True)
    return (x - x.mean(0)) / x.std(0), y


def ran(spec, data_dir):
    """What a batch of one gives."""
    (result,) = PROTOCOL.run_batch([spec], Context(data_dir))
    return result


def planned(study, data_set, method, seed=0):
    (spec,) = [
        spec
        for spec in plan_of(study)
        if (spec["data_set"], spec["method"], spec["seed"]) == (f"exact/{data_set}", method, seed)
    ]
    return spec


@pytest.fixture(scope="module")
def study():
    return find_study("exact_table_1_2")


def test_the_plan_has_every_seed_of_every_cell_once(study):
    plan = plan_of(study)
    # Logistic regression has no randomness and is run once.
    assert len(plan) == 10 * (6 * 5 + 1)
    assert [spec["seed"] for spec in plan] == sorted(spec["seed"] for spec in plan)
    assert len({(s["data_set"], s["method"], s["seed"]) for s in plan}) == len(plan)


def test_training_is_planned_with_the_numbers_of_the_papers_table_8(study):
    training = planned(study, "car", "EXACT", 3)["training"]
    assert (training["learning_rate"], training["margin"], training["clip"]) == (0.05, 0.05, None)
    assert training["normalize_gradient"] and training["sigma"] == [10, 0.01, "geometric"]
    assert (training["steps"], training["batch_size"], training["momentum"]) == (8000, 256, 0.9)
    hinge = planned(study, "cylinder-bands", "hinge")["training"]
    assert (hinge["learning_rate"], hinge["clip"], hinge["margin"]) == (0.5, 0.01, 2)
    assert not hinge["normalize_gradient"] and hinge["sigma"] is None
    assert planned(study, "adult", "scikit-learn")["training"]["regularization"] == 10


def test_rows_of_the_paper_have_its_totals(study):
    # The last row of Tables 1 and 2.
    totals = {"train_accuracy": [4, 3, 4, 9], "test_accuracy": [7, 4, 3, 6]}
    columns = [method for method in study.methods if not method.variant]
    for measure, total in totals.items():
        best = dict.fromkeys([method.name for method in columns], 0)
        for data_set in study.data_sets:
            row = {method.name: method.paper[measure][data_set][0] for method in columns}
            for name, mean in row.items():
                best[name] += mean == max(row.values())
        assert list(best.values()) == total


def test_tables_4_to_6_have_the_parts_that_they_are_about():
    four = find_study("exact_table_4")
    trainings = {m.name: planned(four, "car", m.name)["training"] for m in four.methods}
    assert trainings["without margin"]["margin"] is None
    assert trainings["without scheduler"]["sigma"] == LEARNED
    assert not trainings["without normalizer"]["normalize_gradient"]
    assert trainings["EXACT"] == planned(find_study(STUDIES[0]), "car", "EXACT")["training"]
    five, six = find_study("exact_table_5"), find_study("exact_table_6")
    for each, name in ((five, "cross entropy"), (six, "hinge")):
        assert planned(each, "car", f"{name} with normalizer")["training"]["normalize_gradient"]
        assert not planned(each, "car", name)["training"]["normalize_gradient"]


@pytest.mark.parametrize("loss", ["exact", "hinge", "cross_entropy"])
def test_with_the_normalizer_it_takes_the_steps_of_the_estimators_sgd(loss):
    x, y = standardised(load_wine)
    margin = None if loss == "cross_entropy" else 0.1
    table = Standardized(x, y, np.ones(len(y)), 3)
    settings = Settings(
        loss=loss, loss_params={}, l2=0.0, sigma=0.01, margin=margin, polish=False, max_iter=60,
        tol=1e-4,
    )  # fmt: skip
    theta, steps = train(
        table, None, settings, batch_size=64, learning_rate=0.2, held_out=None, patience=10,
        random=np.random.default_rng(5),
    )  # fmt: skip
    assert steps == 60
    seed = int(np.random.default_rng(5).integers(2**31))
    training = {**SGD, "loss": loss, "margin": margin}
    training["rivals"] = "max" if loss == "hinge" else None
    ours = train_linear(x, y, 3, training, seed)
    np.testing.assert_allclose(ours, theta, rtol=1e-3, atol=1e-4)


# Parts of a training that the copies of one loss may differ in.
COPIES = {
    "cross_entropy": [{}, {"normalize_gradient": False, "clip": 0.01, "weight_decay": 0.01}],
    "hinge": [{"margin": 0.5}, {"normalize_gradient": False, "clip": 0.1, "learning_rate": 5}],
    "exact": [
        {},
        {"margin": None, "normalize_gradient": False, "weight_decay": 0.01},
        {"sigma": [10, 0.01, "linear"], "margin": 1, "learning_rate": 1},
        {"sigma": LEARNED, "clip": 0.1},
    ],
}


# Only hinge loss has rivals to choose from.
@pytest.mark.parametrize(
    ("loss", "rivals"),
    [("cross_entropy", None), ("hinge", "max"), ("hinge", "mean_over_rivals"), ("exact", None)],
)
@pytest.mark.parametrize(
    "load", [load_wine, pytest.param(load_breast_cancer, marks=pytest.mark.slow)]
)
def test_many_at_once_are_what_one_after_the_other_gives(loss, rivals, load):
    x, y = standardised(load)
    common = {
        **SGD,
        "loss": loss,
        "margin": None if loss == "cross_entropy" else 0.1,
        "rivals": rivals,
    }
    trainings, seeds = [{**common, **change} for change in COPIES[loss]], [0, 3]
    many = train_linears(x, y, y.max() + 1, trainings, seeds, windows=3)
    classes = many.predicted(x)
    assert many.norms.shape == (2, len(trainings), 3) and (many.norms[..., 0] > 0).all()
    for s, seed in enumerate(seeds):
        for k, training in enumerate(trainings):
            one = train_linear(x, y, y.max() + 1, training, seed)
            np.testing.assert_allclose(many.weights[s, k], one, rtol=0, atol=1e-5 * abs(one).max())
            assert np.array_equal(classes[s, k], predicted(one, x))


@pytest.mark.slow
def test_weights_stay_finite_when_gradients_have_become_zero():
    # All rows are right by far: a running mean of the norms goes to 0 with them.
    x, y = standardised(load_wine)
    many = train_linears(x, y, 3, [{**SGD, "steps": 2000}], [0])
    assert many.weights.isfinite().all()
    assert (many.predicted(x)[0, 0] == y).all()


def test_norms_are_of_gradients_before_they_are_clipped_or_normalised():
    x, y = standardised(load_wine)
    free = {**SGD, "loss": "cross_entropy", "margin": None, "steps": 1, "learning_rate": 1e-4}
    free["normalize_gradient"] = False
    trainings = [free, {**free, "clip": 0.01}, {**free, "normalize_gradient": True}]
    norms = train_linears(x, y, 3, trainings, [0], windows=1).norms[0, :, 0]
    # A step of plain gradient descent is the gradient times the rate.
    start = train_linears(x, y, 3, [{**free, "learning_rate": 1e-30}], [0]).weights[0, 0]
    moved = train_linears(x, y, 3, [{**free, "learning_rate": 1.0}], [0]).weights[0, 0]
    assert norms.numpy() == pytest.approx(float((moved - start).norm()), rel=1e-5)


def test_sampled_and_integrated_losses_train_alike():
    x, y = standardised(load_wine)
    sampled, again, integral = (
        train_linears(x, y, 3, [{**SGD, "samples": samples}], [0]) for samples in (64, 64, None)
    )
    assert sampled.weights.equal(again.weights)
    assert not sampled.weights.equal(integral.weights)
    distance = (sampled.weights - integral.weights).norm() / integral.weights.norm()
    assert distance < 0.05


def test_a_seed_fixes_the_weights_and_another_changes_them():
    x, y = standardised(load_breast_cancer)
    first, again, other = (train_linear(x, y, 2, SGD, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    assert first.shape == (31, 1) and first.dtype == np.float32


def test_gradients_are_clipped_to_the_norm_that_is_asked_for():
    x, y = standardised(load_wine)
    start = train_linear(x, y, 3, {**SGD, "steps": 1, "learning_rate": 1e-4}, 0)
    training = {
        **SGD, "loss": "cross_entropy", "margin": None, "steps": 1, "learning_rate": 1.0,
        "normalize_gradient": False, "momentum": 0.0,
    }  # fmt: skip
    free = train_linear(x, y, 3, training, 0) - start
    clipped = train_linear(x, y, 3, {**training, "clip": 0.01}, 0) - start
    assert np.linalg.norm(free) > 0.1
    # The start itself was moved by a step of length 1e-4.
    assert np.linalg.norm(clipped) == pytest.approx(0.01, abs=1.1e-4)


def test_a_learned_sigma_starts_at_1_and_moves():
    x, y = standardised(load_breast_cancer)
    learned = {**SGD, "sigma": LEARNED, "normalize_gradient": False}
    fixed = {**learned, "sigma": [1.0, 1.0, "geometric"]}
    # The first step is the same, to rounding; those behind see another sigma.
    for steps, same in ((1, True), (20, False)):
        one, other = (
            train_linear(x, y, 2, {**each, "steps": steps}, 0) for each in (learned, fixed)
        )
        assert np.allclose(one, other, rtol=0, atol=1e-6) == same
    weights = train_linear(x, y, 2, {**learned, "steps": 200}, 0)
    assert np.mean(predicted(weights, x) == y) > 0.9


def test_the_first_class_is_chosen_where_no_score_is_above_0():
    weights = np.array([[1.0, -1.0], [0.0, -5.0]], np.float32)
    assert predicted(weights, np.array([[2.0], [-1.0], [-7.0]])).tolist() == [1, 0, 2]


# What is replaced in the file, by what, and what is said about it.
WRONG = {
    "momentum = 0.9": ("momentum = 1", "settings.momentum: needs a number below 1, not 1"),
    "steps = 8000": ("steps = 0", "settings.steps: needs a whole number of 1 or more, not 0"),
    'follow = "tables"': ('follow = "me"', "settings.follow: needs one of 'tables', 'text'"),
    'loss = "hinge"': ('loss = "square"', "methods[hinge].loss: needs one of"),
    'sigma = "geometric"': ('sigma = "big"', "methods[EXACT].sigma: needs one of"),
    "{ learning_rate = 0.05, margin = 5 }": (
        "{ margin = 5 }",
        "methods[EXACT].parameters.exact/wine.learning_rate: is missing",
    ),
    "{ learning_rate = 1, clip = 0.01 }": (
        "{ learning_rate = 1, margin = 1 }",
        "methods[cross entropy].parameters.exact/adult.margin: cross entropy has none",
    ),
    'test_accuracy = "Test accuracy, %"': (
        'test_accuracy = "Test accuracy, %"\nspeed = "Speed"',
        ".toml: measures: 'speed' is none of",
    ),
}


@pytest.mark.parametrize("old", WRONG)
def test_fields_of_this_protocol_are_checked(old, study, tmp_path):
    new, expected = WRONG[old]
    assert expected in complaint_of(study.path, tmp_path, old, new)


# With the data


@pytest.mark.parametrize("name", ["car", "cylinder-bands", "breast-cancer-wisconsin", "audit-risk"])
def test_logistic_regression_finds_what_the_paper_prints(name, study, published):
    spec = planned(study, name, "scikit-learn")
    result = ran(spec, published)
    (column,) = [method.paper for method in study.methods if method.name == "scikit-learn"]
    for measure, data_set, method, value in PROTOCOL.cells(spec, result):
        assert (data_set, method) == (f"exact/{name}", "scikit-learn")
        assert f"{value:.2f}" == f"{column[measure][data_set][0]:.2f}"


def test_a_short_run_of_each_loss_learns_and_says_what_it_used(study, published):
    for method in ("cross entropy", "hinge", "EXACT"):
        spec = planned(study, "wine", method)
        spec = {**spec, "training": {**spec["training"], "steps": 150}}
        result = ran(spec, published)
        assert result["train_accuracy"] > 0.95 and result["test_accuracy"] > 0.85
        assert (result["train_rows"], result["test_rows"], result["features"]) == (142, 36, 13)
        assert result["seconds"] > 0
        assert ran(spec, published)["test_accuracy"] == result["test_accuracy"]


def test_a_training_that_diverges_is_a_failure(study, published):
    spec = planned(study, "wine", "cross entropy")
    training = {**spec["training"], "learning_rate": 1e38, "clip": None, "steps": 30}
    error = ran({**spec, "training": training}, published)
    assert isinstance(error, FloatingPointError) and "diverged" in str(error)
