"""The noises under contract, each with its distribution in scipy: one line, and all tests follow.

The last three are noises that the library has never heard of, written and registered by the steps
that CONTRIBUTING.md gives: a relative of a known one, one with a kink, and a skewed one.
"""

import math

import scipy.stats
import torch

from hitrate.probability import NOISES, Noise
from hitrate.probability.noises import Normal


class WideNormal(Normal):
    """Three times as wide; a subclass of the normal, whose closed forms and kernels are not its."""

    name = "wide_normal"
    scale = 3.0

    def log_density(self, t):
        return Normal.log_density(t / self.scale) - math.log(self.scale)

    def log_cdf(self, x):
        return Normal.log_cdf_and_hazard(x / self.scale)[0]

    def log_cdf_and_log_hazard(self, x):
        return Noise.log_cdf_and_log_hazard(self, x)

    def log_cdf_and_hazard(self, x):
        return Noise.log_cdf_and_hazard(self, x)

    score, hazard_slope, reach, shape = Noise.score, Noise.hazard_slope, Noise.reach, Noise.shape

    def sample(self, shape, dtype, device, generator):
        return self.scale * torch.randn(shape, dtype=dtype, device=device, generator=generator)


class Laplace(Noise):
    """Double exponential: a kink at its peak."""

    name = "laplace"
    kinks = (0.0,)

    def log_density(self, t):
        return -t.abs() - math.log(2)

    def log_cdf(self, x):
        half = 0.5 * torch.exp(-x.abs())
        return torch.where(x < 0, x - math.log(2), torch.log1p(-half))

    def sample(self, shape, dtype, device, generator):
        draws = torch.empty(2, *shape, dtype=dtype, device=device)
        return draws.exponential_(generator=generator).diff(dim=0)[0]


class Smallest(Noise):
    """Gumbel's distribution of smallest values: skewed to the left, peak at 0, mean at -0.58."""

    name = "smallest"

    def log_density(self, t):
        return t - torch.exp(t)

    def log_cdf(self, x):
        # log(1 - exp(-exp(x))); to the left of 0 by expm1, to the right by log1p.
        rate = torch.exp(x.clamp(max=700.0))
        left = torch.log(-torch.expm1(-rate.clamp(max=1.0)))
        # So far to the left the rate itself has no digits in 1 - exp(-rate).
        left = torch.where(x < -30, x - 0.5 * rate, left)
        return torch.where(x < 0, left, torch.log1p(-torch.exp(-rate.clamp(min=1.0))))

    def sample(self, shape, dtype, device, generator):
        draws = torch.empty(shape, dtype=dtype, device=device)
        tiny = torch.finfo(dtype).tiny
        return draws.exponential_(generator=generator).clamp_min(tiny).log()


UNKNOWN = (WideNormal(), Laplace(), Smallest())
# The same distributions, by somebody else.
DISTRIBUTIONS = {
    "normal": scipy.stats.norm(),
    "logistic": scipy.stats.logistic(),
    "gumbel": scipy.stats.gumbel_r(),
    "wide_normal": scipy.stats.norm(scale=3.0),
    "laplace": scipy.stats.laplace(),
    "smallest": scipy.stats.gumbel_l(),
}
KNOWN = tuple(NOISES)
NAMES = (*KNOWN, *(noise.name for noise in UNKNOWN))
