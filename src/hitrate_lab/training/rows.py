"""Rows to train on, in an order that a seed and an epoch decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hitrate_lab.seeds import seed_of


class Source(Protocol):
    """Anything that has rows: `Rows` in memory, or a reader of larger things."""

    def __len__(self) -> int: ...

    def batch(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Features and class indices of these rows, on a device."""
        ...


@dataclass(frozen=True)
class Rows:
    """Features (N, ...) and class indices (N,), which stay where they are.

    Images may be bytes: they become numbers from 0 to 1 a batch at a time.
    """

    x: Tensor
    target: Tensor

    def __post_init__(self) -> None:
        if len(self.x) != len(self.target):
            raise ValueError(f"Rows: {len(self.x)} rows of x, {len(self.target)} of target")
        if self.target.dim() != 1 or self.target.is_floating_point():
            raise ValueError(f"Rows: target must be class indices (N,), got {self.target.shape}")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, part: slice | Tensor) -> Rows:
        return Rows(self.x[part], self.target[part])

    def to(self, device: torch.device | str) -> Rows:
        """There."""
        return Rows(self.x.to(device), self.target.to(device))

    def batch(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """These rows, on a device."""
        rows = rows.to(self.x.device, non_blocking=True)
        x = self.x[rows].to(device, non_blocking=True)
        target = self.target[rows].to(device, non_blocking=True)
        return (x.float() / 255 if x.dtype == torch.uint8 else x), target.long()


@dataclass(frozen=True)
class Order:
    """Which rows a step takes.

    Parameters
    ----------
    rows, batch_size, seed : int
    """

    rows: int
    batch_size: int
    seed: int

    @property
    def steps(self) -> int:
        """In an epoch: batches that are full, or one."""
        return max(self.rows // self.batch_size, 1)

    def of(self, epoch: int) -> Tensor:
        """All rows of an epoch, one batch after another."""
        generator = torch.Generator().manual_seed(seed_of(self.seed, 0, epoch))
        return torch.randperm(self.rows, generator=generator)

    def batch(self, order: Tensor, step: int) -> Tensor:
        """The rows of a step of that epoch."""
        return order[step * self.batch_size : (step + 1) * self.batch_size]
