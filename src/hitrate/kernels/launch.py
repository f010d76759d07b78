"""Launchers: from tensors to kernels, no autograd, no checks of what the user said."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from hitrate.kernels.many import FACTS, POINTS, ROOM, compress, expand, integrate_few
from hitrate.kernels.rows import rows_kernel

# Up to this many classes a row stays in registers; above, a few rivals stand for all.
ROWS_UP_TO = 64
SEARCH = 20
GROUP = 4


def log_probability(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """log p (N,), its gradient in logits (N, C) and in sigma (N, 1), for normal noise.

    Logits in float32 or half precision; sigma (N, 1); all arithmetic in float32.
    """
    if torch.compiler.is_compiling():
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.hitrate.log_probability(
            logits, target, sigma, margin
        )
        return found
    return _log_probability(logits, target, sigma, margin)


def _log_probability(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    scale = sigma[:, 0]
    if logits.shape[1] <= ROWS_UP_TO:
        log_p, to_logits, to_sigma = rows_forward(logits, target, scale, margin)
    else:
        log_p, to_sigma, saved = many_forward(logits, target, scale, margin)
        ones = torch.ones(1, dtype=torch.float32, device=logits.device).expand(len(logits))
        to_logits = many_backward(logits, target, scale, margin, saved, ones)
    return log_p, to_logits, to_sigma[:, None]


# To a compiler the kernels are one operation that it does not look into.
_operation = torch.library.custom_op(
    "hitrate::log_probability",
    _log_probability,
    mutates_args=(),
    schema="(Tensor logits, Tensor target, Tensor sigma, float? margin)"
    " -> (Tensor, Tensor, Tensor)",
)


@_operation.register_fake
def _shapes(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    row = torch.empty_like(logits[:, 0], dtype=torch.float32)
    return row, torch.empty_like(logits), row.new_empty(len(logits), 1)


def node_count(classes: int) -> int:
    """Nodes for which the rule's error is near float32's rounding: a multiple of GROUP."""
    return 8 * math.ceil((11 + 3.3 * math.log2(max(classes, 2))) / 8)


def rows_forward(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """log p (N,), its gradient in logits (N, C) and in sigma (N,), for few classes."""
    rows, classes = logits.shape
    new = functools.partial(torch.empty, dtype=torch.float32, device=logits.device)
    log_p, to_sigma = new(rows), new(rows)
    to_logits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    padded = max(triton.next_power_of_2(classes), 2)
    together = max(1, 128 // padded)
    rows_kernel[(triton.cdiv(rows, together),)](
        logits,
        target,
        sigma,
        log_p,
        to_logits,
        to_sigma,
        rows,
        classes,
        logits.stride(0),
        logits.stride(1),
        sigma.stride(0),
        0.0 if margin is None else margin,
        math.log(classes),
        HAS_MARGIN=margin is not None,
        R=together,
        P=padded,
        NODES=node_count(classes),
        GROUP=GROUP,
        SEARCH=SEARCH,
        num_warps=4,
    )
    return log_p, to_logits, to_sigma


@functools.lru_cache(maxsize=8)
def cosines(device: torch.device) -> Tensor:
    """Rows j of T_j at the Chebyshev points, times 2 / points (half that for j = 0); the points.

    Rows are 16 apart, the points start at 256.
    """
    count = int(POINTS)
    angle = (torch.arange(count, dtype=torch.float64) + 0.5) * (math.pi / count)
    table = torch.zeros(17, 16, dtype=torch.float64)
    table[:count, :count] = torch.cos(torch.arange(count)[:, None] * angle) * (2 / count)
    table[0] /= 2
    table[16, :count] = torch.cos(angle)
    return table.flatten().float().to(device)


class Many(NamedTuple):
    """What the gradient of rows with many classes is made from."""

    facts: Tensor  # (N, FACTS)
    coefficients: Tensor  # (N, ROOM)


def many_forward(
    logits: Tensor, target: Tensor, sigma: Tensor, margin: float | None
) -> tuple[Tensor, Tensor, Many]:
    """log p (N,), its gradient in sigma (N,), and what `many_backward` needs."""
    rows, classes = logits.shape
    new = functools.partial(torch.empty, dtype=torch.float32, device=logits.device)
    log_p, to_sigma = new(rows), new(rows)
    facts, weights = new(rows, int(FACTS)), new(rows, int(ROOM))
    waves = cosines(logits.device)
    # One warp keeps up with short rows, of which there are many at a time.
    block, warps = (256, 1) if classes <= 2048 else (1024, 8)
    compress[(rows,)](
        logits,
        target,
        sigma,
        waves,
        weights,
        facts,
        classes,
        logits.stride(0),
        logits.stride(1),
        sigma.stride(0),
        0.0 if margin is None else margin,
        math.log(classes),
        HAS_MARGIN=margin is not None,
        BLOCK=block,
        SEARCH=SEARCH,
        num_warps=warps,
    )
    integrate_few[(rows,)](
        weights,
        waves,
        facts,
        log_p,
        to_sigma,
        math.log(classes),
        NODES=node_count(classes),
        GROUP=GROUP,
        SEARCH=SEARCH,
        num_warps=1,
    )
    return log_p, to_sigma, Many(facts, weights)


def many_backward(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: float | None,
    saved: Many,
    upstream: Tensor,
) -> Tensor:
    """Gradient in logits (N, C), each row times `upstream` (N,)."""
    rows, classes = logits.shape
    gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    block = min(triton.next_power_of_2(classes), 2048 if classes > 2048 else 1024)
    expand[(rows, triton.cdiv(classes, block))](
        logits,
        target,
        sigma,
        saved.facts,
        saved.coefficients,
        upstream,
        gradient,
        classes,
        logits.stride(0),
        logits.stride(1),
        sigma.stride(0),
        upstream.stride(0),
        0.0 if margin is None else margin,
        HAS_MARGIN=margin is not None,
        BLOCK=block,
        num_warps=4,
    )
    return gradient
