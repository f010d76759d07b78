"""Numbers that a schedule moves: tensors that are saved, restored, copied and compiled once."""

import copy
import io

import numpy as np
import pytest
import torch

import hitrate
from hitrate import Schedule, schedules
from hitrate.recipes import RECIPES

# Every kind of number, with a loss that has it.
NUMBERS = {
    "sigma": (hitrate.ExactLoss, schedules.geometric(10.0, 1.0)),
    "margin": (hitrate.ExactLoss, schedules.linear(2.0, 0.5)),
    "label_smoothing": (hitrate.CrossEntropyLoss, schedules.linear(0.2, 0.0)),
    "focus": (hitrate.MixedLoss, schedules.linear(0.0, 0.5)),
    "q": (hitrate.GeneralizedCrossEntropyLoss, schedules.linear(0.0, 1.0)),
    "gamma": (hitrate.FocalLoss, schedules.linear(0.0, 3.0)),
    "alpha": (hitrate.TamedCrossEntropyLoss, schedules.linear(0.0, 1.5)),
    "balance": (hitrate.ComplementObjectiveLoss, schedules.linear(0.0, 1.0)),
}
every_number = pytest.mark.parametrize("name", NUMBERS)
STEPS = 6


def batch(seed=0, rows=6, classes=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, classes, generator=generator), torch.arange(rows) % classes


def made(name):
    module, curve = NUMBERS[name]
    loss = module()
    return loss, Schedule(loss, name, curve, total_steps=STEPS)


def saved(loss):
    """A state as it comes back from a file."""
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@every_number
def test_a_number_is_a_plain_one_until_it_moves(name):
    module, curve = NUMBERS[name]
    loss = module()
    assert not loss.state_dict() and not isinstance(getattr(loss, name), torch.Tensor)
    Schedule(loss, name, curve, total_steps=STEPS)
    assert set(loss.state_dict()) == {name, f"{name}_step"}
    assert getattr(loss, name).dtype == torch.float64 and not list(loss.parameters())


@every_number
def test_a_number_that_moves_gives_the_loss_that_a_fixed_one_gives(name):
    module, curve = NUMBERS[name]
    loss, schedule = made(name)
    logits, target = batch()
    for step in range(STEPS):
        value = curve(step / (STEPS - 1))
        assert float(getattr(loss, name)) == value
        torch.testing.assert_close(loss(logits, target), module(**{name: value})(logits, target))
        assert value == 0 or f"{name}={value!r}" in repr(loss)
        schedule.step()


@every_number
def test_a_schedule_goes_on_with_what_was_restored_before_or_after_it_was_made(name):
    module, curve = NUMBERS[name]
    loss, schedule = made(name)
    for _ in range(2):
        schedule.step()
    state = saved(loss)
    before, after = module(), module()
    before.load_state_dict(state)
    first = Schedule(before, name, curve, total_steps=STEPS)
    second = Schedule(after, name, curve, total_steps=STEPS)
    after.load_state_dict(state)
    for _ in range(3):
        for each, own in ((first, before), (second, after)):
            assert each.steps_done == schedule.steps_done
            assert getattr(own, name) == getattr(loss, name)
            each.step()
        schedule.step()


def test_a_second_schedule_of_a_loss_that_was_not_restored_begins_anew():
    loss, schedule = made("sigma")
    for _ in range(4):
        schedule.step()
    again = Schedule(loss, "sigma", schedules.geometric(4.0, 1.0), total_steps=3)
    assert loss.sigma == 4.0 and again.steps_done == 0


def test_a_state_without_the_number_does_not_pass_for_one_that_has_it():
    loss, _ = made("sigma")
    with pytest.raises(RuntimeError, match="sigma"):
        loss.load_state_dict({})


def test_a_number_keeps_its_digits_where_the_module_goes():
    loss, schedule = made("sigma")
    schedule.step()
    value = float(loss.sigma)
    for move in (loss.half, loss.bfloat16, loss.float, lambda: loss.to("meta")):
        move()
        assert loss.sigma.dtype == torch.float64
        if not loss.sigma.is_meta:
            assert float(loss.sigma) == value
    assert loss.sigma.is_meta


def test_a_number_can_be_set_by_hand_and_stays_what_it_is():
    loss, schedule = made("sigma")
    there = loss.sigma
    loss.sigma = 3.0
    assert loss.sigma is there and float(there) == 3.0
    schedule.step()
    assert float(there) == schedule.value
    mixed = hitrate.MixedLoss(0.2)
    mixed.focus = 0.4
    assert mixed.focus == 0.4 and not mixed.state_dict()
    with pytest.raises(ValueError, match="from 0 to 0"):
        mixed.focus = 0.7


def test_copies_move_on_their_own():
    loss, schedule = made("q")
    schedule.step()
    twin = copy.deepcopy(loss)
    schedule.step()
    assert float(twin.q) == pytest.approx(0.2) and float(loss.q) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("name", "curve", "complaint"),
    [
        ("sigma", schedules.linear(1.0, 0.0), "sigma must be a positive number"),
        ("margin", schedules.linear(1.0, -1.0), "margin must be a number >= 0"),
        ("focus", schedules.linear(0.0, 0.7), "focus must be a number from 0 to"),
        ("label_smoothing", schedules.linear(0.0, 2.0), "label_smoothing must lie between"),
        ("q", schedules.linear(0.5, -0.5), "q must be a number >= 0"),
    ],
)
def test_a_schedule_that_leads_out_of_range_is_stopped_there(name, curve, complaint):
    loss = NUMBERS[name][0]()
    schedule = Schedule(loss, name, curve, total_steps=4)
    with pytest.raises(ValueError, match=complaint):
        for _ in range(3):
            schedule.step()
    logits, target = batch()
    assert loss(logits, target).isfinite()


def test_a_tensor_where_a_number_belongs_is_told_at_the_constructor():
    for module in (hitrate.MixedLoss, hitrate.FocalLoss, hitrate.HingeLoss, hitrate.ExactLoss):
        with pytest.raises(ValueError, match="weight="):
            module(torch.ones(5))
    with pytest.raises(ValueError, match="one number, without gradient"):
        hitrate.MixedLoss(label_smoothing=torch.zeros(3))
    with pytest.raises(ValueError, match="must be a number"):
        hitrate.ExactLoss(margin="wide")


@pytest.mark.parametrize("weight", [[1.0, 2.0, 3.0, 4.0], torch.ones(4).numpy()], ids=type)
def test_weights_that_are_no_tensor_are_told_at_the_constructor_and_the_call(weight):
    with pytest.raises(TypeError, match=r"weight must be a tensor.*torch\.tensor"):
        hitrate.MixedLoss(weight=weight)
    with pytest.raises(TypeError, match="weight must be a tensor"):
        hitrate.mixed_loss(*batch(), weight=weight)


def steps_under_compilation(name, backend, **changes):
    """Compilations of 24 scheduled steps, and the largest relative difference to eager ones."""
    torch._dynamo.reset()
    # No gradients are normalised here: that is the optimizer's.
    plans = [
        hitrate.recipe(name, total_steps=24, normalize_gradient=False, **changes) for _ in range(2)
    ]
    compilations = torch._dynamo.utils.counters["stats"]
    before = compilations["unique_graphs"]
    compiled = torch.compile(plans[0].loss, fullgraph=True, backend=backend)
    worst = 0.0
    for step in range(24):
        logits, target = batch(step, rows=32, classes=10)
        found = []
        for function in (compiled, plans[1].loss):
            z = logits.clone().requires_grad_()
            value = function(z, target)
            value.backward()
            found.append((value.detach(), z.grad))
        for ours, theirs in zip(*found, strict=True):
            worst = max(worst, float((ours - theirs).abs().max() / theirs.abs().max()))
        for plan in plans:
            plan.step()
    return compilations["unique_graphs"] - before, worst


CHANGES = {
    "moving margin": ("exact_networks", {"margin": schedules.linear(2.0, 0.5)}),
    "moving smoothing": ("mixed_gradual", {"label_smoothing": schedules.linear(0.2, 0.0)}),
    "normal noise, smoothed": ("annealed", {"label_smoothing": 0.1}),
}


def quick(names, few):
    """All names; those that are not among the few are for `make test-all`."""
    return [pytest.param(n, marks=[] if n in few else [pytest.mark.slow]) for n in names]


@pytest.mark.parametrize("name", quick(RECIPES, ("annealed", "mixed_gradual")))
def test_a_scheduled_training_is_compiled_once(name):
    graphs, worst = steps_under_compilation(name, "aot_eager")
    assert graphs <= 2
    assert worst < 1e-6


@pytest.mark.parametrize("what", quick(CHANGES, ("moving smoothing",)))
def test_whatever_moves_is_compiled_once(what):
    name, changes = CHANGES[what]
    graphs, worst = steps_under_compilation(name, "aot_eager", **changes)
    assert graphs <= 2
    assert worst < 1e-5


# How often is decided before a compiler is asked, and tested above for every recipe. These compile
# what the others do: a small sigma, a moving sigma and focus, a moving q, and the softmax.
BY_DEFAULT = ("exact_linear", "exact_focused", "annealed", "mixed_gradual")


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_DEFAULT)
def test_a_scheduled_training_is_compiled_once_by_the_default_compiler(name):
    graphs, worst = steps_under_compilation(name, "inductor")
    assert graphs <= 2
    assert worst < 1e-5


def test_numbers_of_numpy_and_whole_ones_are_numbers():
    logits, target = batch()
    for make in (hitrate.GeneralizedCrossEntropyLoss, hitrate.MixedLoss, hitrate.FocalLoss):
        found = make(np.float64(0.25))(logits, target)
        assert torch.equal(found, make(0.25)(logits, target))
    for sigma in (1.0, torch.tensor(10)):
        loss = hitrate.ExactLoss(sigma)
        schedule = hitrate.Schedule(loss, "sigma", lambda p: 10 if p < 0.4 else 0.5, 3)
        schedule.step()
        assert loss.sigma == 0.5
    loss = hitrate.ExactLoss(torch.tensor(2))
    loss.sigma = 0.5
    assert loss.sigma == 0.5


def test_a_tensor_may_stand_in_the_place_of_any_number():
    logits, target = batch()
    loss = hitrate.GeneralizedCrossEntropyLoss(torch.tensor(0.5))
    assert list(loss.state_dict()) == ["q"]
    plain = hitrate.GeneralizedCrossEntropyLoss(0.5)
    torch.testing.assert_close(loss(logits, target), plain(logits, target))
    plain.q = torch.tensor(0.25)
    loss.q = 0.25
    torch.testing.assert_close(loss(logits, target), plain(logits, target))
    exact = hitrate.ExactLoss(link=hitrate.links.GCE(torch.tensor(0.7)))
    assert list(exact.state_dict()) == ["q"]


def test_a_state_loaded_in_part_leaves_the_steps_alone():
    loss = hitrate.ExactLoss()
    schedule = hitrate.Schedule(loss, "sigma", hitrate.schedules.linear(10.0, 1.0), 10)
    for _ in range(5):
        schedule.step()
    loss.load_state_dict({}, strict=False)
    schedule.step()
    assert schedule.steps_done == 6 and float(loss.sigma) == pytest.approx(4.0)


def test_another_link_leaves_nothing_of_the_first():
    loss = hitrate.ExactLoss(link="gce")
    hitrate.Schedule(loss, "q", hitrate.schedules.linear(0.0, 1.0), 10).step()
    loss.link = hitrate.links.Error()
    assert not [key for key in loss.state_dict() if key.startswith("q")]
    hitrate.ExactLoss().load_state_dict(loss.state_dict())


def test_explain_reads_a_sigma_that_moves_as_the_call_does():
    loss = hitrate.ExactLoss(noise="gumbel", link="log")
    hitrate.Schedule(loss, "sigma", hitrate.schedules.linear(10.0, 1.0), 10)
    assert loss.explain(torch.randn(4, 3), torch.tensor([0, 1, 2, 0])).way == "softmax"
