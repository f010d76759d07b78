"""What `headroom` was given, checked; complaints show the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

CALL = "headroom"


@dataclass(frozen=True)
class Given:
    """Arguments in the form that the refit works with."""

    features: Any
    target: Tensor
    classes: int
    # (C, F + 1) in float64, the bias last.
    head: Tensor | None
    test: tuple[Any, Tensor] | None
    device: torch.device


def checked(
    features: Any,
    target: Any,
    head: nn.Linear | tuple[Any, Any] | None,
    test: tuple[Any, Any] | None,
    level: float,
    rows: int,
    device: str | torch.device | None,
    seed: int,
) -> Given:
    """All of it, with some of the rows where there are too many."""
    if not 0 < level < 1:
        raise ValueError(f"{CALL}(level={level!r}): must be between 0 and 1")
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 10:
        raise ValueError(f"{CALL}(rows={rows!r}): must be a whole number of 10 or more")
    features, target = _rows_and_classes(features, target, "features", "target")
    if len(target) < 10:
        raise ValueError(f"{CALL}: needs 10 rows or more, got {len(target)}")
    width = features.shape[1]
    if device is None:
        device = features.device if isinstance(features, Tensor) else "cpu"
    joined = None if head is None else _joined(head, width)
    classes = int(target.max()) + 1 if joined is None else len(joined)
    if len(target.unique()) < 2:
        raise ValueError(f"{CALL}: target has one class only, {int(target[0])}")
    _in_range(target, classes, "target")
    tested = None
    if test is not None:
        if not isinstance(test, tuple | list) or len(test) != 2:
            raise ValueError(f"{CALL}: test must be (features, target), got {_kind(test)}")
        more, labels = _rows_and_classes(*test, "test features", "test target")
        if more.shape[1] != width:
            raise ValueError(
                f"{CALL}: test features have {more.shape[1]} columns, features {width}"
            )
        if len(labels) < 2:
            raise ValueError(f"{CALL}: needs 2 test rows or more, got {len(labels)}")
        _in_range(labels, classes, "test target")
        tested = more, labels
    if len(target) > rows:
        some = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))[:rows]
        some = some.sort().values
        features, target = _taken(features, some), target[some]
    return Given(features, target, classes, joined, tested, torch.device(device))


def _taken(features: Any, places: Tensor) -> Any:
    if isinstance(features, Tensor):
        return features[places.to(features.device)]
    return features[places.numpy()]


def _rows_and_classes(features: Any, target: Any, name: str, of: str) -> tuple[Any, Tensor]:
    """Features (N, F), as they are, and class indices (N,) on the CPU."""
    if not hasattr(features, "shape"):
        features = torch.as_tensor(features)
    if isinstance(features, Tensor):
        features = features.detach()
    if len(features.shape) != 2 or not features.shape[1]:
        raise ValueError(
            f"{CALL}: {name} must have shape (N, F), one row of the last layer's input for each "
            f"example; got {tuple(features.shape)}"
        )
    target = torch.as_tensor(target).detach().cpu()
    if target.is_floating_point() or target.dtype in (torch.bool, torch.complex64):
        raise ValueError(f"{CALL}: {of} must be class indices, got {target.dtype}")
    if target.shape != features.shape[:1]:
        raise ValueError(
            f"{CALL}: {of} must have shape ({features.shape[0]},), one class for each row of "
            f"{name}; got {tuple(target.shape)}"
        )
    return features, target.long()


def _in_range(target: Tensor, classes: int, of: str) -> None:
    wrong = ((target < 0) | (target >= classes)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"{CALL}: {of}[{row}] = {int(target[row])}, which is none of the {classes} classes"
        )


def _joined(head: nn.Linear | tuple[Any, Any], width: int) -> Tensor:
    """A head (C, F + 1)."""
    if isinstance(head, nn.Linear):
        head = head.weight, head.bias
    if not isinstance(head, tuple | list) or len(head) != 2:
        raise ValueError(
            f"{CALL}: head must be a torch.nn.Linear or (weight, bias), got {_kind(head)}"
        )
    weight = torch.as_tensor(head[0]).detach().double().cpu()
    bias = head[1]
    if weight.dim() != 2 or weight.shape[1] != width or len(weight) < 2:
        raise ValueError(
            f"{CALL}: the head's weight must have shape (C, {width}) with 2 classes or more, as "
            f"features have {width} columns; got {tuple(weight.shape)}"
        )
    bias = torch.zeros(len(weight)) if bias is None else torch.as_tensor(bias).detach().cpu()
    if bias.shape != weight.shape[:1]:
        raise ValueError(
            f"{CALL}: the head's bias must have shape ({len(weight)},), got {tuple(bias.shape)}"
        )
    joined = torch.cat([weight, bias.double()[:, None]], 1)
    if not joined.isfinite().all():
        raise ValueError(f"{CALL}: the head has weights that are not finite")
    return joined


def _kind(value: object) -> str:
    return type(value).__name__
