"""ASAM among what else a training loop has: scalers, schedulers, checkpoints, accumulation."""

import copy
import functools
import pickle
import warnings

import pytest
import torch
from torch import nn

from hitrate.optim import ASAM, GradientNormalizer

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
BASES = {
    "sgd": SGD,
    "sgd_fused": functools.partial(SGD, fused=True),
    "adam": functools.partial(torch.optim.Adam, lr=0.01),
    "adam_fused": functools.partial(torch.optim.Adam, lr=0.01, fused=True),
}
SEED = torch.Generator().manual_seed(0)
X = torch.randn(6, 16, 3, 8, 8, generator=SEED)
Y = torch.randint(5, (6, 16), generator=SEED)


def convolutional():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Tanh(), nn.Linear(8, 5))


def train(model, asam, batches=range(6), parts=1):
    for batch in batches:
        device = next(model.parameters()).device
        x, y = X[batch].to(device), Y[batch].to(device)

        def backward(x=x, y=y):
            for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(a), b) / parts).backward()

        backward()
        with asam.perturbed(model):
            backward()
        asam.step()
        asam.zero_grad()


def largest_difference(ours, theirs):
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def train_with_scaler(base, device, scaled, broken_step=3):
    """The model after 6 steps, in one of which both losses are infinite."""
    model = convolutional().to(device)
    asam = ASAM(model.named_parameters(), base)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**12, enabled=scaled)
    for batch in range(6):
        x, y = X[batch].to(device), Y[batch].to(device)
        if batch == broken_step and not scaled:
            model(x)
            continue
        factor = torch.inf if batch == broken_step else 1.0
        scaler.scale(nn.functional.cross_entropy(model(x), y) * factor).backward()
        before = [param.detach().clone() for param in model.parameters()]
        with asam.perturbed(model):
            if batch == broken_step:
                for param, kept in zip(model.parameters(), before, strict=True):
                    assert torch.equal(param, kept)
            scaler.scale(nn.functional.cross_entropy(model(x), y) * factor).backward()
        scaler.step(asam)
        scaler.update()
        asam.zero_grad()
    return model


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_a_grad_scaler_changes_nothing_and_skips_a_step_that_is_not_finite(base, device):
    ours = train_with_scaler(base, device, scaled=True)
    theirs = train_with_scaler(base, device, scaled=False)
    assert largest_difference(ours, theirs) < 1e-6
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_accumulated_micro_batches_equal_one_batch():
    models = []
    for parts in (1, 4):
        model = plain()
        train(model, ASAM(model.named_parameters(), SGD), parts=parts)
        models.append(model)
    assert largest_difference(*models) < 1e-6


def test_a_learning_rate_scheduler_on_it_moves_the_base():
    model = plain()
    asam = ASAM(model.named_parameters(), SGD)
    scheduler = torch.optim.lr_scheduler.StepLR(asam, 1, gamma=0.1)
    train(model, asam, [0])
    scheduler.step()
    assert asam.base.param_groups[0]["lr"] == pytest.approx(0.01)


def test_a_scheduler_that_asks_for_the_momentum_finds_it():
    model = plain()
    asam = ASAM(model.named_parameters(), SGD)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(asam, max_lr=1.0, total_steps=10)
    train(model, asam, [0])
    scheduler.step()
    assert asam.base.param_groups[0]["momentum"] < 0.95


@pytest.mark.parametrize("load", [ASAM.load_state_dict, lambda a, s: a.base.load_state_dict(s)])
def test_a_resumed_run_equals_an_uninterrupted_one(load):
    uninterrupted, resumed = plain(), plain()
    asam = ASAM(uninterrupted.named_parameters(), SGD, rho=0.1)
    train(uninterrupted, asam, [0, 1, 2])
    resumed.load_state_dict(uninterrupted.state_dict())
    second = ASAM(resumed.named_parameters(), SGD, rho=0.9)
    load(second, pickle.loads(pickle.dumps(asam.state_dict())))
    assert second.param_groups is second.base.param_groups
    assert second.state is second.base.state
    assert second.param_groups[0]["rho"] == 0.1
    for model, optimizer in (uninterrupted, asam), (resumed, second):
        train(model, optimizer, [3, 4, 5])
    assert largest_difference(uninterrupted, resumed) == 0.0


def test_a_checkpoint_of_the_base_alone_can_be_loaded():
    model = plain()
    state = SGD(model.parameters()).state_dict()
    asam = ASAM(model.named_parameters(), SGD, rho=0.2, eta=0.3)
    asam.load_state_dict(state)
    train(model, asam, [0])
    assert (asam.param_groups[0]["rho"], asam.param_groups[0]["eta"]) == (0.2, 0.3)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_trains_like_the_original(duplicate):
    model = plain()
    asam = ASAM(model.named_parameters(), SGD)
    train(model, asam, [0, 1])
    other, second = duplicate((model, asam))
    assert second.param_groups is second.base.param_groups
    for pair in ((model, asam), (other, second)):
        train(*pair, [2, 3])
    assert largest_difference(model, other) == 0.0


def test_a_group_can_be_added_later():
    model, extra = plain(), nn.Linear(2, 2)
    asam = ASAM(model.named_parameters(), SGD)
    asam.add_param_group({"params": extra.named_parameters(), "rho": 0.1})
    group = asam.base.param_groups[1]
    assert (group["lr"], group["momentum"]) == (0.1, 0.9)
    assert (group["rho"], group["eta"]) == (0.1, 0.01)
    extra(torch.ones(1, 2)).sum().backward()
    with asam.perturbed():
        extra(torch.ones(1, 2)).sum().backward()
    before = extra.weight.detach().clone()
    asam.step()
    assert not torch.equal(extra.weight, before)


@pytest.mark.parametrize("through", ["asam", "base"])
@pytest.mark.parametrize("before", ["fresh", "loaded", "copied"])
def test_a_group_added_to_either_climbs_by_its_own_numbers_or_the_defaults(through, before):
    model = plain()
    asam = ASAM(model.named_parameters(), SGD, rho=0.2, eta=0.0)
    if before == "loaded":
        asam.base.load_state_dict(asam.base.state_dict())
    if before == "copied":
        asam = copy.deepcopy(asam)
    added = [nn.Parameter(torch.full((1, 1), 2.0)) for _ in range(2)]
    optimizer = asam if through == "asam" else asam.base
    optimizer.add_param_group({"params": [("a.weight", added[0])]})
    optimizer.add_param_group({"params": [("b.weight", added[1])], "rho": 0.6, "eta": 1.0})
    for param in added:
        param.grad = torch.ones_like(param)
    with asam.perturbed():
        # T is 2 and 3, so |T g| is the root of 13.
        assert added[0].item() == pytest.approx(2 + 0.2 * 4 / 13**0.5)
        assert added[1].item() == pytest.approx(2 + 0.6 * 9 / 13**0.5)
        for param in added:
            param.grad = torch.ones_like(param)
    asam.step()
    assert [param.item() for param in added] == pytest.approx([1.9, 1.9])
    assert [group["rho"] for group in asam.param_groups] == [0.2, 0.2, 0.6]


def backward_once(model):
    nn.functional.cross_entropy(model(X[0]), Y[0]).backward()


def test_a_step_without_the_block_warns_once_and_names_the_line_that_took_it():
    model = plain()
    asam = ASAM(model.named_parameters(), SGD)
    backward_once(model)
    with pytest.warns(UserWarning, match=r"without perturbed\(\).*plain step") as caught:
        asam.step()
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asam.step()
    # Each ASAM tells it anew, also of a second step after one block.
    model = plain()
    asam = ASAM(model.named_parameters(), SGD)
    train(model, asam, [0])
    backward_once(model)
    with pytest.warns(UserWarning, match="plain step"):
        asam.step()


def test_steps_that_are_no_mistake_do_not_warn():
    model = plain()
    asam = ASAM(model.named_parameters(), SGD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Nothing to step by; a step that makes a state for a checkpoint; one that is meant.
        asam.step()
        backward_once(model)
        asam.param_groups[0]["lr"] = 0.0
        asam.step()
        asam.param_groups[0]["lr"] = 0.1
        asam.base.step()
        # A scaler that skips a step leaves two blocks without one between them.
        for _ in range(2):
            with asam.perturbed():
                backward_once(model)
        asam.step()
        asam.zero_grad()

        def closure():
            asam.zero_grad()
            backward_once(model)

        asam.step(closure)
        asam.step(closure)
        train(model, asam, parts=4)


def test_gradients_can_be_clipped_between_block_and_step():
    model = plain()
    asam = ASAM(model.named_parameters(), functools.partial(torch.optim.SGD, lr=1.0))
    nn.functional.cross_entropy(model(X[0]), Y[0]).backward()
    with asam.perturbed():
        nn.functional.cross_entropy(model(X[0]), Y[0]).backward()
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    asam.step()
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    assert (after - before).norm().item() == pytest.approx(1e-3, rel=1e-3)


def test_with_a_gradient_normalizer_every_step_has_the_length_of_the_learning_rate():
    model = plain()
    asam = ASAM(model.named_parameters(), functools.partial(torch.optim.SGD, lr=0.01))
    normalizer = GradientNormalizer(asam, momentum=0.0)
    for batch in range(3):
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        train(model, asam, [batch])
        after = nn.utils.parameters_to_vector(model.parameters()).detach()
        assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-4)
    assert normalizer.mean_norm > 0
