"""The network with a hidden layer: what it promises beyond scikit-learn's checks."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hitrate.sklearn.solvers.mlp_training as network
from hitrate import schedules
from hitrate.sklearn import AccuracyClassifier, AccuracyMLPClassifier
from hitrate.sklearn.mlp import NetworkParameters
from hitrate.sklearn.solvers.standardized import Standardized

QUICK = {"max_iter": 20, "hidden_size": 16, "random_state": 0}


def moons(rows=400, seed=0):
    x, y = make_moons(rows, noise=0.2, random_state=seed)
    # On two scales, far from zero.
    return x * [1000.0, 0.01] + [5e4, 3.0], y


def test_it_learns_what_no_linear_classifier_can():
    x, y = moons()
    x_test, y_test = moons(1000, seed=1)
    model = AccuracyMLPClassifier(random_state=0).fit(x, y)
    linear = AccuracyClassifier(random_state=0).fit(x, y)
    assert model.score(x_test, y_test) > 0.93
    assert model.score(x_test, y_test) > linear.score(x_test, y_test) + 0.03


LOSSES = {
    "cross_entropy": {},
    "mixed": {"focus": 0.25},
    "mixed_switch": {},
    "exact_networks": {},
    "exact": {"link": "gce", "q": schedules.linear(0.0, 1.0), "sigma": 1.0},
    "focal": {},
    "hinge": {},
}


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_by_its_name(loss):
    x, y = load_wine(return_X_y=True)
    model = AccuracyMLPClassifier(loss, loss_params=LOSSES[loss], **QUICK).fit(x, y)
    assert model.score(x, y) > 0.93
    assert model.loss_curve_[-1] < model.loss_curve_[0]


def test_the_same_seed_gives_the_same_network_and_torchs_state_stays():
    x, y = moons()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second = (AccuracyMLPClassifier(**QUICK).fit(x, y) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(first.coefs_, second.coefs_, strict=True):
        np.testing.assert_array_equal(a, b)
    other = AccuracyMLPClassifier(**{**QUICK, "random_state": 1}).fit(x, y)
    assert np.abs(other.coefs_[1] - first.coefs_[1]).max() > 1e-3


def test_the_kept_epoch_is_the_last_of_the_best():
    x, y = moons()
    settings = {**QUICK, "max_iter": 60, "n_iter_no_change": 5}
    model = AccuracyMLPClassifier(**settings).fit(x, y)
    seen = np.array(model.validation_scores_)
    assert len(seen) == len(model.loss_curve_) == model.n_iter_ < 60
    assert model.best_epoch_ == np.flatnonzero(seen == seen.max())[-1] + 1
    assert model.n_iter_ == np.argmax(seen) + 1 + 5


def test_held_out_accuracy_is_that_of_the_weights_that_are_kept(monkeypatch):
    x, y = moons()
    seen = []
    whole = network.train_network

    def watched(table, held_out, *others):
        seen.append((held_out, whole(table, held_out, *others)))
        return seen[-1][1]

    monkeypatch.setattr("hitrate.sklearn.mlp.train_network", watched)
    model = AccuracyMLPClassifier(**QUICK, refit=False).fit(x, y)
    ((held_out, found),) = seen
    hits = (found.network.scores(held_out)[:, 0] > 0) == held_out.target
    assert hits.mean() == pytest.approx(max(model.validation_scores_))
    raw = held_out.x * held_out.scale + held_out.center
    np.testing.assert_allclose(
        model.decision_function(raw), found.network.scores(held_out)[:, 0], rtol=1e-6, atol=1e-6
    )


def test_the_length_that_held_out_rows_choose_is_trained_on_all_rows(monkeypatch):
    x, y = moons()
    calls = []
    whole = network.train_network

    def watched(table, held_out, start, plan, random, last=None):
        calls.append((table, held_out, start, last))
        return whole(table, held_out, start, plan, random, last)

    monkeypatch.setattr("hitrate.sklearn.mlp.train_network", watched)
    model = AccuracyMLPClassifier(**QUICK).fit(x, y)
    (inside, held_out, first, _), (table, none, start, last) = calls
    assert (inside.rows, held_out.rows, table.rows) == (320, 80, 400)
    assert none is None and start is first and last == model.best_epoch_
    # What is told is of the training that chose, and the weights are others.
    alone = AccuracyMLPClassifier(**QUICK, refit=False).fit(x, y)
    assert model.validation_scores_ == alone.validation_scores_
    assert (model.n_iter_, model.best_epoch_) == (alone.n_iter_, alone.best_epoch_)
    assert np.abs(model.coefs_[0] - alone.coefs_[0]).max() > 1e-6


def test_a_shorter_training_is_the_beginning_of_a_longer_one():
    x, y = moons(100)
    table = Standardized(x, y, np.ones(100), 2)
    start = network.random_network(2, 8, 2, np.random.default_rng(0))
    plan = NetworkParameters("fit", AccuracyMLPClassifier(**QUICK).get_params()).plan()
    long, short = (
        network.train_network(table, None, start, plan, np.random.default_rng(1), last)
        for last in (None, 5)
    )
    assert (len(long.losses), short.best_epoch) == (20, 5)
    assert short.losses == long.losses[:5]


def test_ctrl_c_while_all_rows_are_trained_on_keeps_what_was_found(monkeypatch):
    x, y = moons()
    whole, calls = network.train_network, []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*arguments, **options)

    alone = AccuracyMLPClassifier(**QUICK, refit=False).fit(x, y)
    monkeypatch.setattr("hitrate.sklearn.mlp.train_network", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = AccuracyMLPClassifier(**QUICK).fit(x, y)
    np.testing.assert_array_equal(model.decision_function(x), alone.decision_function(x))


def test_without_early_stopping_all_rows_are_trained_on():
    x, y = moons()
    settings = {**QUICK, "max_iter": 50}
    model = AccuracyMLPClassifier(**settings, early_stopping=False).fit(x, y)
    assert model.validation_scores_ is None
    assert model.n_iter_ == model.best_epoch_ == 50
    assert model.score(x, y) > 0.9


def test_scores_are_the_formula_of_the_weights():
    x, y = load_iris(return_X_y=True)
    model = AccuracyMLPClassifier(**QUICK).fit(x, y)
    (w, v), (b, c) = model.coefs_, model.intercepts_
    logits = np.maximum(x @ w + b, 0) @ v + c
    assert (w.shape, v.shape) == ((4, 16), (16, 3))
    np.testing.assert_allclose(model.decision_function(x), logits - logits[:, :1], atol=1e-10)
    assert (model.predict(x) == logits.argmax(1)).all()


def test_the_papers_layer_is_as_wide_as_the_features():
    x, y = load_wine(return_X_y=True)
    model = AccuracyMLPClassifier(**{**QUICK, "hidden_size": "features"}).fit(x, y)
    assert model.coefs_[0].shape == (13, 13)


def test_sparse_rows_are_the_same_rows():
    random = np.random.default_rng(0)
    x = random.poisson(0.5, (300, 8)).astype(float)
    y = (x[:, 0] * x[:, 1] > x[:, 2]).astype(int)
    dense = AccuracyMLPClassifier(**QUICK).fit(x, y)
    thin = AccuracyMLPClassifier(**QUICK).fit(sparse.csr_matrix(x), y)
    np.testing.assert_allclose(
        dense.predict_proba(x), thin.predict_proba(sparse.csr_array(x)), atol=1e-3
    )


def test_a_row_without_weight_is_no_row_and_weights_act():
    x, y = moons()
    wrong = np.random.default_rng(0).random(len(y)) < 0.4
    y_wrong = np.where(wrong, 1, y)
    gone = AccuracyMLPClassifier(**QUICK).fit(x, y_wrong, sample_weight=~wrong)
    without = AccuracyMLPClassifier(**QUICK).fit(x[~wrong], y[~wrong])
    np.testing.assert_array_equal(gone.decision_function(x), without.decision_function(x))
    heavy = AccuracyMLPClassifier(**QUICK, class_weight={0: 20.0}).fit(x, y_wrong)
    plain = AccuracyMLPClassifier(**QUICK).fit(x, y_wrong)
    assert (heavy.predict(x) == 0).sum() > (plain.predict(x) == 0).sum() + 20


def test_a_warm_start_continues():
    x, y = load_wine(return_X_y=True)
    model = AccuracyMLPClassifier(**QUICK, warm_start=True).fit(x, y)
    scores = model.decision_function(x)
    model.set_params(max_iter=1, learning_rate=1e-9).fit(x, y)
    np.testing.assert_allclose(model.decision_function(x), scores, atol=1e-4)
    model.set_params(hidden_size=5).fit(x, y)
    assert model.coefs_[0].shape == (13, 5)


def test_probabilities_are_calibrated():
    x, y = moons(3000)
    flipped = np.random.default_rng(0).random(3000) < 0.2
    x, x_test, y, y_test = train_test_split(x, y ^ flipped, random_state=0)
    model = AccuracyMLPClassifier(**QUICK).fit(x, y)
    p = model.predict_proba(x_test)
    # One label in five is wrong, and a little of the moons overlaps: about 0.5 nats are left.
    assert log_loss(y_test, p) < 0.6
    sure = p.max(1) > 0.7
    right = model.predict(x_test)[sure] == y_test[sure]
    assert right.mean() == pytest.approx(p.max(1)[sure].mean(), abs=0.05)


def test_it_works_in_a_search_over_a_pipeline_with_names_of_classes():
    x, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = AccuracyMLPClassifier(**QUICK, learning_rate=0.02)
    steps = make_pipeline(StandardScaler(), model)
    grid = {"accuracymlpclassifier__loss": ["cross_entropy", "mixed_gradual"]}
    search = GridSearchCV(steps, grid, cv=2).fit(x, names)
    assert search.best_score_ > 0.85
    assert set(search.predict(x)) == set(names)
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert (again.predict(x) == search.predict(x)).all()
    assert clone(AccuracyMLPClassifier(device="cpu")).device == "cpu"


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    x, y = moons()
    whole, calls = network._accuracy, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(network, "_accuracy", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted after 7 of 20 epochs; kept epoch"):
        model = AccuracyMLPClassifier(**QUICK).fit(x, y)
    assert 1 <= model.best_epoch_ <= 7
    assert model.score(x, y) > 0.8


def test_ctrl_c_before_the_first_epoch_is_an_interrupt(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(network, "_logits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        AccuracyMLPClassifier(**QUICK).fit(*moons())


def test_few_rows_of_many_classes_fit_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.eye(5).repeat(2, 0)
        model = AccuracyMLPClassifier("exact_networks", **QUICK).fit(x, np.arange(10) // 2)
    assert np.isfinite(model.predict_proba(x)).all()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"loss": "square"}, "loss='square' is not one of 'annealed'"),
        ({"loss": "max_mahalanobis_center"}, "loss='max_mahalanobis_center' is not"),
        ({"loss_params": {"focal": 1}}, "loss_params=.'focal': 1.*focal is no argument"),
        ({"loss_params": 3}, "loss_params=3 must be None or a dict"),
        ({"hidden_size": 0}, "hidden_size=0 must be a whole number >= 1"),
        ({"hidden_size": "wide"}, "hidden_size='wide' is no word but 'features'"),
        ({"weight_decay": -1}, "weight_decay=-1 must be a number >= 0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be a number > 0"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"batch_size": "all"}, "batch_size='all' is no word but 'auto'"),
        ({"max_iter": True}, "max_iter=True"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0 must be a number > 0 and < 1"),
        ({"device": "abacus"}, "device='abacus' is not there"),
        ({"class_weight": {9: 1.0}}, "class_weight has 9"),
    ],
)
def test_a_wrong_parameter_is_shown(arguments, complaint):
    with pytest.raises(ValueError, match=rf"AccuracyMLPClassifier\(.*{complaint}"):
        AccuracyMLPClassifier(**arguments).fit(*moons(20))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_to_the_same_accuracy():
    x, y = moons()
    on = {name: AccuracyMLPClassifier(**QUICK, device=name).fit(x, y) for name in ("cpu", "auto")}
    assert on["auto"].score(x, y) == pytest.approx(on["cpu"].score(x, y), abs=0.02)


def test_a_random_network_has_the_reach_of_torchs_layers():
    table = Standardized(np.zeros((3, 25)), np.array([0, 1, 2]), np.ones(3), 3)
    start = network.random_network(table.features, 400, 3, np.random.default_rng(0))
    assert np.abs(start.hidden).max() == pytest.approx(1 / 5, rel=0.01)
    assert np.abs(start.output).max() == pytest.approx(1 / 20, rel=0.01)
