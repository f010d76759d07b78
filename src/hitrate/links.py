r"""What a loss makes of log p: its link.

A link :math:`\ell(p)` takes log p, so that it keeps its accuracy where p is tiny and where p is
close to one. It is one formula, for its value and its slope in log p, written once: torch runs it
here, and Triton's kernels run the same lines (`hitrate.kernels.parts.link_code`). Hence the plain
arithmetic, by the names defined at the end of this file.

Each link says how it stands to the criterion of an essay for losses that train for accuracy (a
smooth version of the metric, errors pulled towards infinity, agreement to first order near p = 1):

- `slope_at_one`: :math:`\ell'(1)`; the expected error 1 - p has -1. All links are 0 at p = 1.
- `is_unbounded`: whether :math:`\ell(p) \to \infty` as :math:`p \to 0`.
- `focus_point`: the p at which the target's logit gets the largest gradient,
  :math:`\arg\max_p |\ell'(p)| \, p (1 - p)`, with p the softmax.

`meets_criterion` is the last two clauses together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

# A parameter: a number, or a tensor of one that a schedule moves.
Number = float | Tensor
# log p and two numbers -> value and slope in log p.
Formula = Callable[[Any, Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, repr=False)
class Link:
    """A decreasing function of p, given log p; 0 at p = 1.

    A subclass has a `formula` in the names of this file, with its parameters as `numbers`; or, for
    torch alone, a `__call__` that torch differentiates.
    """

    # A link of the whole batch has no value per row.
    of_batch: ClassVar[bool] = False
    # Log p and two numbers -> value and slope; None for a link with a call of its own.
    formula: ClassVar[Any] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # With a call of its own a link is no longer its parent's formula.
        if "__call__" in vars(cls) and "formula" not in vars(cls):
            cls.formula = None

    def __call__(self, log_p: Tensor) -> Tensor:
        """The loss of each row."""
        if self.formula is None:
            raise NotImplementedError(f"{type(self).__name__} has neither formula nor __call__")
        function = Value if torch.compiler.is_compiling() else ForwardModeValue
        found: Tensor = function.apply(  # type: ignore[no-untyped-call]
            log_p, *self.numbers, self.formula
        )
        return found

    @property
    def numbers(self) -> tuple[Number, Number]:
        """The two numbers that the formula takes."""
        return 0.0, 0.0

    def slope(self, log_p: Tensor) -> Tensor:
        """The derivative in log p; never positive."""
        if self.formula is not None:
            found: Tensor = self.formula(log_p, *self.numbers)[1]
            return found
        pull = torch.func.vjp(self, log_p)[1]
        slope: Tensor = pull(torch.ones_like(log_p))[0]
        return slope

    def curvature(self, log_p: Tensor) -> Tensor:
        """A bound from above for the second derivative in log p, not negative."""
        return torch.zeros_like(log_p)

    def pool(self, log_p: Tensor, coefficient: Tensor, total: Tensor) -> Tensor:
        """For a link of the batch, its loss: log p with coefficients, parts of a total."""
        raise NotImplementedError

    @property
    def mixture(self) -> Mixed | None:
        """The same as a sum of log and error, where it is one."""
        return None

    def fixed(self) -> Self:
        """The same with numbers that do not move."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moving = {name: float(v) for name, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **moving) if moving else self

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
    def meets_criterion(self) -> bool:
        """Whether errors are pulled towards infinity and it meets 1 - p to first order at 1."""
        return self.is_unbounded and math.isclose(self.slope_at_one, -1.0)

    @property
    def follows_recipe(self) -> bool:
        """The former name of `meets_criterion`."""
        warnings.warn(
            "Link.follows_recipe is now Link.meets_criterion", DeprecationWarning, stacklevel=2
        )
        return self.meets_criterion

    def __repr__(self) -> str:
        shown = (f"{field.name}={_shown(getattr(self, field.name))}" for field in fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Error(Link):
    r"""Expected error, :math:`1 - p`: EXACT with normal noise, the expectation loss with Gumbel."""

    @staticmethod
    def formula(log_p: Any, a: Any, b: Any) -> tuple[Any, Any]:
        """1 - p."""
        return one_minus_exp(log_p), -exp(log_p)

    @property
    def mixture(self) -> Mixed:
        """Error alone."""
        return Mixed(0.0, 1.0)

    is_unbounded = False
    focus_point = 0.5


@dataclass(frozen=True, repr=False)
class Log(Link):
    r"""Likelihood, :math:`-\log p`: cross entropy with Gumbel noise, probit with normal."""

    @staticmethod
    def formula(log_p: Any, a: Any, b: Any) -> tuple[Any, Any]:
        """-log p."""
        return -log_p, filled(log_p, -1.0)

    @property
    def mixture(self) -> Mixed:
        """Log alone."""
        return Mixed(1.0, 0.0)

    is_unbounded = True
    focus_point = 0.0


@dataclass(frozen=True, repr=False)
class Mixed(Link):
    r"""Sum of both, :math:`-\alpha \log p + \beta (1 - p)`.

    Parameters
    ----------
    alpha, beta : float
        Not negative, and not both 0.
    """

    alpha: Number = 1.0
    beta: Number = 1.0

    def __post_init__(self) -> None:
        alpha, beta = _number(self, "alpha"), _number(self, "beta")
        if not (alpha >= 0 and beta >= 0 and 0 < alpha + beta < math.inf):
            raise ValueError(f"{self}: alpha and beta must be numbers >= 0, not both 0")

    @staticmethod
    def formula(log_p: Any, alpha: Any, beta: Any) -> tuple[Any, Any]:
        """Sum of the two, each only where it has a part: 0 times infinity is not 0."""
        value = beta * one_minus_exp(log_p)
        value = where(alpha == 0.0, value, value - alpha * log_p)
        return value, -alpha - beta * exp(log_p)

    @property
    def numbers(self) -> tuple[Number, Number]:
        """Alpha and beta."""
        return self.alpha, self.beta

    @property
    def mixture(self) -> Mixed:
        """Itself."""
        return self.fixed()

    @property
    def slope_at_one(self) -> float:
        """Both slopes are -1."""
        return -(float(self.alpha) + float(self.beta))

    @property
    def is_unbounded(self) -> bool:
        """As soon as there is some cross entropy."""
        return float(self.alpha) > 0

    @property
    def focus_point(self) -> float:
        """(1 - alpha / beta) / 2, or 0 where cross entropy outweighs."""
        alpha, beta = float(self.alpha), float(self.beta)
        return 0.5 * (1 - alpha / beta) if beta > alpha else 0.0


@dataclass(frozen=True, repr=False)
class Focused(Link):
    r"""The mixture whose gradient is largest at p = F.

    :math:`\alpha = 1, \beta = 1 / (1 - 2F)` for F < 1/2; :math:`\alpha = 0, \beta = 1` at F = 1/2.

    Parameters
    ----------
    focus : float
        F, from 0 to 0.5.
    """

    focus: Number = 0.0

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "focus") <= 0.5:
            raise ValueError(f"{self}: focus must be a number from 0 to 0.5")

    @staticmethod
    def formula(log_p: Any, gap: Any, b: Any) -> tuple[Any, Any]:
        """The sum, of the error alone where the gap to F = 1/2 is 0: 0 times infinity is not 0."""
        beta = 0.5 / where(gap == 0.0, 0.5, gap)
        value = beta * one_minus_exp(log_p)
        slope = -beta * exp(log_p)
        value = where(gap == 0.0, value, value - log_p)
        return value, where(gap == 0.0, slope, slope - 1.0)

    @property
    def numbers(self) -> tuple[Number, Number]:
        """1/2 - F, which float32 could not tell from 0 near the end of a schedule."""
        return 0.5 - self.focus, 0.0

    @property
    def mixture(self) -> Mixed:
        """The same as alpha and beta."""
        focus = float(self.focus)
        return Mixed(0.0, 1.0) if focus == 0.5 else Mixed(1.0, 1 / (1 - 2 * focus))

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
        return float(self.focus)


@dataclass(frozen=True, repr=False)
class GCE(Link):
    r"""Generalised cross entropy, :math:`(1 - p^q) / q`: log at q = 0, error at q = 1.

    With a `threshold` k, p below k counts as k: these rows cost :math:`(1 - k^q) / q` and have no
    gradient.

    Parameters
    ----------
    q : float
        Not negative.
    threshold : float, optional
        Between 0 and 1.
    """

    q: Number = 0.7
    threshold: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "q") < math.inf:
            raise ValueError(f"{self}: q must be a number >= 0")
        if self.threshold is not None and not 0 < _number(self, "threshold") < 1:
            raise ValueError(f"{self}: threshold must lie between 0 and 1")

    @staticmethod
    def formula(log_p: Any, q: Any, lowest: Any) -> tuple[Any, Any]:
        """(1 - p^q) / q, of the larger of p and the threshold."""
        above = maximum(log_p, lowest)
        power = where(q == 0.0, 1.0, q)
        value = where(q == 0.0, -above, one_minus_exp(power * above) / power)
        slope = where(q == 0.0, filled(log_p, -1.0), -exp(power * log_p))
        return value, where(log_p < lowest, 0.0, slope)

    @property
    def numbers(self) -> tuple[Number, Number]:
        """The power, and the log of the threshold."""
        return self.q, -math.inf if self.threshold is None else math.log(self.threshold)

    @property
    def is_unbounded(self) -> bool:
        """Only as cross entropy."""
        return float(self.q) == 0 and self.threshold is None

    @property
    def focus_point(self) -> float:
        """q / (1 + q), or the threshold where that is higher."""
        q = float(self.q)
        return max(q / (1 + q), self.threshold or 0.0)


@dataclass(frozen=True, repr=False)
class Focal(Link):
    r"""Focal loss, :math:`-(1 - p)^\gamma \log p`: log at gamma = 0, flat at p = 1 above.

    Parameters
    ----------
    gamma : float
        Not negative.
    """

    gamma: Number = 2.0

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "gamma") < math.inf:
            raise ValueError(f"{self}: gamma must be a number >= 0")

    @staticmethod
    def formula(log_p: Any, gamma: Any, b: Any) -> tuple[Any, Any]:
        """x e^gamma with x = -log p, e = 1 - p."""
        p = exp(log_p)
        e = one_minus_exp(log_p)
        damped = power(e, gamma)
        # x / e tends to 1 where e tends to 0, and x p to 0 where p does.
        ratio = where(e > 0.0, where(p > 0.0, -log_p, 0.0) * p / where(e > 0.0, e, 1.0), 1.0)
        return -log_p * damped, -damped * (1.0 + gamma * ratio)

    @property
    def numbers(self) -> tuple[Number, Number]:
        """Gamma."""
        return self.gamma, 0.0

    def curvature(self, log_p: Tensor) -> Tensor:
        """The second derivative where it is positive: e^g g ((2 + (g - 1) r) p / e - r)."""
        # With r = x p / e, which tends to 1 where e tends to 0.
        e, p = one_minus_exp(log_p), torch.exp(log_p)
        x, gamma = -log_p, self.gamma
        ratio = torch.where(e > 0, torch.where(p > 0, x, 0.0) * p / torch.where(e > 0, e, 1.0), 1.0)
        odds = torch.where(e > 0, p / torch.where(e > 0, e, 1.0), 0.0)
        bend = gamma * (odds * (2.0 + (gamma - 1.0) * ratio) - ratio)
        # At p = 1 itself there is nothing, or for gamma < 1 no bound.
        return (power(e, gamma) * bend).nan_to_num(0.0, 0.0, 0.0).clamp(min=0.0)

    @property
    def slope_at_one(self) -> float:
        """Flat, unless gamma is 0."""
        return 0.0 if float(self.gamma) else -1.0

    is_unbounded = True

    @property
    def focus_point(self) -> float:
        """Root of the derivative of (1 - p)^gamma (1 - p - gamma p log p)."""
        g = float(self.gamma)
        if g == 0:
            return 0.0
        return _root(
            lambda p: (1 - p) * (-1 - g - g * math.log(p)) - g * (1 - p - g * p * math.log(p))
        )


@dataclass(frozen=True, repr=False)
class Tamed(Link):
    r"""Tamed cross entropy, :math:`((1 - \log p)^{1-\alpha} - 1) / (1 - \alpha)`.

    Log at alpha = 0, log(1 - log p) at alpha = 1; 0 at p = 1 for all.

    Parameters
    ----------
    alpha : float
        Not negative.
    """

    alpha: Number = 0.5

    def __post_init__(self) -> None:
        if not 0 <= _number(self, "alpha") < math.inf:
            raise ValueError(f"{self}: alpha must be a number >= 0")

    @staticmethod
    def formula(log_p: Any, alpha: Any, b: Any) -> tuple[Any, Any]:
        """The power of 1 + x, x = -log p, by way of its logarithm."""
        grown = log1p(-log_p)
        c = 1.0 - alpha
        value = where(c == 0.0, grown, expm1(c * grown) / where(c == 0.0, 1.0, c))
        return value, where(alpha == 0.0, filled(log_p, -1.0), -exp(-alpha * grown))

    @property
    def numbers(self) -> tuple[Number, Number]:
        """Alpha."""
        return self.alpha, 0.0

    @property
    def is_unbounded(self) -> bool:
        """Up to alpha = 1."""
        return float(self.alpha) <= 1

    @property
    def focus_point(self) -> float:
        """Root of the derivative of (1 - log p)^-alpha (1 - p)."""
        a = float(self.alpha)
        return 0.0 if a == 0 else _root(lambda p: a * (1 - p) - p * (1 - math.log(p)))


@dataclass(frozen=True, repr=False)
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


def link_named(link: str | Link, call: object) -> Link:
    """The link of that name, or the link itself."""
    if isinstance(link, Link):
        return link
    if not isinstance(link, str) or link not in LINKS:
        names = ", ".join(map(repr, LINKS))
        raise ValueError(f"{call}: link={link!r} is neither a Link nor one of {names}")
    return LINKS[link]()


class Value(torch.autograd.Function):
    """A formula's value, whose gradient is the formula's slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_p: Tensor, a: Number, b: Number, formula: Formula) -> Tensor:
        """The value."""
        found: Tensor = formula(log_p, a, b)[0]
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep log p; numbers that move are tensors too."""
        log_p, *numbers, ctx.formula = inputs
        moving = [number for number in numbers if isinstance(number, Tensor)]
        ctx.numbers = [None if isinstance(number, Tensor) else number for number in numbers]
        ctx.save_for_backward(log_p, *moving)
        ctx.save_for_forward(log_p, *moving)

    @staticmethod
    def _slope(ctx: Any) -> Tensor:
        log_p, *tensors = ctx.saved_tensors
        moving = iter(tensors)
        numbers = [next(moving) if number is None else number for number in ctx.numbers]
        slope: Tensor = ctx.formula(log_p, *numbers)[1]
        return slope

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The slope, which torch differentiates for second derivatives."""
        return grad * Value._slope(ctx), None, None, None


class ForwardModeValue(Value):
    """The same with forward mode, whose presence keeps torch.compile from tracing a function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        """The slope times the tangent."""
        return tangent * Value._slope(ctx)


# What formulas are made of; `hitrate.kernels.parts.link_code` has the same names for Triton.


def exp(x: Tensor) -> Tensor:
    """e^x."""
    return torch.exp(x)


def expm1(x: Tensor) -> Tensor:
    """e^x - 1."""
    return torch.expm1(x)


def log1p(x: Tensor) -> Tensor:
    """log(1 + x) for x >= 0."""
    return torch.log1p(x)


def one_minus_exp(x: Tensor) -> Tensor:
    """1 - e^x for x <= 0, without cancellation."""
    return -torch.expm1(x)


def power(x: Tensor, y: Number) -> Tensor:
    """x^y for x >= 0; 0^0 is 1."""
    return x**y


def maximum(x: Tensor, y: Number) -> Tensor:
    """The larger of the two."""
    return torch.maximum(x, y) if isinstance(y, Tensor) else torch.clamp(x, min=y)


def where(condition: Any, x: Any, y: Any) -> Any:
    """One or the other, by a condition of rows or of numbers."""
    if not isinstance(condition, Tensor):
        return x if condition else y
    return torch.where(condition, x, y)


def filled(like: Tensor, value: float) -> Tensor:
    """A number for each of many."""
    return torch.full_like(like, value)


def _number(link: Link, name: str) -> float:
    """A link's parameter, which class weights in the wrong place are not."""
    value = getattr(link, name)
    if isinstance(value, Tensor) and value.dim() == 0 and not value.requires_grad:
        # A number that moves: it was in range where the schedule was made, and is not looked at.
        return 0.25
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(
            f"{type(link).__name__}: {name} must be a number, got {type(value).__name__}; "
            "class weights go to weight="
        )
    return float(value)


def _shown(value: Any) -> str:
    """A parameter as a number, also where it moves."""
    return repr(float(value)) if isinstance(value, Tensor) and not value.is_meta else repr(value)


def _root(function: Callable[[float], float]) -> float:
    """The zero in (0, 1) of a function that falls from above to below it."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return low
