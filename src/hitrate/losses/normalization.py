"""Logits to mean 0 and standard deviation 1 over the batch, on all processes together.

Expected accuracy depends on logits / sigma only, so a network could undo any schedule of sigma by
growing its logits. One mean and one standard deviation for all classes fix the scale, and leave
the order of a row's logits alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# As in batch normalisation: keeps the slope finite where all logits are equal.
EPSILON = 1e-5


def normalize_logits(
    rows: Tensor, ignored: Tensor | None = None, process_group: dist.ProcessGroup | None = None
) -> Tensor:
    r"""Standardise logits (R, C) by one mean and one standard deviation.

    .. math::

        \hat\mu = \frac{\mu - \text{mean}(\mu)}{\sqrt{\text{var}(\mu) + 10^{-5}}}

    Where torch.distributed runs, the statistics are of the global batch, and gradients flow
    through them to every process. Ignored rows and infinite logits do not count.

    Parameters
    ----------
    rows : Tensor, shape (R, C)
    ignored : Tensor of bool, shape (R,), optional
    process_group : ProcessGroup, optional
        The processes that share a batch; by default all.

    Returns
    -------
    Tensor, shape (R, C)

    References
    ----------
    Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. Section 4.5.2, Listing 1.
    """
    counted = torch.isfinite(rows)
    if ignored is not None:
        counted = counted & ~ignored[:, None]
    count = counted.sum().to(rows.dtype)
    total = rows.masked_fill(~counted, 0.0).sum()
    total, count = _over_processes(torch.stack([total, count]), process_group).unbind()
    mean = total / count.clamp(min=1.0)
    squares = (rows - mean).masked_fill(~counted, 0.0).square().sum()
    variance = _over_processes(squares, process_group) / (count - 1).clamp(min=1.0)
    return (rows - mean) * torch.rsqrt(variance + EPSILON)


def _over_processes(value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Sum over the processes of a group; the value itself where there is only one."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(group) == 1:
        return value
    summed: Tensor = SumOverProcesses.apply(value, group)  # type: ignore[no-untyped-call]
    return summed


class SumOverProcesses(torch.autograd.Function):
    """All-reduce whose gradient is an all-reduce: each process's loss depends on every value."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        """The sum."""
        ctx.group = group
        value = value.clone()
        dist.all_reduce(value, group=group)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The sum of the gradients."""
        return SumOverProcesses.apply(grad, ctx.group), None  # type: ignore[no-untyped-call]
