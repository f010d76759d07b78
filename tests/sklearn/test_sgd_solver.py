"""The paper's stochastic training of linear models."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, load_wine

from hitrate.sklearn import AccuracyClassifier

SGD = {"solver": "sgd", "l2": 0.0, "margin": 0.1, "random_state": 0}


@pytest.mark.parametrize("thin", [False, True], ids=["dense", "sparse"])
def test_it_learns_and_counts_its_steps(thin):
    x, y = load_wine(return_X_y=True)
    model = AccuracyClassifier(**SGD, max_iter=100).fit(sparse.csr_array(x) if thin else x, y)
    assert model.score(x, y) > 0.97
    assert model.n_iter_ == 100
    assert (model.l2_, model.sigma_, model.margin_, model.polish_) == (0.0, 0.01, 0.1, False)


def test_the_same_seed_takes_the_same_steps():
    x, y = load_iris(return_X_y=True)
    fits = [AccuracyClassifier(**SGD, max_iter=50).fit(x, y).coef_ for _ in range(2)]
    np.testing.assert_array_equal(*fits)
    other = AccuracyClassifier(**{**SGD, "random_state": 1}, max_iter=50).fit(x, y)
    assert np.abs(other.coef_ - fits[0]).max() > 1e-3


def test_early_stopping_saves_steps():
    x, y = load_iris(return_X_y=True)
    model = AccuracyClassifier(**SGD, max_iter=400, early_stopping=True, n_iter_no_change=4)
    assert model.fit(x, y).n_iter_ < 400
    assert model.score(x, y) > 0.8


def test_auto_chooses_l2_and_margin_on_held_out_rows():
    x, y = load_iris(return_X_y=True)
    model = AccuracyClassifier(solver="sgd", max_iter=60, random_state=0).fit(x, y)
    assert model.l2_ in (0.0, 1e-3)
    assert model.margin_ in (0.1, 1.0)


def test_a_warm_start_continues():
    x, y = load_wine(return_X_y=True)
    model = AccuracyClassifier(**SGD, max_iter=100, warm_start=True).fit(x, y)
    model.set_params(max_iter=1, learning_rate=1e-6)
    weights = model.coef_
    np.testing.assert_allclose(model.fit(x, y).coef_, weights, rtol=1e-3, atol=1e-4)


def test_other_losses_and_the_polish_are_there_too():
    x, y = load_iris(return_X_y=True)
    settings = {**SGD, "margin": None, "max_iter": 100}
    rough = AccuracyClassifier("cross_entropy", **settings).fit(x, y)
    polished = AccuracyClassifier("cross_entropy", **settings, polish=True).fit(x, y)
    assert polished.score(x, y) >= rough.score(x, y) > 0.8
