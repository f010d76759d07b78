"""Curvature along the noise of gradients, against dense matrices, closed forms and plain steps."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from sklearn.datasets import load_iris
from torch.nn.functional import cross_entropy

from hitrate.links import Mixed
from hitrate_lab.training.curvature import (
    Terms,
    estimated_noise,
    exact_noise,
    log_p,
    network_logits,
    row_gradients,
    row_norms,
)

CE, F0, F04, EL = Mixed(1, 0), Mixed(1, 1), Mixed(1, 5), Mixed(0, 1)
LOSSES = [CE, F0, F04, EL]
LAYERS = {"linear": [(4, 3)], "one hidden layer": [(4, 5), (5, 3)]}


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    # Every fifth row: few enough for dense matrices, of all three classes.
    return torch.from_numpy(x[::5]), torch.from_numpy(y[::5])


def weights_for(layers, seed=0):
    size = sum((inputs + 1) * outputs for inputs, outputs in layers)
    random = torch.Generator().manual_seed(seed)
    return 0.7 * torch.randn(size, generator=random, dtype=torch.float64)


def value(loss, logits, y):
    """A mixture's mean as torch's own functions have it."""
    p = torch.softmax(logits, 1)[torch.arange(len(y)), y]
    return loss.alpha * cross_entropy(logits, y) + loss.beta * (1 - p).mean()


def dense(loss, logits, weights, x, y):
    """Hessian (P, P) by backward passes, and gradients (N, P) row by row."""
    hessian = torch.autograd.functional.hessian(lambda w: value(loss, logits(w, x), y), weights)
    rows = []
    for k in range(len(x)):
        w = weights.clone().requires_grad_()
        rows.append(torch.autograd.grad(value(loss, logits(w, x[k : k + 1]), y[k : k + 1]), w)[0])
    return hessian, torch.stack(rows)


@pytest.mark.parametrize("model", LAYERS)
def test_the_exact_trace_is_that_of_a_dense_hessian_and_covariance(iris, model):
    x, y = iris
    logits, weights = network_logits(LAYERS[model]), weights_for(LAYERS[model])
    found, terms = exact_noise(logits, weights, x, y, LOSSES)
    for loss, noise in zip(LOSSES, found, strict=True):
        hessian, rows = dense(loss, logits, weights, x, y)
        covariance = torch.cov(rows.T, correction=0)
        trace = float(torch.trace(hessian @ covariance))
        assert abs(trace) > 1e-4
        assert noise.trace == pytest.approx(trace, abs=1e-10, rel=1e-10)
        assert noise.error == 0
        assert noise.norm == pytest.approx(float(rows.norm(dim=1).mean()))
        drift = rows.mean(0).square().sum() / rows.square().sum(1).mean()
        assert noise.drift == pytest.approx(float(drift))
    # Of 1 - p the Hessian is H_p, and the gradients are those of p but for their sign.
    hessian, rows = dense(EL, logits, weights, x, y)
    f_p = rows.T @ rows / len(x)
    assert terms.ff == pytest.approx(float(torch.trace(f_p @ f_p)), rel=1e-10)
    assert terms.hf == pytest.approx(float(torch.trace(hessian @ f_p)), rel=1e-10)
    p = torch.softmax(logits(weights, x), 1)[torch.arange(len(y)), y]
    assert terms.largest == pytest.approx(float(p.max()))


def test_a_linear_softmax_has_the_closed_form_of_the_textbook(iris):
    x, y = iris
    weights = weights_for(LAYERS["linear"])
    (noise,), _ = exact_noise(network_logits(LAYERS["linear"]), weights, x, y, [CE])
    rows = np.hstack([x.numpy(), np.ones((len(x), 1))])
    scores = rows @ weights.numpy().reshape(3, 5).T
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    hessian = np.mean(
        [
            np.kron(np.diag(q) - np.outer(q, q), np.outer(a, a))
            for a, q in zip(rows, p, strict=True)
        ],
        0,
    )
    gradients = [np.kron(q - np.eye(3)[k], a) for a, q, k in zip(rows, p, y, strict=True)]
    covariance = np.cov(np.array(gradients).T, bias=True)
    assert noise.trace == pytest.approx(np.trace(hessian @ covariance), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_half_the_trace_is_what_noise_adds_to_the_loss_in_a_step(iris, loss):
    x, y = iris
    logits, weights = network_logits(LAYERS["linear"]), weights_for(LAYERS["linear"])
    (noise,), _ = exact_noise(logits, weights, x, y, [loss])
    _, rows = dense(loss, logits, weights, x, y)

    def mean_after(rate):
        steps = weights - rate * (rows - rows.mean(0))
        return sum(float(value(loss, logits(w, x), y)) for w in steps) / len(x)

    rate = 3e-4
    added = (mean_after(rate) + mean_after(-rate)) / 2 - mean_after(0)
    assert added == pytest.approx(rate**2 * noise.trace / 2, rel=1e-4)


@pytest.mark.slow
def test_the_estimate_is_as_far_off_as_its_standard_error_says(iris):
    x, y = iris
    logits = network_logits(LAYERS["one hidden layer"])
    weights = weights_for(LAYERS["one hidden layer"])
    truth, terms = exact_noise(logits, weights, x, y, LOSSES)
    times = 40
    z, ff, hf = np.empty((times, len(LOSSES))), [], []
    for seed in range(times):
        found, about = estimated_noise(logits, weights, x, y, LOSSES, draws=60, seed=seed)
        z[seed] = [
            (each.trace - true.trace) / each.error for each, true in zip(found, truth, strict=True)
        ]
        ff.append(about.ff)
        hf.append(about.hf)
        assert (found[0].norm, found[0].drift) == pytest.approx((truth[0].norm, truth[0].drift))
        assert about.largest == terms.largest
    # Means of 40 have a standard error of 0.16, deviations one of about 0.11.
    assert abs(z.mean(0)).max() < 0.6
    assert 0.6 < z.std(0).min() < z.std(0).max() < 1.5
    for estimates, true in ((ff, terms.ff), (hf, terms.hf)):
        assert abs(np.mean(estimates) - true) < 4 * np.std(estimates) / np.sqrt(times)


def test_norms_of_rows_do_not_depend_on_how_many_go_at_once(iris, monkeypatch):
    x, y = iris
    logits = network_logits(LAYERS["one hidden layer"])
    weights = weights_for(LAYERS["one hidden layer"])
    monkeypatch.setattr("hitrate_lab.training.curvature.AT_ONCE", 100)
    norms = row_norms(logits, weights, x, y)
    torch.testing.assert_close(norms, row_gradients(logits, weights, x, y).norm(dim=1))
    whole, _ = exact_noise(logits, weights, x, y, [F0])
    monkeypatch.undo()
    parts, _ = exact_noise(logits, weights, x, y, [F0])
    assert whole[0].trace == pytest.approx(parts[0].trace, rel=1e-12)


def one_weight(weights, x):
    """Logits w x and 0."""
    return torch.cat([weights * x, torch.zeros_like(x)], 1)


def test_equation_18_as_printed_fails_at_a_minimum_where_it_can_be_done_by_hand():
    # One row with x = 1 under each of both labels: at w = 0 both have p = 1/2, and gradients of all
    # mixtures cancel. ∇p = ±1/4, ∇²p = 0, so Tr(F_p F_p) = 1/256 and Tr(H_p F_p) = 0.
    x, y = torch.ones(2, 1, dtype=torch.float64), torch.tensor([0, 1])
    weights = torch.zeros(1, dtype=torch.float64)
    (ce, f0, f04), terms = exact_noise(one_weight, weights, x, y, [CE, F0, F04])
    assert (terms.ff, terms.hf, terms.largest) == pytest.approx((1 / 256, 0, 1 / 2))
    # g = ±(1 + beta / 2) / 2, and the Hessian is that of CE, 1/4: (1 + beta / 2)² / 16.
    assert [each.trace for each in (ce, f0, f04)] == pytest.approx([1 / 16, 9 / 64, 49 / 64])
    assert terms.printed(1) == pytest.approx(17 / 256)
    assert f0.trace - ce.trace > terms.printed(1)
    assert terms.printed(5) == pytest.approx(325 / 256)
    assert f04.trace - ce.trace < terms.printed(5)
    # All p are M here.
    for beta, each in ((1, f0), (5, f04)):
        assert terms.of_equal_p(beta) == pytest.approx(each.trace - ce.trace)


def test_equation_18_as_printed_is_twice_what_rows_with_p_close_to_1_can_give():
    # ∇p falls with 1 - p and its square is all of F_p: with p at 1 only H_p F_p is left.
    terms = Terms(ff=0.0, hf=0.37, largest=1.0)
    for beta in (1.0, 5 / 3, 5.0):
        assert terms.of_equal_p(beta) == pytest.approx(((1 + beta) ** 3 - 1) * terms.hf)
        assert terms.printed(beta) == pytest.approx(2 * terms.of_equal_p(beta))


def test_at_a_minimum_of_ce_a_linear_classifier_has_more_of_both_parts_than_with_el(iris):
    # Two features, with which the classes overlap: otherwise there is no minimum.
    x, y = iris[0][:, :2], iris[1]
    logits = network_logits([(2, 3)])

    def loss_and_slope(w):
        w = torch.from_numpy(w).requires_grad_()
        loss = cross_entropy(logits(w, x), y)
        return loss.item(), torch.autograd.grad(loss, w)[0].numpy()

    found = minimize(loss_and_slope, np.zeros(9), jac=True, method="BFGS", options={"gtol": 1e-9})
    weights = torch.from_numpy(found.x)
    hessians, covariances = [], []
    for loss in (CE, EL):
        hessian, rows = dense(loss, logits, weights, x, y)
        hessians.append(hessian)
        covariances.append(torch.cov(rows.T, correction=0))
    for of_ce, of_el in (hessians, covariances):
        apart = torch.linalg.eigvalsh(of_ce - of_el)
        assert apart.min() > -1e-9
        assert apart.max() > 1e-3
    (ce, el), _ = exact_noise(logits, weights, x, y, [CE, EL])
    assert ce.drift < 1e-12
    assert el.trace < ce.trace


def test_away_from_a_minimum_the_expectation_loss_may_escape_better():
    # Both rows have the same gradient of CE, x (1 - p), at different p: no noise for CE alone.
    first = 0.9
    second = brentq(lambda x: x / (1 + np.exp(x)) - first / (1 + np.exp(first)), 1.3, 5)
    x = torch.tensor([[first], [second]], dtype=torch.float64)
    weights = torch.ones(1, dtype=torch.float64)
    (ce, el), _ = exact_noise(one_weight, weights, x, torch.zeros(2, dtype=torch.long), [CE, EL])
    assert ce.trace == pytest.approx(0, abs=1e-15)
    assert el.trace > 1e-5
    assert ce.drift == pytest.approx(1)


def test_log_p_is_minus_cross_entropy(iris):
    x, y = iris
    logits = network_logits(LAYERS["linear"])(weights_for(LAYERS["linear"]), x)
    torch.testing.assert_close(log_p(logits, y), -cross_entropy(logits, y, reduction="none"))


def test_one_draw_has_no_standard_error(iris):
    x, y = iris
    weights = weights_for(LAYERS["linear"])
    with pytest.raises(ValueError, match="needs two or more"):
        estimated_noise(network_logits(LAYERS["linear"]), weights, x, y, [CE], draws=1)
