"""Accuracy and expected accuracy, counted."""

import copy

import pytest
import torch
from two_processes import run_in_two_processes

import hitrate
from hitrate.metrics import ExpectedAccuracy


def batch(seed, rows=20, classes=4):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator)
    return logits, torch.randint(classes, (rows,), generator=generator)


def by_hand(logits, target, sigma=1.0, noise="normal"):
    p = hitrate.expected_accuracy(logits, target, sigma, noise=noise)
    hits = logits.argmax(1) == target
    return pytest.approx(
        {"accuracy": float(hits.double().mean()), "expected_accuracy": float(p.double().mean())}
    )


def numbers(found):
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
def test_batches_of_any_size_add_up(noise):
    metric = ExpectedAccuracy(0.7, noise=noise)
    batches = [batch(0, 20), batch(1, 3), batch(2, 1)]
    for one in batches:
        assert numbers(metric(*one)) == by_hand(*one, 0.7, noise)
    whole = [torch.cat(parts) for parts in zip(*batches, strict=True)]
    assert numbers(metric.compute()) == by_hand(*whole, 0.7, noise)
    metric.reset()
    metric.update(*batches[1])
    assert numbers(metric.compute()) == by_hand(*batches[1], 0.7, noise)


def test_a_small_sigma_is_accuracy():
    metric = ExpectedAccuracy(1e-4)
    metric.update(*batch(0))
    found = metric.compute()
    assert found["expected_accuracy"] == pytest.approx(float(found["accuracy"]), abs=1e-3)


def test_ignored_targets_and_images():
    logits, target = batch(0, 24)
    images = logits.reshape(2, 3, 4, 4).movedim(-1, 1)
    labels = target.reshape(2, 3, 4).clone()
    labels[0, 1] = -100
    kept = labels.reshape(-1) != -100
    metric = ExpectedAccuracy()
    assert numbers(metric(images, labels)) == by_hand(logits[kept], target[kept])


def test_nothing_counted_is_not_a_number():
    assert all(value.isnan() for value in ExpectedAccuracy().compute().values())


def test_it_counts_in_double_precision_wherever_it_is():
    metric = ExpectedAccuracy().half()
    for _ in range(3):
        metric.update(*batch(0))
    assert metric.rows == 60 and metric.rows.dtype == torch.float64
    assert metric.state_dict() == {}, "no part of a checkpoint, like torchmetrics' states"


def test_two_are_merged_and_copied():
    one, other = ExpectedAccuracy(), ExpectedAccuracy()
    one.update(*batch(0))
    other.update(*batch(1))
    before = copy.deepcopy(one)
    one.merge_state(other)
    whole = [torch.cat(parts) for parts in zip(batch(0), batch(1), strict=True)]
    assert numbers(one.compute()) == by_hand(*whole)
    assert numbers(before.compute()) == by_hand(*batch(0))


def of_one_process(rank):
    metric, alone = ExpectedAccuracy(), ExpectedAccuracy(sync_on_compute=False)
    for each in (metric, alone):
        each.update(*batch(rank, rows=5 + rank))
    return [numbers(each.compute()) for each in (metric, alone)]


@pytest.mark.slow
def test_processes_count_together():
    found = run_in_two_processes(of_one_process)
    whole = [torch.cat(parts) for parts in zip(batch(0, 5), batch(1, 6), strict=True)]
    for rank, (together, alone) in enumerate(found):
        assert together == by_hand(*whole)
        assert alone == by_hand(*batch(rank, 5 + rank))


def test_what_is_wrong_is_told():
    with pytest.raises(ValueError, match="sigma must be a positive number"):
        ExpectedAccuracy(0.0)
    with pytest.raises(ValueError, match="noise='cauchy' is not one of"):
        ExpectedAccuracy(noise="cauchy")
    with pytest.raises(ValueError, match="got \\(20, 4\\) and \\(3,\\)"):
        ExpectedAccuracy().update(batch(0)[0], batch(0, 3)[1])
