"""The gradient normalizer, against the paper's sentence written out in numpy."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from waiting import NoWaiting

from hitrate.optim import ASAM, GradientNormalizer

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": False}),
    "sgd_fused": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "fused": False}),
    "adam_fused": (torch.optim.Adam, {"lr": 0.01, "fused": True}),
}


def parameters(*shapes, **options):
    return [nn.Parameter(torch.zeros(shape, **options)) for shape in shapes]


def step(optimizer, params, grads):
    for param, grad in zip(params, grads, strict=True):
        param.grad = None if grad is None else grad.clone()
    optimizer.step()


def largest_difference(ours, theirs):
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours, theirs, strict=True))


def test_a_training_run_equals_the_paper_written_out_in_numpy():
    params = parameters((3, 2), (4,), dtype=torch.float64)
    groups = [{"params": params[:1], "lr": 0.5}, {"params": params[1:], "lr": 0.1}]
    optimizer = torch.optim.SGD(groups)
    normalizer = GradientNormalizer(optimizer, momentum=0.9)
    generator = np.random.default_rng(0)
    weights = [np.zeros((3, 2)), np.zeros(4)]
    mean = None
    for number in range(30):
        grads = [np.exp(0.2 * number) * generator.normal(size=w.shape) for w in weights]
        norm = np.sqrt(sum((g**2).sum() for g in grads))
        mean = norm if mean is None else 0.9 * mean + 0.1 * norm
        for weight, grad, lr in zip(weights, grads, (0.5, 0.1), strict=True):
            weight -= lr * grad / mean

        step(optimizer, params, map(torch.from_numpy, grads))
        assert normalizer.mean_norm.item() == pytest.approx(mean, rel=1e-14)
    for param, weight in zip(params, weights, strict=True):
        np.testing.assert_allclose(param.detach().numpy(), weight, rtol=1e-12)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_a_wrong_momentum_is_refused_with_its_value(momentum):
    with pytest.raises(ValueError, match=rf"GradientNormalizer\(momentum={momentum}\)"):
        GradientNormalizer(torch.optim.SGD(parameters(2)), momentum)


def train_with_scaler(optimizer_class, options, device, *, scaled, broken_step=3):
    """Parameters and running mean after 8 steps, one with an infinite loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    optimizer = optimizer_class(model.parameters(), **options)
    normalizer = GradientNormalizer(optimizer)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**12, enabled=scaled)
    for number in range(8):
        x, y = torch.randn(16, 4).to(device), torch.randint(3, (16,)).to(device)
        if number == broken_step and not scaled:
            continue
        loss = nn.functional.cross_entropy(model(x), y) * 10.0**number
        if number == broken_step:
            loss = loss * torch.inf
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return list(model.parameters()), normalizer.mean_norm.item()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("optimizer_class", "options"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_grad_scaler_changes_nothing_and_a_skipped_step_is_as_if_it_had_not_been(
    optimizer_class, options, device
):
    ours, mean = train_with_scaler(optimizer_class, options, device, scaled=True)
    theirs, expected = train_with_scaler(optimizer_class, options, device, scaled=False)
    assert mean == pytest.approx(expected, rel=1e-6)
    assert largest_difference(ours, theirs) < 1e-6


@pytest.mark.parametrize("optimizer", ["sgd", "sgd_fused"])
def test_gradients_unscaled_by_the_user_are_not_unscaled_again(optimizer):
    optimizer_class, options = OPTIMIZERS[optimizer]
    (param,) = parameters(2)
    optimizer = optimizer_class([param], **options)
    normalizer = GradientNormalizer(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale((param * torch.tensor([3.0, 4.0])).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert normalizer.mean_norm.item() == pytest.approx(5.0)


def test_a_step_that_a_fused_optimizer_will_skip_leaves_mean_and_gradients_alone():
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0, fused=True)
    normalizer = GradientNormalizer(optimizer)
    optimizer.grad_scale = torch.tensor(8.0)
    # The optimizer itself unscales the gradients of the step that it takes.
    for found_inf, first, expected in ((0.0, 24.0, [0.6, 0.8]), (1.0, 99.0, [99.0, 32.0])):
        optimizer.found_inf = torch.tensor(found_inf)
        step(optimizer, params, [torch.tensor([first, 32.0])])
        assert normalizer.mean_norm.item() == 5.0
        np.testing.assert_allclose(params[0].grad.numpy(), expected, rtol=1e-6)


def test_accumulated_micro_batches_equal_one_batch():
    finals = []
    x, y = torch.randn(3, 32, 4), torch.randint(3, (3, 32))
    for parts in (1, 4):
        torch.manual_seed(1)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        GradientNormalizer(optimizer)
        for inputs, target in zip(x, y, strict=True):
            optimizer.zero_grad()
            for a, b in zip(inputs.chunk(parts), target.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(a), b) / parts).backward()
            optimizer.step()
        finals.append(list(model.parameters()))
    assert largest_difference(*finals) < 1e-6


def test_a_sparse_gradient_is_treated_like_its_dense_twin():
    finals, means = [], []
    words = torch.randint(10, (5, 7))
    for sparse in (False, True):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(10, 3, sparse=sparse), nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        normalizer = GradientNormalizer(optimizer)
        for row in words:
            optimizer.zero_grad()
            model(row).square().sum().backward()
            optimizer.step()
        finals.append(list(model.parameters()))
        means.append(normalizer.mean_norm.item())
    assert means[1] == pytest.approx(means[0], rel=1e-6)
    assert largest_difference(*finals) < 1e-6


def test_a_parameter_without_gradient_counts_as_nothing():
    params = parameters(2, 3)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    step(optimizer, params, [torch.tensor([3.0, 4.0]), None])
    assert normalizer.mean_norm.item() == 5.0
    assert params[1].grad is None


def test_a_step_without_any_gradient_changes_nothing():
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    step(optimizer, params, [torch.tensor([3.0, 4.0])])
    step(optimizer, params, [None])
    assert normalizer.mean_norm.item() == 5.0


def test_zero_gradients_stay_zero_and_the_first_positive_norm_starts_the_mean():
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    for _ in range(2):
        step(optimizer, params, [torch.zeros(2)])
        assert params[0].grad.tolist() == [0.0, 0.0]
    step(optimizer, params, [torch.tensor([3.0, 4.0])])
    assert normalizer.mean_norm.item() == 5.0
    step(optimizer, params, [torch.zeros(2)])
    assert normalizer.mean_norm.item() == pytest.approx(4.5)


def test_gradients_whose_squares_underflow_do_not_grow():
    # As EXACT's where every row is right by far: not zero, but their norm is.
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    GradientNormalizer(optimizer)
    for step in range(2000):
        parameter.grad = torch.full((3,), 1.0 if step < 5 else 1e-25)
        optimizer.step()
        assert (parameter.grad.norm() <= 1.01).all()
    assert parameter.abs().max() < 5


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_norm_that_is_not_finite_leaves_mean_and_gradients_alone(value):
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=0.0)
    normalizer = GradientNormalizer(optimizer)
    step(optimizer, params, [torch.tensor([3.0, 4.0])])
    step(optimizer, params, [torch.tensor([7.0, value])])
    assert normalizer.mean_norm.item() == 5.0
    np.testing.assert_array_equal(params[0].grad.numpy(), [7.0, value])


def test_a_clipped_gradient_is_normalized_by_the_clipped_norm():
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    params[0].grad = torch.tensor([30.0, 40.0])
    nn.utils.clip_grad_norm_(params, 2.0)
    optimizer.step()
    assert normalizer.mean_norm.item() == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_survive_a_mean_that_half_precision_cannot_hold(dtype, device):
    params = parameters(2, dtype=dtype, device=device)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    normalizer.load_state_dict({"mean_norm": 1e-8})
    grad = torch.tensor([3e-7, 4e-7], dtype=dtype)
    step(optimizer, params, [grad.to(device)])
    expected = grad.double() / (0.9 * 1e-8 + 0.1 * grad.double().norm())
    # One rounding to 8 bits.
    np.testing.assert_allclose(params[0].grad.double().cpu(), expected, rtol=2**-8)


def test_a_closure_is_evaluated_before_the_division():
    (param,) = parameters(2)
    optimizer = torch.optim.SGD([param], lr=1.0)
    normalizer = GradientNormalizer(optimizer)

    def closure():
        optimizer.zero_grad()
        loss = (param * torch.tensor([3.0, 4.0])).sum()
        loss.backward()
        return loss

    for call in (lambda: optimizer.step(closure), lambda: optimizer.step(closure=closure)):
        assert call() is not None
        np.testing.assert_allclose(param.grad.numpy(), [0.6, 0.8], rtol=1e-6)
    assert normalizer.mean_norm.item() == pytest.approx(5.0)


def test_a_resumed_normalizer_goes_on_like_an_uninterrupted_one():
    grads = torch.randn(10, 2)
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    for number, grad in enumerate(grads):
        if number == 5:
            state = normalizer.state_dict()
            normalizer.remove()
            normalizer = GradientNormalizer(optimizer)
            normalizer.load_state_dict(state)
        step(optimizer, params, [grad])
    uninterrupted = parameters(2)
    optimizer = torch.optim.SGD(uninterrupted, lr=1.0)
    other = GradientNormalizer(optimizer)
    for grad in grads:
        step(optimizer, uninterrupted, [grad])
    assert torch.equal(params[0], uninterrupted[0])
    assert torch.equal(normalizer.mean_norm, other.mean_norm)


def test_after_removal_gradients_are_left_alone():
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    normalizer.remove()
    step(optimizer, params, [torch.tensor([3.0, 4.0])])
    assert params[0].grad.tolist() == [3.0, 4.0]
    assert normalizer.mean_norm.item() == 0.0


WRAPPED = {
    "optimizer_twice": lambda optimizer, asam: (optimizer, optimizer),
    "base_then_asam": lambda optimizer, asam: (optimizer, asam),
    "asam_then_base": lambda optimizer, asam: (asam, optimizer),
}


@pytest.mark.parametrize("pair", WRAPPED.values(), ids=WRAPPED)
def test_a_second_normalizer_takes_the_place_of_the_first(pair):
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    one, other = pair(optimizer, ASAM(params, optimizer))
    first = GradientNormalizer(one)
    step(optimizer, params, [torch.tensor([3.0, 4.0])])
    second = GradientNormalizer(other)
    step(optimizer, params, [torch.tensor([30.0, 40.0])])
    assert (first.mean_norm.item(), second.mean_norm.item()) == (5.0, 50.0)
    # Taking the first off once more does not take off the second.
    first.remove()
    step(optimizer, params, [torch.tensor([30.0, 40.0])])
    np.testing.assert_allclose(params[0].grad.numpy(), [0.6, 0.8], rtol=1e-6)


def test_hooks_of_others_stay_when_a_normalizer_is_replaced():
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("other"))
    for _ in range(2):
        GradientNormalizer(optimizer)
    step(optimizer, params, [torch.ones(2)])
    assert seen == ["other"]


DUPLICATES = {"deepcopy": copy.deepcopy, "pickle": lambda o: pickle.loads(pickle.dumps(o))}


@pytest.mark.parametrize("duplicate", DUPLICATES.values(), ids=DUPLICATES)
def test_a_copied_optimizer_has_no_normalizer_and_can_get_one(duplicate):
    optimizer = torch.optim.SGD(parameters(2), lr=1.0)
    GradientNormalizer(optimizer)
    other = duplicate(optimizer)
    params = other.param_groups[0]["params"]
    step(other, params, [torch.tensor([3.0, 4.0])])
    assert params[0].grad.tolist() == [3.0, 4.0]
    normalizer = GradientNormalizer(other)
    step(other, params, [torch.tensor([3.0, 4.0])])
    assert normalizer.mean_norm.item() == 5.0


@pytest.mark.parametrize("duplicate", DUPLICATES.values(), ids=DUPLICATES)
@pytest.mark.parametrize("removed", [False, True], ids=["on", "removed"])
def test_a_normalizer_copied_with_its_optimizer_goes_on_there(duplicate, removed):
    params = parameters(2)
    optimizer = torch.optim.SGD(params, lr=1.0)
    normalizer = GradientNormalizer(optimizer)
    step(optimizer, params, [torch.tensor([3.0, 4.0])])
    if removed:
        normalizer.remove()
    other, copied = duplicate((optimizer, normalizer))
    for of_these in (optimizer, other):
        step(of_these, of_these.param_groups[0]["params"], [torch.tensor([0.0, 10.0])])
    assert copied.optimizer is other
    assert copied.mean_norm.item() == normalizer.mean_norm.item() == (5.0 if removed else 5.5)


def test_it_does_not_keep_an_optimizer_alive():
    optimizer = torch.optim.SGD(parameters(2), lr=1.0)
    GradientNormalizer(optimizer)
    kept = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert kept() is None


def test_of_an_asam_the_gradients_of_the_base_are_divided_once():
    (param,) = parameters(2)
    asam = ASAM([param], torch.optim.SGD([param], lr=1.0), rho=0.1)
    normalizer = GradientNormalizer(asam)
    assert normalizer.optimizer is asam.base
    (param * torch.tensor([30.0, 40.0])).sum().backward()
    with asam.perturbed():
        (param * torch.tensor([3.0, 4.0])).sum().backward()
    asam.step()
    assert normalizer.mean_norm.item() == 5.0
    np.testing.assert_allclose(param.detach().numpy(), [-0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
def test_it_does_not_wait_for_the_device(fused):
    params = parameters(2, (3, 2))
    optimizer = torch.optim.SGD(params, lr=1.0, fused=fused)
    GradientNormalizer(optimizer)
    if fused:
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(0.0)
    with NoWaiting():
        for _ in range(3):
            step(optimizer, params, [torch.randn(2), torch.randn(3, 2)])


def test_on_a_restored_optimizer_it_goes_on_with_the_mean_in_there():
    w = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([w], lr=1.0)
    first = GradientNormalizer(optimizer)
    w.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    restored = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
    restored.load_state_dict(optimizer.state_dict())
    assert torch.equal(GradientNormalizer(restored).mean_norm, first.mean_norm)
    assert GradientNormalizer(restored).mean_norm == 0, "the place of another one is taken anew"
