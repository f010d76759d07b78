"""Probabilities that can be believed, from the logits of any classifier: noise and lapses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hitrate.probability import class_probabilities, expected_accuracy
from hitrate.probability.arguments import logits_of, target_of

__all__ = ["Calibration", "calibrate"]

# More rows would not change the second digit.
ENOUGH = 5000
# Probit and softmax probabilities.
NOISES = ("normal", "gumbel")
# Softmax goes first, as it is cheap: the others' temperatures are near its own.
ORDER, NEAR = ("gumbel", "normal"), 0.8
LEAST_LAPSE, MOST_LAPSE, LAPSES = 0.001, 0.9, 20
# Logs of the temperatures that are tried first, and the precision that is enough.
ROUGH, FINE = range(-6, 6), 0.04


@dataclass(frozen=True)
class Calibration:
    r"""How likely each class is, given its logit.

    .. math::

        P(c) = (1 - \varepsilon) \, P(\mu_c + \tau \xi_c \text{ is the highest}) + \varepsilon / C

    A classifier trained for accuracy lets rows be wrong by any distance. Without lapses
    :math:`\varepsilon` a few of these would make the temperature :math:`\tau` so large that no
    probability means anything.

    Parameters
    ----------
    noise : {"normal", "gumbel"}
        Of :math:`\xi`, for probit or softmax probabilities.
    temperature : float
    lapse : float
    """

    noise: str
    temperature: float
    lapse: float

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of all classes, in the place of logits (N, C), or (N, C, d1, ...).

        Parameters
        ----------
        logits : Tensor

        Returns
        -------
        Tensor
            Shaped like the logits, whose order within a row stays.
        """
        rows = logits.movedim(1, -1)
        found = class_probabilities(
            rows.reshape(-1, logits.shape[1]), self.temperature, noise=self.noise
        )
        if self.lapse > 0:
            # The sum's last digits are rounding: classes that differ in them alone are level, so
            # that logarithms have the same order.
            step = 4 * torch.finfo(found.dtype).eps
            found = found + ((found / step).round() * step - found).detach()
        mixed = (1 - self.lapse) * found + self.lapse / logits.shape[1]
        return mixed.reshape(rows.shape).movedim(-1, 1)


def calibrate(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    noise: str | None = None,
    generator: torch.Generator | None = None,
) -> Calibration:
    """The calibration under which held-out targets are most likely.

    Lapses are at least one in (rows + 2), so that a classifier without held-out errors does not
    claim to be infallible.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
        Of rows that the classifier was not trained with.
    target : Tensor, shape (N,)
        Class indices.
    weight : Tensor, shape (N,), optional
        Of rows.
    noise : {"normal", "gumbel"}, optional
        By default the one under which targets are more likely.
    generator : Generator, optional
        Draws the rows that are used where there are more than 5000; by default the same ones in
        every call.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> import torch, hitrate
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = 3 * torch.randn(2000, 4, generator=generator)
    >>> target = torch.distributions.Gumbel(0.0, 1.0).sample(logits.shape).add(logits).argmax(1)
    >>> found = hitrate.calibrate(10 * logits, target, noise="gumbel")
    >>> 8 < found.temperature < 12
    True
    >>> found.probabilities(10 * logits).shape
    torch.Size([2000, 4])
    """
    call = f"calibrate(noise={noise!r})"
    scores = logits_of(logits.detach(), call)
    target = target_of(target, scores, call)
    if noise is not None and noise not in NOISES:
        raise ValueError(f"{call}: not one of {', '.join(map(repr, NOISES))}")
    if not len(scores):
        raise ValueError(f"{call}: there are no rows to go by")
    share = torch.ones(len(scores)) if weight is None else weight.detach()
    if share.shape != target.shape:
        raise ValueError(f"{call}: weight must have shape {tuple(target.shape)}, one per row")
    scores, target, share = scores.cpu(), target.cpu(), share.cpu().double()
    if len(scores) > ENOUGH:
        generator = generator or torch.Generator().manual_seed(0)
        some = torch.randperm(len(scores), generator=generator)[:ENOUGH]
        scores, target, share = scores[some], target[some], share[some]
    share = share / share.sum()
    lapses = torch.logspace(math.log10(LEAST_LAPSE), math.log10(MOST_LAPSE), LAPSES)
    lapses = torch.cat([torch.zeros(1), lapses]).double().clamp(min=1 / (len(scores) + 2))[:, None]
    scale = _typical_distance(scores)
    if not scale > 0:
        return Calibration(noise or NOISES[0], 1.0, float(lapses[0]))
    relative = (scores / scale).float()

    def losses(log_temperature: float, noise: str) -> Tensor:
        """For every lapse."""
        p = expected_accuracy(relative, target, math.exp(log_temperature), noise=noise).double()
        return -((1 - lapses) * p + lapses / scores.shape[1]).log() @ share

    best, lowest = Calibration(NOISES[0], scale, float(lapses[0])), math.inf
    place: float | None = None
    for each in ORDER if noise is None else (noise,):

        def loss(log_temperature: float, each: str = each) -> float:
            return float(losses(log_temperature, each).min())

        start, reach = (place, NEAR) if place is not None else (float(min(ROUGH, key=loss)), 1.0)
        place, least = lowest_of(loss, start - reach, start + reach)
        if least < lowest:
            lapse = float(lapses[losses(place, each).argmin()])
            best, lowest = Calibration(each, scale * math.exp(place), lapse), least
    return best


def _typical_distance(scores: Tensor) -> float:
    """Of classes from the first one, where there is any; the mean would be that of outliers."""
    distances = (scores[:, 1:] - scores[:, :1]).abs()
    distances = distances[distances.isfinite()]
    if not len(distances):
        return 0.0
    return float(distances.median()) or float(distances.max())


def lowest_of(f: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Where a function with one valley is lowest, and how low: by golden sections."""
    ratio = 0.5 * (math.sqrt(5) - 1)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = f(left), f(right)
    while high - low > FINE:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = f(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = f(right)
    return (left, at_left) if at_left < at_right else (right, at_right)
