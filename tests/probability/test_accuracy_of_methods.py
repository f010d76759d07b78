"""Value and gradient against truth from outside, to the figures the documentation states."""

import functools
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
import torch
from reference_integral import log_p_and_slope, rows, truth

import hitrate
from hitrate.probability import execution
from hitrate.probability.margins import ABSENT
from hitrate.probability.methods.gridded import gridded
from hitrate.probability.methods.quadrature import quadrature

# method, dtype -> |error of log p| / max(1, |log p|), error of a row's gradient / its largest entry
BOUNDS = {
    ("quadrature", torch.float64): (1e-9, 1e-8),
    ("quadrature", torch.float32): (2e-6, 1e-5),
    ("gridded", torch.float32): (1e-6, 1e-5),
    ("auto", torch.float32): (1e-6, 1e-5),
    ("auto", torch.float64): (1e-9, 1e-8),
}


@functools.cache
def cases(classes: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray, np.ndarray]:
    """100 rows with their truth; fewer points suffice for many classes, whose peaks are narrow."""
    logits, target = rows(classes, 120)
    log_p, slope = truth(logits, target, 1500 if classes < 1000 else 700)
    (kept,) = np.nonzero(log_p > -1100)
    kept = kept[:100]
    assert len(kept) == 100
    assert log_p[kept].min() < -700
    assert (log_p[kept] > -1e-6).sum() >= 3
    return torch.tensor(logits)[kept], torch.tensor(target)[kept], log_p[kept], slope[kept]


def errors(logits, target, log_p, slope, dtype, method):
    x = logits.to(dtype).requires_grad_()
    value = hitrate.log_expected_accuracy(x, target, method=method)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    # The slope in the margins is minus the gradient in the rivals, and their sum in the target.
    expected = -slope
    expected[np.arange(len(target)), target] = slope.sum(1)
    # Gradients that the dtype cannot hold are not asked for.
    size = np.maximum(abs(expected).max(1), 1e-30 if dtype == torch.float32 else 1e-280)
    value_error = abs(value.detach().double().numpy() - log_p) / np.maximum(1, abs(log_p))
    return value_error.max(), (abs(gradient.double().numpy() - expected).max(1) / size).max()


@pytest.mark.parametrize("classes", [2, 3, 10, 100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "dtype"), BOUNDS, ids=lambda x: str(x).removeprefix("torch."))
def test_value_and_gradient_are_accurate_from_p_near_1_to_log_p_of_minus_1000(
    method, dtype, classes
):
    value_error, gradient_error = errors(*cases(classes), dtype, method)
    value_bound, gradient_bound = BOUNDS[method, dtype]
    assert value_error <= value_bound
    assert gradient_error <= gradient_bound


@pytest.mark.parametrize("classes", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_grid_serves_a_hundred_thousand_classes(classes):
    logits, target = rows(classes, 4)
    # Typical, leading, close behind and far behind.
    order = np.sort(logits, 1)
    for n, offset in enumerate((None, 1.0, -1.0, -8.0)):
        if offset is not None:
            logits[n, target[n]] = order[n, -2] + offset
    logits = logits.astype(np.float32).astype(np.float64)
    log_p, slope = truth(logits, target, 200)
    found = errors(
        torch.tensor(logits), torch.tensor(target), log_p, slope, torch.float32, "gridded"
    )
    assert found[0] <= 1e-6
    assert found[1] <= 1e-5


# Distances of rivals (N, C) from the closest, of numbers in [0, 1): where one polynomial has to
# serve all of them.
PLACES = {
    "spread_evenly": lambda u: 25 * u,
    "all_tied": lambda u: 0 * u,
    "at_the_far_end": lambda u: 12 * u**0.2,
    "in_two_groups": lambda u: 7.0 * (u < 0.5),
    "close_together": lambda u: 0.1 * u,
}


@pytest.mark.parametrize("classes", [3, 30, 300])
@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_the_grid_errs_by_rounding_wherever_the_rivals_are(places, classes):
    generator = torch.Generator().manual_seed(classes)
    # Together in a batch, and each with others like it.
    closest = torch.linspace(-12.0, 10.0, 45, dtype=torch.float64)[:, None]
    u = torch.rand(45, classes - 1, generator=generator, dtype=torch.float64)
    distance = places(u)
    a = closest + distance - distance.amin(1, keepdim=True)
    a = torch.cat([torch.full_like(closest, ABSENT), a], 1).float()
    truth, slopes = quadrature(a.double(), nodes=400)
    for part in (slice(None), *(slice(n, n + 5) for n in range(0, 45, 5))):
        log_p, slope = gridded(a[part])
        torch.testing.assert_close(log_p.double(), truth[part], rtol=5e-6, atol=0.0)
        error = (slope - slopes[part]).abs().amax(1) / slopes[part].amax(1)
        assert error.max() < 5e-6


@pytest.mark.parametrize("margin", [None, 1.5])
@pytest.mark.parametrize("sigma", [1.0, 0.7])
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_a_loss_and_its_gradient_are_as_accurate(classes, sigma, margin):
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(20, classes, generator=generator)
    target = torch.randint(classes, (20,), generator=generator)
    x = logits.requires_grad_()
    loss = hitrate.exact_loss(x, target, sigma, margin=margin, link="log", reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    for n, y in enumerate(target.tolist()):
        distance = np.delete((logits[n, y] - logits[n]).detach().double().numpy(), y)
        free = distance < (np.inf if margin is None else margin)
        log_p, slope = log_p_and_slope(np.where(free, distance, margin or 0.0) / sigma)
        pull = slope * free / sigma
        expected = np.insert(pull, y, -pull.sum())
        assert loss[n].item() == pytest.approx(-log_p, rel=1e-6)
        assert gradient[n].numpy() == pytest.approx(expected, abs=1e-6 * slope.sum() / sigma)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("margin", [1.0, 3.0, 6.0, 10.0])
def test_one_minus_p_keeps_its_relative_accuracy_near_p_of_1(margin, dtype):
    a = np.array([margin, margin + 0.5, margin + 2.0])
    log_p, _ = log_p_and_slope(a)
    logits = torch.tensor([[0.0, *-a]], dtype=dtype)
    found = hitrate.log_expected_accuracy(logits, torch.tensor([0])).item()
    assert found == pytest.approx(log_p, rel=2e-5 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("margins", [(0.3, -0.7), (2.0, 5.0, 3.5), (-6.0, -4.0, 1.0, 0.0)])
def test_the_reference_agrees_with_mpmath(margins):
    with mpmath.workdps(30):

        def integrand(t):
            return mpmath.npdf(t) * mpmath.fprod(mpmath.ncdf(m + t) for m in margins)

        exact = mpmath.log(mpmath.quad(integrand, [-14, -6, -2, 0, 2, 4, 6, 10, 16]))
    assert log_p_and_slope(np.array(margins))[0] == pytest.approx(float(exact), rel=1e-12)


def test_rows_at_once_and_other_threads_do_not_matter(monkeypatch):
    logits, target = torch.randn(300, 20), torch.randint(20, (300,))
    whole = gradient_of_loss(logits, target)
    monkeypatch.setattr(execution, "NUMPY_BLOCK", 2**9)
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda n: gradient_of_loss(logits[:n], target[:n]), range(1, 300))
    for n, gradient in enumerate(found, 1):
        torch.testing.assert_close(gradient * n, whole[:n] * 300)


def gradient_of_loss(logits, target):
    x = logits.clone().requires_grad_()
    hitrate.exact_loss(x, target).backward()
    return x.grad
