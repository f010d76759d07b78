"""From logits to scaled margins a + b t, t the target's noise, and back: docs/math.md (4), (5).

For row n and class i != y the rival i loses when its noise is below a + b t, t the target's noise:

    a_i = min(mu_y - mu_i, margin) / sigma_i,        b_i = sigma_y / sigma_i.

With one sigma per row every b is 1 and is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hitrate.probability.execution import double

# Scaled margin that stands in the target's own column: a rival that always loses.
ABSENT = 1e4
# Real rivals are clipped here, where they always lose too, so that ABSENT marks the target alone.
FARTHEST = 5e3
# And here, where squares are still finite in float32.
LOWEST = -1e15
# The same two for any noise and any sigma, in float64.
ABSENT_ANYWHERE = 1e30
FARTHEST_ANYWHERE = 1e15


def scaled_down(scores: Tensor, sigma: Tensor, *, learned: bool) -> Tensor:
    """Scores, none above 0, in units of sigma; what is beyond all numbers is the lowest of them.

    The gradient in a sigma that is learned does not go by way of 1 / sigma^2, which may be beyond
    them too.
    """
    lowest = torch.finfo(scores.dtype).min / 4
    scaled = (scores / sigma.detach()).clamp(min=lowest)
    return scaled * (sigma.detach() / sigma) if learned else scaled


@dataclass(frozen=True)
class Margins:
    """Scaled margins of a batch, with the chain rule in both directions.

    Attributes
    ----------
    a : Tensor, shape (N, C)
        Scaled margins; `ABSENT` in the target's column.
    b : Tensor, shape (N, C), or None
        Slopes in t, 0 in the target's column; None stands for 1 everywhere.
    free : Tensor of bool, shape (N, C), or None
        Which margins are not clipped; None stands for all.
    target : Tensor, shape (N, 1)
    sigma : Tensor, shape (N, 1) or (N, C)
    """

    a: Tensor
    b: Tensor | None
    free: Tensor | None
    target: Tensor
    sigma: Tensor

    @classmethod
    def of(
        cls,
        logits: Tensor,
        target: Tensor,
        sigma: Tensor,
        margin: float | Tensor | None,
        *,
        anywhere: bool = False,
    ) -> Margins:
        """Margins of logits (N, C), target (N,), sigma (N, 1) or (N, C).

        By default they are clipped where normal and logistic noise have long decided; with
        `anywhere` they are in float64, and clipped where any noise has.
        """
        target = target[:, None]
        farthest, absent = FARTHEST, ABSENT
        if anywhere:
            logits, sigma = double(logits), double(sigma)
            farthest, absent = FARTHEST_ANYWHERE, ABSENT_ANYWHERE
        distance = logits.gather(1, target) - logits
        free = None
        if margin is not None:
            free = distance < margin
            # A class at -inf is no rival: the margin does not bring it closer.
            distance = distance.clamp_(max=margin).masked_fill_(torch.isneginf(logits), torch.inf)
        a = (distance / sigma).clamp_(LOWEST, farthest).scatter_(1, target, absent)
        b = None
        if sigma.shape[1] > 1:
            b = (sigma.gather(1, target) / sigma).scatter(1, target, 0.0)
        return cls(a, b, free, target, sigma)

    def pull(self, slope: Tensor, slope_b: Tensor | None) -> tuple[Tensor, Tensor]:
        """Gradient in (logits, sigma) from the gradient in (a, b): the transpose of `push`."""
        falling = slope / -self.sigma
        if self.b is None or slope_b is None:
            to_sigma = torch.linalg.vecdot(falling, self.a)[:, None]
        else:
            own = (slope_b / self.sigma).sum(1, keepdim=True)
            to_sigma = falling * self.a - slope_b * self.b / self.sigma
            to_sigma = to_sigma.scatter(1, self.target, own)
        to_logits = falling if self.free is None else falling * self.free
        return to_logits.scatter(1, self.target, -to_logits.sum(1, keepdim=True)), to_sigma

    def pull_logits_(self, slope: Tensor) -> Tensor:
        """The gradient in logits alone, written over the slope."""
        slope.div_(-self.sigma)
        if self.free is not None:
            slope.mul_(self.free)
        return slope.scatter_(1, self.target, -slope.sum(1, keepdim=True))

    def push(self, logits: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tangent of (a, b) from the tangent of (logits, sigma)."""
        distance = logits.gather(1, self.target) - logits
        if self.free is not None:
            distance = distance * self.free
        a = (distance - self.a * sigma) / self.sigma
        b = None
        if self.b is not None:
            b = (sigma.gather(1, self.target) - self.b * sigma) / self.sigma
            b = b.scatter(1, self.target, 0.0)
        return a.scatter(1, self.target, 0.0), b

    def curve(
        self, slope: Tensor, slope_b: Tensor | None, logits: Tensor, sigma: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Second-order part of the chain rule: slope . d(push) for fixed slope, math (18)."""
        a, b = self.push(logits, sigma)
        ratio = sigma / self.sigma
        to_logits, to_sigma = self.pull(
            -slope * ratio, None if slope_b is None else -slope_b * ratio
        )
        bent = slope * a
        if slope_b is not None and b is not None:
            bent = bent + slope_b * b
        bent = -bent / self.sigma
        if self.b is None:
            bent = bent.sum(1, keepdim=True)
        return to_logits, to_sigma + bent
