"""Launcher of the kernel for the k highest."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from hitrate.kernels.launch.rule import Numbers, Rule, stream_of
from hitrate.kernels.launch.start import Start
from hitrate.kernels.parts import counting
from hitrate.kernels.top_k import top_k_kernel

NOISES = {
    "normal": int(counting.NORMAL),
    "logistic": int(counting.LOGISTIC),
    "gumbel": int(counting.GUMBEL),
}
# Rivals that are counted one by one, beside k.
MORE = 5
# Classes up to which 128 nodes are close enough, and twice as many above; k up to which they are
# for logistic noise, whose intervals are the widest.
MANY, FEW_AHEAD, NODES = 4096, 5, 128
# Classes looked at together: for the hardest, and at a thousand of classes and nodes; warps.
BLOCK, TILE, WARPS = 1024, 1024, 4


def log_p_of_top(
    logits: Tensor, target: Tensor, sigma: Tensor, rule: Rule, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """log p (N,) to be among the k <= 10 highest, its gradient in logits (N, C) and sigma (N,).

    Logits in float32 or half precision, sigma (N,) in float32, all contiguous; of the rule noise
    and margin. The call is made with their device the current one.
    """
    rows, classes = logits.shape
    numbers = Numbers(sigma, rule, logits.device)
    at, values = numbers.now()
    log_p = torch.empty(rows, dtype=torch.float32, device=logits.device)
    work, gradient = torch.empty_like(log_p), torch.empty_like(logits)
    types = (logits.device, logits.dtype, target.dtype, *numbers.types)
    how = (rule.margin is not None, numbers.moving, NOISES[rule.noise], k)
    start = _kernel(classes, how, types, logits.data_ptr() % 16 == 0)
    start(
        (rows, 1),
        stream_of(logits.device),
        (logits, target, sigma, at[1], log_p, gradient, work),
        (classes, min(k + MORE, classes - 1), values[1]),
    )
    return log_p, gradient, work


@functools.lru_cache(maxsize=256)
def _kernel(classes: int, how: tuple[Any, ...], types: tuple[Any, ...], is_aligned: bool) -> Start:
    """For a number of classes and types of tensors."""
    noise, k = how[-2:]
    is_close = classes > MANY or (noise == NOISES["logistic"] and k > FEW_AHEAD)
    nodes = 2 * NODES if is_close else NODES
    padded = 1 << (classes - 1).bit_length()
    block, tile = min(max(padded, 16), BLOCK), min(max(padded, 2), TILE // nodes)
    return Start(top_k_kernel, (*how, block, tile, nodes), WARPS)
