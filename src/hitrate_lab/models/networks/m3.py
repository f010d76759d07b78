"""M3: ten convolutions of 3 x 3 without padding, each with sixteen channels more than the last.

An, Lee, Park, Yang, So. An ensemble of simple convolutional neural network models for MNIST digit
recognition. arXiv 2008.10400.
"""

from __future__ import annotations

from torch import nn

from hitrate_lab.models.networks.last import Linear

FIRST, MORE, CONVOLUTIONS = 32, 16, 10


def m3(
    classes: int, channels: int, side: int, *, first: int = FIRST, more: int = MORE
) -> nn.Module:
    """From 28 pixels on each side to 8, then one linear layer with batch normalisation.

    `first` channels, and `more` with each convolution: fewer of both make a smaller one.
    """
    layers: list[nn.Module] = []
    for number in range(CONVOLUTIONS):
        width = first + number * more
        layers += [nn.Conv2d(channels, width, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    left = side - 2 * CONVOLUTIONS
    if left < 1:
        raise ValueError(f"m3: images of {side} pixels on a side are too small, needs 21 or more")
    head = [nn.Flatten(), Linear(channels * left * left, classes, bias=False)]
    return nn.Sequential(*layers, *head, nn.BatchNorm1d(classes))
