"""The formulas of `hitrate.links` as numpy functions: the same lines, other names behind them.

On a number per row numpy's operations cost a fraction of torch's, and wait for no other thread.
`hitrate.kernels.parts.link_code` does the same for Triton.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import numpy as np

from hitrate.links import Formula


@functools.cache
def in_numpy(formula: Formula) -> Formula | None:
    """A formula as a function of arrays; None if it uses names that numpy does not have."""
    if not isinstance(formula, FunctionType) or formula.__code__.co_freevars:
        return None
    own = {
        name: value
        for name in formula.__code__.co_names
        if isinstance(value := formula.__globals__.get(name), int | float)
    }
    names = {**NAMES, **own}
    if not names.keys() >= set(formula.__code__.co_names):
        return None
    return FunctionType(formula.__code__, names, formula.__name__)


def one_minus_exp(x: Any) -> Any:
    """1 - e^x for x <= 0, without cancellation."""
    return -np.expm1(x)


def where(condition: Any, x: Any, y: Any) -> Any:
    """One or the other, by a condition of rows or of numbers."""
    if isinstance(condition, bool):
        return x if condition else y
    return np.where(condition, x, y)


NAMES = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "one_minus_exp": one_minus_exp,
    "power": np.power,
    "maximum": np.maximum,
    "where": where,
    "filled": np.full_like,
}
