"""ASAM's steps, against the paper's formulas written out in numpy, and what its block promises."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from waiting import NoWaiting

from hitrate.optim import ASAM

SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


class Scaled(nn.Module):
    """s (W x + b): a linear layer and, like batch normalisation, a vector called weight."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.rand(3) + 0.5)

    def forward(self, x):
        return self.norm.weight * self.linear(x)


def half_squared_error(model, x, y):
    return 0.5 * (model(x) - y).square().sum(1).mean()


def gradients_in_numpy(weights, x, y):
    """Of half the squared error of s (W x + b), in the order of the parameters."""
    matrix, bias, scale = weights
    inner = x @ matrix.T + bias
    residual = (scale * inner - y) / len(x)
    outer = residual * scale
    return [outer.T @ x, outer.sum(0), (residual * inner).sum(0)]


def perturbed_in_numpy(weights, grads, is_weight, rho, eta):
    """Weights + rho T^2 g / |T g|."""
    scales = [
        np.abs(w) + e if adaptive else np.ones_like(w)
        for w, e, adaptive in zip(weights, eta, is_weight, strict=True)
    ]
    norm = np.sqrt(sum(((t * g) ** 2).sum() for t, g in zip(scales, grads, strict=True)))
    parts = zip(weights, grads, scales, rho, strict=True)
    return [w + r * t**2 * g / norm for w, g, t, r in parts]


@pytest.mark.parametrize("as_groups", [False, True], ids=["one_group", "groups"])
@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
@pytest.mark.parametrize("made", [False, True], ids=["base_factory", "base_made"])
def test_two_steps_with_momentum_equal_the_paper_written_out_in_numpy(named, as_groups, made):
    model = Scaled().double()
    inputs, targets = torch.randn(2, 16, 4).double(), torch.randn(2, 16, 3).double()
    weights = [param.detach().numpy().copy() for param in model.parameters()]
    velocity = [np.zeros_like(w) for w in weights]
    # The scale is a vector: only its name says that it is a weight.
    is_weight = (True, False, named)

    params = list(model.named_parameters() if named else model.parameters())
    rho, eta = (0.5, 0.5, 0.5), (0.01, 0.01, 0.01)
    if as_groups:
        rho, eta = (0.3, 0.3, 0.7), (0.02, 0.02, 0.1)
        params = [
            {"params": params[:2], "rho": 0.3, "eta": 0.02},
            {"params": params[2:], "rho": 0.7, "eta": 0.1},
        ]
    asam = ASAM(params, SGD(params) if made else SGD)

    for x, y in zip(inputs, targets, strict=True):
        half_squared_error(model, x, y).backward()
        with asam.perturbed(model):
            half_squared_error(model, x, y).backward()
        asam.step()
        asam.zero_grad()

        x, y = x.numpy(), y.numpy()
        grads = gradients_in_numpy(weights, x, y)
        worse = perturbed_in_numpy(weights, grads, is_weight, rho, eta)
        for w, v, grad in zip(weights, velocity, gradients_in_numpy(worse, x, y), strict=True):
            v[...] = 0.9 * v + grad
            w -= 0.1 * v
    for ours, theirs in zip(model.parameters(), weights, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-12, atol=1e-14)


def test_names_given_beside_a_finished_base_say_what_is_a_weight():
    model = Scaled()
    asam = ASAM(model.named_parameters(), SGD(model.parameters()))
    assert asam.param_groups[0]["param_names"] == ["linear.weight", "linear.bias", "norm.weight"]


def test_a_base_over_other_parameters_is_refused():
    model = Scaled()
    with pytest.raises(ValueError, match="base, a SGD, has other parameters than params"):
        ASAM(model.parameters(), SGD(model.linear.parameters()))


@pytest.mark.parametrize("wrong", [{"rho": -1.0}, {"eta": -0.1}, {"rho": float("nan")}])
def test_a_wrong_number_is_refused_with_its_value(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"ASAM\(.*{name}={value}.*must be numbers >= 0"):
        ASAM(Scaled().parameters(), SGD, **wrong)


def test_a_closure_gives_the_same_step_and_returns_the_first_loss():
    x, y = torch.randn(16, 4), torch.randn(16, 3)
    finals = []
    for with_closure in (False, True):
        torch.manual_seed(1)
        model = Scaled()
        asam = ASAM(model.named_parameters(), SGD)

        def closure(model=model, asam=asam):
            asam.zero_grad()
            loss = half_squared_error(model, x, y)
            loss.backward()
            return loss

        for _ in range(3):
            before = half_squared_error(model, x, y).item()
            if with_closure:
                assert asam.step(closure).item() == before
                continue
            closure()
            with asam.perturbed():
                closure()
            asam.step()
        finals.append([param.detach().clone() for param in model.parameters()])
    for ours, theirs in zip(*finals, strict=True):
        assert torch.equal(ours, theirs)


class Stop(BaseException):
    """Stands for Ctrl-C and everything else."""


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, Stop])
def test_however_the_block_is_left_the_weights_are_what_they_were_bit_for_bit(problem):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    asam = ASAM(model.named_parameters(), SGD)
    model(torch.randn(8, 4)).square().sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(problem), asam.perturbed(model):
        assert not torch.equal(model[0].weight, before["0.weight"])
        model(torch.randn(8, 4))
        raise problem
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    # Nothing is left over that would stand in the way of the next step.
    model(torch.randn(8, 4)).square().sum().backward()
    with asam.perturbed(model):
        pass
    asam.step()


def test_mistakes_in_the_order_of_calls_are_told():
    model = Scaled()
    asam = ASAM(model.parameters(), SGD)
    with pytest.raises(RuntimeError, match=r"without gradients: call backward\(\)"):
        with asam.perturbed():
            pass
    model(torch.randn(2, 4)).sum().backward()
    with asam.perturbed():
        with pytest.raises(RuntimeError, match=r"perturbed\(\) inside perturbed\(\)"):
            with asam.perturbed():
                pass
        with pytest.raises(RuntimeError, match=r"step\(\) inside perturbed\(\)"):
            asam.step()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_the_first_gradients_are_dropped_as_zero_grad_would(set_to_none):
    model = Scaled()
    asam = ASAM(model.parameters(), SGD)
    model(torch.randn(2, 4)).sum().backward()
    first = model.linear.weight.grad
    with asam.perturbed(set_to_none=set_to_none):
        if set_to_none:
            assert model.linear.weight.grad is None
        else:
            assert model.linear.weight.grad is first
            assert not first.any()


NORMS = {
    "batch": lambda: nn.BatchNorm1d(3),
    "batch_cumulative": lambda: nn.BatchNorm1d(3, momentum=None),
    "sync": lambda: nn.SyncBatchNorm(3),
    "sync_cumulative": lambda: nn.SyncBatchNorm(3, momentum=None),
    "batch_without": lambda: nn.BatchNorm1d(3, track_running_stats=False),
    "instance": lambda: nn.InstanceNorm1d(3, track_running_stats=True),
}


@pytest.mark.parametrize("make", NORMS.values(), ids=NORMS)
def test_statistics_are_those_of_one_pass_and_the_block_normalises_by_the_batch(make):
    x = torch.randn(4, 3, 5)
    model, once = (nn.Sequential(nn.Conv1d(3, 3, 1), make()) for _ in range(2))
    once.load_state_dict(model.state_dict())
    asam = ASAM(model.named_parameters(), SGD)
    for _ in range(2):
        once(x)
        model(x).square().sum().backward()
        with asam.perturbed(model):
            out = model(x)
            out.square().sum().backward()
        assert out.mean((0, 2)).abs().max() < 1e-5
        for ours, theirs in zip(model.buffers(), once.buffers(), strict=True):
            assert torch.equal(ours, theirs)
        assert model[1].track_running_stats == once[1].track_running_stats


def test_an_outer_autocast_does_not_hide_the_perturbation():
    model = nn.Linear(4, 3)
    asam = ASAM(model.named_parameters(), SGD, rho=5.0)
    x = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        before = model(x)
        before.float().square().sum().backward()
        with asam.perturbed():
            inside = model(x)
        behind = model(x)
    assert not torch.equal(inside, before)
    assert torch.equal(behind, before)


def test_sparse_gradients_climb_like_their_dense_twins():
    finals = []
    for sparse in (False, True):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(10, 3, sparse=sparse), nn.Linear(3, 2))
        asam = ASAM(model.named_parameters(), functools.partial(torch.optim.SGD, lr=0.1))
        for row in torch.randint(10, (5, 7)):
            model(row).square().mean().backward()
            with asam.perturbed():
                model(row).square().mean().backward()
            asam.step()
            asam.zero_grad()
        finals.append([param.detach() for param in model.parameters()])
    for ours, theirs in zip(*finals, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_half_precision_weights_climb_in_float32():
    # T^2 g is 1e-9 here, which float16 has not.
    weight = nn.Parameter(torch.full((2, 2), 1e-2, dtype=torch.float16))
    asam = ASAM([weight], SGD, rho=1.0, eta=0.0)
    weight.grad = torch.full_like(weight, 1e-5)
    with asam.perturbed():
        # rho T^2 g / |T g| = T / 2 where all entries are equal.
        torch.testing.assert_close(
            weight.detach(), torch.full_like(weight, 1.5e-2), rtol=2e-3, atol=0
        )


def test_it_does_not_wait_for_the_device():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    asam = ASAM(model.named_parameters(), SGD)
    x = torch.randn(8, 4)
    with NoWaiting():
        for _ in range(2):
            model(x).square().sum().backward()
            with asam.perturbed(model):
                model(x).square().sum().backward()
            asam.step()
            asam.zero_grad()
