"""What launchers share: the rule of a loss, where its numbers come from, and what is found."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from triton.runtime import driver

from hitrate.kernels.parts import epilogue
from hitrate.kernels.parts.link_code import log_p_itself

REDUCTIONS = {"none": int(epilogue.NONE), "sum": int(epilogue.SUM), "mean": int(epilogue.MEAN)}
# Up to this many programs leave their sums to the last of them; those of more torch adds up.
FINISHED_UP_TO = int(epilogue.FINISHED)
ADDED_LATER = int(epilogue.LATER)


class Rule(NamedTuple):
    """What a loss makes of log p: a compiled link, its numbers, and cross entropy's options."""

    noise: str
    link: Any = log_p_itself
    a: float | Tensor = 0.0
    b: float | Tensor = 0.0
    reduction: str = "none"
    ignore_index: int = -(2**31)
    margin: float | Tensor | None = None
    smoothing: float | Tensor = 0.0
    # Whether sigma and margin are in units of the logits' spread, which each call finds anew.
    is_standardized: bool = False


class Now(NamedTuple):
    """A loss's numbers in one call: sigma, margin, the link's two and smoothing."""

    at: tuple[Tensor, ...]  # Where they are in memory; anything for those that are not.
    values: tuple[float, ...]  # As given; anything for those that kernels read from memory.


class Numbers:
    """A loss's numbers, as kernels take them: given, or read where they are in memory.

    Those that move on the device are read there by the kernels; elsewhere a tensor is just a
    number, which is read at every call.

    Attributes
    ----------
    moving : int
        A bit for each of the last four that is read from memory.
    sigmas : int
        Whether sigma is given, one in memory, or one per row.
    """

    def __init__(self, sigma: float | Tensor, rule: Rule, device: torch.device) -> None:
        margin = 0.0 if rule.margin is None else rule.margin
        numbers = (sigma, margin, rule.a, rule.b, rule.smoothing)
        is_read = [isinstance(sigma, Tensor) and sigma.device == device]
        is_read += [is_in_memory(number) for number in numbers[1:]]
        if rule.is_standardized:
            # The caller says where at every call.
            is_read[:2] = True, rule.margin is not None
        of_rows = isinstance(sigma, Tensor) and sigma.numel() > 1
        self.sigmas = (2 if of_rows else 1) if is_read[0] else 0
        self.moving = sum(1 << k for k, read in enumerate(is_read[1:]) if read)
        at = tuple(
            number.to(device) if read and isinstance(number, Tensor) else nothing(device)
            for number, read in zip(numbers, is_read, strict=True)
        )
        self.types = tuple(tensor.dtype for tensor in at)
        given = [0.0 if read else number for number, read in zip(numbers, is_read, strict=True)]
        self._is_fixed = not any(isinstance(number, Tensor) for number in given)
        self._at, self._given = at, given
        self._now = self._read()

    def now(self) -> Now:
        """As they are now."""
        return self._now if self._is_fixed else self._read()

    def _read(self) -> Now:
        return Now(self._at, tuple(map(float, self._given)))


class Found(NamedTuple):
    """What a loss's gradient is made from."""

    gradient: Tensor  # (N, C) in the logits' dtype, or a few numbers per row to expand; or none
    work: Tensor  # The mean's factor; then slopes in sigma, if it is learned.
    now: Now


class Call(Protocol):
    """A loss for logits of one kind: all that is the same at every call, found out once.

    Logits and targets are contiguous, and of the same shape, types, device and alignment as those
    that it was made for.
    """

    # Whether the gradient is made with the value, but for what comes from above.
    is_at_once: bool
    numbers: Numbers

    def value(self, logits: Tensor, target: Tensor, now: Now) -> tuple[Tensor, Found]:
        """The loss, () or (N,), in float32; its numbers are of the same kinds as they were."""

    def gradient(
        self,
        logits: Tensor,
        target: Tensor,
        found: Found,
        upstream: Tensor,
        into: Tensor | None = None,
    ) -> Tensor:
        """In logits, for an upstream () or (N,); may overwrite what was found."""


@functools.lru_cache(maxsize=8)
def nothing(device: torch.device) -> Tensor:
    """In the place of a tensor that is not read."""
    return torch.zeros(1, device=device)


def is_in_memory(number: object) -> bool:
    """Whether kernels read a number themselves."""
    return isinstance(number, Tensor) and not number.is_cpu


def stream_of(device: torch.device) -> int:
    """The current stream, as a number."""
    if device.type != "cuda":
        return 0
    stream: int = driver.active.get_current_stream(device.index)
    return stream


def on_device(tensor: Tensor) -> AbstractContextManager[None]:
    """A block in which the tensor's device is the current one, where kernels start."""
    device = tensor.device
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


def empty_loss(reduction: int, rows: int, programs: int, device: torch.device) -> Tensor:
    """Room for what programs find."""
    if reduction == ADDED_LATER:
        return torch.empty((2, programs), dtype=torch.float32, device=device)
    return torch.empty(() if reduction else rows, dtype=torch.float32, device=device)


def added_up(sums: Tensor, work: Tensor, *, mean: bool) -> Tensor:
    """The loss from the sums (2, programs) of values and of parts; sets the mean's factor."""
    whole, parts = sums.sum(1).unbind()
    if not mean:
        work[0] = 1.0
        return whole
    work[0] = torch.where(parts == 0, 0.0, 1 / parts)
    return torch.where(parts == 0, torch.nan, whole / parts)
