"""A class at -inf does not exist: it changes neither loss nor gradient of the others."""

import pytest
import torch
from loss_cases import CASES, exact

import hitrate

# These divide by the number of classes, masked or not.
COUNTING = ("complement_objective",)
MORE = [
    exact(normalize=True),
    exact(normalize=True, margin=0.5, link="log"),
    exact(normalize=True, noise="logistic", link="gce"),
]


def batch():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(6, 5, generator=generator, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    masked = torch.cat([logits[:, :3], torch.full((6, 2), -torch.inf, dtype=torch.float64)], 1)
    return logits[:, :3].clone().requires_grad_(), masked.requires_grad_(), target


@pytest.mark.parametrize("case", [*CASES, *MORE], ids=lambda case: case.name)
def test_a_class_at_minus_infinity_is_no_rival(case):
    logits, masked, target = batch()
    value, same = case(logits, target), case(masked, target)
    (gradient,) = torch.autograd.grad(value, logits)
    (slope,) = torch.autograd.grad(same, masked)
    assert not slope.isnan().any()
    assert (slope[:, 3:] == 0).all()
    if not case.name.startswith(COUNTING):
        torch.testing.assert_close(same, value, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(slope[:, :3], gradient, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
@pytest.mark.parametrize("margin", [None, 1.0])
def test_sigma_s_gradient_does_not_see_a_masked_class(noise, margin):
    logits, masked, target = batch()
    slopes = []
    for z in (logits, masked):
        sigma = torch.full((6,), 0.7, dtype=torch.float64, requires_grad=True)
        case = exact(noise=noise, link="log", margin=margin)
        case(z.detach(), target, sigma=sigma).backward()
        slopes.append(sigma.grad)
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-7, atol=1e-9)


def test_smoothing_with_a_masked_class_is_infinite_as_in_cross_entropy_but_never_nan():
    _, masked, target = batch()
    for case in CASES:
        value = case(masked, target, label_smoothing=0.1)
        assert not value.isnan(), case.name
        sigma = torch.full((6,), 0.7, dtype=torch.float64, requires_grad=True)
        if case.function.__name__ == "exact_loss" and "sigma" not in case.arguments:
            case(masked.detach(), target, label_smoothing=0.1, sigma=sigma).backward()
            assert not sigma.grad.isnan().any(), case.name


def test_one_ignored_row_of_nan_does_not_spoil_the_normalised_others():
    logits, _, target = batch()
    loss = exact(normalize=True)
    value = loss(logits, target)
    (gradient,) = torch.autograd.grad(value, logits)
    spoilt = torch.cat([logits.detach(), torch.full((1, 3), torch.nan, dtype=torch.float64)])
    spoilt.requires_grad_()
    same = loss(spoilt, torch.cat([target, torch.tensor([-100])]))
    (slope,) = torch.autograd.grad(same, spoilt)
    torch.testing.assert_close(same, value)
    torch.testing.assert_close(slope[:6], gradient)


def test_a_class_that_is_masked_and_has_no_part_in_the_target_adds_nothing():
    _, masked, target = batch()
    soft = torch.nn.functional.one_hot(target, 5).double()
    for case in CASES:
        value = case(masked, soft)
        assert value.isfinite(), case.name
        (gradient,) = torch.autograd.grad(value, masked)
        assert gradient.isfinite().all(), case.name


@pytest.mark.parametrize("classes", [2, 3, 12])
@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
def test_a_target_without_rivals_has_won(noise, classes):
    logits = torch.full((1, classes), -torch.inf)
    logits[0, 0] = 1.0
    logits.requires_grad_()
    log_p = hitrate.log_expected_accuracy(logits, torch.tensor([0]), noise=noise)
    assert log_p == 0
    assert not torch.autograd.grad(log_p.sum(), logits)[0].any()
