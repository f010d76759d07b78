"""Standardised logits in the kernels' losses, against the same by torch in float64."""

import pytest
import torch

import hitrate

pytest.importorskip("triton")
from two_processes import run_in_two_processes

from hitrate.kernels.launch import rows as rows_launch
from hitrate.kernels.launch import standardize as standardize_launch
from hitrate.losses.ways import standardized

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS = 9
SETTINGS = {
    "normal": {},
    "margin": {"margin": 0.4},
    "none": {"margin": 0.4, "reduction": "none", "link": "log"},
    "weights": {"weight": torch.linspace(0.5, 2, 6), "reduction": "sum"},
    "logistic": {"noise": "logistic", "margin": 0.4},
    "gumbel": {"noise": "gumbel", "link": "mixed"},
    "smoothed": {"noise": "gumbel", "link": "log", "label_smoothing": 0.2},
}


def batch(classes=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # Far from 0, as logits after a sum of features may be.
    logits = 3 * torch.randn(ROWS, classes, generator=generator) + 40
    target = torch.randint(classes, (ROWS,), generator=generator)
    return logits.to(DEVICE), target.to(DEVICE)


def value_and_gradient(logits, target, dtype, **arguments):
    z = logits.detach().to(dtype).requires_grad_()
    arguments = {
        name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    value = hitrate.exact_loss(z, target, normalize=True, **arguments)
    upstream = torch.linspace(0.5, 2, value.numel()).reshape(value.shape).to(value)
    (gradient,) = torch.autograd.grad(value, z, upstream)
    return value.detach().double(), gradient.double()


def check(logits, target, tolerance=1e-5, dtype=torch.float32, **arguments):
    """Kernels on these logits, torch on the same ones in float64."""
    used = []
    facts_of = standardized.facts_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standardized, "facts_of", lambda *a: used.append(True) or facts_of(*a))
        found = value_and_gradient(logits, target, dtype, backend="triton", **arguments)
    assert used
    expected = value_and_gradient(
        logits.to(dtype), target, torch.float64, backend="torch", **arguments
    )
    for ours, theirs in zip(found, expected, strict=True):
        size = float(theirs[theirs.isfinite()].abs().max())
        torch.testing.assert_close(
            ours, theirs, rtol=tolerance, atol=tolerance * size, equal_nan=True
        )


@pytest.mark.parametrize("name", SETTINGS)
def test_values_and_gradients(name):
    logits, target = batch()
    target[4] = -100
    logits[4] *= 1000
    check(logits, target, **SETTINGS[name])


def test_rows_that_are_long(monkeypatch):
    monkeypatch.setattr(rows_launch, "AT_ONCE_UP_TO", 40)
    check(*batch(61), sigma=0.7)


@pytest.mark.parametrize("tile", [(16, 4), (32, 32)])
def test_tiles_of_any_size_and_several_programs(tile, monkeypatch):
    monkeypatch.setattr(standardize_launch, "TILE", tile[0])
    monkeypatch.setattr(standardize_launch, "COLUMNS", tile[1])
    caches = (
        standardize_launch._statistics,
        standardize_launch._pull,
        standardize_launch._correct,
    )
    for cache in caches:
        cache.cache_clear()
    logits, target = batch(11)
    target[2] = -100
    check(logits, target, margin=0.4)
    for cache in caches:
        cache.cache_clear()


def test_masked_classes_do_not_count():
    logits, target = batch()
    logits[:, 5] = -torch.inf
    check(logits, target % 5, margin=0.4)


def test_equal_logits_have_a_spread():
    logits, target = batch()
    check(torch.full_like(logits, 3.0), target)


def test_large_logits_keep_their_digits():
    logits, target = batch()
    check(1e4 * (logits - 40) / 3, target, tolerance=2e-5)


def test_numbers_from_memory():
    logits, target = batch()
    check(logits, target, sigma=torch.tensor(0.6), margin=torch.tensor(0.4, dtype=torch.float64))
    check(logits, target, sigma=torch.linspace(0.5, 2, ROWS), margin=0.3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    logits, target = batch()
    check(logits - 40, target, tolerance=2e-2, dtype=dtype, margin=0.4)


def test_soft_targets():
    logits, _ = batch()
    target = torch.softmax(logits.flip(0), 1)
    check(logits, target, noise="gumbel", link="log")


def test_second_derivatives_go_step_by_step():
    logits, target = batch()
    found = []
    for backend, dtype in (("triton", torch.float32), ("torch", torch.float64)):
        z = logits.to(dtype).requires_grad_()
        value = hitrate.exact_loss(z, target, margin=0.4, normalize=True, backend=backend)
        (slope,) = torch.autograd.grad(value, z, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), z)[0].double())
    size = float(found[1].abs().max())
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3 * size)


def test_graphs_that_are_kept_give_the_same_twice():
    logits, target = batch()
    z = logits.requires_grad_()
    value = hitrate.exact_loss(z, target, margin=0.4, normalize=True, backend="triton")
    first = torch.autograd.grad(value, z, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(value, z)[0], first)


def _share(rank, other):
    """A process's part of a batch: its loss and gradient; the second one may go another way."""
    logits, target = batch()
    mine = slice(5 * rank, 5 + 5 * rank)
    if other == "without rows":
        mine = slice(0, ROWS) if rank == 0 else slice(0, 0)
    z = logits[mine].requires_grad_()
    loss = {"margin": 0.4, "reduction": "sum", "normalize": True, "backend": "triton"}
    if rank == 1 and other != "by kernels":
        loss["backend"] = "auto"
    value = hitrate.exact_loss(z, target[mine], **loss)
    return [value.detach(), torch.autograd.grad(value, z)[0]]


@pytest.mark.slow
@pytest.mark.parametrize("other", ["by kernels", "by torch", "without rows"])
def test_statistics_of_two_processes(other):
    (one, upper), (two, lower) = run_in_two_processes(_share, other)
    logits, target = batch()
    value, gradient = value_and_gradient(
        logits, target, torch.float64, margin=0.4, reduction="sum", backend="torch"
    )
    torch.testing.assert_close((one + two).double(), value, rtol=1e-5, atol=1e-5)
    found = torch.cat([upper, lower]).double()
    torch.testing.assert_close(found, gradient / 0.5, rtol=1e-5, atol=1e-5)
