"""The processes that torchrun started, as one group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous


@dataclass(frozen=True)
class Place:
    """Where a process stands among all."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def mine(self, rows: int) -> slice:
        """The part of a batch that is this process's."""
        if rows % self.size:
            raise ValueError(f"{rows} rows of a batch cannot be dealt to {self.size} processes")
        part = rows // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def summed(self, values: Tensor) -> Tensor:
        """Over all processes."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values


@contextlib.contextmanager
def group(device: str | torch.device | None = None) -> Iterator[Place]:
    """Join the processes that torchrun started; without it, or inside a group, just say where.

    Parameters
    ----------
    device : str or torch.device, optional
        By default the GPU of this process, where there is one, or else the CPU.
    """
    is_started_by_torchrun = "RANK" in os.environ and not dist.is_initialized()
    if device is None:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = f"cuda:{local}" if torch.cuda.is_available() else "cpu"
    here = torch.device(device)
    if here.type == "cuda":
        torch.cuda.set_device(here)
    if is_started_by_torchrun:
        _join("nccl" if here.type == "cuda" else "gloo")
    try:
        yield place(here)
    finally:
        if is_started_by_torchrun:
            dist.destroy_process_group()


def _join(backend: str) -> None:
    """Make the group of torchrun's processes.

    Those that it starts again find what the ones before left in its store, addresses that nobody
    answers at: each start has names of its own.
    """
    store, rank, size = next(rendezvous("env://"))
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    named = PrefixStore(f"start {start}", store)
    dist.init_process_group(backend, store=named, rank=rank, world_size=size)


def place(device: torch.device) -> Place:
    """Where this process stands."""
    if dist.is_available() and dist.is_initialized():
        return Place(dist.get_rank(), dist.get_world_size(), device)
    return Place(0, 1, device)
