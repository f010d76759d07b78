"""Recipes: a loss with what moves, one keyword each."""

import pytest
import torch
from torch import nn

import hitrate
from hitrate import schedules
from hitrate.links import GCE, Error, Focused, Mixed
from hitrate.recipes import RECIPES


def network():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(plan, model, optimizer, steps, start=0):
    values = []
    for step in range(start, start + steps):
        generator = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, 4, generator=generator), torch.arange(8) % 3
        optimizer.zero_grad()
        loss = plan.loss(model(x), y)
        loss.backward()
        optimizer.step()
        plan.step()
        values.append(loss.item())
    return values


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_and_goes_on_where_it_was_interrupted(name):
    model, optimizer = network()
    plan = hitrate.recipe(name, total_steps=6, optimizer=optimizer)
    whole = train(plan, model, optimizer, 6)

    model, optimizer = network()
    plan = hitrate.recipe(name, total_steps=6, optimizer=optimizer)
    first = train(plan, model, optimizer, 3)
    saved, weights = plan.state_dict(), optimizer.state_dict()
    again = hitrate.recipe(name, total_steps=6, optimizer=optimizer)
    again.load_state_dict(saved)
    optimizer.load_state_dict(weights)
    assert first + train(again, model, optimizer, 3, start=3) == whole
    assert RECIPES[name].source


def test_the_papers_settings_are_what_the_recipes_do():
    for name, margin, last in ("exact_linear", 0.1, 0.01), ("exact_networks", 0.5, 1.0):
        _, optimizer = network()
        exact = hitrate.recipe(name, total_steps=8000, optimizer=optimizer)
        assert exact.loss.normalize is True and exact.loss.noise == "normal"
        assert exact.loss.link == Error() and exact.loss.margin == margin
        (sigma,) = exact.schedules
        values = sigma.simulate()
        assert sigma.name == "sigma" and values[0] == 10 and values[-1] == pytest.approx(last)
        assert exact.normalizer.optimizer is optimizer and exact.normalizer.momentum == 0.9
    mixed = hitrate.recipe("mixed_switch", total_steps=100)
    (focus,) = mixed.schedules
    assert focus.simulate() == [0.0] * 95 + [0.5] * 5
    gradual = hitrate.recipe("mixed_gradual", total_steps=60)
    assert gradual.schedules[0].simulate() == [f / 10 for f in range(6) for _ in range(10)]


def test_two_recipes_on_one_optimizer_normalise_once():
    model, optimizer = network()
    first = hitrate.recipe("probit_networks", total_steps=3, optimizer=optimizer)
    second = hitrate.recipe("exact_linear", total_steps=3, optimizer=optimizer)
    train(second, model, optimizer, 1)
    assert first.normalizer.mean_norm == 0 and second.normalizer.mean_norm > 0


def test_the_focused_recipe_goes_from_likelihood_plus_error_to_the_error():
    plan = hitrate.recipe("exact_focused", total_steps=6, normalize_gradient=False)
    log_p = torch.linspace(-9.0, -0.01, 20)
    assert torch.equal(plan.loss.link(log_p), Mixed(1.0, 1.0)(log_p))
    for _ in range(5):
        plan.step()
    assert torch.equal(plan.loss.link(log_p), Error()(log_p))


@pytest.mark.parametrize("saved_with", [True, False])
def test_a_state_with_and_a_plan_without_normalizer_do_not_fit(saved_with):
    model, optimizer = network()
    plans = [
        hitrate.recipe(
            "probit_networks", total_steps=5, optimizer=optimizer, normalize_gradient=choice
        )
        for choice in (saved_with, not saved_with)
    ]
    train(plans[0], model, optimizer, 2)
    has, lacks = "has a gradient normalizer", "has none"
    said = (has, lacks) if saved_with else (lacks, has)
    with pytest.raises(ValueError, match="state {}, the plan {}.*normalize_gradient".format(*said)):
        plans[1].load_state_dict(plans[0].state_dict())
    assert plans[1].schedules[0].steps_done == 0


def test_annealed_starts_as_the_likelihood_and_ends_as_the_error():
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    target = torch.arange(6) % 4
    for name, noise in (("annealed", "normal"), ("annealed_softmax", "gumbel")):
        plan = hitrate.recipe(name, total_steps=5)
        assert plan.loss.sigma == 1 and not plan.loss.normalize and plan.loss.margin is None
        for link, steps in (("log", 4), ("error", 0)):
            expected = hitrate.exact_loss(logits, target, noise=noise, link=link)
            torch.testing.assert_close(plan.loss(logits, target), expected)
            for _ in range(steps):
                plan.step()


def test_a_plan_jumps_and_changes_mode():
    plan = hitrate.recipe("exact_focused", total_steps=6, normalize_gradient=False)
    other = hitrate.recipe("exact_focused", total_steps=6, normalize_gradient=False)
    for _ in range(3):
        plan.step()
    other.goto(3)
    assert (other.loss.sigma, other.loss.focus) == (plan.loss.sigma, plan.loss.focus)
    assert plan.eval() is plan and not plan.loss.training
    assert plan.train().loss.training


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("exact-networks", "exact_networks"),
        ("annealed-softmax", "annealed_softmax"),
        ("log-to-error", "annealed_softmax"),
        ("probit", "probit_networks"),
        ("cross-entropy", "cross_entropy"),
    ],
)
def test_a_former_name_warns_and_works(former, now):
    with pytest.warns(DeprecationWarning, match=f"'{former}' is now '{now}'"):
        plan = hitrate.recipe(former, total_steps=5, normalize_gradient=False)
    assert repr(plan.loss) == repr(
        hitrate.recipe(now, total_steps=5, normalize_gradient=False).loss
    )


def test_any_part_is_one_keyword():
    model, optimizer = network()
    plan = hitrate.recipe(
        "exact",
        noise="logistic",
        link="gce",
        q=schedules.linear(0.0, 1.0),
        sigma=schedules.geometric(4.0, 1.0),
        label_smoothing=0.1,
        margin=2.0,
        total_steps=3,
    )
    seen = []
    for _ in range(3):
        seen.append((float(plan.loss.sigma), float(plan.loss.link.q)))
        train(plan, model, optimizer, 1)
    assert [q for _, q in seen] == [0.0, 0.5, 1.0]
    assert [s for s, _ in seen] == pytest.approx([4.0, 2.0, 1.0])
    assert plan.normalizer is None


def test_a_change_replaces_what_the_recipe_says():
    _, optimizer = network()
    plan = hitrate.recipe("probit_networks", total_steps=5, optimizer=optimizer, sigma=2.0)
    assert plan.schedules == [] and plan.loss.sigma == 2.0
    plan = hitrate.recipe("exact_focused", total_steps=5, normalize_gradient=False, focus=0.2)
    assert plan.loss.link == Focused(0.2)
    plan = hitrate.recipe("exact", total_steps=5, link=GCE(0.3), threshold=0.1)
    assert plan.loss.link == GCE(0.3, 0.1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"name": "magic"}, "'magic'.*not one of 'annealed'"),
        ({"name": "probit_networks"}, "needs optimizer="),
        ({"name": "mixed", "q": 0.5}, "q is no argument of MixedLoss"),
        ({"name": "exact", "link": "gce", "gamma": 2.0}, "gamma is no .* no parameter of GCE"),
        ({"name": "exact", "link": "hinge", "q": 2.0}, "'hinge' is neither"),
        ({"name": "exact", "sigma": "exact-netwrks"}, "is not the name of a schedule"),
        ({"name": "exact", "link": GCE}, r"link=GCE is a class; .* such as GCE\(0.7\)"),
        ({"name": "exact", "link": GCE, "q": 0.5}, r"link=GCE is a class"),
        ({"name": "exact", "link": abs}, "link=<.*abs> must be a Link"),
        ({"name": "exact", "link": "exact_linear"}, "link='exact_linear' is neither"),
        ({"name": "exact", "noise": schedules.constant(1.0)}, r"noise=constant.* must be a word"),
        ({"name": "exact", "reduction": float}, "reduction=float is a class; give a word"),
        ({"name": "exact", "normalize": schedules.constant(1.0)}, "must be True or False"),
        ({"name": "exact", "normalize": "focus_0"}, "normalize='focus_0' must be True or False"),
    ],
)
def test_what_it_cannot_build_is_a_value_error(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        hitrate.recipe(arguments.pop("name"), total_steps=3, **arguments)


def test_a_plan_may_hear_of_its_steps_later():
    at_once = hitrate.recipe("annealed", total_steps=5)
    later = hitrate.recipe("annealed")
    assert repr(later.loss) == repr(at_once.loss)
    for call in (
        later.step,
        lambda: later.goto(1),
        lambda: later.load_state_dict(at_once.state_dict()),
    ):
        with pytest.raises(ValueError, match="how many steps"):
            call()
    assert later.begin(5) is later
    for _ in range(5):
        assert float(later.loss.q) == float(at_once.loss.q)
        at_once.step()
        later.step()


def test_a_plan_that_normalises_gradients_needs_an_optimizer_when_it_begins():
    plan = hitrate.recipe("exact_networks")
    with pytest.raises(ValueError, match=r"begin: .* needs optimizer="):
        plan.begin(3)
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], 0.1)
    plan.begin(3, optimizer)
    parameter.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    torch.testing.assert_close(parameter.grad, torch.tensor([0.6, 0.8]))


def test_a_plan_that_begins_on_a_restored_loss_goes_on():
    first = hitrate.recipe("annealed", total_steps=5)
    first.goto(3)
    second = hitrate.recipe("annealed")
    second.loss.load_state_dict(first.loss.state_dict())
    second.begin(5)
    assert float(second.loss.q) == float(first.loss.q)
    second.step()
    assert second.schedules[0].steps_done == 4
