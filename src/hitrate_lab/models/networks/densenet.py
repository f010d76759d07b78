"""Densely connected networks for small images: each layer sees all before it.

Huang, Liu, van der Maaten, Weinberger. Densely Connected Convolutional Networks (2017).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hitrate_lab.models.networks.last import Linear


class Layer(nn.Module):
    """New channels beside those that came in."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, growth, 3, 1, 1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Old and new channels."""
        return torch.cat([x, self.body(x)], 1)


def densenet(classes: int, channels: int, side: int, *, depth: int, growth: int) -> nn.Module:
    """Three groups of layers with poolings between, depth = 3 n + 4."""
    layers: list[nn.Module] = [nn.Conv2d(channels, 2 * growth, 3, 1, 1, bias=False)]
    channels = 2 * growth
    for group in range(3):
        for _ in range((depth - 4) // 3):
            layers.append(Layer(channels, growth))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if group < 2:
            layers += [nn.Conv2d(channels, channels, 1, bias=False), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), Linear(channels, classes))
