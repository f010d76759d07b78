"""Many models at once against one at a time, and closed forms against autograd."""

import itertools

import numpy as np
import pytest
import torch

from hitrate import losses
from hitrate.schedules import linear
from hitrate_lab.training.batched import (
    ARCHITECTURES,
    Optimizer,
    Setting,
    Split,
    Variant,
    train_many,
    train_one,
)
from hitrate_lab.training.batched.copies import Copies
from hitrate_lab.training.batched.gradients import LogitGradients
from hitrate_lab.training.batched.many import batches, with_ones
from hitrate_lab.training.batched.one_by_one import epochs_of_one, weights_of
from hitrate_lab.training.batched.setting import Orders

VARIANTS = [
    Variant("CE", "cross_entropy"),
    Variant("hinge", "hinge"),
    Variant("F=0", "mixed"),
    Variant("F=0,0.5", "mixed_switch"),
    Variant("EXACT", "exact"),
    Variant("F=0-0.5", "mixed_gradual"),
    Variant("EL", "expectation"),
    Variant("focal", "focal", factor=0.25),
    Variant("probit", "exact", {"link": "log"}),
    Variant("falling sigma", "exact", {"sigma": "sigma_10_to_1", "margin": 2.0}),
    Variant("GCE", "generalized_cross_entropy"),
    Variant("truncated GCE", "generalized_cross_entropy", {"threshold": 0.4}),
    Variant("log to error", "annealed_softmax"),
    Variant("tamed", "tamed_cross_entropy", {"alpha": 0.5}),
    Variant("tamed EXACT", "exact", {"link": "tamed"}),
    Variant("rising", "exact", {"noise": "gumbel", "sigma": linear(1.0, 2.0)}),
    Variant("falling", "exact", {"noise": "gumbel", "sigma": linear(2.0, 1.0)}),
    Variant("smoothed", "cross_entropy_smoothed"),
    Variant("all rivals", "hinge", {"rivals": "sum"}),
    Variant("MAE", "mean_absolute_error"),
]
RATES = [0.1, 0.02]
SEEDS = [3, 8]
OPTIMIZERS = {
    "sgd": Optimizer(),
    "decay": Optimizer(weight_decay=0.01),
    "momentum": Optimizer(momentum=0.9, weight_decay=0.01),
    "adam": Optimizer("adam", weight_decay=0.01, falls=True),
}


def made(classes: int, rows: int = 27) -> Split:
    """Three noisy groups of rows; 27 are three batches of 8 and one of 3."""
    random = np.random.default_rng(classes)
    x = random.standard_normal((rows + 40, 5)).astype(np.float32)
    score = x @ random.standard_normal((5, classes)) + 0.7 * random.gumbel(size=(len(x), classes))
    x, y = torch.from_numpy(x), torch.from_numpy(score.argmax(1))
    parts = (slice(0, rows), slice(rows, rows + 20), slice(rows + 20, None))
    return Split(*((x[part], y[part]) for part in parts), classes=classes)


def near(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=5e-6)


# Each architecture and number of classes, and optimizers that differ most.
OFTEN = [("linear", "momentum", 3), ("one hidden layer", "adam", 2)]


@pytest.mark.parametrize(
    ("architecture", "optimizer", "classes"),
    [
        pytest.param(*each, marks=[] if each in OFTEN else [pytest.mark.slow])
        for each in itertools.product(ARCHITECTURES, OPTIMIZERS, (2, 3))
    ],
)
def test_every_copy_is_the_model_that_a_plain_loop_trains(architecture, optimizer, classes):
    split, setting = made(classes), Setting(architecture, 6, 8, OPTIMIZERS[optimizer])
    # Adam divides sums that cancel by their own size: what is rounding becomes a step.
    variants = [each for each in VARIANTS if optimizer != "adam" or each.recipe != "hinge"]
    many = train_many(split, setting, variants, RATES, SEEDS)
    for k, variant in enumerate(variants):
        # All four copies of some, and each copy of all in turn.
        every = [(s, r) for s in range(2) for r in range(2)]
        for s, r in every if k < 2 else [every[k % 4]]:
            one, found = train_one(split, setting, variant, RATES[r], SEEDS[s]), many[variant.name]
            for own, theirs in zip(one.weights, found.weights, strict=True):
                near(theirs[s, r], own)
            assert one.validation.tolist() == found.validation[:, s, r].tolist()
            assert one.test.tolist() == found.test[:, s, r].tolist()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_copies_and_plain_loops_agree_after_each_step(architecture):
    # One batch of 8 rows: an epoch is a step, and schedules move with each.
    split, setting = made(3, rows=8), Setting(architecture, 12, 8, Optimizer(momentum=0.9))
    copies = Copies(setting, split, VARIANTS, RATES, SEEDS, torch.device("cpu"))
    alone = {
        (s, v): epochs_of_one(split, setting, variant, RATES[1], SEEDS[s])
        for s in range(2)
        for v, variant in enumerate(copies.variants)
    }
    orders = [Orders(seed, 8) for seed in SEEDS]
    for step in range(setting.epochs):
        if step:
            copies.next_epoch()
        order = torch.stack([each.next() for each in orders])
        (batch,) = batches(with_ones(split.train[0]), split.train[1], order, 8, 3)
        copies.step(*batch)
        layers = copies.weights()
        for (s, v), models in alone.items():
            for layer, own in zip(layers, weights_of(next(models)), strict=True):
                near(layer[s, 2 * v + 1], own)


def test_a_seed_has_the_same_start_and_batches_under_all_losses():
    split = made(3)
    twins = [Variant("one", "cross_entropy"), Variant("other", "exact", {"noise": "gumbel"})]
    twins.append(Variant("third", "exact", {"noise": "gumbel", "link": "log"}))
    many = train_many(split, Setting("one hidden layer", 4), twins, RATES, SEEDS)
    for one, third in zip(many["one"].weights, many["third"].weights, strict=True):
        assert torch.equal(one, third)
        assert not torch.allclose(one[0], one[1])
    assert not torch.allclose(many["one"].weights[0], many["other"].weights[0])


def test_the_company_of_other_losses_changes_nothing():
    split, setting = made(3), Setting("one hidden layer", 5, 8, Optimizer(momentum=0.9))
    together = train_many(split, setting, VARIANTS, RATES, SEEDS)
    for variant in (VARIANTS[5], VARIANTS[8]):
        (alone,) = train_many(split, setting, [variant], RATES[1:], SEEDS[:1]).values()
        for found, own in zip(together[variant.name].weights, alone.weights, strict=True):
            near(found[0, 1], own[0, 0])


def test_training_twice_gives_the_same_bits():
    split, setting = made(3), Setting("one hidden layer", 3)
    first, second = (train_many(split, setting, VARIANTS, RATES, SEEDS) for _ in range(2))
    for name, history in first.items():
        for one, other in zip(history.weights, second[name].weights, strict=True):
            assert torch.equal(one, other)


def test_hits_are_the_rows_that_the_last_weights_have_right():
    split = made(4)
    history = train_many(split, Setting("linear", 3), VARIANTS[:1], RATES, SEEDS)["CE"]
    weights = history.weights[0].numpy()
    for (x, y), hits in ((split.validation, history.validation), (split.test, history.test)):
        scores = np.einsum("srci,ni->srnc", weights[..., :-1], x) + weights[..., None, :, -1]
        assert hits[-1].tolist() == (scores.argmax(-1) == y.numpy()).sum(-1).tolist()


def test_many_rows_are_classified_in_parts(monkeypatch):
    split, setting = made(3), Setting("one hidden layer", 2)
    whole = train_many(split, setting, VARIANTS[:3], RATES, SEEDS)
    monkeypatch.setattr("hitrate_lab.training.batched.copies.AT_ONCE", 700)
    monkeypatch.setattr("hitrate_lab.training.batched.many.LAID_OUT", 2)
    parts = train_many(split, setting, VARIANTS[:3], RATES, SEEDS)
    for name in whole:
        assert whole[name].test.tolist() == parts[name].test.tolist()


def test_a_batch_larger_than_the_training_set_is_the_training_set():
    split, variant = made(3, rows=5), Variant("CE", "cross_entropy")
    many = train_many(split, Setting("linear", 3, 8), [variant], [0.1], [0])
    near(
        many["CE"].weights[0][0, 0],
        train_one(split, Setting("linear", 3, 5), variant, 0.1, 0).weights[0],
    )


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("reach", [1.0, 30.0, 300.0])
def test_gradients_are_those_of_the_losses_also_far_from_any_decision(classes, reach):
    random = torch.Generator().manual_seed(0)
    logits = reach * torch.randn(1, len(VARIANTS), classes, 8, generator=random)
    target = torch.randint(classes, (1, 1, 1, 8), generator=random)
    one_hot = (target == torch.arange(classes)[:, None]).float()
    gradients = LogitGradients(VARIANTS, 10, torch.ones(1))
    found = gradients(logits, target, one_hot)
    for k, variant in enumerate(gradients.variants):
        rows = logits[0, k].T.clone().requires_grad_()
        loss = variant.factor * variant.plan(10).loss(rows, target.flatten()).mean()
        (wanted,) = torch.autograd.grad(loss, rows)
        torch.testing.assert_close(found[0, k].T, wanted, rtol=2e-5, atol=1e-7)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_gpu_trains_the_same_models(architecture):
    split, setting = made(3), Setting(architecture, 4, 8, Optimizer(momentum=0.9))
    here = train_many(split, setting, VARIANTS, RATES, SEEDS)
    there = train_many(split, setting, VARIANTS, RATES, SEEDS, device="cuda")
    for name, history in here.items():
        for one, other in zip(history.weights, there[name].weights, strict=True):
            torch.testing.assert_close(other.cpu(), one, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "variant",
    [
        Variant("normalised", "exact", {"normalize": True}),
        Variant("of the batch", "exact", {"link": "batch_log"}),
        Variant("weighted", "cross_entropy", {"weight": torch.ones(3)}),
    ],
    ids=lambda variant: variant.name,
)
def test_losses_that_are_no_mean_over_rows_are_refused(variant):
    with pytest.raises(ValueError, match="many models"):
        variant.plan(epochs=2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Setting("deep"),
        lambda: Setting("linear", epochs=0),
        lambda: Optimizer("sdg"),
        lambda: Optimizer("adam", momentum=0.9),
        lambda: Optimizer("sgd", falls=True),
        lambda: Optimizer(momentum=1.0),
    ],
)
def test_settings_that_cannot_be_are_refused(call):
    with pytest.raises(ValueError, match=r"Setting|Optimizer"):
        call()


def test_the_phases_of_fifty_epochs_last_as_long_as_the_study_says():
    def focuses(recipe: str) -> list[float]:
        plan = Variant("", recipe).plan(epochs=50)
        assert isinstance(plan.loss, losses.MixedLoss)
        values = []
        for _ in range(50):
            values.append(float(plan.loss.focus))
            plan.step()
        return values

    gradual, switch = focuses("mixed_gradual"), focuses("mixed_switch")
    assert [gradual.count(k / 10) for k in range(6)] == [9, 8, 8, 8, 8, 9]
    assert switch == [0.0] * 47 + [0.5] * 3
