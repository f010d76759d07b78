"""The standard normal distribution in the log domain, with full relative accuracy in both tails."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hitrate.probability.execution import double

SQRT_2PI = math.sqrt(2.0 * math.pi)
LOG_SQRT_2PI = math.log(SQRT_2PI)
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def log_density(t: Tensor) -> Tensor:
    """-t^2 / 2 - log sqrt(2 pi)."""
    return -0.5 * t * t - LOG_SQRT_2PI


def log_cdf_and_hazard(x: Tensor) -> tuple[Tensor, Tensor]:
    """log Phi(x) and phi(x) / Phi(x)."""
    tail, hazard, _ = _lower_tail(x)
    log_f = log_density(x)
    log_cdf = torch.where(x < 0, log_f - hazard.log(), torch.log1p(-tail))
    hazard = torch.where(x < 0, hazard, log_f.exp() / (1.0 - tail))
    return log_cdf, hazard


def log_cdf_and_hazard_of_few(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same by erfcx in float64: slower for a number, but half of the operations."""
    log_cdf, hazard = log_cdf_and_hazard_by_erfcx(torch, double(x))
    return log_cdf.to(x.dtype), hazard.to(x.dtype)


def log_cdf_and_hazard_by_erfcx(xp: Any, x: Any) -> tuple[Any, Any]:
    """The same lines for torch and for numpy, whose functions have the same names."""
    half, behind = 0.5 * x * x, x < 0
    scaled = erfcx(xp.abs(x) * SQRT_HALF)
    bell = xp.exp(-half)
    tail = 0.5 * scaled * bell
    log_cdf = xp.where(behind, xp.log(0.5 * scaled) - half, xp.log1p(-tail))
    hazard = xp.where(behind, SQRT_2_OVER_PI / scaled, bell / ((1.0 - tail) * SQRT_2PI))
    return log_cdf, hazard


def erfcx(x: Any) -> Any:
    """e^(x^2) erfc(x), of a tensor or of an array, for which numpy has no function."""
    if isinstance(x, Tensor):
        return torch.special.erfcx(x)
    return torch.special.erfcx(torch.from_numpy(x)).numpy()


def log_cdf_and_log_hazard(x: Tensor) -> tuple[Tensor, Tensor]:
    """log Phi(x) and log phi(x) - log Phi(x), in fewer passes than with h itself."""
    # Below -far, where erfc will underflow, log h(-b) = log b + 1 / b^2 - ... to rounding.
    far = 10.0 if x.dtype == torch.float32 else 36.0
    beyond = x.clamp(max=-far)
    w = beyond.square().reciprocal()
    series = w * (1.0 - w * (5 / 2 - w * (37 / 3 - w * (353 / 4))))
    far_log_hazard = (-beyond).log() + series
    # Phi is never rounded near 1: from zero on the second term is 0, below the first is -log 2.
    upper, lower = x.clamp(min=0.0), x.clamp(min=-far, max=-1e-30)
    log_cdf = torch.log1p(-0.5 * torch.erfc(upper * SQRT_HALF))
    log_cdf = log_cdf + torch.erfc(lower * -SQRT_HALF).log()
    log_f = log_density(x)
    is_far = x < -far
    log_hazard = torch.where(is_far, far_log_hazard, log_f - log_cdf)
    return torch.where(is_far, log_f - far_log_hazard, log_cdf), log_hazard


def hazard_slope(x: Tensor) -> Tensor:
    """-h(x) (x + h(x)), where x + h(x) is the tail's excess for negative x."""
    tail, hazard, excess = _lower_tail(x)
    upper = log_density(x).exp() / (1.0 - tail)
    return torch.where(x < 0, -hazard * excess, -upper * (x + upper))


def _lower_tail(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Phi(-|x|), h(-|x|) and the excess h(-|x|) - |x|, without underflow."""
    # Beyond `far` nine levels of the continued fraction a + 1/(a + 2/(a + ...)) of the Mills
    # ratio are exact to rounding; erfc loses digits there, and underflows later on.
    far = 5.0 if x.dtype == torch.float32 else 12.0
    a = x.abs()
    near = a.clamp(max=far)
    tail = torch.erfc(near * SQRT_HALF) * 0.5
    hazard = torch.exp(-0.5 * near * near - LOG_SQRT_2PI) / tail
    fraction = a.clamp(min=far)
    excess = 9.0 / fraction
    for level in range(8, 0, -1):
        excess = level / (fraction + excess)
    is_far = a > far
    excess = torch.where(is_far, excess, hazard - near)
    hazard = torch.where(is_far, a + excess, hazard)
    tail = torch.exp(-0.5 * a * a - LOG_SQRT_2PI) / hazard
    return tail, hazard, excess
