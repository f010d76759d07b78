"""The two sampled methods against integrals computed by scipy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtri_exp
from scipy.stats import multivariate_normal
from torch import Tensor

from hitrate.probability.margins import ABSENT
from hitrate.probability.methods.genz import _truncated_normal, genz, structured_cholesky
from hitrate.probability.methods.monte_carlo import monte_carlo
from hitrate.probability.noises import NOISES

PAPER = [1.0, 2.0, 0.5, 10.0, 6.0, -3.0, -4.0, 5.0, 1.0, 0.0]
MARGINS = {
    "one_rival": [0.3],
    "equal_scores": [0.0, 0.0, 0.0],
    "mixed": [1.5, -0.5, 0.2, 3.0],
    "hopeless": [-2.0, -1.0, -2.5],
    "paper": PAPER,
}

# Log density and log distribution function, written here so that nothing of the library is used.
LOG_DENSITY: dict[str, Callable[[float], float]] = {
    "normal": lambda t: -0.5 * t * t - 0.5 * math.log(2 * math.pi),
    "logistic": lambda t: -abs(t) - 2 * math.log1p(math.exp(-abs(t))),
    "gumbel": lambda t: -t - math.exp(-t),
}
LOG_DISTRIBUTION: dict[str, Callable[[float], float]] = {
    "normal": lambda x: float(log_ndtr(x)),
    "logistic": lambda x: -float(np.logaddexp(0.0, -x)),
    "gumbel": lambda x: -math.exp(-x),
}
# Outside, the integrand is below 1e-12 of its integral for every margins vector above.
SUPPORT = {"normal": (-8.0, 12.0), "logistic": (-35.0, 40.0), "gumbel": (-4.0, 45.0)}


def reference(margins: list[float], noise: str) -> tuple[float, np.ndarray]:
    """p and dp/da of one row, without the target's column, by adaptive quadrature."""
    log_f, log_cdf = LOG_DENSITY[noise], LOG_DISTRIBUTION[noise]

    def log_integrand(t: float) -> float:
        return log_f(t) + sum(log_cdf(m + t) for m in margins)

    def tie(t: float, i: int) -> float:
        return math.exp(log_integrand(t) + log_f(margins[i] + t) - log_cdf(margins[i] + t))

    options = {"epsabs": 1e-14, "epsrel": 1e-10, "limit": 400, "points": [-2.0, 0.0, 2.0, 5.0]}
    p = quad(lambda t: math.exp(log_integrand(t)), *SUPPORT[noise], **options)[0]
    gradient = [quad(tie, *SUPPORT[noise], (i,), **options)[0] for i in range(len(margins))]
    return p, np.array(gradient)


def rows(margins: list[float], copies: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The same margins ``copies`` times, the target's column in the middle."""
    at = len(margins) // 2
    return torch.tensor([[*margins[:at], ABSENT, *margins[at:]]], dtype=dtype).repeat(copies, 1)


def without_target(x: Tensor, margins: list[float]) -> Tensor:
    """Drop the column that ``rows`` put in."""
    at = len(margins) // 2
    return torch.cat([x[:, :at], x[:, at + 1 :]], dim=1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_mean_within_standard_errors(
    draws: Tensor, truth: np.ndarray | float, count: float = 4.0
) -> None:
    """The mean of independent draws agrees with the truth; rounding is the floor of the error."""
    mean, spread = draws.mean(0).numpy(), draws.std(0).numpy() / math.sqrt(len(draws))
    floor = 1e-9 * np.abs(truth) + 1e-14
    np.testing.assert_array_less(np.abs(mean - truth), count * spread + floor)


def call_genz(a: Tensor, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return genz(a, samples=samples, generator=generator)


def call_monte_carlo(
    noise: str,
) -> Callable[[Tensor, int, torch.Generator], tuple[Tensor, Tensor]]:
    def call(a: Tensor, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return monte_carlo(a, NOISES[noise], samples=samples, generator=generator)

    return call


METHODS = {
    "genz": call_genz,
    **{f"monte_carlo_{noise}": call_monte_carlo(noise) for noise in NOISES},
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
each_margins = pytest.mark.parametrize("margins", MARGINS.values(), ids=MARGINS.keys())


@pytest.mark.parametrize("rho", [1.0, 0.5, 0.1], ids=lambda rho: f"rho_{rho}")
@pytest.mark.parametrize("size", [1, 2, 7, 50], ids=lambda size: f"size_{size}")
def test_the_structured_cholesky_factor_is_the_cholesky_factor(size: int, rho: float) -> None:
    alpha, beta = (torch.tensor(x, dtype=torch.float64) for x in structured_cholesky(size, rho))
    factor = beta.expand(size, size).tril(-1) + alpha.diag()
    covariance = torch.eye(size, dtype=torch.float64) + rho
    torch.testing.assert_close(factor, torch.linalg.cholesky(covariance), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("classes", [3, 4, 6], ids=lambda c: f"{c}_classes")
def test_genz_agrees_with_the_multivariate_normal_distribution_of_scipy(classes: int) -> None:
    margins = np.random.default_rng(classes).normal(size=classes - 1)
    covariance = np.eye(classes - 1) + 1.0
    expected = multivariate_normal(np.zeros(classes - 1), covariance).cdf(margins)
    log_p, _ = genz(rows(list(margins), 1), samples=200_000, generator=seeded())
    assert log_p.exp().item() == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("name", ["one_rival", "equal_scores", "mixed", "hopeless", "paper"])
def test_the_reference_of_these_tests_agrees_with_scipy_and_with_itself(name: str) -> None:
    margins = MARGINS[name]
    p, gradient = reference(margins, "normal")
    covariance = np.eye(len(margins)) + 1.0
    cdf = multivariate_normal(np.zeros(len(margins)), covariance, abseps=1e-7, seed=0).cdf
    assert p == pytest.approx(cdf(np.array(margins)), rel=1e-2 if name == "paper" else 1e-4)
    step = 1e-4
    for i in range(len(margins)):
        up = [m + step * (j == i) for j, m in enumerate(margins)]
        down = [m - step * (j == i) for j, m in enumerate(margins)]
        difference = (reference(up, "normal")[0] - reference(down, "normal")[0]) / (2 * step)
        assert gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-10)


@each_margins
@pytest.mark.parametrize("samples", [1, 16], ids=lambda s: f"{s}_samples")
def test_genz_is_unbiased_for_p_and_for_its_gradient(margins: list[float], samples: int) -> None:
    p, gradient = reference(margins, "normal")
    log_p, slope = genz(rows(margins, 1000), samples=samples, generator=seeded(samples))
    assert_mean_within_standard_errors(log_p.exp(), p)
    draws = log_p.exp()[:, None] * without_target(slope, margins)
    assert_mean_within_standard_errors(draws, gradient)


@each_margins
@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
@pytest.mark.parametrize("samples", [16, 256], ids=lambda s: f"{s}_samples")
def test_monte_carlo_is_unbiased_for_p_and_for_its_gradient(
    margins: list[float], noise: str, samples: int
) -> None:
    p, gradient = reference(margins, noise)
    a = rows(margins, 1000)
    log_p, slope = monte_carlo(a, NOISES[noise], samples=samples, generator=seeded(samples))
    assert_mean_within_standard_errors(log_p.exp(), p)
    draws = log_p.exp()[:, None] * without_target(slope, margins)
    assert_mean_within_standard_errors(draws, gradient)


# Without the paper's margins: there a few samples in a million carry the mean of some components,
# so that a standard error taken from 1000 rows means nothing. (300,000 rows agree.)
@pytest.mark.parametrize("name", ["equal_scores", "mixed", "hopeless"])
def test_genz_is_unbiased_in_the_given_order_too(name: str) -> None:
    margins = MARGINS[name]
    p, gradient = reference(margins, "normal")
    log_p, slope = genz(rows(margins, 1000), samples=4, generator=seeded(), reorder=False)
    assert_mean_within_standard_errors(log_p.exp(), p)
    draws = log_p.exp()[:, None] * without_target(slope, margins)
    assert_mean_within_standard_errors(draws, gradient)


def test_integrating_over_the_hardest_rival_first_lowers_the_variance() -> None:
    a = rows(PAPER, 1000)
    first, given = (
        genz(a, samples=1, generator=seeded(), reorder=reorder)[0].exp().var().item()
        for reorder in (True, False)
    )
    assert first < given / 100


@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
def test_monte_carlo_is_unbiased_when_some_rivals_always_lose(noise: str) -> None:
    p, gradient = reference([0.5, -1.0], noise)
    a = torch.tensor([[ABSENT, 0.5, ABSENT, -1.0]], dtype=torch.float64).repeat(1000, 1)
    log_p, slope = monte_carlo(a, NOISES[noise], samples=64, generator=seeded())
    assert_mean_within_standard_errors(log_p.exp(), p)
    draws = log_p.exp()[:, None] * slope
    assert_mean_within_standard_errors(draws, np.array([0.0, gradient[0], 0.0, gradient[1]]))


def test_the_centred_noise_is_the_log_derivative_of_the_differences_of_scores() -> None:
    e = torch.randn(5, 8, generator=seeded(), dtype=torch.float64)
    target, rivals = e[:, :1], e[:, 1:]
    covariance = torch.eye(7, dtype=torch.float64) + 1.0
    log_derivative = torch.linalg.solve(covariance, (target - rivals).mT).mT
    torch.testing.assert_close(-(rivals - e.mean(1, keepdim=True)), log_derivative)


@pytest.mark.parametrize("bound", [3.0, 0.0, -6.0, -11.0, -15.0, -30.0, -40.0, -1000.0])
@each_dtype
def test_the_truncated_draw_is_the_quantile_of_the_truncated_normal(
    bound: float, dtype: torch.dtype
) -> None:
    uniform = torch.tensor([1e-6, 0.1, 0.5, 0.9, 0.999], dtype=dtype)
    bounds = torch.full_like(uniform, bound)
    drawn = _truncated_normal(bounds, torch.special.log_ndtr(bounds), uniform)
    exact = ndtri_exp(log_ndtr(bound) + np.log(uniform.double().numpy()))
    accuracy = 1e-5 if dtype == torch.float32 else 1e-8
    np.testing.assert_allclose(drawn.double().numpy(), exact, rtol=accuracy / 4, atol=accuracy)


@each_dtype
def test_the_truncated_draw_is_finite_for_every_bound_and_every_uniform(
    dtype: torch.dtype,
) -> None:
    bound = torch.tensor([-1e8, -3e3, -40.0, -11.0, 0.0, 40.0, 1e8], dtype=dtype)
    uniform = torch.tensor([0.0, 0.5, 1 - torch.finfo(dtype).eps / 2], dtype=dtype)
    bound, uniform = bound.repeat_interleave(3), uniform.repeat(len(bound))
    drawn = _truncated_normal(bound, torch.special.log_ndtr(bound), uniform)
    assert drawn.isfinite().all()
    # Equal to the bound only by rounding, never above it.
    assert (drawn <= bound + 1e-5 * bound.abs().clamp(min=1)).all()


@each_method
def test_equal_seeds_give_bitwise_equal_results(
    method: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    a = rows(PAPER, 3)
    first, second = method(a, 16, seeded(7)), method(a, 16, seeded(7))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@each_method
@each_dtype
def test_results_have_the_shape_and_the_dtype_of_the_margins(
    method: Callable[..., tuple[Tensor, Tensor]], dtype: torch.dtype
) -> None:
    a = rows(PAPER, 3, dtype)
    log_p, slope = method(a, 16, seeded())
    assert log_p.shape == (3,) and slope.shape == a.shape
    assert log_p.dtype == slope.dtype == dtype


@each_method
def test_the_target_has_no_slope_and_certain_wins_cost_nothing(
    method: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    a = torch.tensor([[0.0, ABSENT, 1.0], [ABSENT, 5e3, 9e3]])
    log_p, slope = method(a, 64, seeded())
    assert slope[0, 1] == 0 and slope[1, 0] == 0
    assert log_p[1] == 0


@each_dtype
@pytest.mark.parametrize("classes", [2, 10, 300], ids=lambda c: f"{c}_classes")
@pytest.mark.parametrize("size", [1e2, 1e4, 1e8], ids=lambda size: f"up_to_{size:g}")
def test_genz_is_finite_for_extreme_margins(classes: int, size: float, dtype: torch.dtype) -> None:
    ramp = torch.linspace(-size, size, classes, dtype=dtype)
    a = torch.stack([ramp, ramp.flip(0), -ramp.abs(), torch.full_like(ramp, -size), ramp.abs()])
    a[:, 0] = ABSENT
    log_p, slope = genz(a, samples=4, generator=seeded())
    assert log_p.isfinite().all() and slope.isfinite().all()
    assert (log_p <= 0).all() and (slope >= 0).all()


@each_dtype
def test_genz_keeps_the_slope_of_a_single_distant_rival(dtype: torch.dtype) -> None:
    a = torch.tensor([[ABSENT, -100.0, 50.0]], dtype=dtype)
    log_p, slope = genz(a, samples=16, generator=seeded())
    # One rival is the closed form Phi(a / sqrt 2); its slope is the hazard at that point.
    expected = log_ndtr(-100.0 / math.sqrt(2))
    hazard = math.exp(-(100.0**2) / 4 - 0.5 * math.log(4 * math.pi) - expected)
    assert log_p.item() == pytest.approx(expected, rel=1e-6)
    assert slope[0, 1].item() == pytest.approx(hazard, rel=1e-3)
    assert slope[0, 0] == 0 and slope[0, 2] == 0


@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
@each_dtype
def test_monte_carlo_without_a_hit_has_no_slope(noise: str, dtype: torch.dtype) -> None:
    a = torch.tensor([[ABSENT, -1e8, 1.0], [ABSENT, 1e8, 1e8]], dtype=dtype)
    log_p, slope = monte_carlo(a, NOISES[noise], samples=32, generator=seeded())
    assert log_p[0] == -math.inf and (slope[0] == 0).all()
    assert log_p[1] == 0 and slope[1].isfinite().all()


@each_method
def test_a_nan_stays_in_its_row(method: Callable[..., tuple[Tensor, Tensor]]) -> None:
    a = rows([0.0, 1.0, -1.0], 3)
    clean = method(a, 16, seeded())
    a[1, 0] = math.nan
    log_p, slope = method(a, 16, seeded())
    assert log_p[1].isnan() and slope[1].isnan().any()
    for row in (0, 2):
        assert torch.equal(log_p[row], clean[0][row])
        assert torch.equal(slope[row], clean[1][row])


@each_method
def test_an_empty_batch_gives_empty_results(
    method: Callable[..., tuple[Tensor, Tensor]],
) -> None:
    log_p, slope = method(torch.empty(0, 5), 16, seeded())
    assert log_p.shape == (0,) and slope.shape == (0, 5)


@each_method
def test_a_single_class_always_wins(method: Callable[..., tuple[Tensor, Tensor]]) -> None:
    log_p, slope = method(torch.tensor([[ABSENT]]), 16, seeded())
    assert log_p.item() == 0 and slope.item() == 0
