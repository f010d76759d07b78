"""DTensor logits, as FSDP2 and tensor parallelism give them, are the whole batch to a loss."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from two_processes import run_in_two_processes

import hitrate

WEIGHT = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)
LOSSES = {
    "exact": lambda: hitrate.ExactLoss(),
    "weighted": lambda: hitrate.ExactLoss(weight=WEIGHT),
    "normalized": lambda: hitrate.ExactLoss(normalize=True, margin=0.5),
    "smoothed": lambda: hitrate.ExactLoss(label_smoothing=0.1),
    "sum": lambda: hitrate.ExactLoss(link="log", reduction="sum"),
    "annealed": lambda: hitrate.ExactLoss(link="gce", noise="normal"),
    "batch log": lambda: hitrate.ExactLoss(link="batch_log"),
    "learned sigma": lambda: hitrate.ExactLoss(torch.nn.Parameter(torch.tensor(0.7).double())),
    "mixed": lambda: hitrate.MixedLoss(),
    "cross entropy": lambda: hitrate.CrossEntropyLoss(weight=WEIGHT),
    "hinge": lambda: hitrate.HingeLoss(),
}
PLACES = {"rows": Shard(0), "classes": Shard(1), "nothing": Replicate()}


def data():
    generator = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(10, 4, generator=generator, dtype=torch.float64)
    target = torch.randint(4, (10,), generator=generator)
    return logits, target.index_fill(0, torch.tensor([3]), -100)


def value_and_gradients(loss, logits, target):
    value = loss(logits, target)
    value.backward()
    found = [value.detach(), logits.grad, *(p.grad for p in loss.parameters())]
    return [t.full_tensor() if isinstance(t, DTensor) else t for t in found]


def in_parts(rank):
    """What each loss says for each placement, its targets placed like the rows or not at all."""
    mesh = init_device_mesh("cpu", (2,))
    logits, target = data()
    found = {}
    for name, make in LOSSES.items():
        for split, place in PLACES.items():
            by_row = Shard(0) if split == "rows" else Replicate()
            for labels in (target, distribute_tensor(target, mesh, [by_row])):
                placed = distribute_tensor(logits, mesh, [place]).requires_grad_()
                said = value_and_gradients(make(), placed, labels)
                found[f"{name}, {split} split, target {type(labels).__name__}"] = said
    return found


@pytest.fixture(scope="module")
def found():
    return run_in_two_processes(in_parts)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_parts_is_that_of_the_whole(name, found):
    logits, target = data()
    whole = value_and_gradients(LOSSES[name](), logits.requires_grad_(), target)
    assert whole[0].isfinite() and whole[1].abs().max() > 1e-3
    for rank in found:
        said = {key: value for key, value in rank.items() if key.startswith(f"{name}, ")}
        assert len(said) == 2 * len(PLACES)
        for key, value in said.items():
            torch.testing.assert_close(value, whole, rtol=0, atol=1e-12, msg=lambda m, k=key: k + m)
