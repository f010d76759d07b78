"""How a network is trained: one record, which a study's file or a program fills in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hitrate import schedules
from hitrate_lab.training.images.augmentation import AUGMENTATIONS

OPTIMIZERS = ("sgd", "adam", "adamw", "asam")
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Options:
    """How a network is trained.

    Parameters
    ----------
    recipe : str
        A name of `hitrate.recipes.RECIPES`, or of a loss.
    changes : mapping
        Arguments of the loss that differ, label smoothing among them.
    epochs, batch_size : int
        The batch is that of all processes together. A last one that is not full is left out, unless
        it is the only one.
    accumulate : int
        In so many parts the batch is computed, one after another.
    optimizer : {"sgd", "adam", "adamw", "asam"}
        "asam" has "sgd" inside.
    learning_rate : float
        The largest.
    rate : str or callable
        What the learning rate is multiplied by: a function of progress from 0 to 1, or the name of
        one in `RATES`.
    warmup : float
        In this part of the training the rate rises to what the curve says.
    momentum, weight_decay, rho : float
        Of "sgd" and "asam"; of all; of "asam".
    nesterov : bool
        Of "sgd" and "asam".
    decay_vectors : bool
        Whether weight decay acts on parameters of one dimension too: biases, scales.
    bias_rate : float
        What the learning rate of biases is multiplied by, and their weight decay divided.
    clip : float, optional
        Largest norm of the gradient.
    augment : mapping
        Names of `AUGMENTATIONS` and their numbers, such as ``{"crop": 4, "flip": 0.5}``.
    mixup, cutmix : float
        Of the Beta distribution that says how much of each row is kept; 0 is without. With both,
        steps take turns.
    average : float, optional
        Decay of a moving average of the weights, which is what is evaluated.
    precision : {"float32", "bfloat16", "float16"}
        Of autocast.
    channels_last, compile : bool
    save_every : int
        Steps between checkpoints, of which one is at the end; 0 is after every epoch.
    """

    recipe: str = "cross_entropy"
    changes: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 10
    batch_size: int = 128
    accumulate: int = 1
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    rate: str | Callable[[float], float] = "cosine"
    warmup: float = 0.0
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_vectors: bool = True
    rho: float = 0.5
    bias_rate: float = 1.0
    clip: float | None = None
    augment: Mapping[str, float] = field(default_factory=dict)
    mixup: float = 0.0
    cutmix: float = 0.0
    average: float | None = None
    precision: str = "float32"
    channels_last: bool = False
    compile: bool = False
    save_every: int = 0

    def __post_init__(self) -> None:
        self._check("optimizer", OPTIMIZERS)
        self._check("precision", PRECISIONS)
        if isinstance(self.rate, str):
            self._check("rate", tuple(RATES))
        for name in self.augment:
            if name not in AUGMENTATIONS:
                known = ", ".join(AUGMENTATIONS)
                raise ValueError(f"Options: augment={name!r} is not one of {known}")
        for name, least in (("epochs", 1), ("batch_size", 1), ("accumulate", 1), ("save_every", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"Options: {name} must be a whole number >= {least}, got {value!r}"
                )
        for name in ("learning_rate", "momentum", "weight_decay", "rho", "mixup", "cutmix"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"Options: {name} must be a number >= 0, got {value!r}")
        if not 0 < self.bias_rate < math.inf:
            raise ValueError(f"Options: bias_rate must be a number > 0, got {self.bias_rate!r}")
        for name in ("warmup", "average"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"Options: {name} must be in [0, 1), got {value!r}")

    def _check(self, name: str, known: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value not in known:
            words = ", ".join(map(repr, known))
            raise ValueError(f"Options: {name}={value!r} is not one of {words}")

    @property
    def mixes(self) -> bool:
        """Whether rows are mixed with others."""
        return self.mixup > 0 or self.cutmix > 0

    def rate_at(self, progress: float) -> float:
        """The learning rate."""
        curve = RATES[self.rate] if isinstance(self.rate, str) else self.rate
        rise = min(progress / self.warmup, 1.0) if self.warmup else 1.0
        return self.learning_rate * rise * curve(progress)

    def described(self) -> dict[str, Any]:
        """All of it as what JSON can hold; functions by what they call themselves.

        Equal options say the same in another process: a training goes on by it.
        """
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    # What a function's repr has of its place in memory is another one in the next process.
    return getattr(value, "__qualname__", None) or repr(value)


def triangle(progress: float) -> float:
    """Up to 1 in the first fifth, and down to zero."""
    return progress / 0.2 if progress < 0.2 else (1 - progress) / 0.8


RATES: dict[str, Callable[[float], float]] = {
    "constant": schedules.constant(1.0),
    "cosine": schedules.cosine(1.0, 0.0),
    "linear": schedules.linear(1.0, 0.0),
    "triangle": triangle,
    "steps": schedules.phases([1.0, 0.2, 0.04, 0.008], at=[0.3, 0.6, 0.8]),
}
