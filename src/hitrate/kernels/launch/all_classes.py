"""Launchers of the kernel of all classes at once."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.kernels import all_classes, class_places
from hitrate.kernels.all_classes import all_classes_kernel
from hitrate.kernels.launch.rule import REDUCTIONS, Found, Rule, empty_loss, sigma_from, stream_of
from hitrate.kernels.launch.softmax import SMOOTHED, SOFT
from hitrate.kernels.launch.start import Start
from hitrate.kernels.launch.table import table_of

# Up to this many classes each of them is a place of its own.
FEW_UP_TO = 64
# Most programs, each of which has some memory of its own and takes rows in turn.
PROGRAMS = 1024
# Classes that are looked at together, and nodes.
BLOCK, NODES = 256, 128
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


def forward(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    weight: Tensor | None,
    rule: Rule,
    *,
    wanted: bool,
) -> Found:
    """The loss of logits (N, C) for target probabilities (N, C) or smoothed classes (N,)."""
    targets = SOFT if target.is_floating_point() else SMOOTHED
    output = GRADIENT if wanted else VALUE
    reduction = REDUCTIONS[rule.reduction]
    loss = empty_loss(reduction, logits.shape[0], 1, logits.device)
    work = torch.empty(1, dtype=torch.float32, device=logits.device)
    gradient = torch.empty_like(logits) if wanted else work
    _start(logits, target, sigma, weight, rule, targets, output, loss, gradient, work)
    return Found(loss, gradient, work)


def log_probabilities(logits: Tensor, sigma: float | Tensor, noise: str) -> Tensor:
    """All log p_c (N, C) in float32; logits and sigma as in `forward`."""
    return _of_all(logits, sigma, noise, LOG_P)


def probabilities(logits: Tensor, sigma: float | Tensor, noise: str) -> Tensor:
    """All p_c (N, C) in float32, whose sums are 1."""
    return _of_all(logits, sigma, noise, P)


def _of_all(logits: Tensor, sigma: float | Tensor, noise: str, output: int) -> Tensor:
    found = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    _start(logits, logits, sigma, None, Rule(noise), SOFT, output, found, found, found)
    return found


def product(
    logits: Tensor, sigma: float | Tensor, upstream: Tensor, noise: str, p: Tensor | None = None
) -> Tensor:
    """sum_c upstream_c d log p_c / d logits, shaped and typed like the logits.

    Given p (N, C), the same of p_c, whose slope is p_c times that of its log. That p_c are divided
    by their sum has no slope: it is 1 whatever the logits are.
    """
    upstream = upstream.contiguous()
    return forward(logits, upstream, sigma, p, Rule(noise), wanted=True).gradient


def _start(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    weight: Tensor | None,
    rule: Rule,
    targets: int,
    output: int,
    loss: Tensor,
    found: Tensor,
    work: Tensor,
) -> None:
    """Start the kernel, on the logits' device."""
    device = logits.device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            _start(logits, target, sigma, weight, rule, targets, output, loss, found, work)
        return
    rows, classes = logits.shape
    sigma_at, noise, sigmas = sigma_from(sigma, logits)
    weight_at = logits if weight is None else weight
    numbers = rule.numbers(device)
    _, a, b, smoothing = numbers.values
    read_only = (logits, target, sigma_at, weight_at, *numbers.pointers(logits, 4)[1:])
    kind = Kind(
        sigmas,
        0 if weight is None else weight.dim(),
        numbers.moving,
        targets,
        output,
        rule.link,
        REDUCTIONS[rule.reduction],
        NOISES[rule.noise],
    )
    types = (device, *(tensor.dtype for tensor in read_only), found.dtype)
    start = _kernel(classes, kind, types, logits.data_ptr() % 16 == 0)
    programs = min(rows, PROGRAMS)
    stream = stream_of(device)
    kept = _room(device, stream)
    start(
        (programs, 1),
        stream,
        (*read_only, loss, found, kept, work, table_of(device, stream), waves_of(device)),
        (rows, classes, noise, rule.ignore_index, a, b, smoothing),
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
