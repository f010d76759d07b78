"""Last layers, in full precision: in half of it many rows have two highest logits that are equal.

Such a row goes to the first of its classes, which where classes are sorted by frequency is no
matter of chance.
"""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """A linear layer that autocast leaves alone."""

    def forward(self, input: Tensor) -> Tensor:
        """Logits (N, C)."""
        with _without_autocast(input):
            return F.linear(input.to(self.weight.dtype), self.weight, self.bias)


class Cosines(nn.Module):
    """Cosines of the angles between the features and a direction of each class.

    Parameters
    ----------
    channels, classes : int
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(classes, channels)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, C), from -1 to 1."""
        with _without_autocast(x):
            return F.linear(F.normalize(x.to(self.weight.dtype)), F.normalize(self.weight))


def _without_autocast(x: Tensor) -> contextlib.AbstractContextManager[None]:
    """Where products are as precise as their operands; "meta" has no autocast to leave."""
    kind = x.device.type
    if not torch.amp.is_autocast_available(kind):
        return contextlib.nullcontext()
    return torch.autocast(kind, enabled=False)
