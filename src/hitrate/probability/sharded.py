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


def by_rows(function: Callable[..., Tensor], logits: DTensor, *others: Any) -> Tensor:
    """Apply a function of rows (N, C), and of what there is one of per row, to each process's rows.

    Rows stay where they are; a row that is spread over processes is brought together first, as
    cross entropy does.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    mesh = logits.device_mesh
    places = [p if isinstance(p, Shard) and p.dim == 0 else Replicate() for p in logits.placements]
    everywhere = [Replicate()] * len(places)
    rows = len(logits)

    def local(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        whole = value if is_sharded(value) else DTensor.from_local(value, mesh, everywhere)
        per_row = whole.dim() > 0 and whole.shape[0] == rows
        return whole.redistribute(mesh, places if per_row else everywhere).to_local()

    found = function(local(logits), *map(local, others))
    shape = torch.Size([rows, *found.shape[1:]])
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(found, mesh, places, run_check=False, shape=shape, stride=stride)
