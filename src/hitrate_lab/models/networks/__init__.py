"""Networks for images, one registry: the name that a study's file uses, and what builds it.

A builder gets channels and side of the images and the number of classes. Adding a network is its
file and a line here.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

# Module and function, and arguments of it beside those that all have.
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "densenet_40_12": ("densenet:densenet", {"depth": 40, "growth": 12}),
    "fast": ("fast:fast", {}),
    "linear": ("dense:dense", {"hidden": ()}),
    "m3": ("m3:m3", {}),
    "m3_quarter": ("m3:m3", {"first": 8, "more": 4}),
    "mobilenet_v2": ("mobilenet_v2:mobilenet_v2", {}),
    "preact_resnet_18": ("residual:wide_stem", {"block": "preactivated", "blocks": (2, 2, 2, 2)}),
    "resnet_18": ("residual:wide_stem", {"block": "basic", "blocks": (2, 2, 2, 2)}),
    "resnet_20": ("residual:thin", {"depth": 20}),
    "resnet_32": ("residual:thin", {"depth": 32}),
    "resnet_34": ("residual:wide_stem", {"block": "basic", "blocks": (3, 4, 6, 3)}),
    "resnet_44": ("residual:thin", {"depth": 44}),
    "resnet_110": ("residual:thin", {"depth": 110}),
    "resnext_29": ("residual:resnext", {"groups": 32, "width": 4}),
    "shufflenet_v2": ("shufflenet_v2:shufflenet_v2", {}),
    "vgg_16": ("vgg:vgg", {"depth": 16}),
    "wide_resnet_16_8": ("wide_resnet:wide_resnet", {"depth": 16, "width": 8}),
    "wide_resnet_28_10": ("wide_resnet:wide_resnet", {"depth": 28, "width": 10}),
    **{f"mlp_{hidden}": ("dense:dense", {"hidden": (hidden,)}) for hidden in (4, 8, 16, 32, 128)},
}


def network(
    name: str, classes: int, *, channels: int = 3, side: int = 32, **changes: Any
) -> nn.Module:
    """A network with fresh weights, from images (N, channels, side, side) to logits (N, classes).

    Parameters
    ----------
    name : str
        Of `NETWORKS`.
    classes, channels, side : int
    **changes
        Other arguments of the network's function.

    Examples
    --------
    >>> network("resnet_20", 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    return _builder(name)(classes, channels, side, **changes)


def _builder(name: str) -> Callable[..., nn.Module]:
    if name not in NETWORKS:
        raise ValueError(f"network({name!r}): is not one of {', '.join(NETWORKS)}")
    place, settings = NETWORKS[name]
    module, function = place.split(":")
    found = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return functools.partial(found, **settings)


class Standardized(nn.Module):
    """A network behind the usual shift and scale of each channel, which are kept with it.

    Parameters
    ----------
    inner : nn.Module
    mean, std : Tensor, shape (channels,)
        Of images from 0 to 1.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, inner: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", mean.view(-1, 1, 1))
        self.register_buffer("std", std.view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, C) of images (N, channels, H, W)."""
        logits: Tensor = self.inner((x - self.mean) / self.std)
        return logits


class Mirrored(nn.Module):
    """In evaluation, the mean logits of an image, its mirror image and of both a little shifted.

    Parameters
    ----------
    inner : nn.Module
    shift : int
        Pixels up and left, with half the weight together; 0 is without.
    """

    def __init__(self, inner: nn.Module, shift: int = 0) -> None:
        super().__init__()
        self.inner, self.shift = inner, shift

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, C)."""
        if self.training:
            return self._of(x)
        both = 0.5 * (self._of(x) + self._of(x.flip(3)))
        if not self.shift:
            return both
        by = self.shift
        padded = nn.functional.pad(x, (by, by, by, by), mode="reflect")
        height, width = x.shape[2:]
        moved = [
            part
            for first in (0, 2 * by)
            for piece in [padded[:, :, first : first + height, first : first + width]]
            for part in (self._of(piece), self._of(piece.flip(3)))
        ]
        return 0.5 * both + 0.5 * torch.stack(moved).mean(0)

    def _of(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x)
        return logits
