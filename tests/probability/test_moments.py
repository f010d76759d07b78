"""Moments of rivals stand for sums over them: against sums of scipy's functions."""

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr

from hitrate.probability.methods.moments import BESIDE, WIDTH, Factors, interpolation

ARRAYS = {"numpy": (np, np.empty, np.array), "torch": (torch, torch.empty, torch.tensor)}
# Powers of q, half of an interval: some, and so many that q is centred.
SIZES = [(6, 2.0), (9, 4.0), (12, 5.0)]


def made(xp, empty, degree, half, end=None):
    """Factors of 3 rows of 50 rivals, of which some lie at both ends."""
    kind = torch.float64 if xp is torch else np.float64
    x = np.random.default_rng(degree).uniform(-half, half, (3, 50))
    x[0, :2] = -half, half
    factors = Factors(empty((degree + BESIDE, 3, 50), dtype=kind))
    factors.x[...] = x if xp is np else torch.tensor(x)
    factors.write(xp, half, end)
    return x, factors, empty((3, degree, WIDTH), dtype=kind)


@pytest.mark.parametrize(("degree", "half"), SIZES)
@pytest.mark.parametrize("name", ARRAYS)
def test_a_smooth_function_is_summed_over_rivals_and_read_at_each(name, degree, half):
    xp, empty, array = ARRAYS[name]
    x, factors, moments = made(xp, empty, degree, half)
    points, to_coefficients = interpolation(degree, half)
    coefficients = to_coefficients.numpy() @ log_ndtr(points.numpy() + 1.0)
    factors.moments(xp, moments)
    found = np.asarray(moments).reshape(3, -1) @ coefficients
    assert found == pytest.approx(log_ndtr(x + 1.0).sum(1), rel=1e-6)
    by_p = np.tile(coefficients.reshape(degree, WIDTH).T, (3, 1, 1))
    read = np.asarray(factors.read(xp, array(by_p)))
    assert read == pytest.approx(log_ndtr(x + 1.0), abs=1e-6)


@pytest.mark.parametrize("name", ARRAYS)
def test_rivals_from_an_end_on_have_no_part(name):
    xp, empty, array = ARRAYS[name]
    x, factors, moments = made(xp, empty, 6, 2.0, array(1.0))
    factors.moments(xp, moments)
    q = x**2 * (x**2 - 4.0)
    powers = (x < 1.0) * np.stack([q**d for d in range(6)])
    for m, power in enumerate((x**3, x**2, x, x**0)):
        expected = (powers * power).sum(2).T
        assert np.asarray(moments)[:, :, m] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    read = np.asarray(factors.read(xp, array(np.ones((3, WIDTH, 6)))))
    assert (read[x >= 1.0] == 0).all() and (read[x < 1.0] != 0).all()
