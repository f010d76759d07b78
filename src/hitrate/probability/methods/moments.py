"""A row's rivals as moments, and a function of the margin read at each of them, math (13), (15).

Polynomials of degree below 4 D on [-h, h] are sums of products P_a Q_b, a < 4, b < D, of

    P = (x v, v, x, 1),  v = x^2,        Q = (1, q, q^2, ...),  q = v (v - h^2).

q is Chebyshev's T_4 but for a factor and a constant, which keeps the products apart; where there
are many powers, h^4 / 8 is added, and it is T_4 but for a factor. The products take D + 2
multiplications per rival, and the sum of all 4 D of them over a row's rivals is a product of
two small matrices. The same lines run in numpy and in torch, whose functions have the same names.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

# The number of P's.
WIDTH = 4
# More powers of q than these are too close to each other unless q is centred.
FEW_POWERS = 7
# Arrays of the rivals' size beside Q: four parts of a function, of which one was x v; v and x.
BESIDE = 6


class Factors:
    """P and Q at the rivals of N rows, and a function read there: an array (D + 6, N, C).

    Attributes
    ----------
    x : array, shape (N, C)
        The rivals' places in [-h, h].
    """

    def __init__(self, space: Any) -> None:
        # The last of a function's four parts takes the place of x v.
        self._parts = tuple(space[:WIDTH])
        self._read = space[:WIDTH].swapaxes(0, 1)  # (N, 4, C)
        self._xv, self._v, self.x, self._one, *self._powers = space[3:]
        self.p = space[3:7].swapaxes(0, 1)  # (N, 4, C)
        self.q = space[6:].swapaxes(0, 1)  # (N, D, C)
        self._p_transposed = self.p.swapaxes(1, 2)
        # Whether 1 is written down.
        self._is_one = False

    def write(self, xp: Any, half: float, end: Any = None) -> None:
        """All factors, from x. Rivals from an `end` on, if given, have no part in anything."""
        xv, v, x, one, powers = self._xv, self._v, self.x, self._one, self._powers
        if end is not None:
            one[...] = x < end
            xp.minimum(x, end, out=x)
        elif not self._is_one:
            one[...] = 1.0
        self._is_one = end is None
        xp.multiply(x, x, out=v)
        xp.multiply(x, v, out=xv)
        q = powers[0]
        xp.subtract(v, half**2, out=q)
        xp.multiply(q, v, out=q)
        if len(powers) > FEW_POWERS:
            xp.add(q, 0.125 * half**4, out=q)
        if end is not None:
            xp.multiply(q, one, out=q)
        for lower, power in itertools.pairwise(powers):
            xp.multiply(lower, q, out=power)

    def moments(self, xp: Any, out: Any) -> None:
        """The sum of each product over a row's rivals: (N, D, 4)."""
        xp.matmul(self.q, self._p_transposed, out=out)

    def read(self, xp: Any, coefficients: Any) -> Any:
        """The polynomial with coefficients (N, 4, D) at each rival, (N, C); x v is gone then."""
        xp.matmul(coefficients, self.q, out=self._read)
        by_xv, by_v, by_x, by_one = self._parts
        by_xv *= self.x
        by_xv += by_v
        by_xv *= self._v
        by_x *= self.x
        by_xv += by_x
        by_xv += by_one
        return by_xv


def interpolation(degree: int, half: float) -> tuple[Tensor, Tensor]:
    """Chebyshev's points in [-h, h], and the map from values there to coefficients.

    Both are in float64 on the CPU: the points (4 D,), the map (4 D, 4 D), by powers of q and then
    by P.
    """
    count = WIDTH * degree
    x = torch.cos(torch.pi * (torch.arange(count, dtype=torch.float64, device="cpu") + 0.5) / count)
    factors = Factors(x.new_empty(degree + BESIDE, 1, count))
    factors.x[0] = x
    factors.write(torch, 1.0)
    products = factors.q[0, :, None] * factors.p[0]  # (D, 4, 4 D), of h = 1
    # Of each product's highest power of x.
    powers = torch.arange(count, dtype=torch.float64, device="cpu").view(degree, WIDTH).flip(1)
    scale = half**powers
    return half * x, torch.linalg.inv(products.flatten(0, 1).T) / scale.flatten()[:, None]
