"""Accuracy as an objective of boosted trees: derivatives, and real trees grown by them."""

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy import special
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

import hitrate
from hitrate.integrations.boosting import BoostingObjective, expected_bend
from hitrate.links import LINKS, Focused, link_named

ROW_LINKS = [name for name in LINKS if name != "batch_log"]
NOISES = ["gumbel", "normal"]


def some_scores(classes, rows=40, size=2.0, seed=0):
    random = np.random.default_rng(seed)
    shape = (rows,) if classes == 1 else (rows, classes)
    return size * random.standard_normal(shape), random.integers(max(classes, 2), size=rows)


def loss_of(objective, scores, target):
    """Losses (N,) by the library itself."""
    if scores.ndim == 1:
        scores = torch.stack([torch.zeros_like(scores), scores], 1)
    return hitrate.exact_loss(
        scores,
        target,
        objective.sigma,
        noise=objective.noise,
        link=objective.link,
        reduction="none",
    )


def second_derivatives(objective, scores, target):
    """The matrix of every row, (N, C, C), by differentiating twice."""
    f = torch.from_numpy(scores).requires_grad_()
    total = loss_of(objective, f, torch.from_numpy(target)).sum()
    (slope,) = torch.autograd.grad(total, f, create_graph=True)
    columns = slope.reshape(len(f), -1).unbind(1)
    parts = [torch.autograd.grad(each.sum(), f, retain_graph=True)[0] for each in columns]
    return torch.stack([part.reshape(len(f), -1) for part in parts], 1).numpy()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("link", ROW_LINKS)
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_slopes_are_those_of_the_loss(classes, link, noise):
    objective = BoostingObjective(link, noise=noise, sigma=0.7)
    scores, target = some_scores(classes)
    f = torch.from_numpy(scores).requires_grad_()
    (expected,) = torch.autograd.grad(loss_of(objective, f, torch.from_numpy(target)).sum(), f)
    slope, curvature = objective.derivatives(scores, target)
    np.testing.assert_allclose(slope, expected, rtol=1e-9, atol=1e-12)
    assert slope.shape == curvature.shape == scores.shape
    assert (curvature > 0).all()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("classes", [1, 4])
def test_slopes_are_differences_of_the_loss(classes, noise):
    objective = BoostingObjective(Focused(0.25), noise=noise)
    scores, target = some_scores(classes)
    y = torch.from_numpy(target)
    step = 1e-5 * np.random.default_rng(1).standard_normal(scores.shape)
    ahead, behind = (
        loss_of(objective, torch.from_numpy(scores + sign * step), y).sum() for sign in (1, -1)
    )
    slope, _ = objective.derivatives(scores, target)
    assert float(ahead - behind) == pytest.approx(2 * (slope * step).sum(), rel=1e-5)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("link", ROW_LINKS)
@pytest.mark.parametrize("classes", [1, pytest.param(2, marks=pytest.mark.slow), 4])
def test_curvatures_are_at_least_the_losss_own(classes, link, noise):
    objective = BoostingObjective(link, noise=noise, sigma=0.7, max_step=1e9)
    scores, target = some_scores(classes, rows=12)
    _, curvature = objective.derivatives(scores, target)
    true = second_derivatives(objective, scores, target)
    rest = np.stack([np.diag(row) for row in curvature.reshape(12, -1)]) - true
    assert np.linalg.eigvalsh(rest).min() > -1e-6


def test_with_the_log_link_and_one_score_the_curvature_is_newtons():
    scores, target = some_scores(1)
    for noise in NOISES:
        objective = BoostingObjective("log", noise=noise, max_step=1e9)
        _, curvature = objective.derivatives(scores, target)
        true = second_derivatives(objective, scores, target)[:, 0, 0]
        np.testing.assert_allclose(curvature, true, rtol=1e-6)


def test_the_mean_bend_of_rivals_is_that_of_a_fine_sum():
    m = 3 * torch.randn(30, 5, dtype=torch.float64)
    rival = torch.ones_like(m, dtype=torch.bool)
    rival[:, 2] = False
    t = np.linspace(-12, 16, 4001)
    x = (m.numpy()[:, None, :] + t[None, :, None])[:, :, rival[0].numpy()]
    log_cdf = special.log_ndtr(x)
    hazard = np.exp(-0.5 * x**2 - log_cdf) / np.sqrt(2 * np.pi)
    share = special.softmax(log_cdf.sum(2) - 0.5 * t**2, 1)
    expected = (share[:, :, None] * hazard * (x + hazard)).sum(1)
    found = expected_bend(m, rival)
    assert (found[:, 2] == 0).all()
    np.testing.assert_allclose(found[rival].reshape(30, 4), expected, rtol=0.02, atol=1e-4)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("link", ROW_LINKS)
@pytest.mark.parametrize("classes", [1, 4])
def test_scores_of_any_size_give_finite_numbers(classes, link, noise):
    for size in (0.0, 30.0, 1e3, 1e6):
        scores, target = some_scores(classes, size=size)
        slope, curvature = BoostingObjective(link, noise=noise).derivatives(scores, target)
        assert np.isfinite(slope).all() and np.isfinite(curvature).all()
        assert (curvature > 0).all()


def test_no_row_asks_for_more_than_the_largest_step():
    scores, target = some_scores(1, size=8.0)
    for link in ROW_LINKS:
        slope, curvature = BoostingObjective(link, max_step=3.0).derivatives(scores, target)
        assert np.abs(slope / curvature).max() <= 3.0 + 1e-9


def test_a_weight_multiplies_both():
    scores, target = some_scores(3)
    weight = np.random.default_rng(2).uniform(0, 2, len(target))
    objective = BoostingObjective()
    plain, weighted = (
        objective.derivatives(scores, target),
        objective.derivatives(scores, target, weight),
    )
    for a, b in zip(plain, weighted, strict=True):
        np.testing.assert_allclose(a * weight[:, None], b)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"link": "square"}, "link='square'"),
        ({"link": "batch_log"}, "whole batch"),
        ({"noise": "logistic"}, "noise='logistic' is not one of"),
        ({"sigma": 0.0}, "sigma=0.0 must be a number > 0"),
        ({"max_step": True}, "max_step=True must be"),
    ],
)
def test_a_wrong_argument_is_shown(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        BoostingObjective(**arguments)


@pytest.mark.parametrize(
    ("scores", "target", "complaint"),
    [
        (np.zeros(3), [0, 1, 2], "target has .*2.*, which is none of the classes 0 to 1"),
        (np.zeros(2), [0, 0.5], "target has .*0.5"),
        (np.zeros((3, 2)), [0, 1], "scores of shape \\(3, 2\\), target of shape \\(2,\\)"),
        (np.zeros((2, 1)), [0, 0], "two classes or more"),
    ],
)
def test_wrong_scores_and_targets_are_shown(scores, target, complaint):
    with pytest.raises(ValueError, match=complaint):
        BoostingObjective().derivatives(scores, np.array(target))


# By how much they may be worse after 30 rounds: two standard errors of an accuracy of 0.95 on these
# test rows, and for ten classes as much again, as the error's slope is small where p starts at 0.1.
DATA = {"two classes": (load_breast_cancer, 0.026), "ten classes": (load_digits, 0.03)}
OBJECTIVES = {
    "default": {},
    "focused": {"link": Focused(0.4)},
    "error": {"link": "error"},
    "exact": {"link": "error", "noise": "normal"},
}
often_two_objectives = pytest.mark.parametrize(
    "name",
    ["default", "exact", *(pytest.param(n, marks=pytest.mark.slow) for n in ("focused", "error"))],
)


@pytest.fixture(params=DATA)
def split(request):
    load, margin = DATA[request.param]
    x, y = load(return_X_y=True)
    return *train_test_split(x, y, test_size=0.5, random_state=0, stratify=y), margin


class TestXGBoost:
    @pytest.fixture(autouse=True)
    def host(self):
        self.xgboost = pytest.importorskip("xgboost")
        from hitrate.integrations.xgboost import AccuracyObjective

        self.objective = AccuracyObjective

    def model(self, **arguments):
        return self.xgboost.XGBClassifier(n_estimators=30, n_jobs=1, **arguments)

    @often_two_objectives
    def test_its_classifier_is_as_accurate_as_by_default(self, split, name):
        x, x_test, y, y_test, margin = split
        plain = self.model().fit(x, y).score(x_test, y_test)
        ours = self.model(objective=self.objective(**OBJECTIVES[name])).fit(x, y)
        assert ours.score(x_test, y_test) > plain - margin
        assert np.allclose(ours.predict_proba(x_test).sum(1), 1)

    def test_train_gives_the_same_scores_as_the_classifier(self, split):
        x, x_test, y, _, _ = split
        settings = {"nthread": 1, "disable_default_eval_metric": True, "base_score": 0.5}
        if y.max() > 1:
            settings |= {"objective": "multi:softprob", "num_class": y.max() + 1}
        else:
            settings |= {"objective": "binary:logistic"}
        weight = np.random.default_rng(0).uniform(0.5, 1.5, len(y))
        booster = self.xgboost.train(
            settings,
            self.xgboost.DMatrix(x, y, weight=weight),
            num_boost_round=5,
            obj=self.objective(),
        )
        found = booster.predict(self.xgboost.DMatrix(x_test), output_margin=True)
        model = self.model(objective=self.objective(), base_score=0.5).set_params(n_estimators=5)
        expected = model.fit(x, y, sample_weight=weight).predict(x_test, output_margin=True)
        np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_a_weight_of_two_is_a_row_twice(self):
        x, y = load_breast_cancer(return_X_y=True)
        x, y, settings = x[:200], y[:200], {"tree_method": "exact", "max_depth": 3}
        twice = np.arange(200) < 100
        model = self.model(objective=self.objective(), **settings)
        model.set_params(n_estimators=10, base_score=0.5)
        weighted = clone(model).fit(x, y, sample_weight=1.0 + twice)
        repeated = clone(model).fit(np.vstack([x, x[twice]]), np.append(y, y[twice]))
        np.testing.assert_allclose(
            weighted.predict(x, output_margin=True),
            repeated.predict(x, output_margin=True),
            atol=1e-3,
        )


class TestLightGBM:
    @pytest.fixture(autouse=True)
    def host(self):
        self.lightgbm = pytest.importorskip("lightgbm")
        from hitrate.integrations.lightgbm import AccuracyLGBMClassifier, AccuracyObjective

        self.objective, self.classifier = AccuracyObjective, AccuracyLGBMClassifier

    def model(self, **arguments):
        # LightGBM's own steps for many classes are longer than those of a bound: 1.1 to 2.
        rounds = {"n_estimators": 30, "learning_rate": 0.3}
        return self.classifier(n_jobs=1, verbose=-1, **rounds, **arguments)

    @often_two_objectives
    def test_its_classifier_is_as_accurate_as_by_default(self, split, name):
        x, x_test, y, y_test, margin = split
        plain = self.model().fit(x, y).score(x_test, y_test)
        ours = self.model(objective=self.objective(**OBJECTIVES[name])).fit(x, y)
        assert ours.score(x_test, y_test) > plain - margin

    def test_probabilities_are_those_of_the_objectives_noise(self, split):
        x, x_test, y, _, _ = split
        model = self.model(objective=self.objective("error", noise="normal", sigma=2.0))
        model.set_params(n_estimators=5).fit(x, y)
        raw = model.predict(x_test, raw_score=True)
        scores = np.column_stack([0 * raw, raw]) if raw.ndim == 1 else raw
        expected = hitrate.class_probabilities(torch.from_numpy(scores), 2.0)
        found = model.predict_proba(x_test)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        assert (model.predict(x_test) == scores.argmax(1)).all()

    def test_train_gives_the_same_scores_as_the_classifier(self, split):
        x, x_test, y, _, _ = split
        weight = np.random.default_rng(0).uniform(0.5, 1.5, len(y))
        settings = {"objective": self.objective(), "verbose": -1, "num_threads": 1}
        settings["learning_rate"] = 0.3
        if y.max() > 1:
            settings["num_class"] = y.max() + 1
        data = self.lightgbm.Dataset(x, y, weight=weight)
        booster = self.lightgbm.train(settings, data, num_boost_round=5)
        model = self.model(objective=self.objective()).set_params(n_estimators=5)
        expected = model.fit(x, y, sample_weight=weight).predict(x_test, raw_score=True)
        np.testing.assert_allclose(booster.predict(x_test, raw_score=True), expected)

    def test_names_of_classes_come_back(self):
        x, y = load_breast_cancer(return_X_y=True)
        names = np.array(["bad", "good"])[y]
        model = clone(self.model(objective=self.objective())).fit(x, names)
        assert (model.predict(x) == names).mean() > 0.97

    def test_another_objective_is_left_to_lightgbm(self):
        x, y = load_breast_cancer(return_X_y=True)
        ours = self.model().set_params(n_estimators=5)
        theirs = self.lightgbm.LGBMClassifier(**ours.get_params()).fit(x, y)
        ours.fit(x, y)
        np.testing.assert_array_equal(theirs.predict_proba(x), ours.predict_proba(x))
        np.testing.assert_array_equal(theirs.predict(x), ours.predict(x))


def test_an_objective_can_be_copied_and_stored():
    objective = BoostingObjective(Focused(0.25), noise="normal", sigma=0.5)
    for other in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        assert repr(other) == repr(objective)
        assert link_named(other.link, "here") == Focused(0.25)
