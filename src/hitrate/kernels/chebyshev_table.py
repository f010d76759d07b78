"""The numbers that all programs read: `hitrate.kernels.chebyshev` says what they are for."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from hitrate.kernels import chebyshev, epilogue


@functools.lru_cache(maxsize=8)
def _pristine(device: torch.device) -> Tensor:
    """A count of programs, 0; room for their sums; then waves, points and powers."""
    count, pitch = int(chebyshev.POINTS), int(chebyshev.PITCH)
    angle = (torch.arange(count, dtype=torch.float64) + 0.5) * (math.pi / count)
    rows = torch.zeros(2 * count + 1, pitch, dtype=torch.float64)
    # What makes coefficients: T_j at the points, times 2 / points, half that for j = 0.
    waves = torch.cos(torch.arange(count)[:, None] * angle) * (2 / count)
    waves[0] /= 2
    rows[:count, :count] = waves
    rows[count, :count] = torch.cos(angle)
    rows[count + 1 :, :count] = _powers(count).T
    return torch.cat([torch.zeros(int(epilogue.WAVES)), rows.flatten().float()]).to(device)


def _powers(terms: int) -> Tensor:
    """Coefficients (j, m) of x^m in T_j."""
    found = torch.zeros(terms, terms, dtype=torch.float64)
    found[0, 0] = found[1, 1] = 1.0
    for j in range(2, terms):
        found[j] = -found[j - 2]
        found[j, 1:] += 2 * found[j - 1, :-1]
    return found


_TABLES: dict[tuple[torch.device, int], Tensor] = {}


def table_of(device: torch.device, stream: int) -> Tensor:
    """The table for a stream, whose kernels come one by one and leave the count at 0."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # A graph may run beside others, on any stream.
        return _pristine(device).clone()
    table = _TABLES.get((device, stream))
    if table is None:
        table = _TABLES[device, stream] = _pristine(device).clone()
    return table
