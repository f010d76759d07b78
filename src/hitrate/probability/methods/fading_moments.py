"""Many rivals as moments of what fades with their distance, docs/math.md (59).

Measured from the closest of them, at a_*, functions of a margin that fall to nothing are

    s (polynomial of degree below 4 D in x),  s = e^(-beta (a - a_*)),  x = 2 s - 1,

which has no end: the farther away a rival is, the less it takes part. The polynomials are those of
`moments`, sums of products of P and Q.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from hitrate.probability.methods.moments import WIDTH, interpolation

Array = npt.NDArray[Any]

# Powers of q, and the number of terms.
DEGREE = 6
TERMS = WIDTH * DEGREE
# Arrays of the rivals' size: s P, Q, the four parts of a function, and two beside.
ARRAYS = 2 * WIDTH + DEGREE + 2


class FadingMoments:
    """s P and Q at the rivals of N rows: an array (ARRAYS, N, C), written over."""

    def __init__(self, space: Array) -> None:
        self._p, self._q = space[:WIDTH], space[WIDTH : WIDTH + DEGREE]
        self._read = space[-WIDTH - 2 : -2].swapaxes(0, 1)  # (N, 4, C)
        self._x, self._v = space[-2:]

    def write(self, a: Array, first: Array, fading: float, left_out: Array) -> None:
        """All factors, from margins (N, C) and the closest ones (N,).

        Places of the flat array that are `left_out` are no rivals.
        """
        p, q, x, v = self._p, self._q, self._x, self._v
        s = p[3]
        np.subtract(first[:, None], a, out=s)
        s *= fading
        s.reshape(-1)[left_out] = -np.inf
        np.exp(s, out=s)
        np.multiply(s, 2.0, out=x)
        x -= 1.0
        np.multiply(x, x, out=v)
        np.multiply(s, x, out=p[2])
        np.multiply(s, v, out=p[1])
        np.multiply(p[2], v, out=p[0])
        q[0] = 1.0
        np.subtract(v, 1.0, out=q[1])
        q[1] *= v
        for power in range(2, DEGREE):
            np.multiply(q[power - 1], q[1], out=q[power])

    def moments(self, out: Array) -> None:
        """The sum of each product over a row's rivals: (N, TERMS)."""
        q, p = self._q.swapaxes(0, 1), self._p.transpose(1, 2, 0)
        np.matmul(q, p, out=out.reshape(len(out), DEGREE, WIDTH))

    def read(self, coefficients: Array, out: Array) -> None:
        """The function with coefficients (N, TERMS) at each rival, (N, C)."""
        parts = coefficients.reshape(-1, DEGREE, WIDTH).swapaxes(1, 2)
        np.matmul(parts, self._q.swapaxes(0, 1), out=self._read)
        self._read *= self._p.swapaxes(0, 1)
        np.add.reduce(self._read, 1, out=out)


@functools.cache
def fading_interpolation() -> tuple[Array, Array]:
    """s (TERMS,) at Chebyshev's points, and the map from values there to coefficients."""
    x, to_coefficients = (tensor.numpy() for tensor in interpolation(DEGREE, 1.0))
    s = 0.5 * (x + 1.0)
    return s, to_coefficients / s
