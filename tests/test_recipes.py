"""Recipes: a loss with what moves, one keyword each."""

import pytest
import torch
from torch import nn

import hitrate
from hitrate import schedules
from hitrate.links import GCE, Focused
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
    if plan.normalizer:
        plan.normalizer.remove()
    again = hitrate.recipe(name, total_steps=6, optimizer=optimizer)
    again.load_state_dict(saved)
    optimizer.load_state_dict(weights)
    assert first + train(again, model, optimizer, 3, start=3) == whole
    assert RECIPES[name].source


def test_the_papers_settings_are_what_the_recipes_do():
    _, optimizer = network()
    exact = hitrate.recipe("exact-linear", total_steps=8000, optimizer=optimizer)
    assert exact.loss.normalize and exact.loss.noise == "normal"
    (sigma,) = exact.schedules
    values = sigma.simulate()
    assert values[0] == 10 and values[-1] == pytest.approx(0.01)
    mixed = hitrate.recipe("mixed-switch", total_steps=100)
    (focus,) = mixed.schedules
    assert focus.simulate() == [0.0] * 95 + [0.5] * 5
    gradual = hitrate.recipe("mixed-gradual", total_steps=60)
    assert gradual.schedules[0].simulate() == [f / 10 for f in range(6) for _ in range(10)]


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
        seen.append((plan.loss.sigma, plan.loss.link.q))
        train(plan, model, optimizer, 1)
    assert [q for _, q in seen] == [0.0, 0.5, 1.0]
    assert [s for s, _ in seen] == pytest.approx([4.0, 2.0, 1.0])
    assert plan.normalizer is None


def test_a_change_replaces_what_the_recipe_says():
    _, optimizer = network()
    plan = hitrate.recipe("probit", total_steps=5, optimizer=optimizer, sigma=2.0)
    assert plan.schedules == [] and plan.loss.sigma == 2.0
    plan = hitrate.recipe("exact-focused", total_steps=5, normalize_gradient=False, focus=0.2)
    assert plan.loss.link == Focused(0.2)
    plan = hitrate.recipe("exact", total_steps=5, link=GCE(0.3), threshold=0.1)
    assert plan.loss.link == GCE(0.3, 0.1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"name": "magic"}, "'magic'.*not one of 'cross-entropy'"),
        ({"name": "probit"}, "needs optimizer="),
        ({"name": "mixed", "q": 0.5}, "q is no argument of MixedLoss"),
        ({"name": "exact", "link": "gce", "gamma": 2.0}, "gamma is no .* no parameter of GCE"),
        ({"name": "exact", "link": "hinge", "q": 2.0}, "'hinge' is neither"),
        ({"name": "exact", "sigma": "exact-netwrks"}, "is not the name of a schedule"),
    ],
)
def test_what_it_cannot_build_is_a_value_error(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        hitrate.recipe(arguments.pop("name"), total_steps=3, **arguments)
