"""Launchers of the kernel of all classes at once."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.kernels import all_classes
from hitrate.kernels.all_classes import all_classes_kernel
from hitrate.kernels.launch.rule import (
    REDUCTIONS,
    Found,
    Now,
    Numbers,
    Rule,
    empty_loss,
    nothing,
    on_device,
    stream_of,
)
from hitrate.kernels.launch.scaling import scaled
from hitrate.kernels.launch.softmax import SMOOTHED, SOFT
from hitrate.kernels.launch.start import Start
from hitrate.kernels.launch.table import table_of
from hitrate.kernels.parts import class_places

# Up to this many classes each of them is a place of its own.
FEW_UP_TO = 64
# Most programs, each of which has some memory of its own and takes rows in turn.
PROGRAMS = 1024
# Classes that are looked at together, and nodes in a batch.
BLOCK, NODES = 256, 64
# Warps of a program.
WARPS = 4
KEPT, SEGMENTS, POINTS = (
    int(number) for number in (class_places.KEPT, class_places.SEGMENTS, class_places.POINTS)
)
VALUE, GRADIENT, LOG_P, P = (
    int(number)
    for number in (all_classes.VALUE, all_classes.GRADIENT, all_classes.LOG_P, all_classes.P)
)
# The rules' names of the noises.
NOISES = {"all_normal": False, "all_logistic": True}


class Kind(NamedTuple):
    """What a kernel is compiled for, beside types."""

    sigmas: int
    weights: int  # None, one per class, or one per row and class.
    moving: int
    targets: int
    output: int
    link: Any
    reduction: int
    is_logistic: bool


class ClassesCall:
    """A loss of logits (N, C) for target probabilities (N, C) or smoothed classes (N,), see `Call`.

    Parameters
    ----------
    wanted : bool
        Whether its gradient will be asked for.
    """

    is_at_once = True

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        sigma: float | Tensor,
        weight: Tensor | None,
        rule: Rule,
        *,
        wanted: bool,
    ) -> None:
        targets = SOFT if target.is_floating_point() else SMOOTHED
        self._reduction, self._wanted = REDUCTIONS[rule.reduction], wanted
        output = GRADIENT if wanted else VALUE
        self._pass = Pass(logits, target, sigma, weight, rule, targets, output, logits.dtype)
        self.numbers = self._pass.numbers

    def value(self, logits: Tensor, target: Tensor, now: Now) -> tuple[Tensor, Found]:
        """The loss, and with it the gradient."""
        device = logits.device
        loss = empty_loss(self._reduction, logits.shape[0], 1, device)
        work = torch.empty(1, dtype=torch.float32, device=device)
        gradient = torch.empty_like(logits) if self._wanted else work
        self._pass(logits, target, now, loss, gradient, work)
        return loss, Found(gradient, work, now)

    def gradient(
        self,
        logits: Tensor,
        target: Tensor,
        found: Found,
        upstream: Tensor,
        into: Tensor | None = None,
    ) -> Tensor:
        """In logits, in the place of what was found."""
        return scaled(found.gradient, found.work, upstream)


def log_probabilities(logits: Tensor, sigma: float | Tensor, noise: str) -> Tensor:
    """All log p_c (N, C) in float32; one sigma, or one per row."""
    return _of_all(logits, sigma, noise, LOG_P)


def probabilities(logits: Tensor, sigma: float | Tensor, noise: str) -> Tensor:
    """All p_c (N, C) in float32, whose sums are 1."""
    return _of_all(logits, sigma, noise, P)


def _of_all(logits: Tensor, sigma: float | Tensor, noise: str, output: int) -> Tensor:
    found = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    kernel = Pass(logits, logits, sigma, None, Rule(noise), SOFT, output, found.dtype)
    with on_device(logits):
        kernel(logits, logits, kernel.numbers.now(), found, found, found)
    return found


def product(
    logits: Tensor, sigma: float | Tensor, upstream: Tensor, noise: str, p: Tensor | None = None
) -> Tensor:
    """sum_c upstream_c d log p_c / d logits, shaped and typed like the logits.

    Given p (N, C), the same of p_c, whose slope is p_c times that of its log. That p_c are divided
    by their sum has no slope: it is 1 whatever the logits are.
    """
    upstream = upstream.contiguous()
    call = ClassesCall(logits, upstream, sigma, p, Rule(noise), wanted=True)
    with on_device(logits):
        return call.value(logits, upstream, call.numbers.now())[1].gradient


class Pass:
    """The kernel for logits of one kind."""

    def __init__(
        self,
        logits: Tensor,
        target: Tensor,
        sigma: float | Tensor,
        weight: Tensor | None,
        rule: Rule,
        targets: int,
        output: int,
        found: torch.dtype,
    ) -> None:
        device = logits.device
        self.numbers = numbers = Numbers(sigma, rule, device)
        self._weight = nothing(device) if weight is None else weight
        self._rows, self._classes = logits.shape
        self._ignore_index = rule.ignore_index
        kind = Kind(
            numbers.sigmas,
            0 if weight is None else weight.dim(),
            numbers.moving,
            targets,
            output,
            rule.link,
            REDUCTIONS[rule.reduction],
            NOISES[rule.noise],
        )
        read = (device, logits.dtype, target.dtype, self._weight.dtype, *numbers.types)
        is_aligned = logits.data_ptr() % 16 == 0
        self._start = _kernel(self._classes, kind, (*read, found), is_aligned)

    def __call__(
        self,
        logits: Tensor,
        target: Tensor,
        now: Now,
        loss: Tensor,
        found: Tensor,
        work: Tensor,
    ) -> None:
        """Start it."""
        device = logits.device
        stream = stream_of(device)
        at, (sigma, _, a, b, smoothing) = now
        own = (_room(device, stream), work, table_of(device, stream), waves_of(device))
        self._start(
            (min(self._rows, PROGRAMS), 1),
            stream,
            (logits, target, at[0], self._weight, *at[2:], loss, found, *own),
            (self._rows, self._classes, sigma, self._ignore_index, a, b, smoothing),
        )


@functools.lru_cache(maxsize=1024)
def _kernel(classes: int, kind: Kind, types: tuple[Any, ...], is_aligned: bool) -> Start:
    """The kernel for a number of classes and types of tensors."""
    few = classes <= FEW_UP_TO
    padded = 1 << (classes - 1).bit_length()
    # Two places more than there are.
    places = 1 << ((classes if few else SEGMENTS * POINTS) + 1).bit_length()
    block = min(max(padded, 16), BLOCK)
    return Start(all_classes_kernel, (*kind, few, block, places, NODES), WARPS)


_ROOMS: dict[tuple[torch.device, int], Tensor] = {}


def _room(device: torch.device, stream: int) -> Tensor:
    """What programs keep of their rows; a stream's kernels, which come one by one, share it."""
    is_captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    room = None if is_captured else _ROOMS.get((device, stream))
    if room is None:
        room = torch.empty((PROGRAMS, KEPT), dtype=torch.float32, device=device)
        if not is_captured:
            _ROOMS[device, stream] = room
    return room


@functools.lru_cache(maxsize=8)
def waves_of(device: torch.device) -> Tensor:
    """T_j at the Chebyshev points, times 2 / points, half that for j = 0; then the points."""
    angle = (torch.arange(POINTS, dtype=torch.float64) + 0.5) * (math.pi / POINTS)
    waves = torch.cos(angle[:, None] * torch.arange(POINTS)) * (2 / POINTS)
    waves[:, 0] /= 2
    return torch.cat([waves.flatten(), torch.cos(angle)]).float().to(device)
