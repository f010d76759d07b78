"""AutoAugment with the policy found for CIFAR-10, on whole batches where they are.

Cubuk, Zoph, Mane, Vasudevan, Le. AutoAugment: Learning Augmentation Policies from Data (2019). An
image gets one of 25 pairs of operations, each with its probability and strength; signs are drawn.
Images are numbers from 0 to 1 in steps of 1/255, as those of bytes are, and stay so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from hitrate_lab.training.images.augmentation import Draws

# Operation, probability, strength from 0 to 9; where there is none it has no effect.
Step = tuple[str, float, int]
POLICY: tuple[tuple[Step, Step], ...] = (
    (("invert", 0.1, 0), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("move_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("move_y", 0.7, 9)),
    (("autocontrast", 0.5, 0), ("equalize", 0.9, 0)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("color", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 0), ("equalize", 0.5, 0)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("color", 0.7, 7), ("move_x", 0.5, 8)),
    (("equalize", 0.3, 0), ("autocontrast", 0.4, 0)),
    (("move_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("color", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 0)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 0), ("equalize", 0.6, 0)),
    (("color", 0.9, 9), ("equalize", 0.6, 0)),
    (("autocontrast", 0.8, 0), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("color", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 0)),
    (("move_y", 0.9, 9), ("move_y", 0.7, 9)),
    (("autocontrast", 0.9, 0), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 0), ("invert", 0.1, 0)),
    (("move_y", 0.7, 9), ("autocontrast", 0.9, 0)),
)
STRONGEST = 9
# What the greatest strength means: degrees, a slope, a share of the side, a change of a factor.
DEGREES, SLOPE, SHARE, CHANGE = 30.0, 0.3, 150 / 331, 0.9
# Of red, green and blue in grey.
GREY = (0.299, 0.587, 0.114)


def auto_augment(images: Tensor, share: float, draws: Draws) -> Tensor:
    """That share of the images, (N, 3, H, W), each by a pair of the policy.

    Parameters
    ----------
    images : Tensor
    share : float
    draws : Draws
    """
    if images.shape[1] != 3:
        raise ValueError(f"auto_augment: needs images of 3 channels, got {images.shape[1]}")
    device = images.device
    pair, wanted = draws.integers(len(POLICY)), draws.uniform() < share
    images = images.clone()
    for slot in range(2):
        names = [steps[slot][0] for steps in POLICY]
        chance = torch.tensor([steps[slot][1] for steps in POLICY], device=device)
        strength = torch.tensor([steps[slot][2] for steps in POLICY], device=device)
        happens = wanted & (draws.uniform() < chance[pair])
        sign = torch.where(draws.uniform() < 0.5, -1.0, 1.0)
        signed = strength[pair] / STRONGEST * sign
        for name in sorted(set(names)):
            has_it = torch.tensor([each == name for each in names], device=device)
            rows = (happens & has_it[pair]).nonzero()[:, 0]
            if len(rows):
                images[rows] = OPERATIONS[name](images[rows], signed[rows].to(images.dtype))
    return images


def _column(strength: Tensor) -> Tensor:
    return strength[:, None, None, None]


def _byte(images: Tensor) -> Tensor:
    """The nearest number that a byte has, towards zero, as pictures' libraries cut it."""
    return (images * 255 + 1e-3).floor().clamp(0, 255) / 255


def mapped(images: Tensor, matrix: Tensor, mode: str = "nearest") -> Tensor:
    """Images by affine maps (N, 2, 3) of places, in pixels from the middle; black outside."""
    height, width = images.shape[2:]
    down, right = torch.meshgrid(
        torch.arange(height, dtype=images.dtype, device=images.device) - (height - 1) / 2,
        torch.arange(width, dtype=images.dtype, device=images.device) - (width - 1) / 2,
        indexing="ij",
    )
    places = torch.stack([right, down, torch.ones_like(right)], -1)  # (H, W, 3)
    found = torch.einsum("nij,hwj->nhwi", matrix.to(images.dtype), places)
    scale = torch.tensor([2 / width, 2 / height], dtype=images.dtype, device=images.device)
    return F.grid_sample(images, found * scale, mode, "zeros", align_corners=False)


def affine(like: Tensor, **entries: Tensor) -> Tensor:
    """Maps (N, 2, 3) that differ from doing nothing in the entries given, such as ``a01``."""
    matrix = like.new_zeros(len(like), 2, 3)
    matrix[:, 0, 0] = matrix[:, 1, 1] = 1
    for name, value in entries.items():
        matrix[:, int(name[1]), int(name[2])] = value
    return matrix


def rotated(images: Tensor, degrees: Tensor, mode: str = "nearest") -> Tensor:
    """About the middle, to the left where the angle is positive."""
    angle = degrees * math.pi / 180
    sine, cosine = torch.sin(angle), torch.cos(angle)
    return mapped(images, affine(images, a00=cosine, a01=-sine, a10=sine, a11=cosine), mode)


def _rotate(images: Tensor, strength: Tensor) -> Tensor:
    return rotated(images, DEGREES * strength)


def _shear_y(images: Tensor, strength: Tensor) -> Tensor:
    return mapped(images, affine(images, a10=SLOPE * strength))


def _move_x(images: Tensor, strength: Tensor) -> Tensor:
    by = (SHARE * images.shape[3] * strength).trunc()
    return mapped(images, affine(images, a02=-by))


def _move_y(images: Tensor, strength: Tensor) -> Tensor:
    by = (SHARE * images.shape[2] * strength).trunc()
    return mapped(images, affine(images, a12=-by))


def _blended(images: Tensor, other: Tensor, strength: Tensor) -> Tensor:
    """From another image (factor 0) through itself (1) and beyond."""
    factor = 1 + CHANGE * _column(strength)
    return _byte(other + factor * (images - other))


def _grey(images: Tensor) -> Tensor:
    weight = images.new_tensor(GREY)[:, None, None]
    return _byte((images * weight).sum(1, keepdim=True))


def _brightness(images: Tensor, strength: Tensor) -> Tensor:
    return _blended(images, torch.zeros_like(images), strength)


def _color(images: Tensor, strength: Tensor) -> Tensor:
    return _blended(images, _grey(images).expand_as(images), strength)


def _contrast(images: Tensor, strength: Tensor) -> Tensor:
    mean = _grey(images).mean((1, 2, 3), keepdim=True)
    return _blended(images, mean.expand_as(images), strength)


def _sharpness(images: Tensor, strength: Tensor) -> Tensor:
    kernel = images.new_tensor([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    smooth = images.clone()
    each = kernel.expand(3, 1, 3, 3)
    smooth[:, :, 1:-1, 1:-1] = (F.conv2d(images, each, groups=3) * 255).round() / 255
    return _blended(images, smooth, strength)


def _invert(images: Tensor, strength: Tensor) -> Tensor:
    return 1 - images


def _posterize(images: Tensor, strength: Tensor) -> Tensor:
    # Four bits less at the greatest strength.
    size = 2 ** (4 * _column(strength.abs())).round()
    level = (images * 255).round()
    return (level / size).floor() * size / 255


def _solarize(images: Tensor, strength: Tensor) -> Tensor:
    return torch.where(images >= 1 - _column(strength.abs()), 1 - images, images)


def _autocontrast(images: Tensor, strength: Tensor) -> Tensor:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    stretched = _byte((images - low) / (high - low).clamp_min(1 / 255))
    return torch.where(high > low, stretched, images)


def _equalize(images: Tensor, strength: Tensor) -> Tensor:
    """Levels by their ranks, channel by channel."""
    level = (images * 255).round().long().flatten(2).flatten(0, 1)  # (N C, H W)
    count = torch.zeros(len(level), 256, dtype=torch.long, device=images.device)
    count.scatter_add_(1, level, torch.ones_like(level))
    place = torch.arange(256, device=images.device)
    last = torch.where(count > 0, place, 0).amax(1, keepdim=True)
    step = (count.sum(1, keepdim=True) - count.gather(1, last)) // 255
    below = count.cumsum(1) - count
    table = ((below + step // 2) // step.clamp_min(1)).clamp(0, 255)
    table = torch.where(step > 0, table, place)
    return (table.gather(1, level).to(images.dtype) / 255).view_as(images)


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autocontrast": _autocontrast,
    "brightness": _brightness,
    "color": _color,
    "contrast": _contrast,
    "equalize": _equalize,
    "invert": _invert,
    "move_x": _move_x,
    "move_y": _move_y,
    "posterize": _posterize,
    "rotate": _rotate,
    "sharpness": _sharpness,
    "shear_y": _shear_y,
    "solarize": _solarize,
}
