"""Features of texts that heads see: an encoder's vectors, or how often a word occurs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from hitrate_lab.runs.work import Context

FEATURES = ("minilm", "words")
# The most frequent words of the training rows; a first layer on them is a table of embeddings.
WORDS = 2000
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, eq=False)
class Features:
    """Rows (N, I) and classes (N,) to learn from and to test on."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int


def features_of(name: str, features: str, context: Context) -> Features:
    """Features of a text set's rows.

    Parameters
    ----------
    name : str
        Of `TEXT_SETS`.
    features : {"minilm", "words"}
        Vectors, each standardised by the training rows; or counts over the root of the length, so
        that a linear layer on them averages the embeddings of words.
    context : Context
    """
    import torch

    if features == "words":
        return _of_words(name, context)
    from hitrate_lab.datasets.sentence_vectors import sentence_vectors

    found = sentence_vectors(name, features, data_dir=context.data_dir)
    x, test = (torch.from_numpy(found[f"{part}_x"]) for part in ("train", "test"))
    mean, std = x.mean(0), x.std(0).clamp_min(1e-6)
    y, test_y = (torch.from_numpy(found[f"{part}_y"]) for part in ("train", "test"))
    return Features(((x - mean) / std, y), ((test - mean) / std, test_y), found["classes"])


def _of_words(name: str, context: Context) -> Features:
    import torch

    from hitrate_lab.datasets.sentence_vectors import parts_of
    from hitrate_lab.datasets.texts import read_texts

    data = read_texts(name, data_dir=context.data_dir)
    parts = parts_of(data)
    split = [[WORD.findall(text.lower()) for text in part.first] for part in parts]
    counted = Counter(word for words in split[0] for word in words)
    places = {word: k for k, (word, _) in enumerate(counted.most_common(WORDS))}
    train, test = (_counts(each, places) for each in split)
    y, test_y = (torch.from_numpy(part.labels) for part in parts)
    return Features((train, y), (test, test_y), len(data.classes))


def _counts(split: Sequence[Sequence[str]], places: dict[str, int]) -> Tensor:
    import torch

    found = torch.zeros(len(split), len(places))
    for row, words in enumerate(split):
        for word in words:
            if word in places:
                found[row, places[word]] += 1
    return found / found.sum(1, keepdim=True).clamp_min(1).sqrt()
