"""The formulas of `hitrate.links` as Triton functions: the same lines, other names behind them.

A formula uses no names but those of `hitrate.links`, each of which stands here again in Triton's
language, and numbers of its own module. So a link is written once.
"""

from __future__ import annotations

import ast
import functools
from types import FunctionType
from typing import Any

import triton
import triton.language as tl


@functools.cache
def compiled(formula: Any) -> Any:
    """A formula as a function that kernels call."""
    own = {
        name: tl.constexpr(value)
        for name in formula.__code__.co_names
        if isinstance(value := formula.__globals__.get(name), int | float)
    }
    function = FunctionType(formula.__code__, {**NAMES, **own}, formula.__name__)
    function.__module__, function.__qualname__ = formula.__module__, formula.__qualname__
    made = triton.jit(function)
    if isinstance(made, triton.JITFunction):
        # Triton's compiler would look up what annotations name; its interpreter does not.
        made._unsafe_update_src(_without_annotations(made.src))
    return made


def _without_annotations(source: str) -> str:
    """The source of one function, as Python reads it, less the types."""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None
    return ast.unparse(function)


@triton.jit
def log_p_itself(log_p, a, b):
    """What `log_expected_accuracy` makes of log p."""
    return log_p, tl.zeros_like(log_p) + 1.0


@triton.jit
def exp(x):
    """e^x."""
    return tl.exp(x)


@triton.jit
def expm1(x):
    """e^x - 1 for any x."""
    return tl.where(x > 0.3, tl.exp(x) - 1.0, -one_minus_exp(x))


@triton.jit
def log1p(x):
    """log(1 + x) for x >= 0: what 1 + x loses in rounding is made up for by a factor."""
    u = 1.0 + x
    kept = u - 1.0
    return tl.where(kept == 0.0, x, tl.where(x > 1e30, tl.log(x), tl.log(u) * (x / kept)))


@triton.jit
def one_minus_exp(x):
    """1 - e^x for x <= 0."""
    series = 1.0 / 5040.0
    series = series * x + 1.0 / 720.0
    series = series * x + 1.0 / 120.0
    series = series * x + 1.0 / 24.0
    series = series * x + 1.0 / 6.0
    series = series * x + 0.5
    series = series * x + 1.0
    return tl.where(x > -0.3, -x * series, 1.0 - tl.exp(x))


@triton.jit
def power(x, y):
    """x^y for x >= 0; 0^0 is 1."""
    zero = tl.where(y == 0.0, 1.0, 0.0)
    return tl.where(x > 0.0, tl.exp(y * tl.log(tl.where(x > 0.0, x, 1.0))), zero)


@triton.jit
def maximum(x, y):
    """The larger of the two."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def where(condition, x, y):
    """One or the other."""
    return tl.where(condition, x, y)


@triton.jit
def filled(like, value):
    """A number for each of many."""
    return tl.zeros_like(like) + value


NAMES = {
    "tl": tl,
    "exp": exp,
    "expm1": expm1,
    "log1p": log1p,
    "one_minus_exp": one_minus_exp,
    "power": power,
    "maximum": maximum,
    "where": where,
    "filled": filled,
}
