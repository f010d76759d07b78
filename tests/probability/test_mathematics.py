"""The theorems, closed forms, limits and symmetries of docs/math.md."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

import hitrate
from hitrate.probability.margins import Margins
from hitrate.probability.methods.general_quadrature import general_quadrature
from hitrate.probability.methods.quadrature import quadrature
from hitrate.probability.noises import NOISES


def draw(rows=50, classes=6, scale=1.0):
    logits = scale * torch.randn(rows, classes, dtype=torch.float64)
    return logits, torch.randint(classes, (rows,))


def test_theorem_4_2_the_orthant_integral_equals_the_one_dimensional_one():
    logits, target = draw(rows=3, classes=4)
    for mu, y, found in zip(
        logits, target, hitrate.expected_accuracy(logits, target, 0.7), strict=True
    ):
        a = np.delete((mu[y] - mu).numpy() / 0.7, y)
        # P(all of N(a, I + 11') positive) is the distribution function of N(-a, ...) at zero.
        orthant = multivariate_normal.cdf(np.zeros(3), -a, np.eye(3) + 1, abseps=1e-8, releps=1e-8)
        assert found.item() == pytest.approx(orthant, abs=1e-5)


def test_theorem_4_3_a_derivative_is_a_tie_times_an_orthant_of_one_dimension_less():
    logits, target = draw(rows=3, classes=4)
    x = logits.requires_grad_()
    (gradient,) = torch.autograd.grad(hitrate.expected_accuracy(x, target).sum(), x)
    for mu, y, row in zip(logits.detach(), target, gradient, strict=True):
        a = (mu[y] - mu).numpy()
        for i in range(4):
            if i == y:
                continue
            rest = np.delete(a, [i, int(y)])
            tie = math.exp(-(a[i] ** 2) / 4) / math.sqrt(4 * math.pi)
            mean, covariance = rest - a[i] / 2, np.eye(2) + 0.5
            orthant = multivariate_normal.cdf(np.zeros(2), -mean, covariance, abseps=1e-10)
            # The rival's logit enters its margin with a minus sign.
            assert row[i].item() == pytest.approx(-tie * orthant, rel=1e-6)


@pytest.mark.parametrize("noise", NOISES)
def test_two_equal_methods_for_normal_and_gumbel_and_the_pair_symmetry(noise):
    logits, _ = draw(classes=2)
    first = hitrate.expected_accuracy(logits, torch.zeros(50, dtype=torch.long), noise=noise)
    second = hitrate.expected_accuracy(logits, torch.ones(50, dtype=torch.long), noise=noise)
    torch.testing.assert_close(first + second, torch.ones(50, dtype=torch.float64))


@pytest.mark.parametrize("margin", [None, 0.5])
@pytest.mark.parametrize("classes", [2, 3, 40])
def test_gumbel_noise_is_softmax_by_quadrature_too(classes, margin):
    logits, target = draw(classes=classes, scale=2.0)
    options = {"noise": "gumbel", "margin": margin, "sigma": 1.3}
    closed = hitrate.log_expected_accuracy(logits, target, **options)
    found = hitrate.log_expected_accuracy(logits, target, method="quadrature", **options)
    torch.testing.assert_close(found, closed, rtol=1e-10, atol=1e-10)
    if margin is None:
        entropy = torch.nn.functional.cross_entropy(logits / 1.3, target, reduction="none")
        torch.testing.assert_close(closed, -entropy)


def test_two_classes_with_normal_noise_by_quadrature_too():
    logits, target = draw(classes=2, scale=5.0)
    torch.testing.assert_close(
        hitrate.log_expected_accuracy(logits, target, method="quadrature"),
        hitrate.log_expected_accuracy(logits, target),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize("classes", [3, 30, 300])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 15.0])
def test_the_fast_quadrature_equals_its_slow_twin(classes, scale):
    logits, target = draw(rows=30, classes=classes, scale=scale)
    a = Margins.of(logits, target, torch.ones(30, 1, dtype=torch.float64), None).a
    value, slope = quadrature(a)
    anywhere = Margins.of(
        logits, target, torch.ones(30, 1, dtype=torch.float64), None, anywhere=True
    )
    twin_value, twin_slope, _ = general_quadrature(anywhere.a, None, NOISES["normal"], nodes=400)
    torch.testing.assert_close(value, twin_value, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(slope, twin_slope, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("noise", NOISES)
def test_equal_sigmas_per_class_are_one_sigma(noise):
    logits, target = draw()
    one = hitrate.log_expected_accuracy(logits, target, 0.7, noise=noise)
    each = hitrate.log_expected_accuracy(
        logits, target, torch.full((1, 6), 0.7, dtype=torch.float64), noise=noise
    )
    torch.testing.assert_close(each, one, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", NOISES)
def test_different_sigmas_per_class_agree_with_sampling(noise):
    logits, target = draw(rows=1, classes=4)
    sigma = torch.tensor([[0.3, 1.0, 2.0, 0.6]], dtype=torch.float64)
    draws = NOISES[noise].sample((400_000, 4), torch.float64, torch.device("cpu"), None)
    hits = ((logits + sigma * draws).argmax(1) == target).double()
    found = hitrate.expected_accuracy(logits, target, sigma, noise=noise).item()
    assert abs(found - hits.mean().item()) < 4 * hits.std().item() / math.sqrt(len(hits))


@pytest.mark.parametrize("noise", NOISES)
def test_small_sigma_gives_accuracy(noise):
    logits, target = draw(rows=200)
    expected = (logits.argmax(1) == target).double()
    found = hitrate.expected_accuracy(logits, target, 1e-4, noise=noise)
    assert (found - expected).abs().mean() < 0.01


@pytest.mark.parametrize("noise", NOISES)
def test_large_sigma_gives_one_over_the_number_of_classes(noise):
    logits, target = draw()
    found = hitrate.expected_accuracy(logits, target, 1e6, noise=noise)
    torch.testing.assert_close(found, torch.full_like(found, 1 / 6), rtol=1e-5, atol=0)


@pytest.mark.parametrize("noise", NOISES)
def test_only_differences_of_logits_over_sigma_matter(noise):
    logits, target = draw()
    expected = hitrate.log_expected_accuracy(logits, target, 0.5, noise=noise)
    found = hitrate.log_expected_accuracy(4 * (logits - 3.0), target, 2.0, noise=noise)
    torch.testing.assert_close(found, expected)


def test_a_clipped_margin_moves_sigma_but_not_the_logits():
    logits = torch.tensor([[5.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    value = hitrate.log_expected_accuracy(logits, torch.tensor([0]), sigma, margin=1.0)
    to_logits, to_sigma = torch.autograd.grad(value.sum(), (logits, sigma))
    assert (to_logits == 0).all()
    assert to_sigma < 0
    unclipped = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(value, hitrate.log_expected_accuracy(unclipped, torch.tensor([0])))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("classes", [2, 5, 60])
def test_class_probabilities_are_the_expected_accuracies_of_all_targets(noise, classes):
    logits, _ = draw(rows=7, classes=classes)
    found = hitrate.class_probabilities(logits, 0.8, noise=noise)
    each = [
        hitrate.expected_accuracy(logits, torch.full((7,), c), 0.8, noise=noise)
        for c in range(classes)
    ]
    torch.testing.assert_close(found, torch.stack(each, 1), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.sum(1), torch.ones(7, dtype=torch.float64))
    single = hitrate.class_probabilities(logits.float(), 0.8, noise=noise)
    torch.testing.assert_close(single.double(), found, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("noise", NOISES)
def test_class_probabilities_are_twice_differentiable_in_every_mode(noise):
    logits, _ = draw(rows=2, classes=4)
    sigma = torch.rand(2, dtype=torch.float64) + 0.5
    inputs = (logits.requires_grad_(), sigma.requires_grad_())

    def probabilities(x, s):
        return hitrate.class_probabilities(x, s, noise=noise)

    assert torch.autograd.gradcheck(probabilities, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(probabilities, inputs)
    stacked = torch.randn(3, 2, 4, dtype=torch.float64)
    expected = torch.stack([hitrate.class_probabilities(x, noise=noise) for x in stacked])
    found = torch.vmap(lambda x: hitrate.class_probabilities(x, noise=noise))(stacked)
    torch.testing.assert_close(found, expected)


def test_a_class_at_minus_infinity_never_wins_and_gets_no_gradient():
    logits = torch.tensor([[0.5, -torch.inf, 1.0]], dtype=torch.float64, requires_grad=True)
    found = hitrate.class_probabilities(logits)
    torch.testing.assert_close(
        found[:, [0, 2]], hitrate.class_probabilities(logits[:, [0, 2]]), rtol=1e-9, atol=1e-12
    )
    (gradient,) = torch.autograd.grad(found[0, 0], logits)
    assert torch.isfinite(gradient).all()
    assert gradient[0, 1] == 0


def test_class_probabilities_compile_into_one_graph():
    torch.compiler.reset()
    logits = torch.randn(4, 5, requires_grad=True)
    found = torch.compile(hitrate.class_probabilities, fullgraph=True)(logits)
    expected = hitrate.class_probabilities(logits)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(4, 5)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), logits),
        torch.autograd.grad((expected * weights).sum(), logits),
        rtol=1e-4,
        atol=1e-5,
    )
