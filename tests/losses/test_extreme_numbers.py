"""Numbers at the ends of their types: what the fuzzer of losses has found, kept."""

import math

import pytest
import torch

import hitrate
from hitrate.probability import NOISES

HUGE = torch.tensor([[3e38, 0.0, -3e38], [3e38, -3e38, -3e38], [-3e38, 3e38, 3e38]])
TARGET = torch.tensor([0, 1, 2])


def value_and_gradient(loss, logits, *arguments, **options):
    z = logits.clone().requires_grad_()
    value = loss(z, *arguments, reduction="none", **options)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


@pytest.mark.parametrize("margin", [None, 1.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("sigma", [0.5, 1e-30, 1e30, torch.tensor([0.5, 1e-30, 1e30])])
@pytest.mark.parametrize("noise", NOISES)
def test_quotients_beyond_the_largest_number_are_numbers(noise, sigma, smoothing, margin):
    options = {"noise": noise, "margin": margin, "label_smoothing": smoothing, "sigma": sigma}
    value, gradient = value_and_gradient(hitrate.exact_loss, HUGE, TARGET, **options)
    assert not value.isnan().any() and not gradient.isnan().any()
    if margin is None and not smoothing and not isinstance(sigma, torch.Tensor) and sigma < 1:
        # The first is the highest, the second the lowest, the third one of two.
        torch.testing.assert_close(value, torch.tensor([0.0, 1.0, 0.5]), rtol=0, atol=1e-4)


@pytest.mark.parametrize("scale", [1e10, 1e15, 1e18, 1e30])
@pytest.mark.parametrize("sigma", [2.0, [[2.0, 2.0, 2.0]]])
@pytest.mark.parametrize("noise", ["gumbel", "logistic"])
def test_quadrature_follows_linear_tails_to_any_distance(noise, sigma, scale):
    logits = scale * torch.tensor([[0.0, 1.0, 3.0], [2.0, -1.0, 2.5], [4.0, 0.0, 1.0]])
    sigma = torch.tensor(sigma, requires_grad=True)
    options = {"sigma": sigma, "noise": noise, "link": "log", "method": "quadrature"}
    value, gradient = value_and_gradient(hitrate.exact_loss, logits, TARGET, **options)
    # How far the highest is ahead, and who that is.
    expected = torch.tensor([3.0, 3.5, 3.0]) * (scale / 2)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    slope = torch.tensor([[-1.0, 0.0, 1.0], [0.0, -1.0, 1.0], [1.0, 0.0, -1.0]]) / 2
    torch.testing.assert_close(gradient, slope, rtol=1e-3, atol=1e-3)
    again = hitrate.exact_loss(logits, TARGET, reduction="sum", **options)
    (to_sigma,) = torch.autograd.grad(again, sigma)
    torch.testing.assert_close(to_sigma.sum(), -expected.sum() / 2, rtol=1e-3, atol=0)


@pytest.mark.parametrize("scale", [1.0, 1e15, 1e18, 1e30, 1e37])
def test_normalize_does_not_depend_on_the_scale(scale):
    logits = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.5, 3.0], [0.0, 0.0, 1.0]]) * 1e3
    expected = hitrate.exact_loss(logits.double(), TARGET, normalize=True)
    found = hitrate.exact_loss(logits * (scale / 1e3), TARGET, normalize=True)
    slack = 1e-3 if scale == 1.0 else 1e-6
    torch.testing.assert_close(found.double(), expected, rtol=slack, atol=slack)


@pytest.mark.parametrize("sigma", [1e-30, 1e-25])
def test_gradients_through_normalize_are_numbers_with_a_tiny_sigma(sigma):
    logits = torch.tensor([[1e-3, 5e-3, 2e-3], [0.0, 1e-3, -2e-3], [3e-3, 1e-3, 0.0]])
    given = {"sigma": sigma, "link": "log", "normalize": True}
    assert not value_and_gradient(hitrate.exact_loss, logits, TARGET, **given)[1].isnan().any()


@pytest.mark.parametrize("soft", [False, True])
def test_the_complement_objective_has_gradients_at_any_size(soft):
    target = torch.softmax(torch.eye(3), 1) if soft else TARGET
    for logits in (HUGE, torch.tensor([[-1e30, 1e-8, 3e38], [1e36, -3.4e38, -3e38], [0, 0, 1e36]])):
        found = value_and_gradient(hitrate.complement_objective_loss, logits, target, balance=5.0)
        assert not any(each.isnan().any() for each in found)


@pytest.mark.parametrize("noise", NOISES)
def test_one_sigma_per_class_and_a_target_far_ahead_is_won(noise):
    logits = torch.tensor([[0.0, -1e-8, 1e4], [866.0, -451.0, 361.0]], dtype=torch.float64)
    sigma = torch.tensor([[1.996, 1.874, 1.682], [0.664, 1.78, 0.9]], dtype=torch.float64)
    target = torch.tensor([2, 0])
    options = {"sigma": sigma, "noise": noise}
    value, gradient = value_and_gradient(hitrate.exact_loss, logits, target, **options)
    assert (value.abs() < 1e-12).all() and (gradient.abs() < 1e-12).all()


@pytest.mark.parametrize("sigma", [1e-300, 1e-37, 1e37, 1e300])
def test_sigmas_that_leave_no_numbers_are_refused(sigma):
    for given in (sigma, torch.full((3,), sigma, dtype=torch.float64)):
        for logits in (HUGE, HUGE.double()) if abs(math.log10(sigma)) > 150 else (HUGE,):
            with pytest.raises(ValueError, match="cannot hold sigma"):
                hitrate.exact_loss(logits, TARGET, given)
