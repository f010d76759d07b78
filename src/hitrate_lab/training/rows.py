"""Rows to train on, in an order that a seed and an epoch decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from hitrate_lab.seeds import seed_of

# Batches whose rows are sorted by their lengths together.
WINDOW = 16


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


@dataclass(frozen=True, eq=False)
class Ragged:
    """Texts as rows of numbers, each as long as it is, and class indices (N,).

    A batch (B, T) is as long as its longest row. A training's batches have rows of similar lengths,
    so that little is filled.

    Parameters
    ----------
    x : sequence of Tensor, each of shape (T,)
    target : Tensor, shape (N,)
    padding : int
        What stands behind shorter rows.

    Examples
    --------
    >>> import torch
    >>> from hitrate_lab.training import Ragged
    >>> rows = Ragged([torch.tensor([5, 6, 7]), torch.tensor([8])], torch.tensor([0, 1]))
    >>> rows.batch(torch.tensor([0, 1]), torch.device("cpu"))[0]
    tensor([[5, 6, 7],
            [8, 0, 0]])
    """

    x: Sequence[Tensor]
    target: Tensor
    padding: int = 0

    def __len__(self) -> int:
        return len(self.x)

    @property
    def lengths(self) -> Tensor:
        """Of rows, (N,)."""
        return torch.tensor([len(row) for row in self.x])

    def batch(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """These rows, on a device."""
        some = [self.x[k] for k in rows.tolist()]
        x = nn.utils.rnn.pad_sequence(some, batch_first=True, padding_value=self.padding)
        return x.to(device), self.target[rows].to(device)


@dataclass(frozen=True, eq=False)
class Order:
    """Which rows a step takes.

    Parameters
    ----------
    rows, batch_size, seed : int
    lengths : Tensor, optional
        Of the rows, where those of a batch are to be alike.
    """

    rows: int
    batch_size: int
    seed: int
    lengths: Tensor | None = None

    @property
    def steps(self) -> int:
        """In an epoch: batches that are full, or one."""
        return max(self.rows // self.batch_size, 1)

    def of(self, epoch: int) -> Tensor:
        """All rows of an epoch, one batch after another."""
        generator = torch.Generator().manual_seed(seed_of(self.seed, 0, epoch))
        order = torch.randperm(self.rows, generator=generator)
        if self.lengths is None or self.rows < self.batch_size:
            return order
        # By length within some batches, which then come in any order; the last rows are left out.
        full = order[: self.steps * self.batch_size]
        windows = torch.split(full, WINDOW * self.batch_size)
        alike = torch.cat([rows[self.lengths[rows].argsort()] for rows in windows])
        batches = alike.view(self.steps, self.batch_size)
        shuffled = batches[torch.randperm(self.steps, generator=generator)]
        return torch.cat([shuffled.flatten(), order[len(full) :]])

    def batch(self, order: Tensor, step: int) -> Tensor:
        """The rows of a step of that epoch."""
        return order[step * self.batch_size : (step + 1) * self.batch_size]
