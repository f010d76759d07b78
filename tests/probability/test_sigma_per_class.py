"""One sigma per class, however different: against a rule of this file's own that is far finer.

The truth uses scipy's distributions in float64. Panels of Gauss-Legendre nodes end at every tie
with a rival and at hundreds of places around it, by the rival's own width, and at thousands of
places between the ends of what is not negligible. For two classes and normal noise it is checked
against the closed form.
"""

import math

import numpy as np
import pytest
import scipy.stats
import torch

import hitrate

DISTRIBUTIONS = {
    "normal": scipy.stats.norm(),
    "logistic": scipy.stats.logistic(),
    "gumbel": scipy.stats.gumbel_r(),
}
# |error of log p| / max(1, |log p|), error of a row's gradient / its largest entry
BOUNDS = {torch.float32: (1e-6, 1e-4), torch.float64: (1e-9, 1e-8)}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def draw(classes, ratio, spread, rows, seed):
    """Logits, targets and sigmas whose largest is up to `ratio` times the smallest."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(rows, classes, generator=generator)
    target = torch.randint(classes, (rows,), generator=generator)
    power = torch.rand(rows, classes, generator=generator) - 0.5
    return logits, target, torch.exp(math.log(ratio) * power)


@np.errstate(over="ignore")
def truth_of_row(distribution, logits, y, sigma):
    """log p, and its gradients in the logits and in the sigmas."""
    rivals = np.delete(np.arange(len(logits)), y)
    a = (logits[y] - logits[rivals]) / sigma[rivals]
    b = sigma[y] / sigma[rivals]

    def parts(t):
        x = a[:, None] + b[:, None] * t
        log_cdf = distribution.logcdf(x)
        return x, log_cdf, distribution.logpdf(t), log_cdf.sum(0)

    around = np.concatenate([np.linspace(-12, 12, 97), np.geomspace(12, 1e5, 40)])
    around = np.union1d(around, -around)
    tie, width = -a / b, 1 / b
    edges = np.union1d((tie[:, None] + width[:, None] * around).ravel(), around)
    _, _, log_f, height = parts(edges)
    ahead = np.trapezoid(np.exp(log_f + height), edges) > 0.5
    with np.errstate(divide="ignore"):
        level = log_f + (np.log(-np.expm1(height)) if ahead else height)
    (kept,) = np.nonzero(
        (level > level.max() - 42) | (log_f + height > (log_f + height).max() - 42)
    )
    low, high = edges[max(kept[0] - 1, 0)], edges[min(kept[-1] + 1, len(edges) - 1)]
    edges = np.union1d(edges[(edges > low) & (edges < high)], np.linspace(low, high, 2001))
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    t = (middle[:, None] + half[:, None] * NODES).ravel()
    w = (half[:, None] * WEIGHTS).ravel()
    x, log_cdf, log_f, height = parts(t)
    log_integrand = log_f + height
    top = log_integrand.max()
    log_p = top + math.log((w * np.exp(log_integrand - top)).sum())
    if ahead:
        log_p = math.log1p(-(w * np.exp(log_f) * -np.expm1(height)).sum())
    # Of Gumbel's both logarithms are beyond all numbers where their difference is not.
    log_hazard = -x if distribution is DISTRIBUTIONS["gumbel"] else distribution.logpdf(x) - log_cdf
    share = np.exp(log_integrand - log_p + log_hazard) * w
    slope_a, slope_b = share.sum(1), (share * t).sum(1)
    to_logits, to_sigma = np.zeros(len(logits)), np.zeros(len(logits))
    to_logits[rivals] = -slope_a / sigma[rivals]
    to_logits[y] = -to_logits.sum()
    to_sigma[rivals] = -(slope_a * a + slope_b * b) / sigma[rivals]
    to_sigma[y] = (slope_b / sigma[rivals]).sum()
    return log_p, to_logits, to_sigma


def truth_of(distribution, logits, target, sigma):
    rows = zip(logits.double().numpy(), target.tolist(), sigma.double().numpy(), strict=True)
    return [
        np.stack(parts)
        for parts in zip(*(truth_of_row(distribution, *r) for r in rows), strict=True)
    ]


def errors(noise, logits, target, sigma, truth, dtype):
    log_p, *gradients = truth
    inputs = [logits.to(dtype).requires_grad_(), sigma.to(dtype).requires_grad_()]
    value = hitrate.log_expected_accuracy(inputs[0], target, inputs[1], noise=noise)
    found = torch.autograd.grad(value.sum(), inputs)
    value_error = np.abs(value.detach().double().numpy() - log_p) / np.maximum(1, np.abs(log_p))
    worst = []
    for ours, slope in zip(found, gradients, strict=True):
        # Gradients that the dtype cannot hold are not asked for.
        size = np.maximum(np.abs(slope).max(1), 1e-30 if dtype == torch.float32 else 1e-280)
        worst.append((np.abs(ours.double().numpy() - slope).max(1) / size).max())
    return value_error.max(), max(worst)


def check(noise, classes, ratio, spread, rows, seed):
    logits, target, sigma = draw(classes, ratio, spread, rows, seed)
    truth = truth_of(DISTRIBUTIONS[noise], logits, target, sigma)
    for dtype, (value_bound, gradient_bound) in BOUNDS.items():
        value_error, gradient_error = errors(noise, logits, target, sigma, truth, dtype)
        assert value_error <= value_bound, dtype
        assert gradient_error <= gradient_bound, dtype


@pytest.mark.parametrize("ratio", [1, 30, 1000])
@pytest.mark.parametrize("classes", [2, 5, 50])
@pytest.mark.parametrize("noise", DISTRIBUTIONS)
def test_value_and_gradients_are_accurate_for_sigmas_of_any_ratio(noise, classes, ratio):
    check(noise, classes, ratio, spread=1.0, rows=4 if classes == 50 else 8, seed=classes)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("ratio", [10, 100, 1000])
@pytest.mark.parametrize("classes", [2, 3, 10, 50])
@pytest.mark.parametrize("noise", DISTRIBUTIONS)
def test_many_more_rows_are_accurate_too(noise, classes, ratio, spread):
    check(noise, classes, ratio, spread, rows=12 if classes == 50 else 40, seed=100)


def test_the_fine_rule_has_the_closed_form_of_two_classes():
    logits, target, sigma = (part[:20] for part in draw(2, 1000, 2.0, 20, 5))
    log_p, to_logits, _ = truth_of(DISTRIBUTIONS["normal"], logits, target, sigma)
    rows = np.arange(20)
    gap = logits.double().numpy()[rows, target] - logits.double().numpy()[rows, 1 - target]
    scale = np.sqrt((sigma.double().numpy() ** 2).sum(1))
    expected = scipy.stats.norm.logcdf(gap / scale)
    np.testing.assert_allclose(log_p, expected, rtol=1e-10, atol=1e-13)
    slope = np.exp(scipy.stats.norm.logpdf(gap / scale) - expected) / scale
    np.testing.assert_allclose(to_logits[rows, target], slope, rtol=1e-9)


def test_the_cases_of_a_report_that_were_wrong_are_right():
    """sigmas 20 and 1, and 100 and 1, with two classes."""
    logits = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    for large in (20.0, 100.0, 1e4):
        sigma = torch.tensor([[large, 1.0]], dtype=torch.float64)
        value = hitrate.log_expected_accuracy(logits, torch.tensor([0]), sigma)
        scale = math.hypot(large, 1.0)
        assert value.item() == pytest.approx(scipy.stats.norm.logcdf(1 / scale), rel=1e-11)
        (slope,) = torch.autograd.grad(value.sum(), logits)
        expected = math.exp(scipy.stats.norm.logpdf(1 / scale) - value.item()) / scale
        assert slope[0].tolist() == pytest.approx([expected, -expected], rel=1e-10)


@pytest.mark.parametrize("behind", [100.0, 1e3, 1e4])
def test_logistic_gradients_are_right_a_thousand_sigma_behind(behind):
    logits = torch.tensor([[0.0, behind]], dtype=torch.float64, requires_grad=True)
    value = hitrate.log_expected_accuracy(logits, torch.tensor([0]), noise="logistic")
    # With one rival d ahead, p = 1 - e^d (e^d - 1 - d) / (e^d - 1)^2, which tends to (d - 1) e^-d.
    assert value.item() == pytest.approx(-behind + math.log(behind - 1), rel=1e-12)
    (slope,) = torch.autograd.grad(value.sum(), logits)
    assert slope[0, 0].item() == pytest.approx(1 - 1 / (behind - 1), rel=1e-8)
