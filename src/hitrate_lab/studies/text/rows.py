"""Texts as rows that a network is trained on, and what is held out of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from hitrate_lab.datasets.sentence_vectors import parts_of, some_of
from hitrate_lab.datasets.texts import Texts, TextSet
from hitrate_lab.seeds import seed_of
from hitrate_lab.training import Ragged

# What is drawn from a seed.
SPLIT = 31


def texts_of(data: TextSet, rows: int, test_rows: int, held_out: float) -> tuple[Texts, Texts]:
    """Texts to learn from and texts to test on.

    Parameters
    ----------
    data : TextSet
    rows, test_rows : int
        At most.
    held_out : float
        This share of the texts to learn from is held out, in the place of those to test on.
    """
    train, test = parts_of(data, (rows, test_rows))
    if not held_out:
        return train, test
    # The same for all seeds and methods.
    order = np.random.default_rng(seed_of(0, SPLIT)).permutation(len(train))
    cut = int(held_out * len(train))
    return some_of(train, order[cut:]), some_of(train, order[:cut])


def rows_of(
    numbers: Sequence[Sequence[int]], labels: NDArray[np.int64], padding: int = 0
) -> Ragged:
    """Rows in the order of their lengths, so that little is filled where they are evaluated.

    Parameters
    ----------
    numbers : sequence of sequences of int
        Of words or tokens.
    labels : array of int64
    padding : int
        What fills.
    """
    order = sorted(range(len(numbers)), key=lambda k: len(numbers[k]))
    texts = [torch.tensor(numbers[k], dtype=torch.long) for k in order]
    return Ragged(texts, torch.from_numpy(labels[order]), padding)
