"""The norm of all gradients together, wherever their numbers are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hitrate.probability.sharded import is_sharded

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor


@torch.no_grad()
def total_norm(grads: Sequence[Tensor], *, process_group: ProcessGroup | None = None) -> Tensor:
    r"""Norm of all gradients together, without waiting for the device.

    .. math::

        \Big(\sum_k \|g_k\|^2\Big)^{1/2}

    Parameters
    ----------
    grads : sequence of Tensor
        On any devices. Sparse gradients count as if they were dense, a DTensor as the whole that
        it is a part of, and half precision is summed in float32.
    process_group : ProcessGroup, optional
        The processes that hold a part each of the gradients that are plain tensors, as in FSDP1.

    Returns
    -------
    Tensor, shape ()
        On the device of the first gradient, in float32 or float64.

    Examples
    --------
    >>> import torch
    >>> from hitrate.optim.norms import total_norm
    >>> total_norm([torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])])
    tensor(5.)
    """
    if not grads:
        return torch.zeros(())
    home = grads[0].device
    # Of each dtype once: there are many gradients.
    dtypes = {grad.dtype.to_real() for grad in grads}
    dtype = reduce(torch.promote_types, dtypes, torch.float32)
    plain = [grad.coalesce() if grad.is_sparse else grad for grad in grads if not is_sharded(grad)]
    square = _sum_of_squares(plain, dtype, home)
    if process_group is not None:
        torch.distributed.all_reduce(square, group=process_group)
    for shards in _alike([grad for grad in grads if is_sharded(grad)]):
        square = square + _sum_over_shards(shards, dtype, home)
    return square.sqrt()


def local_values(grad: Tensor) -> Tensor:
    """The dense tensor with this process's numbers of a gradient, to read or to change."""
    if is_sharded(grad):
        return grad.to_local()
    return grad._values() if grad.is_sparse else grad


def _sum_of_squares(grads: Sequence[Tensor], dtype: torch.dtype, home: torch.device) -> Tensor:
    values = [local_values(grad) for grad in grads]
    if not values:
        return torch.zeros((), dtype=dtype, device=home)
    parts = [torch.view_as_real(value) if value.is_complex() else value for value in values]
    norms = torch._foreach_norm(parts, 2, dtype)
    return torch.stack([norm.to(home) for norm in norms]).square().sum()


def _alike(grads: Sequence[DTensor]) -> list[list[DTensor]]:
    """Gradients spread in the same way over the same processes: their sums travel together."""
    groups: dict[object, list[DTensor]] = {}
    for grad in grads:
        # Terms of a sum that is still to be taken have no norm: take it.
        if any(placement.is_partial() for placement in grad.placements):
            grad = _summed(grad)
        pattern = tuple(placement.is_replicate() for placement in grad.placements)
        groups.setdefault((grad.device_mesh, pattern), []).append(grad)
    return list(groups.values())


def _summed(grad: DTensor) -> DTensor:
    from torch.distributed.tensor import Replicate

    kept = [Replicate() if place.is_partial() else place for place in grad.placements]
    return grad.redistribute(placements=kept)


def _sum_over_shards(grads: Sequence[DTensor], dtype: torch.dtype, home: torch.device) -> Tensor:
    from torch.distributed.tensor import DTensor, Partial, Replicate

    placements = [
        Replicate() if placement.is_replicate() else Partial() for placement in grads[0].placements
    ]
    square = _sum_of_squares(grads, dtype, home)
    return DTensor.from_local(square, grads[0].device_mesh, placements).full_tensor().to(home)
