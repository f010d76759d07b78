"""The parts of the solver: rows of losses, the full-batch objective, line searches, the path."""

import itertools

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression

import hitrate
from hitrate.sklearn import AccuracyClassifier
from hitrate.sklearn.solvers.falling_sigma import sigmas
from hitrate.sklearn.solvers.homotopy import convex_start, path, spread
from hitrate.sklearn.solvers.linear_fit import solve
from hitrate.sklearn.solvers.objective import Objective, top
from hitrate.sklearn.solvers.row_losses import AnyLoss, ExactError, cross_entropy
from hitrate.sklearn.solvers.settings import Settings
from hitrate.sklearn.solvers.standardized import Standardized
from hitrate.sklearn.solvers.zero_one_search import LineSearch, best_piece, pivoted, polish
from hitrate.sklearn.tuning import folds, smoothest


def some_table(rows=200, features=4, classes=3, seed=0, thin=False):
    random = np.random.default_rng(seed)
    x = random.poisson(1.0, (rows, features)) + 0.1 * random.standard_normal((rows, features))
    x[:, 0] *= 100
    y = (x @ random.standard_normal((features, classes)) / [[1], [9], [9], [9]][0]).argmax(1)
    y = np.where(random.random(rows) < 0.2, random.integers(classes, size=rows), y)
    return Standardized(
        sparse.csr_array(x) if thin else x, y, random.uniform(0.5, 2, rows), classes
    )


@pytest.mark.parametrize("margin", [None, 0.5])
@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("sigma", [3.0, 0.5])
def test_rows_have_the_loss_and_slopes_of_the_library(classes, margin, sigma):
    scores = torch.randn(50, classes - 1, dtype=torch.float64, requires_grad=True)
    target = torch.randint(classes, (50,))
    every = torch.nn.functional.pad(scores, (1, 0))
    expected = hitrate.exact_loss(every, target, sigma, margin=margin, reduction="none")
    (expected_slopes,) = torch.autograd.grad(expected.sum(), scores)
    for nodes, error in ((8, 2e-2), (40, 1e-7)):
        loss, slopes = ExactError(sigma, margin, nodes=nodes)(scores.detach(), target)
        torch.testing.assert_close(loss, expected.detach(), atol=error, rtol=0)
        torch.testing.assert_close(slopes, expected_slopes, atol=error / sigma, rtol=0)


def test_cross_entropy_of_rows_is_that_of_torch():
    for classes in (2, 5):
        scores = torch.randn(50, classes - 1, dtype=torch.float64)
        target = torch.randint(classes, (50,))
        fast = cross_entropy(scores, target)
        slow = AnyLoss(hitrate.CrossEntropyLoss(reduction="none"))(scores, target)
        torch.testing.assert_close(fast, slow)


def test_slopes_are_those_of_the_sum_that_is_computed():
    rule, target = ExactError(0.7, nodes=8), torch.randint(4, (20,))
    scores = torch.randn(20, 3, dtype=torch.float64)
    _, slopes = rule(scores, target)
    step = 1e-6 * torch.randn_like(scores)
    change = rule(scores + step, target)[0] - rule(scores - step, target)[0]
    torch.testing.assert_close(change, 2 * (slopes * step).sum(1), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("thin", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_objectives_slopes_are_its_differences(classes, thin):
    objective = Objective(some_table(classes=classes, thin=thin))
    random = np.random.default_rng(1)
    theta = random.standard_normal((5, classes - 1))
    step = 1e-5 * random.standard_normal(theta.shape)
    rule = ExactError(1.0)
    for value in (
        lambda point: objective.loss(rule, point),
        lambda point: objective.penalty(point, 0.3),
    ):
        change = value(theta + step)[0] - value(theta - step)[0]
        assert change == pytest.approx(2 * (value(theta)[1] * step).sum(), rel=1e-4)


def test_sparse_and_dense_tables_are_the_same_table():
    dense, thin = some_table(), some_table(thin=True)
    theta = np.random.default_rng(1).standard_normal((5, 2))
    np.testing.assert_allclose(dense.scores(theta), thin.scores(theta))
    np.testing.assert_allclose(dense.gram(), thin.gram(), atol=1e-12)
    np.testing.assert_allclose(dense.dense(np.arange(9)), thin.dense(np.arange(9)), atol=1e-6)
    pairs = np.array([0, 5, 7]), np.array([0, 3, 1])
    np.testing.assert_allclose(dense.values(*pairs), thin.values(*pairs))
    coef, intercept = dense.outwards(theta)
    np.testing.assert_allclose(dense.inwards(coef, intercept), theta)
    raw = thin.x.toarray()
    np.testing.assert_allclose(raw @ coef.T + intercept, dense.scores(theta))


def test_a_constant_feature_and_large_means_do_no_harm():
    random = np.random.default_rng(0)
    x = np.column_stack([np.full(100, 0.1), 1e9 + random.standard_normal(100)])
    y = (x[:, 1] > 1e9).astype(int)
    model = AccuracyClassifier(l2=0, random_state=0).fit(x, y)
    assert model.score(x, y) == 1
    assert np.isfinite(model.coef_).all()


def test_without_l2_the_weights_keep_their_length():
    objective = Objective(some_table())
    start = convex_start(objective, None, l2=0.0, max_iter=50, tol=1e-5).theta
    (found,) = path(objective, ExactError, start, [0.3], l2=0.0, max_iter=30, tol=1e-5)
    length = np.linalg.norm(start[:-1]) / spread(objective, start)
    assert np.linalg.norm(found.theta[:-1]) == pytest.approx(length)
    assert found.value < objective.loss(ExactError(0.3), start / spread(objective, start))[0]


def test_sigmas_fall_in_equal_ratios():
    np.testing.assert_allclose(sigmas(1.0, 0.125, 0.5), [1, 0.5, 0.25, 0.125])
    assert sigmas(1.0, 2.0, 0.5) == [2.0]


def error_along(gap, slope, weight, s):
    return float(weight @ (gap + s * slope <= 0))


def test_the_best_piece_of_a_line_is_where_a_fine_grid_has_fewest_errors():
    random = np.random.default_rng(0)
    for _ in range(50):
        gap, slope = random.standard_normal(30), random.standard_normal((30, 3))
        slope[random.random((30, 3)) < 0.2] = 0
        weight = random.uniform(0.5, 2, 30)
        line, s = best_piece(gap, slope, weight)
        best = error_along(gap, slope[:, line], weight, s)
        for k in range(3):
            moving = slope[:, k] != 0
            ends = np.sort(-gap[moving] / slope[moving, k])
            # The piece that the line starts on is not among those to choose from.
            others = [(a + b) / 2 for a, b in itertools.pairwise(ends) if not a < 0 < b]
            assert best <= min(error_along(gap, slope[:, k], weight, m) for m in others) + 1e-9


@pytest.mark.parametrize("thin", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("classes", [2, 4])
def test_line_searches_keep_count_of_their_errors(classes, thin):
    table, random = some_table(classes=classes, thin=thin), np.random.default_rng(1)
    search = LineSearch(table, random.standard_normal((5, classes - 1)))
    for number in range(40):
        c = 1 if classes == 2 else number % classes
        before = search.error
        if number % 10 == 9:
            search.leap(c, pivoted(table, 6, random))
        else:
            search.step(c, random.standard_normal((5, 6)))
            assert search.error <= before + 1e-12
        wrong = top(table.scores(search.theta)) != table.target
        assert search.error == pytest.approx(table.weight @ wrong)


def test_a_pivoted_line_leaves_a_row_where_it_is():
    table = some_table()
    lines = pivoted(table, 12, np.random.default_rng(0))
    change = np.abs(table.scores(lines))
    assert (change.min(0)[lines[:-1].any(0)] < 1e-12).all()
    assert ((lines[:-1] != 0).sum(0) <= 1).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_polish_lowers_the_error(classes):
    table = some_table(classes=classes)
    start = convex_start(Objective(table), None, l2=0.0, max_iter=50, tol=1e-5).theta
    before = 1 - Objective(table).accuracy(start)
    theta, error = polish(table, start, breakpoints=300_000, random=np.random.default_rng(0))
    assert error < before - 0.01
    assert error == pytest.approx(1 - Objective(table).accuracy(theta))
    assert np.linalg.norm(theta) == pytest.approx(np.linalg.norm(start))


def test_polish_knows_the_rows_beside_the_boundary_of_skewed_features():
    # A few scores are a million times those of most rows: that is no rounding.
    random = np.random.default_rng(0)
    x = np.exp(5 * random.standard_normal((300, 5)))
    y = (np.log(x) @ random.standard_normal(5) + random.standard_normal(300) > 0).astype(int)
    table = Standardized(x, y, np.ones(300), 2)
    start = convex_start(Objective(table), None, l2=0.0, max_iter=50, tol=1e-5).theta
    theta, error = polish(table, start, breakpoints=300_000, random=random)
    assert error == pytest.approx(1 - Objective(table).accuracy(theta))
    assert error < 0.15 < 0.25 < 1 - Objective(table).accuracy(start)


def test_more_rows_than_fit_are_first_a_sample(monkeypatch):
    import hitrate.sklearn.solvers.linear_fit as module

    table, settings = some_table(rows=3000), Settings(l2=1e-3, sigma=0.25, polish=False)
    whole = solve(table, settings, np.random.default_rng(0))
    monkeypatch.setattr(module, "COARSE", 1000)
    coarse = solve(table, settings, np.random.default_rng(0))
    accuracy = Objective(table).accuracy
    assert accuracy(coarse.theta) == pytest.approx(accuracy(whole.theta), abs=0.01)


def test_folds_share_out_every_class():
    target = np.repeat([0, 1, 2], [50, 7, 1])
    parts = folds(target, 5, np.random.default_rng(0))
    assert sorted(np.concatenate(parts)) == list(range(58))
    for part in parts:
        assert (target[part] == 0).sum() == 10 and 1 <= (target[part] == 1).sum() <= 2


def test_a_rough_candidate_must_be_better_by_a_standard_error():
    weight = np.full(100, 0.01)
    smooth = np.arange(100) < 80
    little, much = smooth.copy(), smooth.copy()
    little[79:82] = [False, True, True]  # one hit lost, two won
    much[80:90] = True
    assert smoothest([smooth, little], weight) == 0
    assert smoothest([smooth, little, much], weight) == 2


@pytest.mark.parametrize(("data", "gain"), [(load_iris, 0.0), (load_wine, 0.01)])
def test_training_accuracy_is_at_least_that_of_the_likelihood(data, gain):
    x, y = data(return_X_y=True)
    x = x[:, :2]
    model = AccuracyClassifier(l2=0, random_state=0).fit(x, y)
    plain = LogisticRegression(C=np.inf, max_iter=10_000).fit(x, y)
    assert model.score(x, y) >= plain.score(x, y) + gain
