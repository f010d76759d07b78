"""Global minima of the toy problems, against scipy, other algorithms and closed forms."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, linprog, minimize, minimize_scalar
from scipy.special import expit, ndtr
from toy_formulas import FIRST, OF_MARGIN, SECOND, arrays, mean_loss

from hitrate_lab.toy import convex, studies
from hitrate_lab.toy.losses import CASES
from hitrate_lab.toy.minima import valleys

CASE = {case.name: case for case in CASES.values()}
LIMITS = ["EXACT", "expectation", "mean absolute error", "GCE", "truncated GCE", "EXACT, batch log"]
FINITE = [name for name in OF_MARGIN if name not in (*LIMITS, "hinge", "MPCE")]


@functools.cache
def first(name):
    """What the study finds for a loss on the first example."""
    return studies.lowest_at_weight_one(CASE[name])


@functools.cache
def second(name):
    return studies.lowest_of_all(CASE[name])


@functools.cache
def sigmas():
    return studies.sigma_rows()


@functools.cache
def tempered(name):
    return studies.temperature_row(CASE[name])


@pytest.mark.parametrize("name", CASE)
def test_the_loss_of_a_model_is_the_formula_written_out(name):
    weight, bias = np.random.default_rng(0).normal(0, 2, (2, 20))
    for example in (FIRST, SECOND):
        ours = CASE[name].of_models(example, torch.tensor(weight), torch.tensor(bias))
        truth = [mean_loss(name, example, w, c) for w, c in zip(weight, bias, strict=True)]
        assert ours.tolist() == pytest.approx(truth, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", [*FINITE, "EXACT", "GCE", "EXACT, batch log"])
def test_minimisers_of_the_first_example_are_those_that_scipy_finds(name):
    found = [
        minimize_scalar(
            lambda b: mean_loss(name, FIRST, 1.0, -b),
            bounds=(left, left + 2),
            method="bounded",
            options={"xatol": 1e-10},
        )
        for left in np.arange(-10, 10, 1.0)
    ]
    best = min(found, key=lambda result: result.fun)
    low, high = first(name).thresholds
    assert low == high == pytest.approx(best.x, abs=1e-4)


@pytest.mark.parametrize("name", ["expectation", "mean absolute error", "truncated GCE"])
def test_losses_said_to_fall_for_ever_do_so(name):
    assert first(name).thresholds == (math.inf, math.inf)
    values = [mean_loss(name, FIRST, 1.0, -b) for b in np.arange(0.25, 30, 0.25)]
    assert np.all(np.diff(values) < 0)
    assert values[-1] < min(mean_loss(name, FIRST, 1.0, -b) for b in np.linspace(-30, 0.25, 3000))


def test_cross_entropy_threshold_is_the_root_of_the_loss_slope():
    x, y = arrays(FIRST)

    def slope(b):  # d/db of sum log(1 + exp(-y (x - b))), Eq. 52 before simplification
        return np.sum(y / (1 + np.exp(y * (x - b))))

    threshold, _ = first("cross entropy").thresholds
    assert threshold == pytest.approx(brentq(slope, 0, 2), abs=1e-6)
    assert threshold == pytest.approx(0.7, abs=1e-3)


def test_hinge_minimisers_of_the_first_example_are_the_interval_of_the_paper():
    assert first("hinge").thresholds == pytest.approx((0.75, 1), abs=1e-8)


def test_hinge_is_flat_on_its_interval_and_higher_on_both_sides():
    def loss(b):
        return mean_loss("hinge", FIRST, 1.0, -b)

    assert loss(0.75) == loss(0.9) == loss(1.0) < min(loss(0.74), loss(1.01))


def test_mpce_is_zero_exactly_where_the_first_example_is_classified_perfectly():
    fit = first("MPCE")
    assert fit.thresholds == pytest.approx((0, 0.25), abs=1e-7)
    assert fit.is_perfect(FIRST)
    assert mean_loss("MPCE", FIRST, 1.0, -0.1) == 0 < mean_loss("MPCE", FIRST, 1.0, -0.251)


@pytest.mark.parametrize("sigma", [10.0, 1.0, 0.3, 0.1])
def test_the_closed_form_of_exact_is_the_only_zero_of_its_slope(sigma):
    x, y = arrays(FIRST)
    b = studies.minimiser_of_exact(sigma)

    def slope(b):  # positive factors left out, and the exponents made small
        u = y * (x - b)
        return np.sum(y * np.exp((b**2 - u**2) / (4 * sigma**2)))

    around = np.linspace(b / 10, 2 * b, 50)
    assert slope(b) == pytest.approx(0, abs=1e-8)
    assert all((slope(t) > 0) == (t > b) for t in around if abs(t - b) > 1e-6)


def test_exact_without_temperature_is_perfect_below_a_sigma_of_022_and_not_above():
    root = brentq(lambda v: v**4 - v**3 - 1, 1, 2)
    critical = 1 / (8 * math.sqrt(math.log(root)))
    assert critical == pytest.approx(0.2202, abs=1e-4)
    assert studies.minimiser_of_exact(critical) == pytest.approx(0.25, abs=1e-9)
    assert studies.minimiser_of_exact(0.99 * critical) < 0.25


@pytest.mark.slow
def test_the_fixed_sigma_table_agrees_with_the_search():
    for row in sigmas():
        if row.sigma <= 1:
            k = torch.tensor([1 / row.sigma], dtype=torch.float64)
            searched = valleys(CASES["exact"], FIRST, k).fit(0)
            assert searched.thresholds == pytest.approx(row.lowest.thresholds, abs=1e-5)


@pytest.mark.slow
def test_a_margin_as_wide_as_the_gap_makes_every_sigma_perfect_and_one_of_hinge_does_not():
    for row in sigmas():
        assert row.with_margin[0.25].thresholds[0] == pytest.approx(0.125, abs=1e-5)
        if row.sigma >= 1:
            assert row.with_margin[1.0].thresholds[0] == pytest.approx(0.75, abs=1e-4)


def test_least_squares_gives_the_max_mahalanobis_thresholds():
    assert first("max-Mahalanobis").thresholds[0] == pytest.approx(1 / 3)
    (model,) = second("max-Mahalanobis").models
    slope, intercept = np.polyfit(*arrays(SECOND), 1)
    assert [model.weight, model.bias] == pytest.approx([slope, intercept], abs=1e-5)
    assert model.threshold == pytest.approx(-8.5, abs=1e-4)


@pytest.mark.parametrize("name", FINITE)
def test_minimisers_of_the_second_example_are_those_that_scipy_finds(name):
    starts = np.random.default_rng(0).normal(0, 3, (12, 2))
    found = [
        minimize(lambda p: mean_loss(name, SECOND, *p), start, method="Nelder-Mead", tol=1e-10)
        for start in starts
    ]
    best = min(found, key=lambda result: result.fun)
    (model,) = second(name).models
    assert mean_loss(name, SECOND, model.weight, model.bias) <= best.fun + 1e-10
    assert [model.weight, model.bias] == pytest.approx(best.x, abs=1e-4)


@pytest.mark.parametrize("name", LIMITS)
def test_losses_that_are_bounded_fall_towards_one_error_as_the_weight_grows(name):
    fit = second(name)
    assert fit.grows
    assert fit.thresholds == (-6, -5)
    values = [mean_loss(name, SECOND, w, 5.5 * w) for w in (2, 4, 8, 16, 32, 1000)]
    assert np.all(np.diff(values[:-1]) < 0)
    starts = np.random.default_rng(0).normal(0, 3, (12, 2))
    for start in starts:
        found = minimize(lambda p: mean_loss(name, SECOND, *p), start, method="Nelder-Mead")
        assert found.fun > values[-1] - 1e-12


def test_mpce_of_the_second_example_is_least_where_the_model_says_nothing():
    (model,) = second("MPCE").models
    assert (model.weight, model.bias) == (0, 0)
    angles = np.linspace(0, 2 * np.pi, 1000)
    around = [mean_loss("MPCE", SECOND, 0.01 * np.cos(a), 0.01 * np.sin(a)) for a in angles]
    assert min(around) > 0


def test_cross_entropy_with_a_learned_weight_agrees_with_newton():
    _, theta = convex.minimize_cross_entropy(*convex.design(SECOND.points, True), SECOND.labels)
    (model,) = second("cross entropy").models
    assert [model.weight, model.bias] == pytest.approx(theta, abs=1e-5)


def test_hinge_with_a_learned_weight_agrees_with_linear_programming():
    x, y = arrays(SECOND)
    n = len(x)
    # Variables w, c and slacks s >= 0 with s >= 1 - y (w x + c); minimise the sum of the slacks.
    program = linprog(
        np.r_[0, 0, np.ones(n)],
        A_ub=np.c_[-y * x, -y, -np.eye(n)],
        b_ub=-np.ones(n),
        bounds=[(None, None)] * 2 + [(0, None)] * n,
    )
    value, corners = convex.minimize_hinge(*convex.design(SECOND.points, learn_weight=True), y)
    assert value == pytest.approx(program.fun, abs=1e-9)
    assert corners.tolist() == [[0.0, 1.0]]


def test_the_hinge_minimiser_of_the_second_example_is_unique_and_constant():
    x, y = arrays(SECOND)
    (model,) = second("hinge").models
    assert (model.weight, model.bias, model.threshold) == (0.0, 1.0, -math.inf)
    angles = np.linspace(0, 2 * np.pi, 1000)
    w, c = 1e-3 * np.cos(angles), 1 + 1e-3 * np.sin(angles)
    around = np.maximum(0, 1 - y * (np.outer(w, x) + c[:, None])).sum(1)
    assert around.min() > 4  # convex: larger all around means larger everywhere


@pytest.mark.parametrize(
    ("loss", "threshold"), [("cross entropy", -7.75), ("hinge", -11.0)], ids=str
)
def test_the_thresholds_printed_in_the_paper_are_near_optimal_but_not_optimal(loss, threshold):
    x, y = arrays(SECOND)
    best, _ = convex.SOLVERS[loss](*convex.design(x, learn_weight=True), y)
    pinned, _ = convex.SOLVERS[loss](0 * x, (x - threshold)[:, None], y)
    assert best + 1e-4 < pinned < 1.06 * best


def exact_slope_at_a_quarter(k):
    return sum(np.exp(-((k * u) ** 2) / 4) * sign for u, sign in ((0.5, -1), (0.25, -1), (0, 1)))


def logistic_slope_at_a_quarter(k):
    return sum(sign * expit(k * u) * expit(-k * u) for u, sign in ((0.5, -1), (0.25, -1), (0, 1)))


# The temperature at which b = 1/4 is optimal: a root of the slope there, or by hand.
PERFECT_FROM = {
    "cross entropy": 4 * math.log(brentq(lambda w: w**3 - w**2 - w - 3, 1, 3)),
    "hinge": 4.0,
    "EXACT": brentq(exact_slope_at_a_quarter, 1, 10),
    "expectation": brentq(logistic_slope_at_a_quarter, 1, 10),
    "max-Mahalanobis": 4 / 3,
    "MPCE": 0.0,
}


@pytest.mark.parametrize(
    "name",
    [
        name if name == "cross entropy" else pytest.param(name, marks=pytest.mark.slow)
        for name in PERFECT_FROM
    ],
)
def test_the_temperature_that_a_loss_needs_is_where_a_quarter_becomes_optimal(name):
    found = tempered(name).perfect_from
    assert found == pytest.approx(PERFECT_FROM[name], abs=1e-4)


@pytest.mark.slow
def test_truncated_gce_becomes_perfect_when_its_valley_sinks_below_its_limit():
    k = tempered("truncated GCE").perfect_from

    def valley(k):
        inside = np.linspace(0.05, 0.245, 2000)
        return min(mean_loss("truncated GCE", FIRST, k, -k * b) for b in inside)

    limit = mean_loss("truncated GCE", FIRST, 1.0, -50.0)
    assert valley(0.999 * k) > limit > valley(1.001 * k)


def test_expectation_falls_for_ever_until_the_temperature_is_large_enough():
    k = 4 * math.asinh(0.5) * torch.tensor([0.98, 1.02], dtype=torch.float64)
    found = valleys(CASES["expectation"], FIRST, k)
    assert found.left.isinf().tolist() == [True, False]


@pytest.mark.slow
def test_minimisers_with_a_bounded_temperature_follow_the_closed_forms():
    for k, fit in tempered("EXACT").bounded.items():
        expected = 0.125 if k > 100 else studies.minimiser_of_exact(1 / k)
        assert fit.thresholds[0] == pytest.approx(expected, abs=1e-4)
    for k, fit in tempered("max-Mahalanobis").bounded.items():
        assert fit.thresholds[0] == pytest.approx(1 / (3 * min(k, 4)), abs=1e-5)
    for k, fit in tempered("hinge").bounded.items():
        kinks = (abs(0.25 - 1 / k), 1 / k)
        ends = kinks if k < 8 else (1 / k, 0.25 - 1 / k)
        assert fit.thresholds == pytest.approx(ends, abs=1e-6)


@pytest.mark.slow
def test_the_least_loss_never_rises_with_the_temperature_but_for_least_squares(results):
    for row in results.temperatures:
        falls = bool((row.valleys.value.diff() <= 1e-12).all())
        assert falls == (row.loss != "max-Mahalanobis")


@pytest.mark.slow
def test_with_a_large_temperature_every_loss_is_least_at_a_perfect_threshold(results):
    for row in results.temperatures:
        for k in (10.0, 30.0, 100.0, 300.0):
            assert row.bounded[k].is_perfect(FIRST), row.loss


def test_sigma_is_the_noise_of_each_score():
    import hitrate

    p = hitrate.expected_accuracy(torch.tensor([[0.0, 0.3]]), torch.tensor([1]), 0.2)
    assert p.item() == pytest.approx(ndtr(0.3 / (0.2 * math.sqrt(2))), rel=1e-5)
