"""Residual networks for small images: thin ones, those with ImageNet's widths, grouped ones.

He, Zhang, Ren, Sun. Deep Residual Learning for Image Recognition, and Identity Mappings in Deep
Residual Networks (2016). Xie, Girshick, Dollár, Tu, He. Aggregated Residual Transformations for
Deep Neural Networks (2016).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from hitrate_lab.models.networks.last import Cosines, Linear


def convolution(
    channels: int, wider: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    """Without a bias, which normalisation would take away again."""
    return nn.Conv2d(channels, wider, size, stride, size // 2, groups=groups, bias=False)


class Padded(nn.Module):
    """A shortcut without parameters: every second pixel, and zeros in the new channels."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, x: Tensor) -> Tensor:
        """The thinned images."""
        x = x[:, :, :: self.stride, :: self.stride]
        return F.pad(x, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))


class Basic(nn.Module):
    """Two 3 x 3 convolutions; the last rectifier comes behind the sum."""

    def __init__(self, channels: int, wider: int, stride: int, is_padded: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolution(channels, wider, 3, stride),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            convolution(wider, wider, 3),
            nn.BatchNorm2d(wider),
        )
        self.shortcut = shortcut(channels, wider, stride, is_padded)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return F.relu(self.body(x) + self.shortcut(x))


class Preactivated(nn.Module):
    """Two 3 x 3 convolutions, each behind its normalisation and rectifier."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.body = nn.Sequential(
            convolution(channels, wider, 3, stride),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            convolution(wider, wider, 3),
        )
        same = channels == wider and stride == 1
        self.shortcut = None if same else convolution(channels, wider, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = self.first(x)
        x = x if self.shortcut is None else self.shortcut(y)
        out: Tensor = x + self.body(y)
        return out


class Grouped(nn.Module):
    """1 x 1, a 3 x 3 convolution in groups, 1 x 1 to twice the width."""

    def __init__(self, channels: int, inner: int, stride: int, groups: int) -> None:
        super().__init__()
        wider = 2 * inner
        self.body = nn.Sequential(
            convolution(channels, inner, 1),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            convolution(inner, inner, 3, stride, groups),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            convolution(inner, wider, 1),
            nn.BatchNorm2d(wider),
        )
        self.shortcut = shortcut(channels, wider, stride, False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return F.relu(self.body(x) + self.shortcut(x))


def shortcut(channels: int, wider: int, stride: int, is_padded: bool) -> nn.Module:
    """Around a block."""
    if channels == wider and stride == 1:
        return nn.Identity()
    if is_padded:
        return Padded(wider - channels, stride)
    return nn.Sequential(convolution(channels, wider, 1, stride), nn.BatchNorm2d(wider))


def thin(classes: int, channels: int, side: int, *, depth: int, cosine: bool = False) -> nn.Module:
    """16, 32 and 64 channels, depth = 6 n + 2, shortcuts without parameters.

    With `cosine` logits are from -1 to 1, as margins by class want them.
    """
    layers: list[nn.Module] = [convolution(channels, 16, 3), nn.BatchNorm2d(16), nn.ReLU()]
    last = 16
    for group, width in enumerate((16, 32, 64)):
        for block in range((depth - 2) // 6):
            layers.append(Basic(last, width, 2 if group and not block else 1, is_padded=True))
            last = width
    pooled, flat, linear = head(last, classes)
    return nn.Sequential(*layers, pooled, flat, Cosines(last, classes) if cosine else linear)


def wide_stem(
    classes: int, channels: int, side: int, *, block: str, blocks: Sequence[int]
) -> nn.Module:
    """64 to 512 channels as for ImageNet, behind one 3 x 3 convolution without stride."""
    make: Callable[..., nn.Module] = {"basic": Basic, "preactivated": Preactivated}[block]
    layers: list[nn.Module] = [convolution(channels, 64, 3)]
    if block == "basic":
        layers += [nn.BatchNorm2d(64), nn.ReLU()]
    last = 64
    for group, count in enumerate(blocks):
        width = 64 * 2**group
        for number in range(count):
            layers.append(make(last, width, 2 if group and not number else 1))
            last = width
    if block == "preactivated":
        layers += [nn.BatchNorm2d(last), nn.ReLU()]
    return nn.Sequential(*layers, *head(last, classes))


def resnext(classes: int, channels: int, side: int, *, groups: int, width: int) -> nn.Module:
    """Three groups of three blocks; `groups` paths, each `width` wide in the first."""
    make = functools.partial(Grouped, groups=groups)
    layers: list[nn.Module] = [convolution(channels, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    last = 64
    for group in range(3):
        inner = groups * width * 2**group
        for number in range(3):
            layers.append(make(last, inner, 2 if group and not number else 1))
            last = 2 * inner
    return nn.Sequential(*layers, *head(last, classes))


def head(channels: int, classes: int) -> tuple[nn.Module, ...]:
    """The mean over all places, and a linear layer."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), Linear(channels, classes)
