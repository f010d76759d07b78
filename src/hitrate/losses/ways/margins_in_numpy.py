"""log p and its gradient by margins, in numpy: `hitrate.probability.margins` for usual numbers.

On a CPU a batch of a few hundred rows takes numpy a fraction of the time that torch's calls cost.
Rows that are not finite, or far behind or ahead, take the batch the plain way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hitrate.probability.margins import FARTHEST
from hitrate.probability.methods.gridded import NEAR, on_grid, rule_for
from hitrate.probability.normal import SQRT_HALF, log_cdf_and_hazard_by_erfcx

Array = npt.NDArray[Any]
# log p (N,) in float64, and two factors of its gradient: one per class (N, C), and one per row or
# for all.
Found = tuple[Array, Tensor, Any]


def places(shape: torch.Size, classes: Array) -> Array:
    """The targets' places in the logits, as they lie in memory (N,)."""
    rows, width = shape
    found: Array = np.arange(0, rows * width, width) + classes
    return found


def by_moments(logits: Tensor, classes: Array, sigma: float, margin: float | None) -> Found | None:
    """Normal noise, any number of classes; None if a row is not finite, or far."""
    x, place = logits.numpy(), places(logits.shape, classes)
    # First the margins, then in their place the slope: fresh memory costs more than arithmetic.
    pull = torch.empty_like(logits)
    a = pull.numpy()
    flat = a.reshape(-1)
    np.subtract(x.reshape(-1)[place][:, None], x, out=a)
    free = None
    if margin is not None:
        free = a < margin
        # A class at -inf is no rival: the margin does not bring it closer.
        np.minimum(a, margin, out=a, where=a < np.inf)
    if sigma != 1:
        a /= sigma
    flat[place] = np.inf
    # Along rows torch is the quicker one.
    closest = pull.amin(1).numpy()
    lowest, highest = np.minimum.reduce(closest), np.maximum.reduce(closest)
    if not (lowest >= NEAR[0] and highest <= NEAR[1]):
        return None
    flat[place] = closest
    reach = np.maximum.reduce(pull.amax(1).numpy() - closest)
    rule = rule_for(lowest, highest, reach, logits.shape[1], logits.dtype)
    log_p, total = on_grid(np, rule, a, closest.astype(np.float64), a)
    if free is not None:
        a *= free
    flat[place] = 0.0
    flat[place] = -pull.sum(1).numpy()
    return log_p, pull, (-1.0 / sigma) / total


def by_two_classes(
    logits: Tensor, classes: Array, sigma: float, margin: float | None
) -> Found | None:
    """Normal noise, two classes, docs/math.md (6); None if a row is not finite."""
    place = places(logits.shape, classes)
    x = logits.numpy().reshape(-1)
    # The other of two neighbours.
    other = place ^ 1
    a = x[place] - x[other]
    if not (np.minimum.reduce(a) > -FARTHEST * sigma and np.maximum.reduce(a) < FARTHEST * sigma):
        return None
    free = None if margin is None else a < margin
    if margin is not None:
        a = np.minimum(a, margin)
    log_p, hazard = log_cdf_and_hazard_by_erfcx(np, a.astype(np.float64) * (SQRT_HALF / sigma))
    slope = hazard * SQRT_HALF if free is None else hazard * SQRT_HALF * free
    pull = torch.empty_like(logits)
    flat = pull.numpy().reshape(-1)
    flat[other], flat[place] = slope, -slope
    return log_p, pull, -1.0 / sigma
