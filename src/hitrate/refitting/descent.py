"""L-BFGS for a linear head under any link of the softmax."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from torch import Tensor

from hitrate.links import Link
from hitrate.refitting.rows import Rows

# Steps whose curvature is remembered.
MEMORY = 10
# A direction is given up where so small a part of its step gains nothing.
SHORTEST = 1e-6
# A step must keep this part of the fall that its slope promises.
ARMIJO = 1e-4


def minimum(rows: Rows, link: Link, head: Tensor, *, l2: float, most: int, tol: float) -> Tensor:
    r"""The head where the mean loss plus :math:`\tfrac{l_2}{2} \lVert W \rVert^2` is lowest.

    W are the weights of standardised features, less their mean over the classes.

    Parameters
    ----------
    rows : Rows
    link : Link
    head : Tensor, shape (C, F + 1)
        Where to begin; float64, the bias last.
    l2 : float
    most : int
        Steps.
    tol : float
        It ends when a step gains less than this part of the objective.
    """

    def value_and_slopes(steps: Tensor) -> tuple[float, Tensor]:
        at = rows.to_head(steps)
        value, slopes = rows.loss(link, at)
        weight = at[:, :-1] * rows.scale
        weight = weight - weight.mean(0)
        slopes[:, :-1] += l2 * weight * rows.scale
        return value + 0.5 * l2 * float(weight.square().sum()), rows.slopes_of_steps(slopes)

    # The softmax's curvature is about 1 / C in coordinates in which features are uncorrelated.
    scale = float(rows.classes)
    return rows.to_head(lowest(value_and_slopes, rows.to_steps(head), scale, most, tol))


def lowest(
    f: Callable[[Tensor], tuple[float, Tensor]], x: Tensor, scale: float, most: int, tol: float
) -> Tensor:
    """Where a smooth function is low: L-BFGS with steps cut until they gain enough.

    Parameters
    ----------
    f : callable
        Value and slopes.
    x : Tensor
        Where to begin.
    scale : float
        Length of the first step over that of the slopes.
    most : int
        Steps.
    tol : float
        It ends when a step gains less than this part of the value, twice in a row.
    """
    value, slopes = f(x)
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=MEMORY)
    idle = 0
    for _ in range(most):
        step = -_product(pairs, slopes, scale)
        promised = float((step * slopes).sum())
        if not promised < 0:
            break
        length = 1.0
        while True:
            next_value, next_slopes = f(x + length * step)
            if next_value <= value + ARMIJO * length * promised:
                break
            # The lowest point of the parabola through what is known.
            bend = next_value - value - length * promised
            length *= min(max(-0.5 * promised * length / bend, 0.1), 0.5) if bend > 0 else 0.5
            if length < SHORTEST:
                return x
        moved, turned = length * step, next_slopes - slopes
        curvature = float((moved * turned).sum())
        if curvature > 1e-10 * float(turned.square().sum()):
            pairs.append((moved, turned, curvature))
        gained = value - next_value
        x, value, slopes = x + moved, next_value, next_slopes
        idle = idle + 1 if gained <= tol * max(abs(value), 1e-12) else 0
        if idle == 2:
            break
    return x


def _product(pairs: deque[tuple[Tensor, Tensor, float]], slopes: Tensor, scale: float) -> Tensor:
    """The inverse Hessian of the pairs times slopes, by the two loops."""
    product, factors = slopes.clone(), []
    for moved, turned, curvature in reversed(pairs):
        factor = float((moved * product).sum()) / curvature
        product -= factor * turned
        factors.append(factor)
    if pairs:
        moved, turned, curvature = pairs[-1]
        scale = curvature / float(turned.square().sum())
    product *= scale
    for (moved, turned, curvature), factor in zip(pairs, reversed(factors), strict=True):
        product += (factor - float((turned * product).sum()) / curvature) * moved
    return product
