"""MobileNetV2 for images of 32 pixels: its first two strides are left out.

Sandler, Howard, Zhu, Zhmoginov, Chen. MobileNetV2: Inverted Residuals and Linear Bottlenecks. 2018.
"""

from __future__ import annotations

from torch import Tensor, nn

from hitrate_lab.models.networks.last import Linear

# Expansion, channels, blocks and first stride of each group.
GROUPS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, LAST = 32, 1280


def normalized(
    channels: int, wider: int, size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A convolution with its batch normalisation."""
    shape = (channels, wider, size, stride, size // 2)
    return [nn.Conv2d(*shape, groups=groups, bias=False), nn.BatchNorm2d(wider)]


class Inverted(nn.Module):
    """Wider, each channel by itself, narrow again; with a shortcut where shapes agree."""

    def __init__(self, channels: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        layers = [] if expansion == 1 else [*normalized(channels, wide, 1), nn.ReLU6()]
        layers += [*normalized(wide, wide, 3, stride, wide), nn.ReLU6(), *normalized(wide, out, 1)]
        self.body = nn.Sequential(*layers)
        self.is_residual = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y: Tensor = self.body(x)
        return x + y if self.is_residual else y


def mobilenet_v2(classes: int, channels: int, side: int) -> nn.Module:
    """Seven groups of inverted bottlenecks."""
    layers: list[nn.Module] = [*normalized(channels, STEM, 3), nn.ReLU6()]
    last = STEM
    for expansion, out, blocks, stride in GROUPS:
        for number in range(blocks):
            layers.append(Inverted(last, out, 1 if number else stride, expansion))
            last = out
    layers += [*normalized(last, LAST, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, Linear(LAST, classes))
