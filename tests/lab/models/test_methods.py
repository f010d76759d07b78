"""What can be compared: every method fits, and none gets more tries than another."""

import json
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression

from hitrate.recipes import RECIPES
from hitrate.sklearn import AccuracyClassifier
from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.methods import BASELINE, MODELS, MOST_TRIALS, methods

EVERY = [
    each
    for name, family in MODELS.items()
    for each in methods([name], [loss for loss in family.losses() if loss not in RECIPES])
]
DEFAULTS = [method.name for method in methods(list(MODELS))]


@pytest.fixture(scope="module")
def wine():
    x, y = load_wine(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    return x, np.array(["red", "white", "rosé"])[y]


def by_name(name):
    (method,) = methods(*([part] for part in name.split("/")))
    return method


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_method_learns_labels_that_are_words(name, wine):
    check_that_it_learns(by_name(name), *wine)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_model_learns_labels_that_are_words_under_every_loss(model, wine):
    found = [method for method in EVERY if method.name.startswith(f"{model}/")]
    assert found
    for method in found:
        check_that_it_learns(method, *wine)


def check_that_it_learns(method, x, y):
    parameters = method.candidates(1, len(x[::2]))[0]
    model = method.build(parameters, seed=0).fit(x[::2], y[::2])
    p = model.predict_proba(x[1::2])
    assert np.mean(model.predict(x[1::2]) == y[1::2]) > 0.85
    assert model.classes_.tolist() == ["red", "rosé", "white"]
    assert p.shape == (89, 3)
    assert p.sum(1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", DEFAULTS)
def test_two_classes_and_sparse_features_are_learned_too(name, wine):
    x, y = wine
    rows = y != "rosé"
    x, y = sparse.csr_array(np.where(np.abs(x[rows]) > 0.5, x[rows], 0.0)), y[rows]
    method = by_name(name)
    model = method.build(method.candidates(1, len(y))[0], seed=0).fit(x, y)
    assert np.mean(model.predict(x) == y) > 0.9
    assert model.predict_proba(x).shape == (len(y), 2)


# What needs a host takes as long as all others.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each.name, marks=[pytest.mark.slow] if each.family.package else [])
        for each in methods(list(MODELS))
    ],
)
def test_the_same_seed_gives_the_same_model(name, wine):
    x, y = wine
    method = by_name(name)
    parameters = method.candidates(1, len(x))[0]
    one, two = (method.build(parameters, seed=3).fit(x, y).predict_proba(x) for _ in range(2))
    assert np.array_equal(one, two)


def test_families_share_no_name_kind_of_state_or_file():
    assert [family.name for family in MODELS.values()] == list(MODELS)
    for of in (lambda family: family.kinds, lambda family: family.files):
        every = [each for family in MODELS.values() for each in of(family)]
        assert len(set(every)) == len(every)
    assert all(family.kinds for family in MODELS.values())


@pytest.mark.parametrize("trials", [1, 4, MOST_TRIALS])
def test_every_method_has_as_many_candidates_all_different_and_the_first_the_default(trials):
    for method in EVERY:
        found = method.candidates(trials, 1000)
        many = 1 if method.name == "linear/exact" else trials
        assert len({json.dumps(each) for each in found}) == len(found) == many
        assert found[0] == method.candidates(1, 1000)[0]


def test_no_trial_and_too_many_are_refused():
    for trials in (0, MOST_TRIALS + 1):
        with pytest.raises(BadInput, match=f"trials={trials}"):
            EVERY[0].candidates(trials, 100)


def test_the_baseline_is_scikit_learn_s_logistic_regression_with_its_default_first():
    baseline = by_name(BASELINE)
    model = baseline.build(baseline.candidates(4, 100)[0], seed=0)
    assert type(model) is LogisticRegression
    assert LogisticRegression().C == model.C
    assert baseline.label == "logistic regression"


def test_linear_methods_try_the_same_strengths():
    strengths = [each["C"] for each in by_name(BASELINE).candidates(12, 500)]
    for loss in ("mixed", "hinge"):
        l2 = [each["l2"] for each in by_name(f"linear/{loss}").candidates(12, 500)]
        assert [1 / (500 * each) for each in l2] == pytest.approx(strengths, rel=0.005)


def test_linear_exact_is_the_estimator_as_it_comes():
    (parameters,) = by_name("linear/exact").candidates(4, 500)
    model = by_name("linear/exact").build(parameters, seed=3)
    assert model.get_params() == AccuracyClassifier(random_state=3).get_params()


def test_trees_under_cross_entropy_are_the_host_s_own(wine):
    from lightgbm import LGBMClassifier
    from xgboost import XGBClassifier

    x, y = wine
    target = np.unique(y, return_inverse=True)[1]
    for name, host in (
        ("xgboost", XGBClassifier(n_estimators=100, n_jobs=1)),
        ("lightgbm", LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1)),
    ):
        method = by_name(f"{name}/cross_entropy")
        model = method.build(method.candidates(1, len(x))[0], seed=0).fit(x, y)
        theirs = host.fit(x, target).predict_proba(x)
        assert model.predict_proba(x) == pytest.approx(theirs, abs=1e-5)


def test_names_that_come_twice_count_once():
    found = methods(["mlp", "linear", "mlp"], ["exact", "exact"])
    assert [method.name for method in found] == ["mlp/exact", "linear/exact"]


@pytest.mark.parametrize(
    ("models", "losses", "complaint"),
    [
        (["forest"], ["exact"], f"model 'forest' is not one of {', '.join(MODELS)}"),
        (["linear"], ["exakt"], "loss 'exakt' is not one of cross_entropy, exact"),
        (["linear"], ["max_mahalanobis_center"], "linear has no loss 'max_mahalanobis_center'"),
        (["xgboost"], ["hinge"], "xgboost has no loss 'hinge'; it has cross_entropy, exact"),
        ("linear", ["exact"], "model: needs a list"),
        (["linear"], [], "loss: needs a list of one or more"),
    ],
)
def test_what_cannot_be_compared_is_named_with_what_can(models, losses, complaint):
    with pytest.raises(BadInput) as caught:
        methods(models, losses)
    assert complaint in str(caught.value)


def test_a_host_that_is_not_installed_comes_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(BadInput) as caught:
        methods(["lightgbm"], ["exact"])
    assert "pip install 'hitrate[lightgbm]'" in str(caught.value)
