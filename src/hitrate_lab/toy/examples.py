"""The two problems, and linear models of one feature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

# Ends of intervals are known to this.
RESOLVED = 1e-6


@dataclass(frozen=True)
class Example:
    """Points with labels -1 or 1, and what the paper reports: loss -> (threshold, accuracy)."""

    points: tuple[float, ...]
    labels: tuple[int, ...]
    learn_weight: bool
    paper: dict[str, tuple[str, float]]

    @property
    def x(self) -> Tensor:
        """The points, (N,)."""
        return torch.tensor(self.points, dtype=torch.float64)

    @property
    def target(self) -> Tensor:
        """Class indices (N,): 1 for the label 1, 0 for -1."""
        return (torch.tensor(self.labels) > 0).long()


FIRST = Example(
    (-0.25, 0.0, 0.25),
    (-1, -1, 1),
    learn_weight=False,
    paper={
        "cross entropy": ("0.7", 2 / 3),
        "hinge": ("[0.75, 1]", 2 / 3),
        "EXACT": ("0.125", 1.0),
    },
)
SECOND = Example(
    (-6.0, -5.0, -4.0, 0.0, 2.0),
    (-1, 1, 1, -1, 1),
    learn_weight=True,
    paper={"cross entropy": ("-7.75", 0.6), "hinge": ("-11", 0.6), "EXACT": ("-5.35", 0.8)},
)


@dataclass(frozen=True)
class Model:
    """f(x) = weight * x + bias; predicts 1 where f(x) >= 0 and -1 elsewhere."""

    weight: float
    bias: float

    @property
    def threshold(self) -> float:
        """Where f changes sign; infinite for a constant f (-inf: 1 everywhere)."""
        if not self.weight:
            return math.copysign(math.inf, -self.bias)
        return -self.bias / self.weight + 0.0  # never -0

    def accuracy(self, points: Sequence[float], labels: Sequence[int]) -> float:
        """Share of the points that get their label."""
        scores = self.weight * np.asarray(points) + self.bias
        return float(np.mean(np.where(scores >= 0, 1, -1) == np.asarray(labels)))


@dataclass(frozen=True)
class Fit:
    """What a loss settles on: a model, or the two ends of an interval of equally good ones.

    At an infimum that is only approached, `grows` says that the weight goes to infinity; a bias
    that does is infinite.
    """

    models: tuple[Model, ...]
    grows: bool = False

    @property
    def thresholds(self) -> tuple[float, float]:
        """Lowest and highest threshold."""
        values = [model.threshold for model in self.models]
        return min(values), max(values)

    def accuracies(self, example: Example) -> tuple[float, float]:
        """Lowest and highest accuracy; of an interval, between its ends."""
        models = self.models
        if len(models) > 1:
            low, high = self.thresholds
            weight = models[0].weight
            # Accuracy only changes at points, so one threshold between each two tells all.
            inside = (x for x in example.points if low + RESOLVED < x < high - RESOLVED)
            cuts = [low, *inside, high]
            middles = [(a + b) / 2 for a, b in pairwise(cuts)]
            models = tuple(Model(weight, -weight * t) for t in cuts[1:-1] + middles)
        found = [model.accuracy(example.points, example.labels) for model in models]
        return min(found), max(found)

    def is_perfect(self, example: Example) -> bool:
        """Whether all points get their label."""
        return self.accuracies(example)[0] == 1

    @property
    def weight_text(self) -> str:
        """The weight, or that it grows for ever."""
        return "→ ∞" if self.grows else f"{self.models[0].weight:.3f}"

    @property
    def text(self) -> str:
        """Threshold, interval of thresholds, or the verdict of a constant model."""
        if not self.models[0].weight:
            bias = self.models[0].bias
            return f"none (always {bias:+.0f})" if bias else "none (f = 0)"
        low, high = self.thresholds
        if math.isinf(low):
            return "→ ∞" if low > 0 else "→ -∞"
        if len(self.models) == 1:
            return f"{low:.3f}"
        ends = ", ".join(f"{round(end, 6) + 0.0:.3g}" for end in (low, high))
        return f"({ends})" if self.grows else f"[{ends}]"
