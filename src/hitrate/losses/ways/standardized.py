"""Standardised logits in the kernels' losses: their spread goes into sigma, docs/math.md (38)."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from hitrate.losses.normalization import EPSILON, Normalization, has_others, normalize_logits
from hitrate.losses.ways.reduction import Batch


class Standard(NamedTuple):
    """The statistics of a batch, and what the loss had before they went into it."""

    facts: Tensor
    sigma: float | Tensor
    ignore_index: int
    process_group: dist.ProcessGroup | None
    # With other processes, the sum of this one's distances from the mean of all.
    tilt: Tensor | None


def facts_of(
    logits: Tensor, target: Tensor, sigma: float | Tensor, rule: Any, normalization: Normalization
) -> Standard:
    """Statistics of the logits, on all processes together."""
    one, margin = (
        _number(number, logits)
        for number in (
            1.0 if _is_of_rows(sigma) else sigma,
            0.0 if rule.margin is None else rule.margin,
        )
    )
    facts: Tensor = _kernels().statistics(logits, target, rule.ignore_index, one, margin, EPSILON)
    group = normalization.process_group
    tilt = _share(facts, one, margin, group) if has_others(group) else None
    return Standard(facts, sigma, rule.ignore_index, group, tilt)


def in_units_of(standard: Standard, now: Any) -> Any:
    """The numbers of the same loss of logits as they are.

    Sigma and margin are as many times larger as the logits' spread.
    """
    launch, facts, sigma = _kernels(), standard.facts, standard.sigma
    scaled = facts[launch.SIGMA]
    if isinstance(sigma, Tensor) and _is_of_rows(sigma):
        scaled = sigma.float() * facts[launch.SPREAD]
    return now._replace(at=(scaled, facts[launch.MARGIN], *now.at[2:]))


def _is_of_rows(sigma: float | Tensor) -> bool:
    return isinstance(sigma, Tensor) and sigma.numel() > 1


def _number(number: float | Tensor, logits: Tensor) -> float | Tensor:
    """Read off the device, where kernels cannot."""
    is_elsewhere = isinstance(number, Tensor) and number.device != logits.device
    return float(number) if is_elsewhere else number


def pull_back(
    standard: Standard,
    gradient: Tensor,
    logits: Tensor,
    target: Tensor,
    scaling: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Add to a gradient, in place, what flows through the statistics.

    One that was made with its value is multiplied by what comes from above and the mean's factor.
    """
    launch, facts = _kernels(), standard.facts
    launch.pull(gradient, logits, facts, scaling)
    if standard.tilt is not None:
        _share_pull(facts, standard.tilt, standard.process_group)
    launch.correct(gradient, logits, target, standard.ignore_index, facts)


def by_torch(standard: Standard, batch: Batch) -> Batch:
    """The batch with standardised logits, which torch differentiates as often as asked."""
    found = normalize_logits(batch.logits, batch.ignored, standard.process_group)
    return replace(batch, logits=found)


def _share(
    facts: Tensor,
    sigma: float | Tensor,
    margin: float | Tensor,
    group: dist.ProcessGroup | None,
) -> Tensor:
    """Make the facts of one process those of all; return how far its own sum is off their mean.

    By the sums that `normalize_logits` takes: another process may go that way.
    """
    launch = _kernels()
    # Copies, which the new facts do not overwrite.
    count, mean, squares = facts[launch.COUNT : launch.SQUARES + 1].clone().unbind()
    total, whole = _sum(torch.stack([count * mean, count]), group).unbind()
    centre = total / whole.clamp(min=1.0)
    squares = _sum(squares + count * (mean - centre).square(), group)
    spread = torch.sqrt(squares / (whole - 1).clamp(min=1.0) + EPSILON)
    numbers = (whole, centre, squares, spread, spread * sigma, spread * margin)
    tilt = count * (mean - centre)
    facts[: len(numbers)] = torch.stack([torch.as_tensor(n).to(facts) for n in numbers])
    return tilt


def _share_pull(facts: Tensor, tilt: Tensor, group: dist.ProcessGroup | None) -> None:
    """Sum up how processes pull, by the sums that the gradient of `normalize_logits` takes."""
    launch = _kernels()
    count, spread = facts[launch.COUNT], facts[launch.SPREAD]
    # The loss's slope in the squares, in which its pull is so many times larger.
    times = -2.0 * spread.square() * (count - 1).clamp(min=1.0)
    slope = _sum(facts[launch.PULL] / times, group)
    # Through the mean all processes together have none.
    through_mean = -2.0 * slope * tilt / count.clamp(min=1.0)
    _sum(torch.stack([through_mean, torch.zeros_like(slope)]), group)
    facts[launch.PULL] = slope * times


def _sum(value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Over processes, in place."""
    dist.all_reduce(value, group=group)
    return value


@functools.cache
def _kernels() -> Any:
    """The launchers, imported when a loss first needs them."""
    from hitrate.kernels.launch import standardize as standardize_launch

    return standardize_launch
