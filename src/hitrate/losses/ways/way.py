"""What a loss was asked for, and which way it goes: looked at once for each kind of call."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from hitrate.losses.ways import few_operations, fused
from hitrate.losses.ways.asked import Asked
from hitrate.probability import arguments
from hitrate.probability.arguments import fits_float32, is_moving, is_number, noise_named
from hitrate.probability.dispatch import Choice, Request, choose, is_transformed

_choices: dict[tuple[Any, ...], Choice] = {}
MOST_CHOICES = 4096
# Rows next to each other are read in tiles of so many classes at the most.
MOST_ACROSS = 1024
PLAIN = (Tensor, torch.nn.Parameter)


def way_of(asked: Asked) -> Choice:
    """The way to go, for logits as rows (R, C) or (N, C, D).

    It depends on types, shapes and options, not on values: a training step looks once.
    """
    key = _kind(asked)
    choice = None if key is None else _choices.get(key)
    if choice is None:
        choice = _chosen(asked)
        if key is not None:
            if len(_choices) >= MOST_CHOICES:
                _choices.clear()
            _choices[key] = choice
    return choice


def across(asked: Asked) -> Asked | None:
    """The same with logits (N, C, d1, ...) as (N, C, D), for kernels to read as they lie.

    None where there are no kernels, where a copy is needed, or where one is better.
    """
    logits, target = asked.logits, asked.target
    if not (isinstance(logits, Tensor) and isinstance(target, Tensor) and logits.dim() > 2):
        return None
    if not (logits.is_cuda or asked.core.backend == "triton"):
        return None
    if not logits.is_contiguous() or not logits.numel() or logits.shape[1] > MOST_ACROSS:
        return None
    if logits[0].numel() >= 2**31 or (isinstance(asked.sigma, Tensor) and asked.sigma.numel() > 1):
        return None
    if target.shape == logits.shape:
        return asked._replace(logits=logits.flatten(2), target=target.flatten(2))
    if target.shape == logits.shape[:1] + logits.shape[2:]:
        return asked._replace(logits=logits.flatten(2), target=target.flatten(1))
    return None


def _kind(asked: Asked) -> tuple[Any, ...] | None:
    """All that decides on the way of a usual call; None if it takes a closer look.

    Numbers that move are so whatever their values.
    """
    rows, target, sigma, link, core, options, _ = asked
    weight, _, reduction, smoothing = options[:4]
    margin = core.margin
    if type(rows) not in PLAIN or type(target) is not Tensor or torch.compiler.is_compiling():
        return None
    if is_transformed(rows) or not (weight is None or type(weight) in PLAIN):
        return None
    if isinstance(sigma, Tensor):
        # On a CPU it is checked to be positive, whenever it comes.
        if sigma.is_cpu or not is_moving(sigma) or is_transformed(sigma):
            return None
    elif not (is_number(sigma) and fits_float32(sigma)):
        return None
    shape, labels = rows.shape, target.shape
    if not labels or not labels[0] == shape[0] > 0 or type(core.noise) is not str:
        return None
    # The link's own parameters: numbers made of them take an operation.
    for number in (margin, smoothing, *vars(link).values()):
        if not (number is None or type(number) in (float, int) or is_moving(number)):
            return None
    return (
        *(rows.dtype, rows.device, shape[1:]),
        *(target.dtype, target.device, labels[1:], target.requires_grad),
        None if weight is None else (weight.shape, weight.requires_grad),
        *(type(link), link.formula, options.ignore_index, reduction),
        # A number that moves may be anything.
        isinstance(sigma, Tensor),
        Tensor if isinstance(margin, Tensor) else margin,
        Tensor if isinstance(smoothing, Tensor) else smoothing,
        *core[1:7],
        # On a CPU nothing asks for it unless the kernels are.
        core.backend != "auto" and os.environ.get("TRITON_INTERPRET"),
    )


def _chosen(asked: Asked) -> Choice:
    """The way, found by asking all that may speak against it."""
    logits, target, sigma, _, core, options, call = asked
    may_fuse = logits.is_cuda or core.backend == "triton"
    is_soft = isinstance(target, Tensor) and target.is_floating_point()
    arguments.k_of(core.k, logits.shape[1], call)
    request = Request.of(
        noise_named(core.noise, call),
        logits,
        sigma,
        margin=core.margin,
        nodes=core.nodes,
        k=core.k,
        method=core.method,
        backend=core.backend,
        all_classes=options.is_smoothed or is_soft,
        not_fused=fused.why_not(asked) if may_fuse else "",
        not_few=few_operations.why_not(asked) if logits.is_cpu else "",
    )
    return choose(request, call)
