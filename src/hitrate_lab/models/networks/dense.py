"""Linear models and networks of dense layers, on the pixels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import nn

from hitrate_lab.models.networks.last import Linear


def dense(classes: int, channels: int, side: int, *, hidden: Sequence[int]) -> nn.Module:
    """One linear layer, or some with rectifiers between."""
    widths = [channels * side * side, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for width, following in itertools.pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers, Linear(widths[-1], classes))
