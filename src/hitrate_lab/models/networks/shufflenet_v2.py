"""ShuffleNetV2, its single width, for images of 32 pixels: without the strides of its stem.

Ma, Zhang, Zheng, Sun. ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design.
2018.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hitrate_lab.models.networks.last import Linear

STEM = 24
# Channels and units of each group.
GROUPS = ((116, 4), (232, 8), (464, 4))
LAST = 1024


def normalized(
    channels: int, out: int, size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A convolution with its batch normalisation."""
    shape = (channels, out, size, stride, size // 2)
    return [nn.Conv2d(*shape, groups=groups, bias=False), nn.BatchNorm2d(out)]


class Unit(nn.Module):
    """Half of the channels goes through three convolutions; then both halves are interleaved."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        half = out // 2
        self.is_split = stride == 1
        entering = channels // 2 if self.is_split else channels
        self.main = nn.Sequential(
            *normalized(entering, half, 1),
            nn.ReLU(),
            *normalized(half, half, 3, stride, half),
            *normalized(half, half, 1),
            nn.ReLU(),
        )
        self.side = None
        if not self.is_split:
            self.side = nn.Sequential(
                *normalized(channels, channels, 3, stride, channels),
                *normalized(channels, half, 1),
                nn.ReLU(),
            )

    def forward(self, x: Tensor) -> Tensor:
        """The unit's output."""
        if self.side is None:
            beside, x = x.chunk(2, dim=1)
        else:
            beside = self.side(x)
        both = torch.stack([beside, self.main(x)], 2)  # (N, half, 2, H, W)
        return both.flatten(1, 2)


def shufflenet_v2(classes: int, channels: int, side: int) -> nn.Module:
    """Three groups of units, the first of each with a stride."""
    layers: list[nn.Module] = [*normalized(channels, STEM, 3), nn.ReLU()]
    last = STEM
    for out, units in GROUPS:
        for number in range(units):
            layers.append(Unit(last, out, 1 if number else 2))
            last = out
    layers += [*normalized(last, LAST, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, Linear(LAST, classes))
