"""Error of log p and of its gradient against float64 truth, over nodes and over samples.

Truth is the quadrature in float64 with 400 nodes, checked against a plain trapezoidal rule in
numpy that shares nothing with the library: a fixed coarse grid finds where the integrands live,
a fine one sums them.

The error of the value is |log p - truth| / max(1, |truth|). The error of the gradient in the
logits is its largest entry's, relative to the largest entry of the row's true gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import log_ndtr, logsumexp
from torch import Tensor

import hitrate

NODES = (8, 12, 16, 24, 32, 48, 64, 96)
# Per unit of the margin; smaller ones than 8 are only reached by default.
GRIDDED_NODES = (8, 12, 16, 24)
SAMPLES = (4, 16, 64, 256, 1024)
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# Largest elementary work of a sampled method: N C^2 S for Genz, N C S for Monte Carlo.
SAMPLED_LIMIT = {"genz": 2e7, "monte_carlo": 2e7}
TRUTH_NODES = 400
# Beyond, quadrature and trapezoidal rule would not deserve the name of truth.
TRUTH_TOLERANCE = 1e-9
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Rows(NamedTuple):
    """Logits (N, C) in float32, target (N,), and true log p and gradient in float64."""

    logits: Tensor
    target: Tensor
    log_p: np.ndarray
    gradient: np.ndarray


def random_logits(classes: int) -> tuple[Tensor, Tensor]:
    """A hundred rows, float32, from a generator of their own.

    60 rows of scale 0.1 to 30 with a random target; 20 rows whose target is 2 to 62 behind the
    best rival, which takes log p below -1000; 20 rows whose target is 1 to 15 ahead, which takes
    1 - p to 1e-26. No target is further off: gradients must be within the range of float32.
    """
    generator = torch.Generator().manual_seed(classes)
    scale = torch.cat([torch.logspace(-1, math.log10(30), 60), torch.full((40,), 3.0)])
    logits = scale[:, None] * torch.randn(100, classes, generator=generator)
    target = torch.randint(classes, (100,), generator=generator)
    own = target[:, None]
    best = logits.scatter(1, own, -math.inf).amax(1)
    lead = (logits.gather(1, own)[:, 0] - best).clamp(-62.0, 15.0)
    lead[60:80] = -torch.linspace(2, 62, 20)
    lead[80:] = torch.linspace(1, 15, 20)
    return logits.scatter(1, own, (best + lead)[:, None]), target


def rows_by_lead(classes: int) -> dict[str, Rows]:
    """The rows that are far behind, between, and ahead, each set with its truth.

    Sets are measured in calls of their own, because one row far behind takes the whole batch out
    of float32.
    """
    logits, target = random_logits(classes)
    own = target[:, None]
    lead = logits.gather(1, own)[:, 0] - logits.scatter(1, own, -math.inf).amax(1)
    sets = {"behind": lead < -12, "between": (lead >= -12) & (lead <= 4), "ahead": lead > 4}
    return {
        name: Rows(logits[rows], target[rows], *_library(logits[rows], target[rows], truth=True))
        for name, rows in sets.items()
    }


def _library(
    logits: Tensor, target: Tensor, *, truth: bool = False, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Value (N,) and gradient (N, C) from the public function."""
    if truth:
        logits, options = logits.double(), {"method": "quadrature", "nodes": TRUTH_NODES}
    x = logits.detach().requires_grad_()
    log_p = hitrate.log_expected_accuracy(x, target, **options)
    (gradient,) = torch.autograd.grad(log_p.sum(), x)
    return log_p.detach().double().numpy(), gradient.double().numpy()


def trapezoid(logits: np.ndarray, target: int) -> tuple[float, np.ndarray]:
    """Log p and its gradient (C,) of one row in float64, by equally spaced sums."""
    margins = logits[target] - np.delete(logits, target)  # (D,)

    def integrands(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logs of the integrand of p (T,) and of those of dp/dm (T, D)."""
        x = margins + t[:, None]
        log_cdf = log_ndtr(x)
        log_value = log_cdf.sum(1) - 0.5 * t * t - LOG_SQRT_2PI
        return log_value, log_value[:, None] - log_cdf - 0.5 * x * x - LOG_SQRT_2PI

    coarse = np.linspace(-30.0, 80.0, 441)
    log_value, log_slopes = integrands(coarse)
    log_slope = logsumexp(log_slopes, axis=1)
    # Where either integrand is above exp(-45) of its peak, and one coarse step more.
    inside = np.flatnonzero((log_value > log_value.max() - 45) | (log_slope > log_slope.max() - 45))
    fine, step = np.linspace(coarse[inside[0] - 1], coarse[inside[-1] + 1], 800, retstep=True)
    log_value, log_slopes = integrands(fine)
    log_p = float(logsumexp(log_value)) + math.log(step)
    slope = np.exp(logsumexp(log_slopes, axis=0) + math.log(step) - log_p)
    return log_p, np.insert(-slope, target, slope.sum())


def check_truth(rows: Rows) -> dict[str, float]:
    """Largest disagreement of the truth with the trapezoidal rule; raises where it is large."""
    pairs = [
        trapezoid(logits, int(target))
        for logits, target in zip(rows.logits.double().numpy(), rows.target, strict=True)
    ]
    log_p, gradient = (np.array(part) for part in zip(*pairs, strict=True))
    value, slope = row_errors(rows, log_p, gradient)
    found = {"value": float(value.max()), "gradient": float(slope.max())}
    if max(found.values()) > TRUTH_TOLERANCE:
        raise RuntimeError(f"truth and trapezoidal rule disagree: {found}")
    return found


def row_errors(
    rows: Rows, log_p: np.ndarray, gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of value and gradient, both (N,); infinite where a sampler had no hit."""
    value = np.abs(log_p - rows.log_p) / np.maximum(1.0, np.abs(rows.log_p))
    slope = np.abs(gradient - rows.gradient).max(1) / np.abs(rows.gradient).max(1)
    return value, slope


def settings(classes: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Everything that is measured for a number of classes: method, dtype, nodes or samples."""
    for method, counts in (("quadrature", NODES), ("gridded", GRIDDED_NODES)):
        for dtype in DTYPES:
            for nodes in (None, *(counts[::3] if quick else counts)):
                yield {"method": method, "dtype": dtype, "nodes": nodes}
    for method, limit in SAMPLED_LIMIT.items():
        for samples in SAMPLES[:2] if quick else SAMPLES:
            work = 100 * samples * classes ** (2 if method == "genz" else 1)
            setting = {"method": method, "dtype": "float32", "samples": samples}
            yield setting | ({"not_run": f"work {work:.1e}"} if work > limit else {})


def measure_errors(classes: int, *, quick: bool = False) -> dict[str, Any]:
    """Errors of all settings for a number of classes, with the check of the truth.

    Parameters
    ----------
    classes : int
        Number C of classes.
    quick : bool
        Fewer nodes and samples.

    Returns
    -------
    dict
        ``classes``, ``rows`` (how many in each set), ``log_p`` (smallest and largest), ``check``
        and ``errors``: a list of settings with ``value`` and ``gradient``, each with the
        ``max`` and ``median`` over all rows and the ``max`` of each set. None stands for infinite.
    """
    sets = rows_by_lead(classes)
    checks = [check_truth(rows) for rows in sets.values()]
    log_p = np.concatenate([rows.log_p for rows in sets.values()])
    return {
        "classes": classes,
        "rows": {name: len(rows.target) for name, rows in sets.items()},
        "log_p": [float(log_p.min()), float(log_p.max())],
        "check": {name: max(check[name] for check in checks) for name in ("value", "gradient")},
        "errors": [_measure(sets, setting) for setting in settings(classes, quick=quick)],
    }


def _measure(sets: dict[str, Rows], setting: dict[str, Any]) -> dict[str, Any]:
    if "not_run" in setting:
        return setting
    torch.manual_seed(0)
    options = {name: value for name, value in setting.items() if name != "dtype"}
    errors = {
        name: row_errors(
            rows, *_library(rows.logits.to(DTYPES[setting["dtype"]]), rows.target, **options)
        )
        for name, rows in sets.items()
    }
    result = dict(setting)
    for k, name in enumerate(("value", "gradient")):
        together = np.concatenate([pair[k] for pair in errors.values()])
        result[name] = {
            "max": _finite(together.max()),
            "median": _finite(np.median(together)),
            **{each: _finite(pair[k].max()) for each, pair in errors.items()},
        }
    return result


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return float(number) if math.isfinite(number) else None
