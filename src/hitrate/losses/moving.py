"""Numbers of a loss that may move during training: sigma, focus, q, margin, label smoothing.

A number is a plain float until something moves it: a schedule, or a tensor in its place. From then
on it is a buffer of the Module. It is saved and restored with it, and a compiled training step sees
it change without being compiled again. How far its schedule has come is saved beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn


class MovingNumbers(nn.Module):
    """A Module whose numbers may move; `numbers` names them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # Where schedules are, as Python's numbers: a buffer on a GPU would have to be waited for.
        self._steps: dict[str, int] = {}
        # Numbers that come from a saved state, which a new schedule must not set back.
        self._restored: set[str] = set()

    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that may move."""
        raise NotImplementedError

    def check_number(self, name: str, value: float) -> None:
        """Complain about a value that a number cannot have."""

    def steps_of(self, name: str) -> int:
        """How many steps a number has been moved."""
        return self._steps.get(name, 0)

    def is_restored(self, name: str) -> bool:
        """Whether a number comes from a saved state and has not moved since."""
        return name in self._restored

    def move(self, name: str, value: float, step: int | None = None) -> None:
        """Set a number, which is a buffer from now on; `step` is where its schedule is."""
        self.check_number(name, value)
        self._become(name, float(value))
        if step is not None:
            self._become(_step_of(name), step)
            self._steps[name] = step
        self._restored.discard(name)

    def forget(self, name: str) -> None:
        """Let go of a number that moved, and of its steps."""
        for key in (name, _step_of(name)):
            self._buffers.pop(key, None)
        self._steps.pop(name, None)
        self._restored.discard(name)

    def _become(self, name: str, value: float) -> None:
        """Make a number a buffer with this value."""
        current = self._buffers.get(name) if name in self._buffers else self._parameters.get(name)
        if isinstance(current, Tensor):
            with torch.no_grad():
                current.fill_(value)
            return
        self.__dict__.pop(name, None)
        dtype = torch.int64 if isinstance(value, int) else torch.float64
        # What register_buffer does, but for its complaint that there is such an attribute.
        self._buffers[name] = torch.tensor(value, dtype=dtype)

    def __setattr__(self, name: str, value: Any) -> None:
        there = self.__dict__.get("_buffers", {}).get(name)
        if isinstance(there, Tensor) and isinstance(value, Real):
            with torch.no_grad():
                there.fill_(float(value))
            return
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Numbers go where the Module goes, but keep their digits: a loss in half precision still
        # has the sigma that its schedule says.
        kept = {key: self._buffers[key] for key in self._moving()}
        for key, buffer in kept.items():
            assert buffer is not None
            self._buffers[key] = buffer.float() if buffer.is_floating_point() else buffer
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for key, buffer in kept.items():
            moved = self._buffers[key]
            assert buffer is not None and moved is not None
            exact = moved.device.type != "mps"
            self._buffers[key] = buffer.to(moved.device) if exact else moved
        return self

    def _moving(self) -> list[str]:
        """Names of the buffers that hold numbers and their steps."""
        names = (key for name in self.numbers() for key in (name, _step_of(name)))
        return [name for name in names if isinstance(self._buffers.get(name), Tensor)]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any, **options: Any
    ) -> None:
        # A state in which a number moved makes it one that moves here too.
        for name in self.numbers():
            for key, start in ((name, 0.0), (_step_of(name), 0)):
                if prefix + key in state_dict and self._buffers.get(key) is None:
                    self._become(key, start)
        super()._load_from_state_dict(state_dict, prefix, *rest, **options)
        for name in self.numbers():
            if prefix + name in state_dict:
                self._restored.add(name)
            step = self._buffers.get(_step_of(name))
            if isinstance(step, Tensor) and not step.is_meta:
                self._steps[name] = int(step)


def _step_of(name: str) -> str:
    return f"{name}_step"
