"""log p of rows by the kernels; to a compiler, one operation that it does not look into."""

from __future__ import annotations

import torch
from torch import Tensor

from hitrate.kernels.launch.rows import RowsCall
from hitrate.kernels.launch.rule import Rule, on_device
from hitrate.kernels.launch.top_k import log_p_of_top


def log_probability(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: float | Tensor | None,
    noise: str,
    k: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """log p (N,) to be among the k highest, its gradient in logits (N, C) and in sigma (N, 1).

    Logits in float32 or half precision; sigma (N, 1); k up to 10.
    """
    if torch.compiler.is_compiling():
        # A margin that moves is a tensor; to the operation all are.
        has_margin = margin is not None
        rim = torch.as_tensor(margin if has_margin else 0.0, dtype=torch.float64)
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.hitrate.log_probability(
            logits, target, sigma, rim, has_margin, noise, k
        )
        return found
    return _log_probability(logits, target, sigma, margin, margin is not None, noise, k)


def _log_probability(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: float | Tensor | None,
    has_margin: bool,
    noise: str,
    k: int,
) -> tuple[Tensor, Tensor, Tensor]:
    rule = Rule(noise, margin=margin if has_margin else None)
    logits, target, column = logits.contiguous(), target.contiguous(), sigma[:, 0].contiguous()
    if k > 1:
        with on_device(logits):
            log_p, to_logits, to_sigma = log_p_of_top(logits, target, column, rule, k)
        return log_p, to_logits, to_sigma[:, None]
    call = RowsCall(logits, target, column, None, rule, wanted=True, learned=True)
    with on_device(logits):
        log_p, found = call.value(logits, target, call.numbers.now())
        to_sigma = found.work[-len(logits) :, None].clone()
        if call.is_at_once:
            return log_p, found.gradient, to_sigma
        ones = torch.ones(1, dtype=torch.float32, device=logits.device).expand(len(logits))
        return log_p, call.gradient(logits, target, found, ones), to_sigma


_operation = torch.library.custom_op(
    "hitrate::log_probability",
    _log_probability,
    mutates_args=(),
    schema="(Tensor logits, Tensor target, Tensor sigma, Tensor margin, bool has_margin, str noise,"
    " int k) -> (Tensor, Tensor, Tensor)",
)


@_operation.register_fake
def _shapes(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: Tensor,
    has_margin: bool,
    noise: str,
    k: int,
) -> tuple[Tensor, Tensor, Tensor]:
    row = torch.empty_like(logits[:, 0], dtype=torch.float32)
    whole = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    return row, whole, row.new_empty(len(logits), 1)
