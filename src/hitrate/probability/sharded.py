"""Logits that several processes hold parts of: DTensors, as from FSDP2 or tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: object) -> TypeGuard[DTensor]:
    """Whether it is a DTensor, found without importing what only a DTensor needs."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def everywhere(tensor: Tensor, like: DTensor) -> DTensor:
    """The same tensor, held whole by each process that has a part of another."""
    from torch.distributed.tensor import DTensor, Replicate

    if is_sharded(tensor):
        return tensor
    mesh = like.device_mesh
    return DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)


def by_rows(function: Callable[..., Tensor], logits: DTensor, *others: Any) -> Tensor:
    """Apply a function of rows (N, C), and of what there is one of per row, to each process's rows.

    Rows stay where they are; a row that is spread over processes is brought together first, as
    cross entropy does.
    """
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    mesh = logits.device_mesh
    places = [p if isinstance(p, Shard) and p.dim == 0 else Replicate() for p in logits.placements]
    # Each process has a part of the gradient of what all rows share.
    parts = [Partial() if isinstance(p, Shard) else Replicate() for p in places]
    rows = len(logits)

    def local(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        whole = everywhere(value, logits)
        if whole.dim() > 0 and whole.shape[0] == rows:
            return whole.redistribute(mesh, places).to_local()
        shared = whole.redistribute(mesh, [Replicate()] * mesh.ndim)
        return shared.to_local(grad_placements=parts)

    found = function(local(logits), *map(local, others))
    shape = torch.Size([rows, *found.shape[1:]])
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(found, mesh, places, run_check=False, shape=shape, stride=stride)
