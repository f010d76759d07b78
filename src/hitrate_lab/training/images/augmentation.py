"""Images changed at random, where they are, a batch at a time.

Each function takes images (N, C, H, W), a number and a generator on their device. The draws are for
as many rows as the generator is asked for, so that a process that has a part of a batch can draw
for all of it and take its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hitrate_lab.training.images.auto_augment import affine, auto_augment, mapped, rotated


class Draws:
    """Random numbers for the rows of a whole batch, of which a process has some.

    Parameters
    ----------
    seed : int
    rows : int
        Of the whole batch.
    mine : slice
        Those that are here.
    device : torch.device
    turn : Tensor, optional
        For each row here whether its turn has come, every second epoch.
    """

    def __init__(
        self,
        seed: int,
        rows: int,
        mine: slice,
        device: torch.device,
        turn: Tensor | None = None,
    ) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._rows, self._mine, self._device = rows, mine, device
        self._turn = turn

    def turns(self) -> Tensor:
        """Whether each row here has its turn: for half of them now, in the next epoch not."""
        assert self._turn is not None, "who draws has to say"
        return self._turn

    def integers(self, end: int) -> Tensor:
        """One for each row here, from 0 to end - 1."""
        drawn = torch.randint(end, (self._rows,), generator=self._generator, device=self._device)
        return drawn[self._mine]

    def uniform(self) -> Tensor:
        """One for each row here, in [0, 1)."""
        drawn = torch.rand(self._rows, generator=self._generator, device=self._device)
        return drawn[self._mine]


def crop(images: Tensor, by: float, draws: Draws) -> Tensor:
    """Shifted by up to so many pixels in each direction; the border is mirrored."""
    reach = int(by)
    rows, channels, height, width = images.shape
    padded = F.pad(images, (reach, reach, reach, reach), mode="reflect")
    down = draws.integers(2 * reach + 1)[:, None] + torch.arange(height, device=images.device)
    right = draws.integers(2 * reach + 1)[:, None] + torch.arange(width, device=images.device)
    each = torch.arange(rows, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[:, None, None]
    return padded[each, channel, down[:, None, :, None], right[:, None, None, :]]


def flip(images: Tensor, share: float, draws: Draws) -> Tensor:
    """That share of them from left to right."""
    flipped = (draws.uniform() < share)[:, None, None, None]
    return torch.where(flipped, images.flip(3), images)


def alternate(images: Tensor, share: float, draws: Draws) -> Tensor:
    """From left to right in every second epoch, half of them in each."""
    flipped = draws.turns()[:, None, None, None]
    return torch.where(flipped, images.flip(3), images)


def rotate(images: Tensor, degrees: float, draws: Draws) -> Tensor:
    """By at most so many degrees, about the middle, black outside."""
    angle = (2 * draws.uniform() - 1) * degrees
    return rotated(images, angle.to(images.dtype), "bilinear")


def shift(images: Tensor, share: float, draws: Draws) -> Tensor:
    """By at most that share of the side in each direction, black outside."""
    by = [(2 * draws.uniform() - 1) * share * size for size in (images.shape[3], images.shape[2])]
    right, down = (each.round().to(images.dtype) for each in by)
    return mapped(images, affine(images, a02=-right, a12=-down))


def cutout(images: Tensor, size: float, draws: Draws) -> Tensor:
    """A square of this size, its centre anywhere, set to zero."""
    height, width = images.shape[2:]
    return images.masked_fill(_square(images, draws, height, width, int(size)), 0.0)


def _square(images: Tensor, draws: Draws, height: int, width: int, size: int) -> Tensor:
    inside = []
    for length, dimension in ((height, 2), (width, 3)):
        first = draws.integers(length)[:, None] - size // 2
        place = torch.arange(length, device=images.device)
        is_in = (place >= first) & (place < first + size)  # (N, length)
        inside.append(is_in.unsqueeze(1).unsqueeze(5 - dimension))
    return inside[0] & inside[1]


AUGMENTATIONS: dict[str, Callable[[Tensor, float, Draws], Tensor]] = {
    "rotate": rotate,
    "shift": shift,
    "crop": crop,
    "flip": flip,
    "alternate": alternate,
    "auto_augment": auto_augment,
    "cutout": cutout,
}


def augmented(images: Tensor, wanted: Mapping[str, float], draws: Draws) -> Tensor:
    """One after another, in the order of `AUGMENTATIONS`."""
    for name, change in AUGMENTATIONS.items():
        if name in wanted:
            images = change(images, wanted[name], draws)
    return images


class Mixture(NamedTuple):
    """Rows mixed with their neighbours: a step has one share for all."""

    x: Tensor
    target: Tensor  # (N, C), probabilities.


def mixed(
    x: Tensor,
    target: Tensor,
    classes: int,
    random: np.random.Generator,
    mixup: float,
    cutmix: float,
) -> Mixture:
    """Each row with its neighbour: sums of both (mixup), or a rectangle of the other (cutmix).

    Rows come in random order, so the neighbour is any. Pairs stay together when an even number of
    rows is dealt to each process.
    """
    hot = F.one_hot(target, classes).float()
    pair = torch.arange(len(x), device=x.device) ^ 1
    pair = pair.clamp(max=len(x) - 1)
    by_rectangle = cutmix > 0 and (mixup == 0 or random.random() < 0.5)
    if not by_rectangle:
        kept = float(random.beta(mixup, mixup))
        return Mixture(kept * x + (1 - kept) * x[pair], kept * hot + (1 - kept) * hot[pair])
    height, width = x.shape[2:]
    side = float(np.sqrt(1 - random.beta(cutmix, cutmix)))
    top, bottom = _interval(random, height, side)
    left, right = _interval(random, width, side)
    x = x.clone()
    x[:, :, top:bottom, left:right] = x[pair][:, :, top:bottom, left:right]
    kept = 1 - (bottom - top) * (right - left) / (height * width)
    return Mixture(x, kept * hot + (1 - kept) * hot[pair])


def _interval(random: np.random.Generator, length: int, share: float) -> tuple[int, int]:
    half = int(length * share) // 2
    middle = int(random.integers(length))
    return max(middle - half, 0), min(middle + half, length)
