"""A small network for images of 32 pixels that is trained in seconds.

After Jordan, 94 % on CIFAR-10 in 3.29 Seconds on a Single GPU (arXiv 2404.00498): a first layer
that whitens patches and stays as it is, three groups of two convolutions with normalisation whose
scale does not move, and logits scaled down.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hitrate_lab.models.networks.last import Linear

WIDTHS = (64, 256, 256)
PATCH = 2
SCALE = 1 / 9
# Batches that normalisation remembers, and what is added to the variances of patches.
MOMENTUM, LEAST_VARIANCE = 0.4, 5e-4


class Whitening(nn.Conv2d):
    """Patches by the directions in which those of the training images vary, and their negatives.

    `fit` sets the filters; they are not trained, their bias is.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 2 * channels * PATCH**2, PATCH)
        self.weight.requires_grad = False

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Take the directions from images (N, channels, H, W)."""
        patches = nn.functional.unfold(images, PATCH).transpose(1, 2).flatten(0, 1)  # (P, D)
        variance = patches.T @ patches / len(patches)
        values, directions = torch.linalg.eigh(variance.double())
        rows = (directions / (values + LEAST_VARIANCE).sqrt()).T.flip(0)
        filters = rows.reshape(-1, images.shape[1], PATCH, PATCH)
        self.weight.copy_(torch.cat([filters, -filters]))


class Normalized(nn.BatchNorm2d):
    """Its scale does not move."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, momentum=MOMENTUM, eps=1e-12)
        self.weight.requires_grad = False


class Group(nn.Module):
    """Two convolutions, the first with a pooling."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.one, self.two = first_as_it_is(channels, width), first_as_it_is(width, width)
        self.body = nn.Sequential(
            self.one,
            nn.MaxPool2d(2),
            Normalized(width),
            nn.GELU(),
            self.two,
            Normalized(width),
            nn.GELU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The group's output."""
        y: Tensor = self.body(x)
        return y


def first_as_it_is(channels: int, width: int) -> nn.Conv2d:
    """A convolution whose first filters pass the channels on as they are."""
    layer = nn.Conv2d(channels, width, 3, padding="same", bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[: min(channels, width)])
    return layer


class Fast(nn.Module):
    """Whitening, groups, the largest of what is left, logits scaled down."""

    def __init__(self, classes: int, channels: int, widths: Sequence[int], scale: float) -> None:
        super().__init__()
        self.whitening = Whitening(channels)
        wider = self.whitening.out_channels
        groups = []
        for width in widths:
            groups.append(Group(wider, width))
            wider = width
        self.body = nn.Sequential(nn.GELU(), *groups, nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.head = Linear(wider, classes, bias=False)
        self.scale = scale

    def fit(self, images: Tensor) -> None:
        """Let the first layer know the training images."""
        self.whitening.fit(images)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, C)."""
        logits: Tensor = self.head(self.body(self.whitening(x)))
        return self.scale * logits


def fast(
    classes: int,
    channels: int,
    side: int,
    *,
    widths: Sequence[int] = WIDTHS,
    scale: float = SCALE,
) -> nn.Module:
    """With other widths it has another capacity."""
    return Fast(classes, channels, widths, scale)
