"""The three studies: every loss on every problem, as rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import hitrate
from hitrate_lab.toy.descent import anneal, descend
from hitrate_lab.toy.examples import FIRST, SECOND, Example, Fit, Model
from hitrate_lab.toy.losses import CASES, Case
from hitrate_lab.toy.minima import LARGEST_WEIGHT, Valleys, between, lowest, valleys, weights_up_to

# Bounds on the temperature in study 3.
LARGEST_TEMPERATURES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
# First (k, b) of its descents.
STARTS = ((1, 0), (1, 1), (1, -1), (0.1, 0), (5, 0.5), (1, 3), (3, -0.5), (-1, 0))
# Without a temperature, first b only.
THRESHOLD_STARTS = (0.0, 0.5, 1.0, 3.0, -0.5, -1.0)
SIGMAS = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
# That of hinge loss, and the distance between two points of the first example.
MARGINS = (1.0, 0.25)


@dataclass(frozen=True)
class Row:
    """A loss on an example: where it is least, and where it leads with falling sigma."""

    example: Example
    loss: str
    lowest: Fit
    annealed: Fit


@dataclass(frozen=True)
class SigmaRow:
    """EXACT on the first example with a fixed sigma and no temperature."""

    sigma: float
    lowest: Fit
    perfect_starts: int
    with_margin: dict[float, Fit]


@dataclass(frozen=True)
class TemperatureRow:
    """A loss on the first example with a temperature, f = k (x - b)."""

    loss: str
    valleys: Valleys  # for all k, where the loss is least over b
    bounded: dict[float, Fit]  # K -> where it is least over b and k <= K
    perfect_from: float  # the k above which the minimising b is perfect
    descent: Model  # after descent from the first start
    perfect_step: int | None  # from which on that descent is perfect
    perfect_starts: int


@dataclass(frozen=True)
class Results:
    """All studies."""

    first: list[Row]
    sigmas: list[SigmaRow]
    second: list[Row]
    temperatures: list[TemperatureRow]


def run() -> Results:
    """Everything, in half a minute."""
    cases = CASES.values()
    return Results(
        [Row(FIRST, case.name, lowest_at_weight_one(case), anneal(case, FIRST)) for case in cases],
        sigma_rows(),
        [Row(SECOND, case.name, lowest_of_all(case), anneal(case, SECOND)) for case in cases],
        [temperature_row(case) for case in cases],
    )


def lowest_at_weight_one(case: Case) -> Fit:
    """Minimisers of f = x - b on the first example."""
    return valleys(case, FIRST, torch.ones(1, dtype=torch.float64)).fit(0)


def lowest_of_all(case: Case) -> Fit:
    """Minimisers of f = w x + c on the second example."""
    weights = weights_up_to(LARGEST_WEIGHT, both_signs=True)
    fit = lowest(case, SECOND, valleys(case, SECOND, weights, ends=False))
    weight = fit.models[0].weight
    if abs(weight) < LARGEST_WEIGHT:
        return fit
    # In the limit only the order of points and threshold counts.
    threshold = fit.models[0].threshold
    below = max(x for x in SECOND.points if x < threshold)
    above = min(x for x in SECOND.points if x > threshold)
    return Fit(tuple(Model(weight, -weight * end) for end in (below, above)), grows=True)


def minimiser_of_exact(sigma: float) -> float:
    r"""The b that minimises EXACT on the first example: the only zero of the slope.

    With normal densities :math:`e^{-u^2 / 4 \sigma^2}` at u = b + 1/4, b and 1/4 - b the slope is
    zero where :math:`2 \sinh(b / 8 \sigma^2) = e^{1 / 64 \sigma^2}`.
    """
    return 8 * sigma**2 * math.asinh(math.exp(1 / (64 * sigma**2)) / 2)


def sigma_rows() -> list[SigmaRow]:
    """EXACT without a temperature, for several sigma, and what a margin changes."""
    sigma = torch.tensor(SIGMAS, dtype=torch.float64).repeat_interleave(len(THRESHOLD_STARTS))
    start = torch.tensor(THRESHOLD_STARTS, dtype=torch.float64).repeat(len(SIGMAS))[:, None]
    exact = CASES["exact"]
    # Scores divided by sigma, with noise of size 1.
    path = descend(lambda b: exact.of_models(FIRST, 1 / sigma, -b[:, 0] / sigma), start)
    ends = path[-1, :, 0].view(len(SIGMAS), -1).tolist()
    rows = []
    for sigma_now, found in zip(SIGMAS, ends, strict=True):
        fit = Fit((Model(1.0, -minimiser_of_exact(sigma_now)),))
        perfect = [Fit((Model(1.0, -b),)).is_perfect(FIRST) for b in found]
        with_margin = {
            margin: lowest_at_weight_one(Case("", hitrate.ExactLoss(sigma_now, margin=margin)))
            for margin in MARGINS
        }
        rows.append(SigmaRow(sigma_now, fit, sum(perfect), with_margin))
    return rows


def temperature_row(case: Case) -> TemperatureRow:
    """Study 3 of one loss: global minima for bounded temperatures, and descents."""
    fine = weights_up_to(LARGEST_TEMPERATURES[-1], points=121)[1:]
    weights = torch.cat([fine[:-1], torch.tensor(LARGEST_TEMPERATURES, dtype=torch.float64)])
    found = valleys(case, FIRST, weights.sort().values)
    bounded = {k: lowest(case, FIRST, found.up_to(k)) for k in LARGEST_TEMPERATURES}
    path = descend(
        lambda theta: case.of_models(FIRST, theta[:, 0], -theta[:, 0] * theta[:, 1]),
        torch.tensor(STARTS, dtype=torch.float64),
    )
    perfect = are_perfect(path)  # (steps + 1, S)
    k, b = path[-1, 0].tolist()
    failures = (~perfect[:, 0]).nonzero()
    return TemperatureRow(
        case.name,
        found,
        bounded,
        perfect_from(case, found),
        Model(k, -k * b),
        int(failures.max()) + 1 if perfect[-1, 0] else None,
        int(perfect[-1].sum()),
    )


def are_perfect(theta: Tensor) -> Tensor:
    """Whether f = k (x - b) is right on all points of the first example; (..., 2) to (...)."""
    k, b = theta.unbind(-1)
    scores = k[..., None] * (FIRST.x - b[..., None])
    return ((scores >= 0) == (FIRST.target > 0)).all(-1)


def perfect_from(case: Case, found: Valleys) -> float:
    """The temperature above which the minimising thresholds are perfect; 0 if they always are."""
    for _ in range(5):
        perfect = [found.fit(i).is_perfect(FIRST) for i in range(len(found.weight))]
        if all(perfect):
            return 0.0
        last = max(i for i, is_perfect in enumerate(perfect) if not is_perfect)
        high = found.weight[last + 1]
        found = valleys(case, FIRST, between(found.weight[last], high), ends=case.is_flat)
    return float(high)
