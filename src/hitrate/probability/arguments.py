"""What a call must look like; every complaint shows the call and the value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple, TypedDict, TypeGuard, TypeVar

import torch
from torch import Tensor

from hitrate.probability.execution import is_eager_cpu
from hitrate.probability.noises import NOISES, Noise

# Sigmas by which logits and gradients may be divided without an end of the numbers; in float64 by
# their squares too.
SIGMAS = {torch.float32: (5e-31, 2e30), torch.float64: (5e-151, 2e150)}
INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Core(NamedTuple):
    """Which p is meant, and how it is computed: the arguments of `log_expected_accuracy`."""

    margin: float | Tensor | None = None
    k: int = 1
    noise: str | Noise = "normal"
    method: str = "auto"
    backend: str = "auto"
    nodes: int | None = None
    samples: int = 16
    generator: torch.Generator | None = None


class CoreOptions(TypedDict, total=False):
    """The same as keywords."""

    margin: float | Tensor | None
    k: int
    noise: str | Noise
    method: str
    backend: str
    nodes: int | None
    samples: int
    generator: torch.Generator | None


Gathered = TypeVar("Gathered", bound=tuple[Any, ...])


def gathered(into: type[Gathered], options: Mapping[str, Any], call: object) -> Gathered:
    """Keywords as a NamedTuple; an unknown one is the caller's mistake."""
    unknown = [name for name in options if name not in into._fields]  # type: ignore[attr-defined]
    if unknown:
        raise TypeError(f"{call} got an unexpected keyword argument {unknown[0]!r}")
    return into(**options)


def noise_named(noise: str | Noise, call: object) -> Noise:
    """The noise of that name, or the noise itself."""
    if isinstance(noise, Noise):
        return noise
    if not isinstance(noise, str) or noise not in NOISES:
        names = ", ".join(map(repr, NOISES))
        raise ValueError(f"{call}: noise={noise!r} is not one of {names}, and no Noise")
    return NOISES[noise]


def scores_of(logits: Tensor, call: object) -> Tensor:
    """Logits of any shape as float32 or float64."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"{call}: logits must be a floating point tensor, got {kind}")
    return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()


def logits_of(logits: Tensor, call: object) -> Tensor:
    """Logits as float32 or float64, checked to be (N, C) with C > 1."""
    scores = scores_of(logits, call)
    if logits.dim() != 2:
        raise ValueError(f"{call}: logits must have shape (N, C), got {tuple(logits.shape)}")
    if logits.shape[1] < 2:
        raise ValueError(f"{call}: needs at least two classes, logits has {logits.shape[1]}")
    return scores


def target_of(target: Tensor, logits: Tensor, call: object) -> Tensor:
    """Class indices as int64, checked to be (N,) and, where that costs nothing, in range."""
    if not isinstance(target, Tensor) or target.dtype not in INDEX_DTYPES:
        kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"{call}: target must be a tensor of class indices, got {kind}")
    rows, classes = logits.shape
    if target.shape != (rows,):
        raise ValueError(
            f"{call}: target must have shape ({rows},) to match logits {tuple(logits.shape)}, "
            f"got {tuple(target.shape)}"
        )
    check_range(target, classes, call)
    return target.long()


def check_range(target: Tensor, classes: int, call: object) -> None:
    """Complain about the first class index out of range, where looking is free."""
    wrong = _first(target, lambda y: (y < 0) | (y >= classes))
    if wrong is not None:
        raise ValueError(f"{call}: target {int(wrong)} is out of range for {classes} classes")


def check_probabilities(target: Tensor, call: object) -> None:
    """Complain about the first probability below zero, where looking is free."""
    wrong = _first(target, lambda q: q < 0)
    if wrong is not None:
        raise ValueError(
            f"{call}: target probabilities must not be negative, got {wrong:g}; the logits come "
            "first, the target second"
        )


def sigma_of(sigma: float | Tensor, logits: Tensor, call: object) -> Tensor:
    """Sigma as (N, 1), one per row, or (N, C), one per class, checked to be positive."""
    rows, classes = logits.shape
    if not isinstance(sigma, Tensor):
        if not is_number(sigma) or not 0 < sigma < math.inf:
            raise ValueError(f"{call}: sigma must be a positive number, got {sigma!r}")
        least, most = SIGMAS[logits.dtype]
        if not least <= sigma <= most:
            raise ValueError(f"{call}: {logits.dtype} cannot hold sigma, got {sigma!r}")
        return logits.new_full((), float(sigma)).expand(rows, 1)
    if sigma.numel() == 1:
        # Like any number, it may come from anywhere.
        sigma = sigma.to(logits.device)
    if sigma.dim() < 2 and sigma.shape in ((), (1,), (rows,)):
        column = sigma.reshape(-1, 1).expand(rows, 1)
    elif sigma.dim() == 2 and sigma.shape[0] in (1, rows) and sigma.shape[1] in (1, classes):
        column = sigma.expand(rows, sigma.shape[1])
    else:
        raise ValueError(
            f"{call}: sigma must be a number or have shape (), (N,), (N, 1), or for one per class "
            f"(1, C) or (N, C), with logits {tuple(logits.shape)}; got {tuple(sigma.shape)}"
        )
    wrong = _first(sigma, lambda s: ~((s > 0) & (s < math.inf)))
    if wrong is not None:
        raise ValueError(f"{call}: sigma must be positive and finite, got {wrong}")
    if not is_eager_cpu(sigma) or torch._C._are_functorch_transforms_active():
        # Where looking is not free, what would be refused makes the result no number.
        column = torch.where((column > 0) & (column < math.inf), column, math.nan)
    least, most = SIGMAS[logits.dtype]
    wrong = _first(sigma, lambda s: (s < least) | (s > most))
    if wrong is not None:
        raise ValueError(f"{call}: {logits.dtype} cannot hold sigma, got {wrong!r}")
    return column.to(logits.dtype)


def margin_of(margin: float | Tensor | None, call: object) -> float | Tensor | None:
    """The margin as a number that is not negative, a tensor of one that moves, or None."""
    if margin is None:
        return None
    if isinstance(margin, Tensor):
        if not is_moving(margin):
            shape = tuple(margin.shape)
            raise ValueError(f"{call}: margin must be one number, without gradient, got {shape}")
        return margin.reshape(())
    if not is_number(margin) or not margin >= 0:
        raise ValueError(f"{call}: margin must be None or a number >= 0, got {margin!r}")
    return float(margin)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number, of Python or numpy, and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_moving(value: object) -> bool:
    """Whether it is a number that a schedule moves: a tensor of one, without gradient."""
    return isinstance(value, Tensor) and value.numel() == 1 and not value.requires_grad


def count_of(value: int, name: str, smallest: int, call: object) -> int:
    """A whole number of nodes or samples."""
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise ValueError(f"{call}: {name} must be a whole number >= {smallest}, got {value!r}")
    return value


def fits_float32(sigma: float) -> bool:
    """Whether float32 can hold sigma, and be divided by it."""
    least, most = SIGMAS[torch.float32]
    return least <= sigma <= most


def k_of(k: int, classes: int, call: object) -> int:
    """How many of the classes are hits: at least one, and not all."""
    count_of(k, "k", 1, call)
    if k > 1 and k >= classes:
        raise ValueError(
            f"{call}: k must be smaller than the number of classes, or every target is among the "
            f"k highest; got k={k} for {classes} classes"
        )
    return k


def _first(values: Tensor, is_wrong: Callable[[Tensor], Tensor]) -> float | None:
    """The first wrong value, where looking is free; elsewhere nothing is even computed."""
    if not is_eager_cpu(values):
        return None
    wrong = is_wrong(values)
    try:
        return float(values.detach()[wrong][0]) if bool(wrong.any()) else None
    except RuntimeError:
        # Inside vmap a value cannot be looked at.
        return None
