"""What a Module found out for a batch on a CPU serves batches like it, and nothing else."""

import copy

import pytest
import torch

import hitrate
from hitrate import links, schedules
from hitrate.losses import link_loss

LOSSES = {
    "cross_entropy": (hitrate.CrossEntropyLoss, {}),
    "mixed": (hitrate.MixedLoss, {"focus": 0.25}),
    "exact": (hitrate.ExactLoss, {}),
    "probit": (hitrate.ExactLoss, {"link": "log", "margin": 1.0}),
    "top_2": (hitrate.ExactLoss, {"link": "log", "k": 2}),
    "weighted": (hitrate.ExpectationLoss, {"weight": torch.linspace(1, 2, 5)}),
}


@pytest.fixture
def looked(monkeypatch):
    """How often the way of a batch was looked for."""
    count = []
    way_of = link_loss.way_of

    def counted(asked):
        count.append(1)
        return way_of(asked)

    monkeypatch.setattr(link_loss, "way_of", counted)
    return count


def batch(seed, rows=6, classes=5):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator)
    return logits, torch.randint(classes, (rows,), generator=generator)


def value_and_gradient(loss, logits, target):
    z = logits.detach().clone().requires_grad_()
    value = loss(z, target)
    value.sum().backward()
    return value.detach(), z.grad


def assert_fresh(loss, logits, target):
    """The same as of a Module that has seen nothing."""
    fresh = copy.deepcopy(loss)
    assert "_kept" not in vars(fresh)
    for ours, theirs in zip(
        value_and_gradient(loss, logits, target),
        value_and_gradient(fresh, logits, target),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", LOSSES)
def test_batches_alike_are_looked_at_once(name, looked):
    kind, options = LOSSES[name]
    loss = kind(**options)
    for seed in range(3):
        value_and_gradient(loss, *batch(seed, rows=6 + seed))
    assert len(looked) == 1
    assert_fresh(loss, *batch(3))


@pytest.mark.parametrize("name", LOSSES)
def test_other_batches_are_looked_at_again(name, looked):
    kind, options = LOSSES[name]
    loss = kind(**options)
    value_and_gradient(loss, *batch(0))
    logits, target = batch(1)
    soft = torch.softmax(logits.flip(1), 1)
    several = logits[:, :, None].expand(6, 5, 2), target[:, None].expand(6, 2)
    for z, y in (
        (logits.double(), target),
        (logits.bfloat16(), target),
        (logits, target.int()),
        (logits, soft),
        several,
    ):
        before = len(looked)
        assert_fresh(loss, z, y)
        assert len(looked) > before
    if "weight" not in options:
        assert_fresh(loss, *batch(2, classes=7))


def test_mistakes_are_still_told():
    loss = hitrate.ExactLoss()
    logits, target = batch(0)
    loss(logits, target)
    with pytest.raises(ValueError, match="out of range"):
        loss(logits, target + 5)
    with pytest.raises(ValueError, match="shape"):
        loss(logits, target[:-1])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reduction", "sum"),
        ("link", links.Focal(1.0)),
        ("sigma", 0.5),
        ("margin", 0.3),
        ("noise", "logistic"),
        ("ignore_index", 4),
        ("label_smoothing", 0.2),
        ("training", False),
        ("normalize", True),
    ],
)
def test_what_is_set_counts_from_then_on(name, value):
    loss = hitrate.ExactLoss(margin=0.5)
    value_and_gradient(loss, *batch(0))
    before = loss(*batch(1))
    setattr(loss, name, value)
    assert_fresh(loss, *batch(1))
    assert not torch.equal(before, loss(*batch(1))), "the setting changes nothing"


@pytest.mark.parametrize(
    ("loss", "number", "curve"),
    [
        ({"link": "gce"}, "q", schedules.linear(0.0, 1.0)),
        ({"noise": "gumbel", "link": links.Focused(0.1)}, "focus", schedules.linear(0.1, 0.4)),
        ({}, "sigma", schedules.geometric(4.0, 1.0)),
        ({"margin": 3.0}, "margin", schedules.linear(3.0, 0.5)),
        ({"noise": "gumbel", "label_smoothing": 0.1}, "label_smoothing", schedules.linear(0.3, 0)),
    ],
)
def test_numbers_that_move_are_looked_up_every_time(loss, number, curve):
    loss = hitrate.ExactLoss(**loss)
    schedule = hitrate.Schedule(loss, number, curve, total_steps=3)
    logits, target = batch(0)
    values = []
    for _ in range(3):
        values.append(float(value_and_gradient(loss, logits, target)[0]))
        assert_fresh(loss, logits, target)
        schedule.step()
    assert len(set(values)) == 3


def test_tensors_put_in_the_place_of_buffers_are_seen():
    loss = hitrate.CrossEntropyLoss(weight=torch.ones(5))
    logits, target = batch(0)
    loss(logits, target)
    other = torch.linspace(1, 2, 5)
    found = torch.func.functional_call(loss, {"weight": other}, (logits, target))
    assert torch.allclose(found, torch.nn.functional.cross_entropy(logits, target, other))


def test_transformed_logits_go_their_way():
    loss = hitrate.MixedLoss(0.25)
    logits, target = batch(0)
    _, gradient = value_and_gradient(loss, logits, target)
    assert torch.allclose(torch.func.grad(loss)(logits, target), gradient, atol=1e-6)


def test_no_batch_is_kept_alive():
    loss = hitrate.ExactLoss()
    logits, target = batch(0)
    loss(logits.requires_grad_(), target).backward()
    ready, _ = vars(loss)["_kept"]
    reachable = [*vars(ready).values(), *ready._rest]
    assert not any(t is logits or t is target for t in reachable)
