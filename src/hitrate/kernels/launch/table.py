"""The numbers that all programs read: `hitrate.kernels.parts.chebyshev` says what they are for."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from hitrate.kernels.parts import chebyshev, epilogue


@functools.lru_cache(maxsize=8)
def _pristine(device: torch.device) -> Tensor:
    """A count of programs, 0; room for their sums; then waves, powers and points."""
    count = int(chebyshev.POINTS)
    angle = (torch.arange(count, dtype=torch.float64) + 0.5) * (math.pi / count)
    # What makes coefficients: T_j at the points, times 2 / points, half that for j = 0.
    waves = torch.cos(torch.arange(count)[:, None] * angle) * (2 / count)
    waves[0] /= 2
    parts = (waves, waves.T, _powers(count), torch.cos(angle))
    sums = torch.zeros(int(epilogue.WAVES), dtype=torch.float64)
    return torch.cat([sums, *(part.flatten() for part in parts)]).float().to(device)


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
