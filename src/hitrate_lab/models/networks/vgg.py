"""VGG with batch normalisation and one linear layer, for small images.

Simonyan, Zisserman. Very Deep Convolutional Networks for Large-Scale Image Recognition (2014).
"""

from __future__ import annotations

from torch import nn

from hitrate_lab.models.networks.last import Linear

# Channels of the convolutions between two poolings.
GROUPS = {
    11: ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    16: ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
}


def vgg(classes: int, channels: int, side: int, *, depth: int) -> nn.Module:
    """Five groups of convolutions, each followed by the largest of four."""
    layers: list[nn.Module] = []
    for group in GROUPS[depth]:
        for width in group:
            layers += [
                nn.Conv2d(channels, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), Linear(channels, classes))
