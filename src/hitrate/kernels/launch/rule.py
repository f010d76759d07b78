"""What launchers share: the rule of a loss, what is found, and where its numbers come from."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime import driver

from hitrate.kernels import epilogue
from hitrate.kernels.link_code import log_p_itself

REDUCTIONS = {"none": int(epilogue.NONE), "sum": int(epilogue.SUM), "mean": int(epilogue.MEAN)}
# Up to this many programs leave their sums to the last of them; those of more torch adds up.
FINISHED_UP_TO = int(epilogue.FINISHED)
ADDED_LATER = int(epilogue.LATER)


class Numbers(NamedTuple):
    """Margin, the link's two numbers and smoothing: as numbers, or where they are in memory."""

    values: tuple[float, ...]
    at: tuple[Tensor | None, ...]
    # A bit for each one that is read from memory.
    moving: int

    def pointers(self, other: Tensor, count: int) -> tuple[Tensor, ...]:
        """Tensors to read the first ones from; any other for those that are just numbers."""
        if not self.moving:
            return (other,) * count
        return tuple(other if tensor is None else tensor for tensor in self.at[:count])


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

    def numbers(self, device: torch.device) -> Numbers:
        """Those that move on the device are read there; elsewhere a tensor is just a number."""
        margin = 0.0 if self.margin is None else self.margin
        four = (margin, self.a, self.b, self.smoothing)
        values: list[float] = []
        at: list[Tensor | None] = []
        moving = 0
        for k, number in enumerate(four):
            if isinstance(number, Tensor) and not number.is_cpu:
                values.append(0.0)
                at.append(number.to(device))
                moving |= 1 << k
            else:
                values.append(float(number))
                at.append(None)
        return Numbers(tuple(values), tuple(at), moving)


class Found(NamedTuple):
    """A loss, and what its gradient is made from."""

    loss: Tensor  # () or (N,), float32
    gradient: Tensor  # (N, C) in the logits' dtype, or a few numbers per row to expand; or none
    work: Tensor  # The mean's factor; then slopes in sigma, if it is learned.
    call: Any = None  # What kernels that make the gradient later know of the call.


def stream_of(device: torch.device) -> int:
    """The current stream, as a number."""
    if device.type != "cuda":
        return 0
    stream: int = driver.active.get_current_stream(device.index)
    return stream


def sigma_from(sigma: float | Tensor, logits: Tensor) -> tuple[Tensor, float, int]:
    """A tensor to read sigma from (any, for a number), the number, and which it is."""
    if not isinstance(sigma, Tensor):
        return logits, float(sigma), 0
    return sigma, 1.0, 1 if sigma.numel() == 1 else 2


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
