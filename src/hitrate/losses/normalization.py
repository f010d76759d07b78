"""Logits to mean 0 and standard deviation 1 over the batch, on all processes together.

Expected accuracy depends on logits / sigma only, so a network could undo any schedule of sigma by
growing its logits. One mean and one standard deviation for all classes fix the scale, and leave
the order of a row's logits alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from hitrate.probability.dispatch import is_transformed
from hitrate.probability.execution import double, is_eager_cpu
from hitrate.probability.sharded import is_sharded

__all__ = ["normalize_logits"]

# As in batch normalisation: keeps the slope finite where all logits are equal.
EPSILON = 1e-5
# Larger logits count as this, whose squares are numbers of float64.
LARGEST_COUNTED = 1e140


class Normalization(NamedTuple):
    """Whether logits are standardised over the batch first, and with which processes."""

    is_on: bool = False
    process_group: dist.ProcessGroup | None = None


def normalize_logits(
    rows: Tensor,
    ignored: Tensor | None = None,
    process_group: dist.ProcessGroup | None = None,
    *,
    is_steep: bool = False,
) -> Tensor:
    r"""Standardise logits (R, C) by one mean and one standard deviation.

    .. math::

        \hat\mu = \frac{\mu - \text{mean}(\mu)}{\sqrt{\text{var}(\mu) + 10^{-5}}}

    Where torch.distributed runs, the statistics are of the global batch, and gradients flow
    through them to every process: a collective call, which all processes have to make. Under
    `torch.no_grad` each process is on its own. Ignored rows and infinite logits do not count, and
    stay as they are; large finite numbers that stand for "no class" do count, so mask with -inf.
    Where processes share a batch, and in kernels, squares are those of float32: beyond 1e18 they
    are no numbers.

    Parameters
    ----------
    rows : Tensor, shape (R, C)
    ignored : Tensor of bool, shape (R,), optional
    process_group : ProcessGroup, optional
        The processes that share a batch; by default all.
    is_steep : bool
        Whether gradients will be so large that their sums want float64.

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
    # Masked before any arithmetic: an infinite logit times a zero gradient is not a number.
    finite = rows.masked_fill(~counted, 0.0)
    if _is_large(finite, process_group, is_steep):
        largest = LARGEST_COUNTED
        return normalize_logits(
            double(rows).clamp(-largest, largest).where(counted, double(rows)), ignored
        ).to(rows.dtype)
    count = counted.sum().to(rows.dtype)
    total, count = over_processes(torch.stack([finite.sum(), count]), process_group).unbind()
    centred = (finite - total / count.clamp(min=1.0)).masked_fill(~counted, 0.0)
    squares = over_processes(centred.square().sum(), process_group)
    scale = torch.rsqrt(squares / (count - 1).clamp(min=1.0) + EPSILON)
    return torch.where(counted, centred * scale, rows)


def _is_large(finite: Tensor, group: dist.ProcessGroup | None, is_steep: bool) -> bool:
    """Whether sums may be beyond the dtype's numbers, and float64 serves this process alone."""
    if has_others(group) or is_sharded(finite) or torch.compiler.is_compiling():
        return False
    is_single = finite.dtype == torch.float32
    if not finite.numel() or finite.device.type == "mps" or (is_single and is_steep):
        return is_single and finite.device.type != "mps"
    if not is_eager_cpu(finite) or is_transformed(finite):
        return is_single
    largest = float(finite.detach().abs().amax())
    return largest > (1e15 if is_single else LARGEST_COUNTED)


def has_others(group: dist.ProcessGroup | None) -> bool:
    """Whether other processes take part.

    Without gradients nobody does: a validation by one process must not wait for the others.
    """
    if not (dist.is_available() and dist.is_initialized() and torch.is_grad_enabled()):
        return False
    return dist.get_world_size(group) > 1


def over_processes(value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Sum over the processes of a group; the value itself where nobody else takes part.

    A sum of a DTensor is over all processes already.
    """
    if is_sharded(value) or not has_others(group):
        return value
    compiling = torch.compiler.is_compiling()
    function = SumOverProcesses if compiling else ForwardModeSumOverProcesses
    summed: Tensor = function.apply(value, group)  # type: ignore[no-untyped-call]
    return summed


class SumOverProcesses(torch.autograd.Function):
    """All-reduce whose gradient is an all-reduce: each process's loss depends on every value."""

    @staticmethod
    def forward(value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        """The sum."""
        value = value.clone()
        dist.all_reduce(value, group=group)
        return value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Remember the group."""
        ctx.group = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The sum of the gradients."""
        return SumOverProcesses.apply(grad, ctx.group), None  # type: ignore[no-untyped-call]


class ForwardModeSumOverProcesses(SumOverProcesses):
    """The same with forward mode, whose presence keeps torch.compile from tracing a function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        """The sum of the tangents."""
        summed: Tensor = SumOverProcesses.apply(  # type: ignore[no-untyped-call]
            tangent, ctx.group
        )
        return summed
