"""What a fit tells about its way: expected and actual accuracy along the falling sigma."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import hitrate
from hitrate.sklearn import AccuracyClassifier
from hitrate.sklearn.solvers.standardized import Standardized

FIXED = {"l2": 1e-3, "sigma": 0.125, "margin": None, "polish": False}


@pytest.mark.parametrize("data", [load_iris, load_breast_cancer])
def test_the_last_stage_is_the_fitted_model(data):
    x, y = data(return_X_y=True)
    model = AccuracyClassifier(**FIXED, random_state=0).fit(x, y)
    last = model.path_[-1]
    scores = torch.from_numpy(model.decision_function(x))
    if scores.dim() == 1:
        scores = torch.nn.functional.pad(scores[:, None], (1, 0))
    expected = hitrate.expected_accuracy(scores, torch.from_numpy(y), 0.125).mean()
    assert last["sigma"] == 0.125
    assert last["actual"] == pytest.approx(model.score(x, y), abs=1e-9)
    # Eight nodes of the integral.
    assert last["expected"] == pytest.approx(float(expected), abs=2e-3)


def test_the_first_entry_is_the_likelihood_s_maximum_and_sigma_falls():
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    model = AccuracyClassifier(**FIXED, random_state=0).fit(x, y)
    plain = LogisticRegression(C=1 / (1e-3 * len(x)), max_iter=1000).fit(x, y)
    assert model.path_[0]["actual"] == pytest.approx(plain.score(x, y), abs=0.003)
    assert [round(stage["sigma"], 6) for stage in model.path_] == [1.0, 1.0, 0.5, 0.25, 0.125]
    expected = [stage["expected"] for stage in model.path_]
    assert np.all(np.diff(expected) > 0)


def test_without_l2_the_path_is_told_too():
    x, y = load_wine(return_X_y=True)
    model = AccuracyClassifier(l2=0, random_state=0).fit(x[:, :2], y)
    sigmas = [stage["sigma"] for stage in model.path_]
    assert len(sigmas) > 2
    assert all(after <= before for before, after in itertools.pairwise(sigmas))
    assert max(stage["actual"] for stage in model.path_) <= model.score(x[:, :2], y) + 1e-9


def test_where_the_start_is_the_answer_there_is_no_path():
    x, y = load_iris(return_X_y=True)
    assert AccuracyClassifier("cross_entropy", l2=1e-3).fit(x, y).path_ == []
    stopped = {**FIXED, "sigma": np.inf}
    assert AccuracyClassifier(**stopped).fit(x, y).path_ == []
    assert AccuracyClassifier(solver="sgd", l2=0, margin=0.1, max_iter=5).fit(x, y).path_ == []


def test_a_path_does_not_lead_to_the_most_frequent_class():
    random = np.random.default_rng(0)
    x = random.standard_normal((4000, 20))
    # One row in twenty is likely of the rare class: scores of a likelihood say little.
    rare = x[:, 0] > np.quantile(x[:, 0], 0.95)
    y = random.random(4000) < np.where(rare, 0.75, 0.2)
    for sigma in (0.25, 0.1, 0.05):
        model = AccuracyClassifier(l2=1 / 4000, sigma=sigma, margin=None, polish=False)
        assert model.fit(x, y).score(x, y) > max(y.mean(), 1 - y.mean()) + 0.02
        assert model.path_[0]["sigma"] <= 0.25


@pytest.mark.parametrize(("rows", "classes"), [(3, 3), (5, 4), (6, 3)])
def test_tables_of_a_few_rows_are_fitted(rows, classes):
    target = np.arange(rows) % classes
    model = AccuracyClassifier(l2=0).fit(np.zeros((rows, 1)), target)
    assert model.score(np.zeros((rows, 1)), target) >= 1 / classes


@pytest.mark.filterwarnings("error")
def test_of_many_rows_half_is_held_out_and_one_over_n_is_tried(monkeypatch):
    from hitrate.sklearn import tuning

    tried = []
    around = tuning._around
    monkeypatch.setattr(tuning, "_around", lambda *given: tried.append(around(*given)) or tried[-1])
    random = np.random.default_rng(0)
    x = random.standard_normal((20_100, 2))
    y = (x @ [1.0, 2.0] + random.standard_normal(len(x)) > 0).astype(int)
    model = AccuracyClassifier().fit(x, y)
    table = Standardized(x, y, np.ones(len(y)), 2)
    held_out = tuning.Folds(table, np.random.default_rng(0))
    assert [len(rows) for rows in held_out.splits] == [10_050]
    nearest = int(np.argmin(np.abs(np.log(np.array(tuning.STRENGTHS)))))
    assert nearest in tried[0] and model.score(x, y) > 0.8
    # Where L2 is not chosen there is none beside it.
    assert AccuracyClassifier(l2=0, early_stopping=True).fit(x, y).score(x, y) > 0.8
