"""What the estimator promises beyond scikit-learn's checks."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hitrate
from hitrate.losses import LOSSES
from hitrate.sklearn import AccuracyClassifier

FIXED = {"l2": 0.01, "sigma": 0.5, "margin": None, "polish": False, "random_state": 0}
NAMES = [name for name in LOSSES if name != "max_mahalanobis_center"]


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    return x, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


@pytest.mark.parametrize("loss", NAMES)
def test_every_loss_of_the_family_trains_a_classifier(loss, iris):
    x, y = iris
    model = AccuracyClassifier(loss, l2=0.01, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.9
    assert (
        model.predict_proba(x).argmax(1).tolist() == model.decision_function(x).argmax(1).tolist()
    )


def test_other_noises_and_links_are_arguments_of_the_loss(cancer):
    x, y = cancer
    softmax = AccuracyClassifier(loss_params={"noise": "gumbel"}, **FIXED).fit(x, y)
    named = AccuracyClassifier("expectation", **FIXED).fit(x, y)
    np.testing.assert_allclose(softmax.coef_, named.coef_, rtol=1e-6)
    gce = AccuracyClassifier(loss_params={"link": "gce"}, **FIXED).fit(x, y)
    assert np.abs(gce.coef_ - softmax.coef_).max() > 1e-3


def test_parameters_of_a_link_are_arguments_as_in_recipes(cancer):
    x, y = cancer
    fits = [
        AccuracyClassifier(loss_params=params, **FIXED).fit(x, y).coef_
        for params in ({"link": "gce", "q": 0.3}, {"link": hitrate.links.GCE(0.3)})
    ]
    np.testing.assert_array_equal(*fits)
    with pytest.raises(ValueError, match=r"'slope': 3\}: slope is no argument .* parameter of GCE"):
        AccuracyClassifier(loss_params={"link": "gce", "slope": 3}).fit(x, y)
    with pytest.raises(ValueError, match="nothing moves along with the falling sigma; give q"):
        AccuracyClassifier(loss_params={"link": "gce", "q": lambda at: at}).fit(x, y)


@pytest.mark.parametrize("data", [load_breast_cancer, load_wine])
def test_cross_entropy_with_l2_is_logistic_regression(data):
    x, y = data(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    ours = AccuracyClassifier("cross_entropy", l2=1 / len(x), tol=1e-9, max_iter=1000).fit(x, y)
    theirs = LogisticRegression(C=1.0, tol=1e-9, max_iter=10_000).fit(x, y)
    expected = theirs.coef_ if len(theirs.classes_) == 2 else theirs.coef_ - theirs.coef_[0]
    np.testing.assert_allclose(ours.coef_, expected, atol=1e-3)


def test_the_first_of_several_classes_has_score_zero(iris):
    x, y = iris
    model = AccuracyClassifier(**FIXED).fit(x, y)
    assert model.coef_.shape == (3, 4) and not model.coef_[0].any() and model.intercept_[0] == 0
    np.testing.assert_allclose(model.decision_function(x), x @ model.coef_.T + model.intercept_)
    assert model.predict(x).dtype == y.dtype


def test_two_classes_have_one_score(cancer):
    x, y = cancer
    model = AccuracyClassifier(**FIXED).fit(x, np.where(y, "benign", "malign"))
    scores = model.decision_function(x)
    assert model.coef_.shape == (1, x.shape[1]) and scores.shape == (len(x),)
    assert (model.predict(x) == np.where(scores > 0, "malign", "benign")).all()


@pytest.mark.parametrize("settings", [{}, FIXED, {"l2": 0}], ids=["auto", "fixed", "l2=0"])
def test_sparse_rows_are_fitted_like_dense_ones(settings):
    random = np.random.default_rng(0)
    x = random.poisson(0.3, (300, 12)).astype(float)
    y = (x[:, :3].sum(1) + random.standard_normal(300) > 1).astype(int)
    settings = {**settings, "random_state": 0}
    dense = AccuracyClassifier(**settings).fit(x, y)
    thin = AccuracyClassifier(**settings).fit(sparse.csr_array(x), y)
    assert (dense.predict(x) == thin.predict(sparse.csr_matrix(x))).mean() > 0.99
    np.testing.assert_allclose(dense.predict_proba(x), thin.predict_proba(x), atol=0.02)


def test_a_row_of_weight_zero_is_no_row(iris):
    x, y = iris
    weight = np.ones(len(x))
    weight[::3] = 0
    weighted = AccuracyClassifier(random_state=0).fit(x, y, weight)
    without = AccuracyClassifier(random_state=0).fit(x[weight > 0], y[weight > 0])
    np.testing.assert_array_equal(weighted.coef_, without.coef_)
    np.testing.assert_array_equal(weighted.predict_proba(x), without.predict_proba(x))


def test_a_weight_of_two_is_a_row_twice(iris):
    x, y = iris
    weight = np.where(np.arange(len(x)) % 2, 2.0, 1.0)
    twice = np.repeat(np.arange(len(x)), weight.astype(int))
    exactly = {**FIXED, "tol": 1e-12, "max_iter": 5000}
    weighted = AccuracyClassifier(**exactly).fit(x, y, weight)
    repeated = AccuracyClassifier(**exactly).fit(x[twice], y[twice])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-3, atol=1e-4)


def test_class_weights_are_factors_of_the_rows_weights(iris):
    x, y = iris
    x, y = x[:120], y[:120]
    balanced = AccuracyClassifier(class_weight="balanced", **FIXED).fit(x, y)
    named = {"setosa": 0.8, "versicolor": 0.8, "virginica": 2.0}
    by_name = AccuracyClassifier(class_weight=named, **FIXED).fit(x, y)
    by_row = AccuracyClassifier(**FIXED).fit(x, y, [named[label] for label in y])
    np.testing.assert_allclose(by_name.coef_, by_row.coef_)
    np.testing.assert_allclose(balanced.coef_, by_row.coef_, rtol=1e-6)


def test_without_l2_the_outlier_of_the_toy_example_costs_nothing():
    # Section 3 of the paper: cross entropy and hinge give up a point for a far one.
    x = np.array([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0], [30.0]])
    y = np.array([0, 0, 0, 1, 1, 1, 0])
    errors = len(y) - (AccuracyClassifier(l2=0, random_state=0).fit(x, y).predict(x) == y).sum()
    assert errors == 1
    assert (LogisticRegression(C=np.inf).fit(x, y).predict(x) != y).sum() > 1


def test_the_same_seed_gives_the_same_model(cancer):
    x, y = cancer
    first, second = (AccuracyClassifier(random_state=3).fit(x, y) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert first.calibration_ == second.calibration_


def test_auto_settings_are_told(cancer):
    x, y = cancer
    model = AccuracyClassifier(random_state=0).fit(x, y)
    assert model.l2_ > 0 and model.sigma_ > 0 and model.margin_ in (None, 1.0)
    assert model.polish_ in (True, False) and model.n_iter_ >= 1
    free = AccuracyClassifier(l2=0, random_state=0).fit(x, y)
    assert (free.l2_, free.sigma_, free.margin_, free.polish_) == (0, 0.01, None, True)


def test_with_all_defaults_the_convex_start_may_stay():
    random = np.random.default_rng(0)
    x = random.standard_normal((300, 4))
    # Which likelihood is right about, but for noise.
    y = x[:, 0] + random.logistic(size=300) > 0
    model = AccuracyClassifier(random_state=0).fit(x, y)
    assert (model.sigma_, model.margin_, model.polish_) == (np.inf, None, False)


def test_float32_rows_give_nearly_the_same_model(cancer):
    x, y = cancer
    double = AccuracyClassifier(**FIXED).fit(x, y)
    single = AccuracyClassifier(**FIXED).fit(x.astype(np.float32), y)
    assert (double.predict(x) == single.predict(x.astype(np.float32))).mean() > 0.99


def test_a_warm_start_begins_where_the_last_fit_ended(cancer):
    x, y = cancer
    model = AccuracyClassifier(warm_start=True, **FIXED).fit(x, y)
    first, weights = model.n_iter_, model.coef_
    model.fit(x, y)
    assert model.n_iter_ < first / 3
    np.testing.assert_allclose(
        model.decision_function(x), x @ weights[0] + model.intercept_, atol=1
    )
    # Other classes begin anew.
    model.fit(x, np.where(y, "b", "a"))
    np.testing.assert_allclose(model.coef_, weights)


def test_a_stage_that_is_cut_short_warns(cancer):
    x, y = cancer
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        model = AccuracyClassifier(**FIXED, max_iter=2).fit(x, y)
    # The start, and two ways from it.
    assert model.n_iter_ <= 2 * (1 + 2 + 3)


def test_early_stopping_ends_the_path_where_held_out_rows_say():
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 40))
    y = (x[:, 0] + 2 * random.standard_normal(200) > 0).astype(int)
    settings = {"l2": 0.01, "sigma": 0.01, "margin": None, "polish": False, "random_state": 0}
    to_the_end = AccuracyClassifier(**settings).fit(x, y)
    stopped = AccuracyClassifier(early_stopping=True, **settings).fit(x, y)
    assert to_the_end.sigma_ == 0.01 < stopped.sigma_
    assert stopped.score(x, y) < to_the_end.score(x, y)


def test_it_takes_its_place_in_pipelines_and_searches(iris):
    x, y = iris
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), clone_of_fixed())
    pipeline.fit(x, y)
    assert pipeline[-1].feature_names_in_.tolist() == ["x0", "x1", "x2", "x3"]
    assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.9
    search = GridSearchCV(clone_of_fixed(), {"l2": [1e-3, 1.0], "sigma": [0.25, 1.0]}, cv=3)
    assert search.fit(x, y).best_score_ > 0.9
    assert search.best_estimator_.l2_ == search.best_params_["l2"]


def clone_of_fixed():
    return clone(AccuracyClassifier(**FIXED))


def test_far_outliers_do_not_spoil_the_probabilities():
    random = np.random.default_rng(0)
    x = random.standard_normal((1000, 2))
    y = (x[:, 0] + 0.1 * random.standard_normal(1000) > 0).astype(int)
    outliers = random.random(1000) < 0.1
    x[outliers, 0] = 50
    y[outliers] = 0
    model = AccuracyClassifier(l2=0, random_state=0).fit(x, y)
    assert 0.1 < model.calibration_.lapse < 0.4
    assert model.predict_proba([[-1.0, 0.0], [1.0, 0.0]])[[0, 1], [0, 1]].min() > 0.8


def test_probabilities_are_calibrated():
    x, y = make_classification(
        6000, 10, n_informative=5, n_classes=3, flip_y=0.1, class_sep=0.8, random_state=0
    )
    train, test = slice(0, 2000), slice(2000, None)
    for settings in ({}, {"l2": 0}, {"loss": "expectation", "l2": 0.001}):
        model = AccuracyClassifier(**settings, random_state=0).fit(x[train], y[train])
        p = model.predict_proba(x[test])
        np.testing.assert_allclose(p.sum(1), 1)
        assert (model.classes_[p.argmax(1)] == model.predict(x[test])).all()
        # Expected and true number of hits: four standard errors, and 3% for the temperature.
        claimed, true = p.max(1), model.predict(x[test]) == y[test]
        deviation = np.sqrt((claimed * (1 - claimed)).sum())
        assert abs(claimed.sum() - true.sum()) < 4 * deviation + 0.03 * len(true)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(x[test])), p)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"loss": "accuracy"}, "loss='accuracy' is not one of 'cross_entropy', 'exact'"),
        ({"loss": "max_mahalanobis_center"}, "is not one of"),
        ({"solver": "lbfgs"}, "solver='lbfgs' is not one of 'homotopy', 'sgd'"),
        ({"l2": -1.0}, "l2=-1.0 must be a number >= 0"),
        ({"l2": "none"}, "l2='none' is no word but 'auto'"),
        ({"sigma": 0}, "sigma=0 must be a number > 0"),
        ({"margin": -0.1}, "margin=-0.1 must be a number >= 0"),
        ({"polish": "no"}, "polish='no' is no word but 'auto'"),
        ({"max_iter": 0}, "max_iter=0 must be a whole number >= 1"),
        ({"tol": 0.0}, "tol=0.0 must be a number > 0"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0 must be a number > 0 and < 1"),
        ({"loss_params": "gce"}, "loss_params='gce' must be None or a dict"),
        ({"loss_params": {"slope": 1}, "l2": 0.1}, "loss_params={'slope': 1}"),
        ({"loss": "focal", "margin": 1.0}, "loss='focal' has no margin"),
        ({"class_weight": {"x": 1.0}}, "class_weight has 'x', which is no class of y"),
        ({"class_weight": "even"}, "class_weight='even' must be None, 'balanced' or a dict"),
    ],
)
def test_a_wrong_parameter_is_named_with_its_value(settings, complaint, iris):
    with pytest.raises(ValueError, match="AccuracyClassifier") as raised:
        AccuracyClassifier(**settings).fit(*iris)
    assert complaint in str(raised.value)


def test_without_scikit_learn_one_line_says_what_to_install():
    program = "import sys; sys.modules['sklearn'] = None; import hitrate, hitrate.sklearn"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = run.stderr.strip().splitlines()[-1]
    assert last == "ImportError: hitrate.sklearn needs scikit-learn: pip install 'hitrate[sklearn]'"
