"""The batches of a training: which rows, how they are changed, in how many parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hitrate_lab.seeds import seed_of
from hitrate_lab.training.images.augmentation import Draws, augmented, mixed
from hitrate_lab.training.options import Options
from hitrate_lab.training.processes import Place
from hitrate_lab.training.rows import Order, Ragged, Rows, Source

# What is drawn from a seed, beside the order of rows.
AUGMENTATION, MIXTURE, TURNS = 1, 2, 4


class Part(NamedTuple):
    """Some rows of a batch: features, what is to be learned, and the classes."""

    x: Tensor
    goal: Tensor
    target: Tensor


class Batches:
    """What each step takes; it depends on the seed and the step's number alone.

    Parameters
    ----------
    rows : Source
    options : Options
    seed : int
    place : Place
    classes : int
        Logits of the model, where rows are mixed.
    """

    def __init__(
        self, rows: Source, options: Options, seed: int, place: Place, classes: int
    ) -> None:
        self.rows: Source = there(rows, place.device)
        self._options, self._seed, self._place = options, seed, place
        self._classes = classes
        lengths = rows.lengths if isinstance(rows, Ragged) else None
        self._order = Order(len(rows), options.batch_size, seed, lengths)
        self._size = min(options.batch_size, len(rows))
        self._mine = place.mine(self._size)
        part = self._mine.stop - self._mine.start
        if part % options.accumulate:
            raise ValueError(
                f"{part} rows of a batch cannot be computed in {options.accumulate} parts"
            )
        coins = torch.Generator().manual_seed(seed_of(seed, TURNS))
        self._turns = torch.randint(2, (len(rows),), generator=coins)
        self._epoch = -1
        self._permutation = torch.empty(0)

    @property
    def steps(self) -> int:
        """In an epoch."""
        return self._order.steps

    def parts(self, step: int) -> list[Part]:
        """Rows of a step that are this process's, in parts that are computed in turn."""
        options, device = self._options, self._place.device
        epoch, within = divmod(step, self.steps)
        if epoch != self._epoch:
            self._epoch, self._permutation = epoch, self._order.of(epoch)
        chosen = self._order.batch(self._permutation, within)
        x, target = self.rows.batch(chosen[self._mine], device)
        if options.augment:
            seed = seed_of(self._seed, AUGMENTATION, step)
            turn = (self._turns[chosen[self._mine]] + epoch) % 2 == 1
            draws = Draws(seed, self._size, self._mine, device, turn.to(device))
            x = augmented(x, options.augment, draws)
        goal = target
        if options.mixes:
            random = np.random.default_rng(seed_of(self._seed, MIXTURE, step))
            x, goal = mixed(x, target, self._classes, random, options.mixup, options.cutmix)
        if options.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        pieces = (tensor.chunk(options.accumulate) for tensor in (x, goal, target))
        return [Part(*each) for each in zip(*pieces, strict=True)]


def there(rows: Any, device: torch.device) -> Any:
    """Rows in memory move to the device; other sources say themselves where they are."""
    return rows.to(device) if isinstance(rows, Rows) else rows
