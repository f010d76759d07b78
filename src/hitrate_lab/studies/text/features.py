"""Features of texts that heads see: an encoder's vectors, or how often a word occurs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.datasets.long_tail import Labels, long_tailed
from hitrate_lab.seeds import seed_of

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.runs.work import Context

FEATURES = ("minilm", "words")
# The most frequent words of the training rows; a first layer on them is a table of embeddings.
WORDS = 2000
# What is drawn from a seed: which rows of a class stay.
SPLIT = 1
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, eq=False)
class Features:
    """Rows (N, I) and classes (N,) to learn from, to test on, and to choose by where asked for."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int
    validation: tuple[Tensor, Tensor] | None = None


def features_of(
    name: str,
    features: str,
    context: Context,
    *,
    imbalance: float = 1.0,
    validation: bool = False,
) -> Features:
    """Features of a text set's rows.

    Parameters
    ----------
    name : str
        Of `TEXT_SETS`.
    features : {"minilm", "words"}
        Vectors, each standardised by the training rows; or counts over the root of the length, so
        that a linear layer on them averages the embeddings of words.
    context : Context
    imbalance : float
        How many times as many training rows the first class has as the last, which is made by
        leaving out rows; 1 leaves out none.
    validation : bool
        Whether the published validation rows are there as well.
    """
    import torch

    if features == "words":
        return _of_words(name, context, imbalance, validation)
    from hitrate_lab.datasets.sentence_vectors import sentence_vectors, validation_vectors

    found = sentence_vectors(name, features, data_dir=context.data_dir)
    kept = _kept(found["train_y"], found["classes"], imbalance)
    parts = [
        (found["train_x"][kept], found["train_y"][kept]),
        (found["test_x"], found["test_y"]),
    ]
    if validation:
        parts.append(validation_vectors(name, features, data_dir=context.data_dir))
    x = torch.from_numpy(parts[0][0])
    mean, std = x.mean(0), x.std(0).clamp_min(1e-6)
    made = [((torch.from_numpy(x) - mean) / std, torch.from_numpy(y)) for x, y in parts]
    return Features(made[0], made[1], found["classes"], *made[2:])


def _of_words(name: str, context: Context, imbalance: float, validation: bool) -> Features:
    import torch

    from hitrate_lab.datasets.sentence_vectors import parts_of, validation_of
    from hitrate_lab.datasets.texts import read_texts

    data = read_texts(name, data_dir=context.data_dir)
    parts = [*parts_of(data), *([validation_of(data)] if validation else [])]
    kept = _kept(parts[0].labels, len(data.classes), imbalance)
    split = [[WORD.findall(text.lower()) for text in part.first] for part in parts]
    split[0] = [split[0][k] for k in kept]
    counted = Counter(word for words in split[0] for word in words)
    places = {word: k for k, (word, _) in enumerate(counted.most_common(WORDS))}
    labels = [parts[0].labels[kept], *(part.labels for part in parts[1:])]
    made = [
        (_counts(words, places), torch.from_numpy(y))
        for words, y in zip(split, labels, strict=True)
    ]
    return Features(made[0], made[1], len(data.classes), *made[2:])


def _kept(labels: Labels, classes: int, imbalance: float) -> NDArray[np.intp]:
    """Places of the training rows."""
    if imbalance == 1:
        return np.arange(len(labels))
    # Files have one class after another, or begin with what is easy.
    order = np.random.default_rng(seed_of(0, SPLIT)).permutation(len(labels))
    return np.sort(order[long_tailed(labels[order], classes, imbalance)])


def _counts(split: Sequence[Sequence[str]], places: dict[str, int]) -> Tensor:
    import torch

    found = torch.zeros(len(split), len(places))
    for row, words in enumerate(split):
        for word in words:
            if word in places:
                found[row, places[word]] += 1
    return found / found.sum(1, keepdim=True).clamp_min(1).sqrt()
