"""Two processes, each with half of the batch or of the parameters, equal one with the whole."""

import contextlib
import functools

import pytest
import torch
from torch import nn
from two_processes import run_in_two_processes

from hitrate.optim import ASAM, GradientNormalizer
from hitrate.optim.norms import total_norm

SGD = functools.partial(torch.optim.SGD, lr=0.2, momentum=0.9)
STEPS, ROWS = 4, 24


def batches():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(STEPS, ROWS, 6, generator=generator)
    return zip(x, torch.randint(3, (STEPS, ROWS), generator=generator), strict=True)


def network():
    torch.manual_seed(0)
    # Five rows do not divide by two: the shards differ in size.
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3))


def train(model, names, *, rank=None, ascent=contextlib.nullcontext, rho=None):
    """All parameters after training on all rows, or on those of one rank; and the mean norm."""
    params = list(zip(names, model.parameters(), strict=True))
    optimizer = SGD(params) if rho is None else ASAM(params, SGD, rho=rho)
    normalizer = GradientNormalizer(optimizer)
    for x, y in batches():
        if rank is not None:
            x, y = x.chunk(2)[rank], y.chunk(2)[rank]
        if rho is not None:
            with ascent():
                nn.functional.cross_entropy(model(x), y).backward()
        with contextlib.nullcontext() if rho is None else optimizer.perturbed(model):
            nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = [getattr(p, "full_tensor", lambda p=p: p)().detach() for p in model.parameters()]
    return torch.cat([weight.flatten() for weight in weights]), normalizer.mean_norm


def train_in_all_ways(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    names = [name for name, _ in network().named_parameters()]
    # Where there is a GPU, FSDP2 would take it.
    mesh = init_device_mesh("cpu", (2,))
    results = {}
    for how, rho in (("normalizer", None), ("asam", 0.5)):
        results[f"{how}, one process"] = train(network(), names, rho=rho)
        model = DistributedDataParallel(network())
        results[f"{how}, DDP"] = train(model, names, rank=rank, rho=rho)
        model = network()
        for layer in (model[0], model[3]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        results[f"{how}, FSDP2"] = train(model, names, rank=rank, rho=rho)
    model = DistributedDataParallel(network())
    results["asam, own ascent"] = train(model, names, rank=rank, ascent=model.no_sync, rho=0.5)
    return results


@pytest.fixture(scope="module")
def trained():
    return run_in_two_processes(train_in_all_ways)


@pytest.mark.parametrize("how", ["normalizer", "asam"])
@pytest.mark.parametrize("setting", ["DDP", "FSDP2"])
def test_two_processes_with_half_a_batch_each_equal_one_with_the_whole(trained, how, setting):
    for rank in range(2):
        weights, mean = trained[rank][f"{how}, {setting}"]
        expected, expected_mean = trained[rank][f"{how}, one process"]
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(mean, expected_mean, rtol=1e-6, atol=0)


def test_processes_that_climb_on_their_own_keep_the_same_weights(trained):
    first, second = (result["asam, own ascent"][0] for result in trained)
    assert torch.equal(first, second)
    difference = (first - trained[0]["asam, DDP"][0]).abs().max()
    assert 1e-5 < difference < 0.1


def norms(rank):
    from torch.distributed import group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    grads = [torch.randn(7, 3), torch.randn(4, 4), torch.randn(1, 2), torch.randn(5)]
    placements = [Shard(0), Shard(1), Shard(0), Replicate()]
    spread = [distribute_tensor(g, mesh, [p]) for g, p in zip(grads, placements, strict=True)]
    # Not yet summed over the processes: 0.25 + 0.75 = 1.
    terms = DTensor.from_local(torch.full((9,), 0.25 + 0.5 * rank), mesh, [Partial()])

    found = {"dtensor": (total_norm([*spread, terms]), total_norm([*grads, torch.ones(9)]))}
    found["dtensor and plain"] = (total_norm([grads[3], *spread]), total_norm([grads[3], *grads]))
    shards = [grad.flatten().chunk(2)[rank] for grad in grads]
    found["plain shards"] = (total_norm(shards, process_group=group.WORLD), total_norm(grads))

    # The second process holds nothing of the gradient, and still has to take part in the sum.
    param = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([param], lr=1.0)
    normalizer = GradientNormalizer(optimizer, process_group=group.WORLD)
    if rank == 0:
        param.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    found["shard of one process"] = (normalizer.mean_norm, torch.tensor(5.0))
    return found


def test_norms_of_shards_are_those_of_the_whole():
    for found in run_in_two_processes(norms):
        for kind, (norm, expected) in found.items():
            torch.testing.assert_close(norm, expected, rtol=1e-6, atol=0, msg=kind)


def fail_on_one(rank):
    if rank == 1:
        raise ValueError("told from inside")


def test_a_failure_in_one_process_is_told_with_its_traceback():
    with pytest.raises(Exception, match=r"(?s)in fail_on_one.*ValueError: told from inside"):
        run_in_two_processes(fail_on_one)
