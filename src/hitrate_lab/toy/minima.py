"""Global minima of any loss: for each weight over the bias, then over the weights.

A function of one variable is evaluated on a grid that reaches beyond where all losses are flat, and
the cell of the least value is divided again and again. It needs no slope, and no convexity beyond
the spacing of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hitrate_lab.toy.examples import Example, Fit, Model
from hitrate_lab.toy.losses import Case

# Equal within rounding: loss values differ from their least by less than this share of it.
ROUNDING = 1e-12
# Beyond this score no loss changes in double precision, but those that grow for ever.
SATURATED = 60.0
# Weights up to here stand for all: a threshold between two points then saturates every loss.
LARGEST_WEIGHT = 100.0


@dataclass(frozen=True)
class Valleys:
    """For each weight (W,) the least loss over the bias, and the interval that attains it."""

    weight: Tensor
    value: Tensor
    left: Tensor
    right: Tensor

    def up_to(self, weight: float) -> Valleys:
        """Those of weights that are no larger."""
        kept = self.weight <= weight
        return Valleys(self.weight[kept], self.value[kept], self.left[kept], self.right[kept])

    @property
    def lowest(self) -> int:
        """Position of the least loss; of equal ones, that of the largest weight."""
        return int((self.value <= level(self.value.min())).nonzero().max())

    def fit(self, i: int) -> Fit:
        """The model or interval of weight i."""
        # Rounded to what the search resolves, so that exact optima come out exact.
        weight, left, right = (
            round(float(v[i]), 8) + 0.0 for v in (self.weight, self.left, self.right)
        )
        biases = (left,) if left == right else (right, left)
        return Fit(tuple(Model(weight, bias) for bias in biases))


def level(value: Tensor) -> Tensor:
    """The value, and what rounding may add to it."""
    return value + ROUNDING * value.abs()


def valleys(case: Case, example: Example, weight: Tensor, *, ends: bool = True) -> Valleys:
    """Minimise over the bias, for each of the weights (W,).

    Infinite where the loss falls for ever. Losses that are not flat are so by rounding only, and
    the middle of that interval stands for the minimiser. Without `ends`, which cost the most, any
    point of the interval stands for it.
    """
    half = weight.abs() * example.x.abs().max() + SATURATED
    grid = half[:, None] * torch.linspace(-1, 1, 401, dtype=torch.float64)  # (W, M)

    def loss(bias: Tensor) -> Tensor:
        return case.of_models(example, weight[:, None].expand_as(bias), bias)

    values = loss(grid)
    best, bottom = zoom(loss, grid, values)
    if not ends:
        return Valleys(weight, best[:, 0], bottom[:, 0], bottom[:, 0])
    sides = []
    for side in (-1, 1):
        higher = (values > level(best)) & (side * (grid - bottom) > 0)
        distance = torch.where(higher, (grid - bottom).abs(), torch.inf).amin(1, keepdim=True)
        edge = bisect(lambda bias: loss(bias) <= level(best), bottom, bottom + side * distance)
        sides.append(torch.where(distance.isinf(), side * torch.inf, edge)[:, 0])
    left, right = sides
    if not case.is_flat:
        middle = (left + right) / 2
        left = torch.where(left.isinf(), left, torch.where(right.isinf(), right, middle))
        right = left
    return Valleys(weight, best[:, 0], left, right)


def lowest(case: Case, example: Example, found: Valleys) -> Fit:
    """Minimise over the weights too, starting from the valleys of increasing ones.

    At the largest weight there is nothing to refine; the caller knows what that means.
    """
    i = found.lowest
    if i in (0, len(found.weight) - 1):
        return found.fit(i)
    while 0 < i < len(found.weight) - 1 and found.weight[i + 1] - found.weight[i - 1] > 1e-7:
        finer = between(found.weight[i - 1], found.weight[i + 1])
        found = valleys(case, example, finer, ends=False)
        i = found.lowest
    return valleys(case, example, found.weight[i : i + 1]).fit(0)


def zoom(loss: Callable[[Tensor], Tensor], grid: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Least values (W, 1) and where, by dividing the cells around the least of values (W, M)."""
    best, i = values.min(1, keepdim=True)
    bottom, step = grid.gather(1, i), grid[:, 1:2] - grid[:, :1]
    for _ in range(9):
        fine = bottom + step * torch.linspace(-1, 1, 21, dtype=torch.float64)
        best, i = loss(fine).min(1, keepdim=True)
        bottom, step = fine.gather(1, i), step / 10
    return best, bottom


def bisect(holds: Callable[[Tensor], Tensor], inside: Tensor, outside: Tensor) -> Tensor:
    """The last point at which a condition holds, between one where it does and one where not."""
    for _ in range(32):
        middle = (inside + outside) / 2
        true = holds(middle)
        inside, outside = torch.where(true, middle, inside), torch.where(true, outside, middle)
    return inside


def between(low: Tensor, high: Tensor) -> Tensor:
    """Equally spaced weights, both ends included."""
    return low + (high - low) * torch.linspace(0, 1, 13, dtype=torch.float64)


def weights_up_to(largest: float, *, both_signs: bool = False, points: int = 61) -> Tensor:
    """Weights in steps that grow with their size, from 0 or from minus the largest."""
    end = math.asinh(largest)
    weight = torch.linspace(-end if both_signs else 0.0, end, points, dtype=torch.float64).sinh()
    weight[-1] = largest
    return weight
