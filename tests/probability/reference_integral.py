"""Truth from outside: the integral of docs/math.md (3) by scipy's log_ndtr and a fine trapezoid.

Nothing here is shared with the library: the interval is found by scanning, three times, and the
1500 nodes cover all that exceeds exp(-60) of the peak.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Array = NDArray[np.float64]
LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)
SCAN = 100


def log_p_and_slope(a: Array, points: int = 1500) -> tuple[float, Array]:
    """log p and its slope in the scaled margins `a` (D,) of one row's rivals, normal noise."""

    def integrands(t: Array) -> tuple[Array, Array, Array, Array]:
        x = a[:, None] + t
        log_cdf = log_ndtr(x)
        height = log_cdf.sum(0)
        log_hazard = -0.5 * x * x - LOG_SQRT_2PI - log_cdf
        log_density = -0.5 * t * t - LOG_SQRT_2PI
        top = log_hazard.max(0)
        steepness = top + np.log(np.exp(log_hazard - top).sum(0))
        value = log_density + height
        with np.errstate(divide="ignore"):
            rest = log_density + np.log(-np.expm1(height))
        return value, rest, value + steepness, log_hazard

    def nodes(which: int, count: int) -> Array:
        low, high = min(0.0, -a.min() / 2) - 15.0, max(0.0, -a.min()) + 15.0
        for _ in range(3):
            t = np.linspace(low, high, SCAN)
            y = integrands(t)[which]
            (kept,) = np.nonzero(y > np.nanmax(y) - 60.0)
            low, high = t[max(kept[0] - 1, 0)], t[min(kept[-1] + 1, SCAN - 1)]
        return np.linspace(low, high, count)

    def log_sum(y: Array, t: Array) -> float:
        return float(y.max() + np.log(np.exp(y - y.max()).sum() * (t[1] - t[0])))

    t = nodes(0, points)
    log_p = log_sum(integrands(t)[0], t)
    if log_p > -1.0:
        t = nodes(1, points)
        log_p = float(np.log1p(-np.exp(log_sum(integrands(t)[1], t))))
    t = nodes(2, points)
    value, _, _, log_hazard = integrands(t)
    return log_p, np.exp(value - log_p + log_hazard).sum(1) * (t[1] - t[0])


def rows(classes: int, count: int, seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Logits exact in float32, of scales 0.1 to 30: by chance, far ahead and far behind."""
    rng = np.random.default_rng(seed + classes)
    logits = np.empty((count, classes))
    target = rng.integers(classes, size=count)
    for n, y in enumerate(target):
        scale = np.exp(rng.uniform(np.log(0.1), np.log(30.0)))
        logits[n] = rng.standard_normal(classes) * scale
        others = np.delete(logits[n], y)
        if n % 4 == 2:
            logits[n, y] = others.max() + rng.uniform(0.5, 12.0)
        if n % 4 == 3:
            logits[n, y] = others.max() - rng.uniform(0.0, 60.0)
    return logits.astype(np.float32).astype(np.float64), target


def truth(logits: Array, target: NDArray[np.int64], points: int = 1500) -> tuple[Array, Array]:
    """log p (N,) and its slope in the margins (N, C), zero in the target's column."""
    values, slopes = [], []
    for mu, y in zip(logits, target, strict=True):
        value, slope = log_p_and_slope(np.delete(mu[y] - mu, y), points)
        values.append(value)
        slopes.append(np.insert(slope, y, 0.0))
    return np.array(values), np.array(slopes)
