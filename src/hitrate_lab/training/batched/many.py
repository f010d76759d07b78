"""Training of many models at once, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from hitrate_lab.training.batched.copies import Copies
from hitrate_lab.training.batched.setting import History, Orders, Setting, Split
from hitrate_lab.training.batched.variants import Variant

# Steps whose rows are laid out together: enough to make that cheap, few enough for any memory.
LAID_OUT = 1024

# Inputs (S, I + 1, B), classes (S, 1, 1, B), and the same as one hot (S, 1, C, B).
Batch = tuple[Tensor, Tensor, Tensor]


def train_many(
    split: Split,
    setting: Setting,
    variants: Sequence[Variant],
    learning_rates: Sequence[float],
    seeds: Sequence[int],
    *,
    device: str | torch.device = "cpu",
) -> dict[str, History]:
    """Train a model for every seed, variant and learning rate, all of them in one computation.

    What a seed decides, weights at the start and the order of rows, is the same for all its copies.

    Parameters
    ----------
    split : Split
    setting : Setting
    variants : sequence of Variant
    learning_rates : sequence of float
    seeds : sequence of int
    device : str or torch.device

    Returns
    -------
    dict of History
        By variant's name; the copies' axes are (seeds, learning rates).

    Examples
    --------
    >>> import torch
    >>> from hitrate_lab.training.batched import Setting, Split, Variant, train_many
    >>> x = torch.randn(60, 4)
    >>> y = (x[:, 0] > 0).long()
    >>> split = Split((x[:40], y[:40]), (x[40:50], y[40:50]), (x[50:], y[50:]), classes=2)
    >>> variants = [Variant("CE", "cross_entropy"), Variant("F=0-0.5", "mixed_gradual")]
    >>> done = train_many(split, Setting("linear", epochs=5), variants, [0.01, 0.001], seeds=[0, 1])
    >>> done["F=0-0.5"].test.shape
    (5, 2, 2)
    """
    device = torch.device(device)
    copies = Copies(setting, split, variants, learning_rates, seeds, device)
    held = [(with_ones(x.to(device)).T, y.to(device)) for x, y in (split.validation, split.test)]
    counts = [
        torch.stack([copies.hits(*part) for part in held])
        for _ in epochs_of_many(copies, split, setting, seeds, device)
    ]
    # (2, epochs, S, variants, learning rates)
    axes = (len(seeds), len(variants), len(learning_rates))
    hits = torch.stack(counts, 1).view(2, -1, *axes).cpu().numpy().astype(np.int64)
    weights = [part.view(*axes, *part.shape[2:]) for part in copies.weights()]
    return {
        variant.name: History(
            hits[0, :, :, place], hits[1, :, :, place], [part[:, place] for part in weights]
        )
        for place, variant in enumerate(copies.variants)
    }


def epochs_of_many(
    copies: Copies, split: Split, setting: Setting, seeds: Sequence[int], device: torch.device
) -> Iterator[int]:
    """Train copies; the number of each epoch when it has ended."""
    x, y = with_ones(split.train[0].to(device)), split.train[1].to(device)
    orders = [Orders(seed, len(x)) for seed in seeds]
    for epoch in range(1, setting.epochs + 1):
        if epoch > 1:
            copies.next_epoch()
        order = torch.stack([each.next() for each in orders]).to(device)
        for batch in batches(x, y, order, setting.batch_size, split.classes):
            copies.step(*batch)
        yield epoch


def batches(x: Tensor, y: Tensor, order: Tensor, size: int, classes: int) -> Iterator[Batch]:
    """Rows in each seed's order (S, N), so many at a time; what is left over is a smaller batch."""
    count = order.shape[1] // size
    for start in range(0, count, LAID_OUT):
        some = order[:, start * size : min(start + LAID_OUT, count) * size]
        places = some.reshape(len(order), -1, size).transpose(0, 1)  # (steps, S, B)
        yield from zip(*_laid_out(x, y, places, classes), strict=True)
    if rest := order[:, count * size :].shape[1]:
        yield from zip(*_laid_out(x, y, order[None, :, -rest:], classes), strict=True)


def _laid_out(x: Tensor, y: Tensor, places: Tensor, classes: int) -> tuple[tuple[Tensor, ...], ...]:
    """The batches of places (steps, S, B), each part as a tuple of steps."""
    inputs = x[places].transpose(2, 3).contiguous()
    target = y[places][:, :, None, None]
    every = torch.arange(classes, device=y.device)[:, None]
    return inputs.unbind(), target.unbind(), (target == every).to(x.dtype).unbind()


def with_ones(x: Tensor) -> Tensor:
    """Rows (N, I) with a last feature that is 1."""
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)
