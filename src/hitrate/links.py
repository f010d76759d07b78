r"""What a loss makes of log p: its link.

A link :math:`\ell(p)` takes log p, so that it keeps its accuracy where p is tiny and where p is
close to one. Each says how it stands to the recipe for a loss that trains for accuracy (a smooth
version of the metric, errors pulled towards infinity, agreement to first order near p = 1):

- `slope_at_one`: :math:`\ell'(1)`; the expected error 1 - p has -1. All links are 0 at p = 1.
- `is_unbounded`: whether :math:`\ell(p) \to \infty` as :math:`p \to 0`.
- `focus_point`: the p at which the target's logit gets the largest gradient,
  :math:`\arg\max_p |\ell'(p)| \, p (1 - p)`, with p the softmax.

`follows_recipe` is the last two clauses together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Link:
    """A decreasing function of p, given log p; 0 at p = 1."""

    # A link of the whole batch has no value per row.
    of_batch: ClassVar[bool] = False

    def __call__(self, log_p: Tensor) -> Tensor:
        """The loss of each row."""
        raise NotImplementedError

    def pool(self, log_p: Tensor, coefficient: Tensor, total: Tensor) -> Tensor:
        """For a link of the batch, its loss: log p with coefficients, parts of a total."""
        raise NotImplementedError

    @property
    def slope_at_one(self) -> float:
        """Derivative in p at p = 1."""
        return -1.0

    @property
    def is_unbounded(self) -> bool:
        """Whether a certain error costs infinitely much."""
        raise NotImplementedError

    @property
    def focus_point(self) -> float:
        """The softmax p at which the gradient in the target's logit is largest."""
        raise NotImplementedError

    @property
    def follows_recipe(self) -> bool:
        """Whether errors are pulled towards infinity and it meets 1 - p to first order at 1."""
        return self.is_unbounded and math.isclose(self.slope_at_one, -1.0)


@dataclass(frozen=True)
class Error(Link):
    r"""Expected error, :math:`1 - p`: EXACT with normal noise, the expectation loss with Gumbel."""

    def __call__(self, log_p: Tensor) -> Tensor:
        """1 - p."""
        return one_minus_exp(log_p)

    is_unbounded = False
    focus_point = 0.5


@dataclass(frozen=True)
class Log(Link):
    r"""Likelihood, :math:`-\log p`: cross entropy with Gumbel noise, probit with normal."""

    def __call__(self, log_p: Tensor) -> Tensor:
        """-log p."""
        return -log_p

    is_unbounded = True
    focus_point = 0.0


@dataclass(frozen=True)
class Mixed(Link):
    r"""Sum of both, :math:`-\alpha \log p + \beta (1 - p)`."""

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        alpha, beta = _number(self, "alpha"), _number(self, "beta")
        if not (alpha >= 0 and beta >= 0 and 0 < alpha + beta < math.inf):
            raise ValueError(f"{self}: alpha and beta must be numbers >= 0, not both 0")

    def __call__(self, log_p: Tensor) -> Tensor:
        """Sum of the two, each only where it has a part: 0 times infinity is not 0."""
        loss = self.beta * one_minus_exp(log_p)
        return loss if self.alpha == 0 else loss - self.alpha * log_p

    @property
    def slope_at_one(self) -> float:
        """Both slopes are -1."""
        return -(self.alpha + self.beta)

    @property
    def is_unbounded(self) -> bool:
        """As soon as there is some cross entropy."""
        return self.alpha > 0

    @property
    def focus_point(self) -> float:
        """(1 - alpha / beta) / 2, or 0 where cross entropy outweighs."""
        return 0.5 * (1 - self.alpha / self.beta) if self.beta > self.alpha else 0.0


@dataclass(frozen=True)
class Focused(Link):
    r"""The mixture whose gradient is largest at p = F.

    :math:`\alpha = 1, \beta = 1 / (1 - 2F)` for F < 1/2; :math:`\alpha = 0, \beta = 1` at F = 1/2.
    """

    focus: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "focus") <= 0.5:
            raise ValueError(f"{self}: focus must be a number from 0 to 0.5")

    @property
    def mixture(self) -> Mixed:
        """The same as alpha and beta."""
        if self.focus == 0.5:
            return Mixed(0.0, 1.0)
        return Mixed(1.0, 1 / (1 - 2 * self.focus))

    def __call__(self, log_p: Tensor) -> Tensor:
        """The mixture's value."""
        return self.mixture(log_p)

    @property
    def slope_at_one(self) -> float:
        """The mixture's, -(alpha + beta)."""
        return self.mixture.slope_at_one

    @property
    def is_unbounded(self) -> bool:
        """All but F = 1/2."""
        return self.mixture.is_unbounded

    @property
    def focus_point(self) -> float:
        """F itself."""
        return self.focus


@dataclass(frozen=True)
class GCE(Link):
    r"""Generalised cross entropy, :math:`(1 - p^q) / q`: log at q = 0, error at q = 1.

    With a `threshold` k, p below k counts as k: these rows cost :math:`(1 - k^q) / q` and have no
    gradient.
    """

    q: float = 0.7
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "q") < math.inf:
            raise ValueError(f"{self}: q must be a number >= 0")
        if self.threshold is not None and not 0 < _number(self, "threshold") < 1:
            raise ValueError(f"{self}: threshold must lie between 0 and 1")

    def __call__(self, log_p: Tensor) -> Tensor:
        """(1 - p^q) / q, of the larger of p and the threshold."""
        if self.threshold is not None:
            log_p = log_p.clamp(min=math.log(self.threshold))
        return -log_p if self.q == 0 else one_minus_exp(self.q * log_p) / self.q

    @property
    def is_unbounded(self) -> bool:
        """Only as cross entropy."""
        return self.q == 0 and self.threshold is None

    @property
    def focus_point(self) -> float:
        """q / (1 + q), or the threshold where that is higher."""
        return max(self.q / (1 + self.q), self.threshold or 0.0)


@dataclass(frozen=True)
class Focal(Link):
    r"""Focal loss, :math:`-(1 - p)^\gamma \log p`: log at gamma = 0, flat at p = 1 above."""

    gamma: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "gamma") < math.inf:
            raise ValueError(f"{self}: gamma must be a number >= 0")

    def __call__(self, log_p: Tensor) -> Tensor:
        """x e^gamma with x = -log p, e = 1 - p."""
        x = -log_p
        # Near p = 1, e = x up to x^2 / 2, and a power of x has a slope where one of e has 0 * inf;
        # near p = 0, e = 1, and x may be infinite.
        tiny, large = torch.finfo(x.dtype).eps / 4, 100.0
        near, far = x < tiny, x > large
        middle = x.clamp(tiny, large)
        loss = middle * (-torch.expm1(-middle)) ** self.gamma
        return torch.where(far, x, torch.where(near, x.clamp(0, tiny) ** (1 + self.gamma), loss))

    @property
    def slope_at_one(self) -> float:
        """Flat, unless gamma is 0."""
        return 0.0 if self.gamma else -1.0

    is_unbounded = True

    @property
    def focus_point(self) -> float:
        """Root of the derivative of (1 - p)^gamma (1 - p - gamma p log p)."""
        g = self.gamma
        if g == 0:
            return 0.0
        return _root(
            lambda p: (1 - p) * (-1 - g - g * math.log(p)) - g * (1 - p - g * p * math.log(p))
        )


@dataclass(frozen=True)
class Tamed(Link):
    r"""Tamed cross entropy, :math:`((1 - \log p)^{1-\alpha} - 1) / (1 - \alpha)`.

    Log at alpha = 0, log(1 - log p) at alpha = 1; 0 at p = 1 for all.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "alpha") < math.inf:
            raise ValueError(f"{self}: alpha must be a number >= 0")

    def __call__(self, log_p: Tensor) -> Tensor:
        """The power of 1 + x, x = -log p, by expm1 where x is small."""
        x, power = -log_p, 1 - self.alpha
        if power == 0:
            return torch.log1p(x)
        small = torch.expm1(power * torch.log1p(x.clamp(max=1.0))) / power
        # expm1 and log1p would multiply infinity by zero at x = infinity.
        large = ((1 + x.clamp(min=1.0)) ** power - 1) / power
        return torch.where(x < 1, small, large)

    @property
    def is_unbounded(self) -> bool:
        """Up to alpha = 1."""
        return self.alpha <= 1

    @property
    def focus_point(self) -> float:
        """Root of the derivative of (1 - log p)^-alpha (1 - p)."""
        a = self.alpha
        return 0.0 if a == 0 else _root(lambda p: a * (1 - p) - p * (1 - math.log(p)))


@dataclass(frozen=True)
class BatchLog(Link):
    r"""Log of the batch's expected accuracy, :math:`-\log \text{mean}_n \, p_n`.

    Not a sum over rows: its gradient is that of the error, divided by the accuracy. It tends to
    infinity only if all rows are lost; one among N costs at most log(N / (N - 1)).
    """

    of_batch: ClassVar[bool] = True

    def __call__(self, log_p: Tensor) -> Tensor:
        """Of the whole batch, with equal weights."""
        return self.pool(log_p, torch.ones_like(log_p), log_p.new_tensor(log_p.numel()))

    def pool(self, log_p: Tensor, coefficient: Tensor, total: Tensor) -> Tensor:
        """-log of the weighted mean of p."""
        if not log_p.numel():
            return total.log() - log_p.sum().log()
        counted = coefficient > 0
        parts = torch.where(counted, log_p + coefficient.clamp(min=0).log(), -torch.inf)
        # Without any part the sum is log 0, and has no gradient.
        nothing = torch.isneginf(parts).all()
        whole = torch.logsumexp(parts.masked_fill(nothing, 0.0).flatten(), 0)
        return total.log() - whole.masked_fill(nothing, -torch.inf)

    is_unbounded = False
    focus_point = 0.5


# Every link by its name, with default parameters.
LINKS: dict[str, Callable[[], Link]] = {
    "error": Error,
    "log": Log,
    "mixed": Mixed,
    "focused": Focused,
    "gce": GCE,
    "focal": Focal,
    "tamed": Tamed,
    "batch_log": BatchLog,
}


def link_named(link: str | Link, call: str) -> Link:
    """The link of that name, or the link itself."""
    if isinstance(link, Link):
        return link
    if link not in LINKS:
        names = ", ".join(map(repr, LINKS))
        raise ValueError(f"{call}: link={link!r} is neither a Link nor one of {names}")
    return LINKS[link]()


def _number(link: Link, name: str) -> float:
    """A link's parameter, which class weights in the wrong place are not."""
    value = getattr(link, name)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(
            f"{type(link).__name__}: {name} must be a number, got {type(value).__name__}; "
            "class weights go to weight="
        )
    return float(value)


def one_minus_exp(x: Tensor) -> Tensor:
    """1 - e^x for x <= 0, value and slope without cancellation.

    torch takes the slope of expm1 from its value, which rounds to -1 long before e^x is zero.
    """
    return torch.where(x < -0.7, 1 - torch.exp(x), -torch.expm1(x))


def _root(function: Callable[[float], float]) -> float:
    """The zero in (0, 1) of a function that falls from above to below it."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return low
