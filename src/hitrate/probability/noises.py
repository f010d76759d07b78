"""The noises: what is added to the logits before the highest score is read off.

A noise knows its density f and distribution F in the log domain, the reversed hazard h = f / F
(the slope of log F) and its own slope. All three are log-concave, so the integrand of
docs/math.md (3) has one peak.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

SQRT_2PI = math.sqrt(2.0 * math.pi)
LOG_SQRT_2PI = math.log(SQRT_2PI)
SQRT_HALF = math.sqrt(0.5)


class Noise(Protocol):
    """Density f, distribution F and reversed hazard h = f / F of one noise variable."""

    name: str

    def log_density(self, t: Tensor) -> Tensor:
        """log f(t)."""

    def score(self, t: Tensor) -> Tensor:
        """-(log f)'(t): the weight of a sample in the log-derivative gradient."""

    def log_cdf_and_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log F(x) and h(x), with full relative accuracy in both tails."""

    def log_cdf_and_log_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log F(x) and log h(x), the latter also where h underflows; differentiable by torch."""

    def hazard_slope(self, x: Tensor) -> Tensor:
        """h'(x), never positive: log F is concave."""

    def reach(self, drop: float) -> tuple[float, float]:
        """Left and right distance at which log f has fallen by `drop` below its peak at 0."""

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Independent draws."""


class Normal:
    """Standard normal noise: EXACT and the multinomial probit."""

    name = "normal"

    def log_density(self, t: Tensor) -> Tensor:
        """-t^2 / 2 - log sqrt(2 pi)."""
        return -0.5 * t * t - LOG_SQRT_2PI

    def score(self, t: Tensor) -> Tensor:
        """The draw itself."""
        return t

    def _lower_tail(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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

    def log_cdf_and_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log Phi(x) and phi(x) / Phi(x)."""
        tail, hazard, _ = self._lower_tail(x)
        log_density = self.log_density(x)
        log_cdf = torch.where(x < 0, log_density - hazard.log(), torch.log1p(-tail))
        hazard = torch.where(x < 0, hazard, log_density.exp() / (1.0 - tail))
        return log_cdf, hazard

    def log_cdf_and_log_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
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
        log_density = self.log_density(x)
        is_far = x < -far
        log_hazard = torch.where(is_far, far_log_hazard, log_density - log_cdf)
        return torch.where(is_far, log_density - far_log_hazard, log_cdf), log_hazard

    def hazard_slope(self, x: Tensor) -> Tensor:
        """-h(x) (x + h(x)), where x + h(x) is the tail's excess for negative x."""
        tail, hazard, excess = self._lower_tail(x)
        upper = self.log_density(x).exp() / (1.0 - tail)
        return torch.where(x < 0, -hazard * excess, -upper * (x + upper))

    def reach(self, drop: float) -> tuple[float, float]:
        """The same on both sides: sqrt(2 drop)."""
        return math.sqrt(2.0 * drop), math.sqrt(2.0 * drop)

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Draws from N(0, 1)."""
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)


class Logistic:
    """Standard logistic noise: heavier tails than normal, F is the sigmoid."""

    name = "logistic"

    def log_density(self, t: Tensor) -> Tensor:
        """log sigmoid(t) + log sigmoid(-t)."""
        return -t.abs() - 2.0 * torch.log1p(torch.exp(-t.abs()))

    def score(self, t: Tensor) -> Tensor:
        """tanh(t / 2)."""
        return torch.tanh(0.5 * t)

    def log_cdf_and_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log sigmoid(x) and sigmoid(-x)."""
        return torch.nn.functional.logsigmoid(x), torch.sigmoid(-x)

    def log_cdf_and_log_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log sigmoid(x) and log sigmoid(-x)."""
        log_cdf = torch.nn.functional.logsigmoid(x)
        return log_cdf, log_cdf - x

    def hazard_slope(self, x: Tensor) -> Tensor:
        """-sigmoid(x) sigmoid(-x)."""
        return -torch.sigmoid(x) * torch.sigmoid(-x)

    def reach(self, drop: float) -> tuple[float, float]:
        """The same on both sides: both tails fall like exp(-|t|)."""
        return drop + 2.0, drop + 2.0

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Draws by inversion: logit of a uniform."""
        uniform = torch.rand(shape, dtype=dtype, device=device, generator=generator)
        return torch.logit(uniform, eps=torch.finfo(dtype).tiny)


class Gumbel:
    """Standard Gumbel noise: p is the softmax, so -log p is cross entropy."""

    name = "gumbel"

    def log_density(self, t: Tensor) -> Tensor:
        """-t - exp(-t)."""
        return -t - torch.exp(-t)

    def score(self, t: Tensor) -> Tensor:
        """1 - exp(-t)."""
        return -torch.expm1(-t)

    def log_cdf_and_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """-exp(-x) and exp(-x)."""
        hazard = torch.exp(-x)
        return -hazard, hazard

    def log_cdf_and_log_hazard(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """-exp(-x) and -x."""
        return -torch.exp(-x), -x

    def hazard_slope(self, x: Tensor) -> Tensor:
        """-exp(-x)."""
        return -torch.exp(-x)

    def reach(self, drop: float) -> tuple[float, float]:
        """Doubly exponential on the left, exp(-t) on the right."""
        return math.log(drop + math.log(drop + 2.0) + 2.0) + 0.5, drop + 2.0

    def sample(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Draws by inversion: -log of an exponential."""
        draws = torch.empty(shape, dtype=dtype, device=device)
        return -draws.exponential_(generator=generator).clamp_min(torch.finfo(dtype).tiny).log()


NORMAL = Normal()
NOISES: dict[str, Noise] = {noise.name: noise for noise in (NORMAL, Logistic(), Gumbel())}
