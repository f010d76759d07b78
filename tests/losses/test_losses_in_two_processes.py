"""Logit normalisation over two processes equals one process on the joined batch."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from two_processes import run_in_two_processes

import hitrate

CASES = {
    "exact": {"sigma": 0.5},
    "margin and smoothing": {"sigma": 2.0, "margin": 1.0, "label_smoothing": 0.1},
    "probit": {"link": "log", "noise": "normal"},
    "logistic": {"link": "gce", "noise": "logistic"},
}


def data(rows=16):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    # Two halves of different scale: statistics of one process alone would be far off.
    x[rows // 2 :] = 4 * x[rows // 2 :] + 1
    return x, torch.arange(rows) % 3


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def half_of_the_batch(rank, arguments):
    """Loss, gradient of the logits and, through DDP, of the parameters on one of two ranks."""
    x, target = data()
    part = slice(8 * rank, 8 * rank + 8)
    network = DistributedDataParallel(model())
    loss = hitrate.ExactLoss(normalize=True, **arguments)
    logits = network(x[part])
    logits.retain_grad()
    value = loss(logits, target[part])
    value.backward()
    loss.eval()
    apart = loss(logits.detach(), target[part])
    return {
        "loss": value.detach(),
        "logits": logits.grad,
        "parameters": [p.grad for p in network.parameters()],
        "apart": apart,
    }


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "probit" else [pytest.mark.slow]) for n in CASES]
)
def test_two_halves_give_the_loss_and_gradients_of_the_whole(name):
    arguments = CASES[name]
    first, second = run_in_two_processes(half_of_the_batch, arguments)
    x, target = data()
    network = model()
    loss = hitrate.ExactLoss(normalize=True, **arguments)
    logits = network(x)
    logits.retain_grad()
    value = loss(logits, target)
    value.backward()
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close((first["loss"] + second["loss"]) / 2, value.detach(), **close)
    # Each rank's loss is a mean over its half: the logits' gradient is twice that of the whole.
    halves = torch.cat([first["logits"], second["logits"]]) / 2
    torch.testing.assert_close(halves, logits.grad, **close)
    for rank in (first, second):
        for ours, p in zip(rank["parameters"], network.parameters(), strict=True):
            torch.testing.assert_close(ours, p.grad, **close)
    # In eval mode nothing is normalised, and no process waits for another.
    loss.eval()
    torch.testing.assert_close(first["apart"], loss(logits[:8].detach(), target[:8]), **close)


def uneven_parts(rank):
    """Rank 0 holds all rows but one, rank 1 the last one and an ignored row."""
    x, target = data()
    logits = model()(x).detach()
    part = slice(0, 15) if rank == 0 else slice(15, 16)
    mine, y = logits[part], target[part]
    if rank == 1:
        mine = torch.cat([mine, torch.full((1, 3), 1e3, dtype=torch.float64)])
        y = torch.cat([y, torch.tensor([-100])])
    mine.requires_grad_()
    value = hitrate.exact_loss(mine, y, normalize=True, reduction="sum")
    value.backward()
    empty = torch.empty(0, 3, dtype=torch.float64) if rank else logits
    labels = target[:0] if rank else target
    with_nobody = hitrate.exact_loss(empty, labels, normalize=True, reduction="sum")
    return {"loss": value.detach(), "gradient": mine.grad, "empty": with_nobody}


def test_uneven_ignored_and_empty_parts_still_make_one_batch():
    first, second = run_in_two_processes(uneven_parts)
    x, target = data()
    logits = model()(x).detach().requires_grad_()
    whole = hitrate.exact_loss(logits, target, normalize=True, reduction="sum")
    whole.backward()
    torch.testing.assert_close(first["loss"] + second["loss"], whole.detach(), rtol=0, atol=1e-12)
    gradient = torch.cat([first["gradient"], second["gradient"][:1]])
    torch.testing.assert_close(gradient, logits.grad, rtol=0, atol=1e-12)
    assert (second["gradient"][1] == 0).all()
    torch.testing.assert_close(first["empty"], whole.detach(), rtol=0, atol=1e-12)
    assert second["empty"] == 0
