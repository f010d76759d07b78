"""Each loss against its formula, or against another implementation of it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import hitrate

GENERATOR = torch.Generator().manual_seed(5)
LOGITS = 3 * torch.randn(40, 6, generator=GENERATOR, dtype=torch.float64)
TARGET = torch.arange(40) % 6
P = np.exp(LOGITS.numpy()) / np.exp(LOGITS.numpy()).sum(1, keepdims=True)
OWN = P[np.arange(40), TARGET]


def complement(balance):
    total = 0.0
    for row, y, own in zip(P, TARGET.tolist(), OWN, strict=True):
        rest = np.delete(row, y) / (1 - own)
        total += -math.log(own) + balance * (rest * np.log(rest)).sum() / 5
    return total / 40


FORMULAS = {
    hitrate.CrossEntropyLoss(): np.mean(-np.log(OWN)),
    hitrate.ExpectationLoss(): np.mean(1 - OWN),
    hitrate.MeanAbsoluteErrorLoss(): np.abs(np.eye(6)[TARGET] - P).sum(1).mean(),
    hitrate.MixedLoss(0.25): np.mean(-np.log(OWN) + 2 * (1 - OWN)),
    hitrate.MixedLoss(0.5): np.mean(1 - OWN),
    hitrate.FocalLoss(1.5): np.mean(-((1 - OWN) ** 1.5) * np.log(OWN)),
    hitrate.GeneralizedCrossEntropyLoss(0.4): np.mean((1 - OWN**0.4) / 0.4),
    hitrate.GeneralizedCrossEntropyLoss(0.4, 0.3): np.mean((1 - np.maximum(OWN, 0.3) ** 0.4) / 0.4),
    hitrate.TamedCrossEntropyLoss(0.2): np.mean(((1 - np.log(OWN)) ** 0.8 - 1) / 0.8),
    hitrate.MaximumProbabilityCrossEntropyLoss(): np.mean(-(P.max(1) - OWN) * np.log(OWN)),
    hitrate.ComplementObjectiveLoss(0.7): complement(0.7),
}


@pytest.mark.parametrize("loss", FORMULAS, ids=str)
def test_a_loss_is_its_formula(loss):
    assert loss(LOGITS, TARGET).item() == pytest.approx(FORMULAS[loss], rel=1e-12)


def test_mean_absolute_error_is_twice_the_expectation_loss():
    assert hitrate.mean_absolute_error_loss(LOGITS, TARGET).item() == pytest.approx(
        2 * hitrate.expectation_loss(LOGITS, TARGET).item(), rel=1e-14
    )


def test_the_mean_over_rivals_of_the_hinge_is_torch_s_multi_margin_loss():
    for margin in (0.0, 1.0, 2.5):
        ours = hitrate.hinge_loss(LOGITS, TARGET, margin, rivals="mean")
        assert torch.allclose(ours, nn.MultiMarginLoss(margin=margin)(LOGITS, TARGET))


def test_the_worst_rival_s_hinge_bounds_the_error_from_above():
    loss = hitrate.hinge_loss(LOGITS, TARGET, 1.0, reduction="none")
    wrong = LOGITS.argmax(1) != TARGET
    assert (loss >= wrong.double()).all()


def test_two_classes_with_the_first_at_zero_give_the_binary_hinge():
    f = torch.linspace(-3, 3, 13)
    logits = torch.stack([torch.zeros(13), f], 1)
    for y, label in ((0, -1), (1, 1)):
        ours = hitrate.hinge_loss(logits, torch.full((13,), y), 1.5, reduction="none")
        assert torch.allclose(ours, (1.5 - label * f).clamp(min=0))


@pytest.mark.parametrize(("classes", "features"), [(2, 1), (3, 2), (10, 9), (10, 64), (100, 120)])
def test_max_mahalanobis_centres_are_a_simplex(classes, features):
    centers = hitrate.max_mahalanobis_centers(classes, features, radius=10.0).double()
    gram = centers @ centers.T / 100
    expected = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64)
    expected.fill_diagonal_(1.0)
    torch.testing.assert_close(gram, expected, rtol=0, atol=1e-5)


def test_the_max_mahalanobis_loss_is_half_the_squared_distance_to_the_centre():
    head = hitrate.MaxMahalanobisHead(4, 7)
    z = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 3, 1, 2, 0])
    distance = (z - head.centers[target]).norm(dim=1)
    loss = hitrate.MaxMahalanobisCenterLoss()(head(z), target)
    torch.testing.assert_close(loss, (distance**2 / 2).mean())
    assert head(z).argmax(1).tolist() == torch.cdist(z, head.centers).argmin(1).tolist()
    assert list(head.state_dict()) == ["centers"]


def test_too_few_features_for_the_centres_is_a_value_error():
    with pytest.raises(ValueError, match="features >= classes - 1"):
        hitrate.max_mahalanobis_centers(5, 3)


def test_complement_training_takes_a_step_for_each_objective():
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
    target = torch.arange(16) % 4
    model, twin = nn.Linear(3, 4), nn.Linear(3, 4)
    twin.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    other = torch.optim.SGD(model.parameters(), lr=0.05)
    first, second = hitrate.complement_objective_step(lambda: model(x), target, optimizer, other)
    for loss, rate in ((nn.functional.cross_entropy, 0.1), (hitrate.complement_entropy_loss, 0.05)):
        value = loss(twin(x), target)
        gradients = torch.autograd.grad(value, list(twin.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
                parameter -= rate * gradient
    torch.testing.assert_close(model.weight, twin.weight)
    torch.testing.assert_close(model.bias, twin.bias)
    assert first > 0 > second


def test_pruning_takes_the_pruned_samples_gradient_away_until_it_is_decided_anew():
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]], requires_grad=True)
    target, index = torch.tensor([0, 0, 1]), torch.tensor([4, 0, 2])
    loss = hitrate.GeneralizedCrossEntropyLoss(0.7, threshold=0.5, rows=5)
    plain = hitrate.generalized_cross_entropy_loss(logits, target, 0.7)
    torch.testing.assert_close(loss(logits, target, index), plain)
    loss.prune(logits, target, index)
    assert loss.kept.tolist() == [False, True, False, True, True]
    value = loss(logits, target, index)
    # At the moment of pruning it is the truncated loss.
    truncated = hitrate.generalized_cross_entropy_loss(logits, target, 0.7, 0.5)
    torch.testing.assert_close(value, truncated)
    value.backward()
    assert (logits.grad[1:] == 0).all() and (logits.grad[0] != 0).any()
    # A pruned sample stays out although it would now lie above the threshold.
    better = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    loss(better, target, index).backward()
    assert (better.grad[1:] == 0).all()
    assert set(loss.state_dict()) == {"kept"}
    loss.prune(better, target, index)
    assert loss.kept.all()


def test_pruning_keeps_cross_entropy_s_options():
    logits, target = LOGITS[:3, :3], torch.tensor([0, 1, -100])
    weight = torch.tensor([1.0, 3.0, 1.0])
    loss = hitrate.GeneralizedCrossEntropyLoss(0.7, threshold=0.5, rows=3, weight=weight)
    loss.kept[1] = False
    each = hitrate.generalized_cross_entropy_loss(logits[:1], target[:1], 0.7)
    expected = (each + 3 * (1 - 0.5**0.7) / 0.7) / 4
    torch.testing.assert_close(loss(logits, target, torch.arange(3)), expected)


def test_pruning_without_a_threshold_is_a_value_error():
    with pytest.raises(ValueError, match="needs threshold= and rows="):
        hitrate.GeneralizedCrossEntropyLoss(0.7)(LOGITS, TARGET, torch.arange(40))


def test_label_smoothing_sums_the_link_over_all_classes():
    log_p = torch.stack(
        [hitrate.log_expected_accuracy(LOGITS, torch.full((40,), c)) for c in range(6)], 1
    )
    own = log_p[torch.arange(40), TARGET]
    expected = (-0.9 * own - 0.1 * log_p.mean(1)).mean()
    ours = hitrate.exact_loss(LOGITS, TARGET, link="log", label_smoothing=0.1)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=0)


def test_pruning_takes_any_layout_and_leaves_ignored_samples_alone():
    logits, target = torch.zeros(2, 3, 2), torch.tensor([[0, 1], [-100, 2]])
    logits[0, 0, 0] = 9.0
    index = torch.arange(4).reshape(2, 2)
    loss = hitrate.GeneralizedCrossEntropyLoss(0.7, threshold=0.5, rows=4)
    loss.prune(logits, target, index)
    assert loss.kept.tolist() == [True, False, True, False]
    assert loss(logits, target, index).isfinite()
    with pytest.raises(ValueError, match="index must have target's shape"):
        loss(logits, target, torch.arange(2))
    with pytest.raises(ValueError, match="target 3 is out of range"):
        loss.prune(logits, target + 1 + 100 * (target < 0), index)
    with pytest.raises(ValueError, match="not probabilities"):
        loss.prune(logits, logits, index)


def test_the_max_mahalanobis_head_takes_any_precision():
    head = hitrate.MaxMahalanobisHead(4, 7)
    z = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = -0.5 * (z[:, None, :] - head.centers.double()).square().sum(-1)
    torch.testing.assert_close(head(z), truth)
    half = z.to(torch.bfloat16)
    assert head(half).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(head(z.float()), truth.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e4, 1e6])
def test_an_offset_of_all_logits_costs_no_more_digits_than_in_cross_entropy(offset):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 10, generator=generator) + offset
    target = torch.randint(10, (64,), generator=generator)
    truth = torch.nn.functional.cross_entropy(logits.double(), target, reduction="none")
    ours = hitrate.cross_entropy_loss(logits, target, reduction="none")
    log_p = hitrate.log_expected_accuracy(logits, target, noise="gumbel")
    for found in (ours, -log_p):
        assert ((found.double() - truth).abs() / truth.clamp(min=1)).max() < 1e-6


def test_every_method_takes_one_sigma_per_target_in_any_layout():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, 3, generator=generator)
    target = torch.randint(5, (4, 3), generator=generator)
    sigma = torch.rand(4, 3, generator=generator) + 0.5
    for arguments in ({}, {"method": "quadrature"}, {"method": "gridded"}, {"noise": "gumbel"}):
        loss = hitrate.exact_loss(logits, target, sigma, **arguments)
        rows = logits.movedim(1, 2).reshape(12, 5)
        flat = hitrate.exact_loss(rows, target.reshape(-1), sigma.reshape(-1), **arguments)
        torch.testing.assert_close(loss, flat)
        ways = [
            hitrate.explain(x, y, sigma=s, **arguments).way
            for x, y, s in ((logits, target, sigma), (rows, target.reshape(-1), sigma.reshape(-1)))
        ]
        assert ways[0] == ways[1]
