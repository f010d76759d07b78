"""Wide residual networks for images of 32 pixels.

Zagoruyko, Komodakis. Wide Residual Networks. arXiv 1605.07146.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from hitrate_lab.models.networks.last import Linear


class Block(nn.Module):
    """Two 3 x 3 convolutions with their shortcut, activation first."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(channels), nn.BatchNorm2d(wider)
        self.one = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(wider, wider, 3, 1, 1, bias=False)
        same = channels == wider and stride == 1
        self.shortcut = None if same else nn.Conv2d(channels, wider, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = F.relu(self.first(x))
        x = x if self.shortcut is None else self.shortcut(y)
        out: Tensor = x + self.two(F.relu(self.second(self.one(y))))
        return out


def wide_resnet(
    classes: int, channels: int = 3, side: int = 32, *, depth: int, width: int
) -> nn.Module:
    """Three groups of blocks, each twice as wide and half as large as the one before."""
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, 1, 1, bias=False)]
    channels = 16
    for group in range(3):
        wider = 16 * width * 2**group
        for block in range((depth - 4) // 6):
            layers.append(Block(channels, wider, 2 if group and not block else 1))
            channels = wider
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, Linear(channels, classes))
