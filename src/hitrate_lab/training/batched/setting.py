"""What is trained, how, and what is kept of it: shared by both ways of training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ARCHITECTURES = ("linear", "one hidden layer")
OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Split:
    """Rows to learn from, to choose by, and to test on: features (N, I) and classes (N,)."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int

    @staticmethod
    def of(published: Any) -> Split:
        """In float32, from a `PublishedSet` with validation rows."""

        def rows(x: Any, y: Any) -> tuple[Tensor, Tensor]:
            return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.int64))

        return Split(
            rows(published.X_train, published.y_train),
            rows(published.X_validation, published.y_validation),
            rows(published.X_test, published.y_test),
            len(published.classes),
        )

    @property
    def inputs(self) -> int:
        """Number of features."""
        return self.train[0].shape[1]


@dataclass(frozen=True)
class Optimizer:
    """A rule of `torch.optim` by name.

    Parameters
    ----------
    name : {"sgd", "adam"}
    momentum : float
        Of SGD. Adam has torch's own defaults.
    weight_decay : float
        Added to gradients, of weights and biases.
    falls : bool
        Whether the learning rate of Adam falls from epoch to epoch, on a line that would end at 0
        behind the last one.
    """

    name: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    falls: bool = False

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise ValueError(f"{self}: name is not one of {', '.join(map(repr, OPTIMIZERS))}")
        if not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise ValueError(f"{self}: needs 0 <= momentum < 1 and weight_decay >= 0")
        if self.name == "adam" and self.momentum:
            raise ValueError(f"{self}: momentum is for sgd")
        if self.falls and self.name != "adam":
            raise ValueError(f"{self}: falls is for adam")

    def rate_at(self, epoch: int, epochs: int) -> float:
        """What learning rates are multiplied by in an epoch, of which the first is 0.

        >>> [Optimizer("adam", falls=True).rate_at(epoch, 4) for epoch in range(4)]
        [1.0, 0.75, 0.5, 0.25]
        """
        return 1 - epoch / epochs if self.falls else 1.0


@dataclass(frozen=True)
class Setting:
    """All that the copies have in common; a hidden layer is as wide as the input if not said."""

    architecture: str
    epochs: int = 50
    batch_size: int = 8
    optimizer: Optimizer = Optimizer()
    hidden: int | None = None

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(map(repr, ARCHITECTURES))
            raise ValueError(f"{self}: architecture is not one of {known}")
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError(f"{self}: epochs and batch_size must be at least 1")
        if self.hidden is not None and self.hidden < 1:
            raise ValueError(f"{self}: hidden must be at least 1")

    def layers(self, split: Split) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        if self.architecture == "linear":
            return [(split.inputs, split.classes)]
        hidden = split.inputs if self.hidden is None else self.hidden
        return [(split.inputs, hidden), (hidden, split.classes)]


@dataclass(frozen=True)
class History:
    """Rows that were right after each epoch.

    Parameters
    ----------
    validation, test : array of int64, shape (epochs, ...)
        Axes behind the first are those of the copies; none for one model.
    weights : list of Tensor
        After the last epoch: for each layer (..., outputs, inputs + 1), the bias last.
    """

    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    weights: list[Tensor]


def starting_weights(seed: int, layers: list[tuple[int, int]]) -> list[Tensor]:
    """Weights (outputs, inputs + 1), the bias last: uniform as those of `nn.Linear`.

    A seed has the same start under all losses and learning rates.
    """
    random = torch.Generator().manual_seed(seed)
    return [
        (2 * torch.rand(outputs, inputs + 1, generator=random) - 1) / math.sqrt(inputs)
        for inputs, outputs in layers
    ]


class Orders:
    """A seed's shuffled order of rows, epoch after epoch."""

    def __init__(self, seed: int, rows: int) -> None:
        # Apart from the weights' stream, so that a wider network sees the same batches.
        self._random = torch.Generator().manual_seed(2**32 + seed)
        self._rows = rows

    def next(self) -> Tensor:
        """Places (N,) of rows in the next epoch's order."""
        return torch.randperm(self._rows, generator=self._random)
