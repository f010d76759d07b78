"""log p of all classes at once: against truth from outside, and the contract of every function."""

import functools
import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.special import log_expit, log_ndtr, logsumexp
from torch.autograd import gradcheck, gradgradcheck

import hitrate
from hitrate.probability import log_class_probabilities
from hitrate.probability.noises import NOISES

# |error of log p| / max(1, |log p|), error of a Jacobian's row / its largest entry
BOUNDS = {torch.float64: (1e-9, 1e-7), torch.float32: (5e-6, 5e-5)}

integrated = pytest.mark.parametrize("noise", ["normal", "logistic"])
every_noise = pytest.mark.parametrize("noise", NOISES)
each_dtype = pytest.mark.parametrize("dtype", BOUNDS, ids=["float64", "float32"])


def truth(logits: np.ndarray, noise: str) -> tuple[np.ndarray, np.ndarray]:
    """log p (C,) and its Jacobian (C, C) for one row, by scipy and many nodes far beyond both ends.

    The Jacobian off its diagonal is minus the mean of h(x_i) given that c wins, math (26).
    """
    below = logits.max() - logits
    classes, depth = len(below), below.max()
    if noise == "normal":
        step = 0.25 / np.sqrt(1 + 3 * depth + 2 * np.log(classes))
        u = np.arange(-depth / 2 - 10.0, 13.0, step)
    else:
        step = 0.1
        u = np.arange(-depth - 60.0, 80.0, step)
    x = below[:, None] + u
    log_cdf = log_ndtr(x) if noise == "normal" else log_expit(x)
    log_density = (
        -0.5 * (x * x + np.log(2 * np.pi)) if noise == "normal" else log_cdf + log_expit(-x)
    )
    log_hazard = log_density - log_cdf
    terms = log_hazard + log_cdf.sum(0) + np.log(step)
    log_p = logsumexp(terms, 1)
    jacobian = -np.exp(terms - log_p[:, None]) @ np.exp(log_hazard).T
    np.fill_diagonal(jacobian, 0.0)
    np.fill_diagonal(jacobian, -jacobian.sum(1))
    if log_p[top := logits.argmax()] > -0.5:
        log_p[top] = np.log1p(-np.exp(np.delete(log_p, top)).sum())
    return log_p, jacobian


def rows(classes: int) -> list[np.ndarray]:
    """Logits exact in float32: by chance, tied, a certain leader, a crowd halfway, a ladder."""
    rng = np.random.default_rng(classes)
    found = [rng.standard_normal(classes) * scale for scale in (0.05, 0.5, 1.0, 2.0, 4.0, 8.0)]
    found = [row for row in found if np.ptp(row) <= 40]
    for depth in (1.0, 6.0, 20.0, 40.0, 65.0):
        tied, leader = np.zeros(classes), np.full(classes, -depth)
        tied[-1], leader[0] = -depth, 0.0
        found += [tied, leader]
        if depth <= 40:
            halfway = leader.copy()
            halfway[1 : classes // 2] = -depth / 2
            found += [halfway, np.linspace(0.0, -depth, classes)]
    return [rng.permutation(row).astype(np.float32).astype(np.float64) for row in found]


@functools.cache
def cases(classes: int, noise: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return [(row, *truth(row, noise)) for row in rows(classes)]


def errors(row, log_p, jacobian, noise, dtype, function=log_class_probabilities):
    """Errors of value (C,) and gradient (C,), in the units of `BOUNDS`."""
    x = torch.tensor(row[None]).to(dtype)
    value = function(x, noise=noise)[0].double().numpy()
    found = torch.autograd.functional.jacobian(lambda x: function(x, noise=noise)[0], x)[:, 0]
    # Gradients that the dtype cannot hold are not asked for.
    size = np.maximum(abs(jacobian).max(1), 1e-30 if dtype == torch.float32 else 1e-280)
    of_value = abs(value - log_p) / np.maximum(1.0, abs(log_p))
    return of_value, abs(found.double().numpy() - jacobian).max(1) / size


def value_and_slopes(function, logits, weights):
    x = logits.clone().requires_grad_()
    value = function(x)
    return value.detach(), torch.autograd.grad((value * weights).sum(), x)[0]


@each_dtype
@integrated
@pytest.mark.parametrize("classes", [2, 3, 10, pytest.param(100, marks=pytest.mark.slow)])
def test_value_and_jacobian_are_accurate_from_p_near_1_to_log_p_of_minus_1000(
    classes, noise, dtype
):
    found = [errors(*case, noise, dtype) for case in cases(classes, noise)]
    of_value, of_gradient = (np.concatenate(parts).max() for parts in zip(*found, strict=True))
    assert of_value <= BOUNDS[dtype][0]
    assert of_gradient <= BOUNDS[dtype][1]


def test_the_rows_of_the_test_above_reach_as_far_as_it_says():
    for classes in (2, 3, 10, 100):
        log_p = np.concatenate([case[1] for case in cases(classes, "normal")])
        assert log_p.min() < -1000
        assert (log_p > -1e-50).any()


@pytest.mark.slow
@integrated
@pytest.mark.parametrize("row", [(0.3, -0.7), (2.0, 5.0, 3.5), (-6.0, 4.0, 1.0, 0.0, 4.0)])
def test_the_reference_agrees_with_mpmath(row, noise):
    def cdf(x):
        return mpmath.ncdf(x) if noise == "normal" else 1 / (1 + mpmath.exp(-x))

    def density(x):
        return mpmath.npdf(x) if noise == "normal" else cdf(x) * cdf(-x)

    log_p, jacobian = truth(np.array(row), noise)
    ends = [-70, -30, -16, -10, -6, -3, -1, 1, 3, 6, 10, 16, 30, 90]

    def p_of(c, m):
        def integrand(u):
            rivals = mpmath.fprod(cdf(u - each) for i, each in enumerate(m) if i != c)
            return density(u - m[c]) * rivals

        return mpmath.quad(integrand, ends)

    with mpmath.workdps(30):
        shift = mpmath.mpf(10) ** -8
        moved = [each + shift * (i == 1) for i, each in enumerate(row)]
        for c in range(len(row)):
            exact = mpmath.log(p_of(c, row))
            assert log_p[c] == pytest.approx(float(exact), rel=1e-11)
            slope = (mpmath.log(p_of(c, moved)) - exact) / shift
            assert jacobian[c, 1] == pytest.approx(float(slope), rel=1e-6)


@every_noise
@pytest.mark.parametrize("classes", [2, 3, 10, 60])
def test_every_class_as_the_target_of_log_expected_accuracy_says_the_same(classes, noise):
    logits = torch.cat([torch.randn(4, classes, dtype=torch.float64) * s for s in (0.3, 1.0, 5.0)])
    count = len(logits)
    weights = torch.randn(count, classes, dtype=torch.float64)

    def one_by_one(x):
        targets = torch.arange(classes).repeat(count)
        spread = x.repeat_interleave(classes, 0)
        log_p = hitrate.log_expected_accuracy(
            spread, targets, 0.8, noise=noise, method="quadrature"
        )
        return log_p.view(count, classes)

    expected = value_and_slopes(one_by_one, logits, weights)
    found = value_and_slopes(
        lambda x: log_class_probabilities(x, 0.8, noise=noise), logits, weights
    )
    torch.testing.assert_close(found[0], expected[0], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-7, atol=1e-7)


@each_dtype
@pytest.mark.parametrize("lead", [3.0, 8.0, 16.0])
def test_a_certain_winner_keeps_the_digits_of_one_minus_p(lead, dtype):
    logits = torch.tensor([[lead, 0.0, -0.5, -2.0]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    expected = value_and_slopes(
        lambda x: hitrate.log_expected_accuracy(x, torch.tensor([0]))[:, None], logits, weights
    )
    found = value_and_slopes(log_class_probabilities, logits.to(dtype), weights.to(dtype))
    rtol = {torch.float64: 1e-9, torch.float32: 5e-5}[dtype]
    torch.testing.assert_close(found[0][:, :1].double(), expected[0], rtol=rtol, atol=0.0)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=rtol, atol=0.0)


@integrated
@pytest.mark.parametrize("far", [-1e2, -1e3, -1e4, -1e9])
def test_a_class_far_down_does_not_disturb_the_others(far, noise):
    logits = torch.randn(20, 6, dtype=torch.float64)
    masked = torch.cat([logits, torch.full((20, 1), far, dtype=torch.float64)], 1)
    weights = torch.randn(20, 6, dtype=torch.float64)
    function = functools.partial(log_class_probabilities, noise=noise)
    expected = value_and_slopes(function, logits, weights)
    found = value_and_slopes(lambda x: function(x)[:, :6], masked, weights)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found[1][:, :6], expected[1], rtol=1e-8, atol=1e-9)


@each_dtype
@integrated
@pytest.mark.parametrize("depth", [100.0, 300.0, 1000.0, 4000.0])
def test_far_below_eighty_sigma_the_error_is_as_documented(depth, noise, dtype):
    rng = np.random.default_rng(0)
    chance = rng.standard_normal(7)
    tied = np.array([0.0, 0.0, 0.0, -depth])
    for row in (np.array([0.0, -depth]), tied, chance * depth / np.ptp(chance)):
        row = row.astype(np.float32).astype(np.float64)
        of_value, of_gradient = errors(row, *truth(row, noise), noise, dtype)
        assert of_value.max() < 3e-3
        assert of_gradient.max() < 0.1


@each_dtype
@every_noise
def test_no_probability_exceeds_one_and_the_exponentials_sum_to_one(noise, dtype):
    logits = torch.cat([torch.randn(50, 7, dtype=dtype) * s for s in (0.1, 1.0, 10.0)])
    log_p = log_class_probabilities(logits, noise=noise)
    assert (log_p <= 0).all()
    tolerance = {torch.float64: 1e-9, torch.float32: 3e-6}[dtype]
    assert (log_p.exp().sum(1) - 1).abs().max() < tolerance
    p = hitrate.class_probabilities(logits, noise=noise)
    torch.testing.assert_close(p, log_p.exp(), rtol=tolerance, atol=tolerance)
    assert (p.sum(1) - 1).abs().max() < 8 * torch.finfo(dtype).eps


@each_dtype
@integrated
def test_moving_all_logits_together_changes_nothing(noise, dtype):
    logits = torch.randn(20, 9, dtype=dtype)
    weights = torch.randn(20, 9, dtype=dtype)
    function = functools.partial(log_class_probabilities, noise=noise)
    value, slopes = value_and_slopes(function, logits, weights)
    bound = 100 * torch.finfo(dtype).eps
    assert slopes.sum(1).abs().max() < bound * slopes.abs().max()
    torch.testing.assert_close(function(logits + 3.0), value, rtol=10 * bound, atol=10 * bound)


SIGMAS = {
    "number": torch.tensor(0.8, dtype=torch.float64),
    "per_row": torch.tensor([0.5, 0.9, 1.6], dtype=torch.float64),
    "column": torch.tensor([[0.5], [0.9], [1.6]], dtype=torch.float64),
}
each_sigma = pytest.mark.parametrize("sigma", SIGMAS.values(), ids=SIGMAS)


@every_noise
@each_sigma
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_first_and_second_derivatives_are_right_in_every_mode(scale, sigma, noise):
    logits = scale * torch.randn(3, 4, dtype=torch.float64)
    inputs = (logits.requires_grad_(), sigma.clone().requires_grad_())

    def function(x, s):
        return log_class_probabilities(x, s, noise=noise)

    assert gradcheck(function, inputs, check_forward_ad=True)
    # Forward over reverse and double backward.
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True)


@integrated
def test_the_hessian_of_one_class_is_that_of_log_expected_accuracy(noise):
    logits = torch.randn(1, 4, dtype=torch.float64)
    for c in range(4):
        expected = torch.func.hessian(
            lambda x, c=c: hitrate.log_expected_accuracy(x, torch.tensor([c]), noise=noise).sum()
        )(logits)
        found = torch.func.hessian(lambda x, c=c: log_class_probabilities(x, noise=noise)[0, c])(
            logits
        )
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


@every_noise
def test_func_transforms_agree_with_backward(noise):
    logits = torch.randn(5, 4, dtype=torch.float64)
    weights = torch.randn(5, 4, dtype=torch.float64)
    function = functools.partial(log_class_probabilities, noise=noise)
    value, slopes = value_and_slopes(function, logits, weights)
    found = torch.func.grad(lambda x: (function(x) * weights).sum())(logits)
    torch.testing.assert_close(found, slopes, rtol=0, atol=0)

    tangent = torch.randn_like(logits)
    pushed, along = torch.func.jvp(function, (logits,), (tangent,))
    torch.testing.assert_close(pushed, value)
    torch.testing.assert_close((along * weights).sum(), (slopes * tangent).sum())
    torch.testing.assert_close(
        torch.func.jacfwd(function)(logits), torch.func.jacrev(function)(logits)
    )

    # Per row, and rows that need different numbers of nodes.
    each = torch.vmap(torch.func.grad(lambda x, w: (function(x[None])[0] * w).sum()))
    torch.testing.assert_close(each(logits, weights), slopes, rtol=1e-9, atol=1e-10)


@every_noise
def test_vmap_equals_a_loop_over_any_axis(noise):
    stacked = torch.randn(2, 3, 4, dtype=torch.float64) * torch.tensor([1.0, 20.0, 100.0])[:, None]
    for axis in (0, 1):
        function = functools.partial(log_class_probabilities, noise=noise)
        found = torch.vmap(function, in_dims=axis)(stacked)
        expected = torch.stack([function(x) for x in stacked.unbind(axis)])
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-10)


@pytest.mark.slow
@every_noise
def test_compiles_into_one_graph_with_the_same_numbers(noise):
    torch.compiler.reset()
    logits = torch.randn(6, 5) * torch.tensor([0.1, 1.0, 3.0, 10.0, 20.0, 1.0])[:, None]
    logits[5, 0] = -1e4
    sigma = torch.tensor(0.8, requires_grad=True)
    weights = torch.randn(6, 5)
    inputs = (logits.requires_grad_(), sigma)

    def loss(x, s):
        return (log_class_probabilities(x, s, noise=noise) * weights).sum(1)

    found, expected = torch.compile(loss, fullgraph=True)(*inputs), loss(*inputs)
    torch.testing.assert_close(found[:5], expected[:5], rtol=1e-5, atol=1e-5)
    # Both are approximate where a class is that far down.
    torch.testing.assert_close(found[5], expected[5], rtol=5e-3, atol=0.0)
    torch.testing.assert_close(
        torch.autograd.grad(found[:5].sum(), inputs),
        torch.autograd.grad(expected[:5].sum(), inputs),
        rtol=1e-4,
        atol=1e-4,
    )


INFINITE_ROWS = {
    "one_at_minus_infinity": [0.0, -torch.inf, 1.0],
    "all_but_one_at_minus_infinity": [0.0, -torch.inf, -torch.inf],
    "one_at_infinity": [0.0, torch.inf, 1.0],
    "one_at_each": [0.0, torch.inf, -torch.inf],
    "two_at_infinity": [torch.inf, torch.inf, 1.0],
    "all_at_minus_infinity": [-torch.inf] * 3,
    "nan": [0.0, torch.nan, 1.0],
}


@every_noise
@pytest.mark.parametrize("row", INFINITE_ROWS.values(), ids=INFINITE_ROWS)
def test_infinite_logits_behave_as_in_log_softmax(row, noise):
    logits = torch.tensor([row, [0.5, 0.0, -0.5]], dtype=torch.float64, requires_grad=True)
    softmax = torch.log_softmax(logits, 1)
    found = log_class_probabilities(logits, noise=noise)
    for kind in (torch.isnan, torch.isneginf, torch.isfinite):
        assert torch.equal(kind(found), kind(softmax))
    alone = log_class_probabilities(logits[1:], noise=noise)
    torch.testing.assert_close(found[1:], alone, rtol=1e-9, atol=1e-10)
    (gradient,) = torch.autograd.grad(found[1, 0], logits)
    assert torch.isfinite(gradient[1]).all()


@integrated
def test_a_class_at_minus_infinity_drops_out_with_zero_gradient(noise):
    logits = torch.tensor([[0.5, -torch.inf, 1.0]], dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    found = log_class_probabilities(logits, sigma, noise=noise)
    without = log_class_probabilities(logits[:, [0, 2]], sigma, noise=noise)
    torch.testing.assert_close(found[:, [0, 2]], without, rtol=1e-9, atol=1e-12)
    # Its own log p has no gradient either, whatever is asked of it.
    to_logits, to_sigma = torch.autograd.grad(found.sum(), (logits, sigma), create_graph=True)
    expected = torch.autograd.grad(without.sum(), (logits, sigma))
    torch.testing.assert_close(to_logits, expected[0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(to_sigma, expected[1], rtol=1e-9, atol=1e-12)
    for second in torch.autograd.grad(to_logits[0, 0] + to_sigma, (logits, sigma)):
        assert torch.isfinite(second).all()
    tangent = torch.ones_like(logits.detach())
    _, along = torch.func.jvp(
        lambda x: log_class_probabilities(x, noise=noise), (logits.detach(),), (tangent,)
    )
    assert along[0, 1] == 0
    assert along.abs().max() < 1e-9


@every_noise
@each_dtype
@pytest.mark.parametrize("classes", [2, 3, 50])
@pytest.mark.parametrize("sigma", [1e-4, 1e-2, 1.0, 1e2, 1e4])
def test_value_and_gradient_are_finite_for_extreme_logits_and_sigma(sigma, classes, dtype, noise):
    logits = torch.cat([torch.randn(4, classes, dtype=dtype) * 10.0**k for k in range(-4, 5)])
    logits = torch.cat([logits.clamp(-1e4, 1e4), torch.full((1, classes), 1e4, dtype=dtype)])
    logits[-2] = torch.where(torch.arange(classes) % 2 == 0, 1e4, -1e4)
    x = logits.requires_grad_()
    s = torch.tensor(sigma, dtype=dtype, requires_grad=True)
    log_p = log_class_probabilities(x, s, noise=noise)
    assert torch.isfinite(log_p).all()
    assert (log_p <= 0).all()
    for value in (log_p, hitrate.class_probabilities(x, s, noise=noise)):
        for gradient in torch.autograd.grad(value.sum(), (x, s)):
            assert torch.isfinite(gradient).all()


@every_noise
def test_an_empty_batch_gives_an_empty_result(noise):
    logits = torch.empty(0, 4, requires_grad=True)
    found = log_class_probabilities(logits, noise=noise)
    assert found.shape == (0, 4)
    found.sum().backward()
    assert logits.grad.shape == (0, 4)


@every_noise
@each_dtype
def test_repeated_calls_are_bitwise_equal(dtype, noise):
    logits = 3 * torch.randn(64, 20, dtype=dtype)
    weights = torch.randn(64, 20, dtype=dtype)
    function = functools.partial(log_class_probabilities, noise=noise)
    first, second = (value_and_slopes(function, logits, weights) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@integrated
def test_rows_in_many_blocks_are_the_rows_alone(noise):
    # 300 rows of 50 classes and some 50 nodes do not fit into one block.
    logits = torch.randn(300, 50)
    found = log_class_probabilities(logits, noise=noise)
    alone = torch.cat([log_class_probabilities(row[None], noise=noise) for row in logits[::60]])
    torch.testing.assert_close(found[::60], alone, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    logits = torch.randn(8, 20).to(dtype).requires_grad_()
    found = log_class_probabilities(logits)
    assert torch.equal(found, log_class_probabilities(logits.float()))
    found.sum().backward()
    assert logits.grad.dtype == dtype


def test_autocast_does_not_lower_the_precision():
    logits = torch.randn(8, 20)
    expected = log_class_probabilities(logits)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(log_class_probabilities(logits), expected)


def test_a_wrong_argument_is_named_together_with_the_call():
    with pytest.raises(ValueError, match=r"log_class_probabilities.*one sigma per row"):
        log_class_probabilities(torch.zeros(2, 3), torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"log_class_probabilities.*'cauchy'"):
        log_class_probabilities(torch.zeros(2, 3), noise="cauchy")


@each_dtype
@every_noise
def test_the_log_of_the_hazard_is_that_of_the_hazard_and_outlives_it(noise, dtype):
    x = torch.linspace(-4.0, 9.0, 261, dtype=dtype)
    log_cdf, log_hazard = NOISES[noise].log_cdf_and_log_hazard(x)
    expected = NOISES[noise].log_cdf_and_hazard(x)
    rtol = {torch.float64: 1e-12, torch.float32: 5e-6}[dtype]
    torch.testing.assert_close(log_cdf, expected[0], rtol=rtol, atol=rtol * 1e-3)
    torch.testing.assert_close(log_hazard.exp(), expected[1], rtol=rtol, atol=rtol * 1e-3)
    assert torch.isfinite(NOISES[noise].log_cdf_and_log_hazard(x.new_tensor([5e3]))[1]).all()


@each_dtype
@pytest.mark.parametrize("x", [-5e3, -100.0, -36.5, -35.5, -10.5, -9.5, -3.0, 0.0, 3.0, 30.0])
def test_normal_tails_agree_with_mpmath(x, dtype):
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.ncdf(x)) if x < 5 else mpmath.log1p(-mpmath.ncdf(-x))
        hazard = float(mpmath.log(mpmath.npdf(x)) - exact)
    at = torch.tensor([x], dtype=dtype, requires_grad=True)
    log_cdf, log_hazard = NOISES["normal"].log_cdf_and_log_hazard(at)
    rel, tiny = {torch.float64: (1e-12, 1e-290), torch.float32: (4e-6, 1e-30)}[dtype]
    assert log_cdf.item() == pytest.approx(float(exact), rel=rel, abs=tiny)
    assert log_hazard.item() == pytest.approx(hazard, rel=rel, abs=3 * rel)
    # Torch differentiates both.
    slopes = [torch.autograd.grad(y, at, retain_graph=True)[0] for y in (log_cdf, log_hazard)]
    assert slopes[0].item() == pytest.approx(log_hazard.exp().item(), rel=20 * rel, abs=tiny)
    assert slopes[1].item() == pytest.approx(-x - math.exp(hazard), rel=1e-3, abs=1e-4)
