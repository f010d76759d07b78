"""Probabilities of classes from scores: noise of a size, and lapses, by held-out likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special

from hitrate.probability import class_probabilities, expected_accuracy

Array = NDArray[Any]

# More rows would not change the second digit.
ENOUGH = 5000
# Probit and softmax probabilities.
NOISES = ("normal", "gumbel")
LAPSES = np.append(0.0, np.geomspace(0.001, 0.9, 20))


@dataclass(frozen=True)
class Calibration:
    r"""How likely each class is, given the scores.

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

    def probabilities(self, scores: Array) -> Array:
        """Of all classes (N, C), from scores (N, D) of all but the first, whose score is 0."""
        scores = np.asarray(scores, np.float64) / self.temperature
        if scores.shape[1] == 1:
            f, x = (
                (special.ndtr, scores * math.sqrt(0.5))
                if self.noise == "normal"
                else (special.expit, scores)
            )
            p = np.hstack([f(-x), f(x)])
        else:
            every = torch.from_numpy(np.pad(scores, ((0, 0), (1, 0))))
            p = class_probabilities(every, noise=self.noise).numpy()
        return np.asarray((1 - self.lapse) * p + self.lapse / p.shape[1])


def calibrate(
    scores: Array, target: Array, weight: Array, random: np.random.Generator
) -> Calibration:
    """The calibration under which held-out targets are most likely.

    Lapses are at least one in (rows + 2), so that a classifier without held-out errors does not
    claim to be infallible.

    Parameters
    ----------
    scores : array, shape (N, D)
        Of all classes but the first, by fits that had not seen these rows.
    target : array of int, shape (N,)
    weight : array, shape (N,)
    random : Generator
        Of the rows that are used, if there are many.
    """
    if len(scores) > ENOUGH:
        some = random.choice(len(scores), ENOUGH, replace=False)
        scores, target, weight = scores[some], target[some], weight[some]
    # A typical distance; the mean would be that of outliers.
    scale = float(np.median(np.abs(scores))) or float(np.abs(scores).max())
    lapses = np.maximum(LAPSES, 1 / (len(scores) + 2))[:, None]
    if not scale > 0:
        return Calibration(NOISES[0], 1.0, float(lapses[0, 0]))
    every = torch.from_numpy(np.pad(scores / scale, ((0, 0), (1, 0))).astype(np.float32))
    own = torch.from_numpy(target)
    share = np.asarray(weight / weight.sum(), np.float64)

    def losses(log_temperature: float, noise: str) -> Array:
        p = expected_accuracy(every, own, math.exp(log_temperature), noise=noise).numpy()
        return -np.asarray(np.log((1 - lapses) * p + lapses / every.shape[1]) @ share)

    best, lowest = Calibration(NOISES[0], scale, float(lapses[0, 0])), math.inf
    for noise in NOISES:

        def loss(log_temperature: float, noise: str = noise) -> float:
            return float(losses(log_temperature, noise).min())

        rough = min(np.arange(-6.0, 6.0), key=loss)
        found = optimize.minimize_scalar(
            loss, bounds=(rough - 1, rough + 1), method="bounded", options={"xatol": 0.02}
        )
        if found.fun < lowest:
            lapse = float(lapses[losses(found.x, noise).argmin(), 0])
            best, lowest = Calibration(noise, scale * math.exp(found.x), lapse), found.fun
    return best
