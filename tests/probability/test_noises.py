"""Every noise, known to the library or not: value, gradient, all classes, losses, smoothing.

The truth is this file's own quadrature: the integral of f(t) prod F(a_i + t) by scipy's densities
and distributions, on Gauss-Legendre panels between every place where something bends, far finer
than need be. Noises of the same family as a known one must not get the known one's numbers.
"""

import math

import numpy as np
import pytest
import torch
from noise_cases import DISTRIBUTIONS, KNOWN, NAMES, UNKNOWN, Laplace, WideNormal

import hitrate
from hitrate.probability import NOISES, Noise, log_class_probabilities, register_noise
from hitrate.probability.noises import Normal

DTYPES = {"float32": torch.float32, "float64": torch.float64}
CLASSES = [2, 5, 40, 300]
ROWS = 3


every_noise = pytest.mark.parametrize("name", NAMES)
unknown = pytest.mark.parametrize("name", [noise.name for noise in UNKNOWN])
every_size = pytest.mark.parametrize(
    "classes", [pytest.param(c, marks=pytest.mark.slow) if c == 40 else c for c in CLASSES]
)
every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


@pytest.fixture(autouse=True)
def registered():
    """For the time of a test."""
    before = dict(NOISES)
    for noise in UNKNOWN:
        register_noise(noise)
    yield
    NOISES.clear()
    NOISES.update(before)


def test_every_noise_has_a_distribution_to_be_compared_with():
    assert set(DISTRIBUTIONS) == set(NOISES)


def draw(classes, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(ROWS, classes, generator=generator)
    target = torch.randint(classes, (ROWS,), generator=generator)
    # One row is ahead, one behind.
    logits[0, target[0]] += 6
    logits[1, target[1]] -= 6
    return logits.to(dtype), target


def truth_of(distribution, logits, target):
    """log p (N,) and its gradient in the logits (N, C), by the integral itself."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    values, gradients = [], []
    for row, y in zip(logits.double().numpy(), target.tolist(), strict=True):
        a = row[y] - np.delete(row, y)
        ends = distribution.isf(1e-16), distribution.ppf(1e-16)
        low, high = min(-a.max(), 0) + ends[1], max(-a.min(), 0) + ends[0]
        edges = np.unique(np.clip(np.concatenate([np.arange(low, high, 0.5), -a, [0]]), low, high))
        half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        t = (middle[:, None] + half[:, None] * nodes).ravel()
        w = (half[:, None] * weights).ravel()
        log_cdf = distribution.logcdf(a[:, None] + t)
        height = log_cdf.sum(0)
        log_integrand = distribution.logpdf(t) + height
        top = log_integrand.max()
        missed = (w * distribution.pdf(t) * -np.expm1(height)).sum()
        log_p = top + math.log((w * np.exp(log_integrand - top)).sum())
        log_p = math.log1p(-missed) if missed < 0.5 else log_p
        hazard = distribution.logpdf(a[:, None] + t) - log_cdf
        slope = (w * np.exp(log_integrand - log_p + hazard)).sum(1)
        values.append(log_p)
        gradients.append(np.insert(-slope, y, slope.sum()))
    return np.array(values), np.array(gradients)


def close(found, truth, dtype, slack=1.0):
    """Within 1e-6 of the truth, in units of its largest entry; in float64 1e-9."""
    if not len(truth):
        return
    bound = slack * (1e-6 if dtype == torch.float32 else 1e-9)
    found = found.detach().double().numpy()
    scale = np.abs(truth).max(-1, keepdims=True) if truth.ndim > 1 else np.maximum(1, np.abs(truth))
    assert (np.abs(found - truth) / scale).max() < bound


@every_dtype
@every_size
@every_noise
def test_value_and_gradient_are_those_of_the_integral(name, classes, dtype):
    logits, target = draw(classes, dtype)
    log_p, gradient = truth_of(DISTRIBUTIONS[name], logits, target)
    x = logits.requires_grad_()
    found = hitrate.log_expected_accuracy(x, target, noise=name)
    assert found.dtype == dtype
    # The fast ways of known noises have bounds of their own in float32.
    slack = 10 if name in KNOWN and dtype == torch.float32 else 1
    close(found, log_p, dtype, slack)
    close(torch.autograd.grad(found.sum(), x)[0], gradient, dtype, slack)


@every_dtype
@every_size
@every_noise
def test_probabilities_of_all_classes_are_those_of_the_integral(name, classes, dtype):
    logits, _ = draw(classes, dtype)
    some = torch.arange(ROWS) * (classes - 1) // (ROWS - 1)
    x = logits.requires_grad_()
    found = hitrate.class_probabilities(x, noise=name)
    torch.testing.assert_close(found.sum(1), torch.ones(ROWS, dtype=dtype))
    log_p, gradient = truth_of(DISTRIBUTIONS[name], logits.detach(), some)
    own = log_class_probabilities(x, noise=name).gather(1, some[:, None])[:, 0]
    torch.testing.assert_close(found.gather(1, some[:, None])[:, 0], own.exp())
    (slope,) = torch.autograd.grad(own.sum(), x)
    # 1e-6 for all; more digits for classes that are not out of the question.
    close(own, log_p, torch.float32)
    close(slope, gradient, torch.float32)
    likely = log_p > -40
    close(own[likely], log_p[likely], dtype)
    close(slope[likely], gradient[likely], dtype, slack=10)


@every_dtype
@every_size
@every_noise
def test_losses_and_smoothing_are_made_of_the_same_numbers(name, classes, dtype):
    logits, target = draw(classes, dtype)
    log_p, gradient = truth_of(DISTRIBUTIONS[name], logits, target)
    p = np.exp(log_p)
    loss = hitrate.ExactLoss(noise=name, reduction="none")
    x = logits.requires_grad_()
    value = loss(x, target)
    close(value, 1 - p, dtype)
    slope = torch.autograd.grad(value.sum(), x)[0].double().numpy()
    assert np.abs(slope + p[:, None] * gradient).max() < (1e-7 if dtype == torch.float32 else 1e-10)
    smoothed = hitrate.ExactLoss(noise=name, link="log", label_smoothing=0.1, reduction="none")
    every = log_class_probabilities(logits.detach().double(), noise=name).numpy()
    expected = -0.9 * log_p - 0.1 * every.mean(1)
    close(smoothed(x, target), expected, dtype, slack=4)


@every_noise
def test_the_integral_of_this_file_agrees_with_sampling(name):
    noise, distribution = NOISES[name], DISTRIBUTIONS[name]
    logits, target = draw(5, torch.float64, seed=3)
    generator = torch.Generator().manual_seed(0)
    draws = noise.sample((200_000, 1, 5), torch.float64, torch.device("cpu"), generator)
    hits = ((logits + draws).argmax(2) == target).double()
    p = np.exp(truth_of(distribution, logits, target)[0])
    error = hits.std(0).numpy() / math.sqrt(len(hits))
    assert (np.abs(hits.mean(0).numpy() - p) < 4 * error + 1e-12).all()


@unknown
def test_sampled_methods_serve_any_noise_or_refuse(name):
    noise = NOISES[name]
    logits, target = draw(5, torch.float64)
    exact = hitrate.expected_accuracy(logits, target, noise=name)
    generator = torch.Generator().manual_seed(0)
    sampled = hitrate.expected_accuracy(
        logits, target, noise=name, method="monte_carlo", samples=100_000, generator=generator
    )
    error = (exact * (1 - exact) / 100_000).sqrt()
    assert ((sampled - exact).abs() < 4 * error + 1e-12).all()
    for method in ("gridded", "genz"):
        with pytest.raises(ValueError, match=f"{method} is for normal noise"):
            hitrate.expected_accuracy(logits, target, noise=noise, method=method)


@every_size
@unknown
def test_no_kernel_of_another_noise_is_used(name, classes, monkeypatch):
    logits, target = draw(classes, torch.float32)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for use in (hitrate.log_expected_accuracy, hitrate.exact_loss):
        with pytest.raises(ValueError, match=f"there is no kernel for {name} noise"):
            use(logits, target, noise=name, backend="triton")
    if torch.cuda.is_available():
        log_p, _ = truth_of(DISTRIBUTIONS[name], logits, target)
        found = hitrate.log_expected_accuracy(logits.cuda(), target.cuda(), noise=name)
        close(found.cpu(), log_p, torch.float32)


@every_noise
def test_second_derivatives_and_per_class_sigmas_come_with_it(name):
    logits, target = draw(4, torch.float64, seed=1)
    logits = (logits / 4).requires_grad_()
    sigma = torch.tensor([[0.5, 1.0, 2.0, 0.8]], dtype=torch.float64, requires_grad=True)

    def value(x, s):
        return hitrate.log_expected_accuracy(x, target, s, noise=name)

    assert torch.autograd.gradcheck(value, (logits, sigma), fast_mode=True)
    assert torch.autograd.gradgradcheck(value, (logits, sigma), fast_mode=True)


class Shifted(Laplace):
    """The density has moved, the distribution has not."""

    name = "shifted"

    def log_density(self, t):
        return super().log_density(t - 1)


class Constant(Laplace):
    """Draws from another distribution."""

    name = "constant"

    def sample(self, shape, dtype, device, generator):
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)


@pytest.mark.parametrize(
    ("noise", "complaint"),
    [
        (Shifted(), "log_cdf is not the integral"),
        (Constant(), "sample does not draw from"),
    ],
    ids=["density", "sampler"],
)
def test_a_noise_whose_parts_do_not_fit_is_not_registered(noise, complaint):
    with pytest.raises(ValueError, match=complaint):
        register_noise(noise)
    assert noise.name not in NOISES


def test_a_name_that_is_taken_or_missing_is_refused():
    class Impostor(Laplace):
        name = "normal"

    with pytest.raises(ValueError, match="'normal' is the name of"):
        register_noise(Impostor())
    with pytest.raises(TypeError, match="needs a name"):
        type("Nameless", (Noise,), {})
    with pytest.raises(TypeError, match="not a Noise"):
        register_noise("laplace")


def test_abilities_are_not_inherited():
    assert Normal.kernel == "normal" and WideNormal.kernel is None
    assert WideNormal.two_classes is WideNormal.gridded is WideNormal.quadrature is None
