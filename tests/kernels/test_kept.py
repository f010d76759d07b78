"""What a Module found out for a batch serves batches like it, and nothing else."""

import copy
import pickle

import pytest
import torch

import hitrate
from hitrate import links, schedules

pytest.importorskip("triton")
from hitrate.losses.ways import fused

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LOSSES = {
    "softmax": {"noise": "gumbel", "link": "mixed"},
    "normal": {},
    "normalised": {"normalize": True, "margin": 0.5},
    "smoothed": {"label_smoothing": 0.1, "link": "log"},
    "weighted": {"weight": torch.linspace(1, 2, 5), "noise": "logistic"},
}


@pytest.fixture
def made(monkeypatch):
    """How often something was found out."""
    count = []
    ready = fused.Ready

    class Counted(ready):
        def __init__(self, *arguments, **options):
            count.append(1)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(fused, "Ready", Counted)
    return count


def batch(seed, rows=6, classes=5):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator)
    target = torch.randint(classes, (rows,), generator=generator)
    return logits.to(DEVICE), target.to(DEVICE)


def value_and_gradient(loss, logits, target):
    z = logits.detach().clone().requires_grad_()
    value = loss(z, target)
    value.backward()
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
def test_batches_alike_are_looked_at_once(name, made):
    loss = hitrate.ExactLoss(backend="triton", **LOSSES[name]).to(DEVICE)
    for seed in range(3):
        value_and_gradient(loss, *batch(seed))
    assert len(made) == 1
    assert_fresh(loss, *batch(3))


@pytest.mark.parametrize("name", LOSSES)
def test_other_batches_are_looked_at_again(name, made):
    loss = hitrate.ExactLoss(backend="triton", **LOSSES[name]).to(DEVICE)
    value_and_gradient(loss, *batch(0))
    logits, target = batch(1, rows=4)
    wide = torch.empty(6, 10, device=DEVICE)[:, ::2].copy_(batch(0)[0])
    for z, y in (
        (logits, target),
        (logits.bfloat16(), target),
        (logits, target.int()),
        (wide, batch(0)[1]),
    ):
        before = len(made)
        assert_fresh(loss, z, y)
        assert len(made) == before + 2
    with torch.no_grad():
        assert torch.equal(loss(logits, target), copy.deepcopy(loss)(logits, target))


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
        ("normalize", False),
    ],
)
def test_what_is_set_counts_from_then_on(name, value):
    loss = hitrate.ExactLoss(backend="triton", normalize=True, margin=0.5)
    value_and_gradient(loss, *batch(0))
    before = loss(*batch(1))
    setattr(loss, name, value)
    assert_fresh(loss, *batch(1))
    assert not torch.equal(before, loss(*batch(1))), "the setting changes nothing"


@pytest.mark.parametrize("home", sorted({"cpu", DEVICE}))
@pytest.mark.parametrize(
    ("loss", "number", "curve"),
    [
        ({"link": "gce"}, "q", schedules.linear(0.0, 1.0)),
        ({"noise": "gumbel", "link": links.Focused(0.1)}, "focus", schedules.linear(0.1, 0.4)),
        ({"normalize": True}, "sigma", schedules.geometric(4.0, 1.0)),
        ({}, "sigma", schedules.geometric(4.0, 1.0)),
        ({"margin": 3.0}, "margin", schedules.linear(3.0, 0.5)),
        ({"noise": "gumbel", "label_smoothing": 0.1}, "label_smoothing", schedules.linear(0.3, 0)),
    ],
)
def test_numbers_that_move_are_looked_up_every_time(loss, number, curve, home, made):
    loss = hitrate.ExactLoss(backend="triton", **loss).to(home)
    schedule = hitrate.Schedule(loss, number, curve, total_steps=3)
    logits, target = batch(0)
    values = []
    for _ in range(3):
        values.append(value_and_gradient(loss, logits, target)[0])
        schedule.step()
    assert len(made) == 1
    assert len(set(map(float, values))) == 3
    assert_fresh(loss, logits, target)


def test_tensors_put_in_the_place_of_buffers_are_seen():
    loss = hitrate.ExactLoss(noise="gumbel", link="log", weight=torch.ones(5), backend="triton").to(
        DEVICE
    )
    logits, target = batch(0)
    logits.requires_grad_()
    loss(logits, target)
    other = torch.linspace(1, 2, 5, device=DEVICE)
    found = torch.func.functional_call(loss, {"weight": other}, (logits, target))
    assert torch.allclose(found, torch.nn.functional.cross_entropy(logits, target, other))


def test_it_is_neither_pickled_nor_copied():
    loss = hitrate.ExactLoss(backend="triton").to(DEVICE)
    logits, target = batch(0)
    value = loss(logits, target)
    assert "_kept" in vars(loss)
    for other in (copy.copy(loss), copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert "_kept" not in vars(other)
        assert torch.equal(other(logits, target), value)


def test_no_batch_is_kept_alive():
    loss = hitrate.ExactLoss(backend="triton", normalize=True).to(DEVICE)
    logits, target = batch(0)
    z = logits.requires_grad_()
    loss(z, target).backward()
    ready, _ = vars(loss)["_kept"]
    reachable = [*vars(ready).values(), *vars(ready.kernels).values()]
    assert not any(t is z or t is target for t in reachable)
