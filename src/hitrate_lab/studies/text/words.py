"""A text as a row of numbers, and the small recurrent network that guesses the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hitrate_lab.datasets.texts import read_texts
from hitrate_lab.studies.text.features import WORD

# Numbers of what ends a text and of words that are not in the vocabulary; nobody is to guess these.
END, UNKNOWN, IGNORED = 0, 1, -100
# Texts are shuffled once; this share of them is for testing.
SEED, TEST_SHARE = 0, 0.1


def stream_of(name: str, vocabulary: int, data_dir: Path | None) -> tuple[Tensor, Tensor]:
    """Words of a text set's training rows one after the other, to learn from and to test on.

    Parameters
    ----------
    name : str
        Of `TEXT_SETS`.
    vocabulary : int
        How many numbers there are: the most frequent words of those to learn from.
    data_dir : Path, optional
        As for `read_texts`.
    """
    texts = read_texts(name, data_dir=data_dir).train.first
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(SEED)).tolist()
    cut = int(TEST_SHARE * len(texts))
    split = [[WORD.findall(texts[k].lower()) for k in part] for part in (order[cut:], order[:cut])]
    counted = Counter(word for words in split[0] for word in words)
    places = {word: k for k, (word, _) in enumerate(counted.most_common(vocabulary - 2), 2)}
    train, test = (_numbers(part, places) for part in split)
    return train, test


def _numbers(texts: Iterable[list[str]], places: dict[str, int]) -> Tensor:
    found = [place for words in texts for place in (*(places.get(w, UNKNOWN) for w in words), END)]
    return torch.tensor(found)


def batches_of(stream: Tensor, streams: int, length: int) -> Tensor:
    """Pieces (steps, streams, length + 1): each stream goes on where its last piece ended."""
    each = (len(stream) - 1) // streams
    steps = each // length
    places = torch.arange(streams)[:, None] * each + torch.arange(length + 1)
    return torch.stack([stream[places + k * length] for k in range(steps)])


class NextWord(nn.Module):
    """Embeddings, one layer of gated recurrent units, and the embeddings once more as weights."""

    def __init__(self, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        nn.init.normal_(self.embedding.weight, std=hidden**-0.5)
        self.layer = nn.GRU(hidden, hidden, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, words: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is known after each word (streams, length, hidden), and the layer's state."""
        found: tuple[Tensor, Tensor] = self.layer(self.embedding(words), state)
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        """Of the next word."""
        return nn.functional.linear(hidden, self.embedding.weight, self.bias)


def targets_of(piece: Tensor) -> Tensor:
    """The next words; those that are not in the vocabulary are ignored."""
    following = piece[:, 1:]
    return following.masked_fill(following == UNKNOWN, IGNORED)


@torch.no_grad()
def seen(model: NextWord, pieces: Tensor) -> dict[str, Any]:
    """Shares of next words that are the first, or among the first three; perplexity; calibration.

    Parameters
    ----------
    model : NextWord
    pieces : Tensor, shape (steps, streams, length + 1)
    """
    from hitrate_lab.metrics import calibration_error

    state, found = None, []
    for piece in pieces:
        hidden, state = model(piece[:, :-1], state)
        target = targets_of(piece).flatten()
        kept = target != IGNORED
        log_p = model.logits(hidden).flatten(0, 1)[kept].log_softmax(1)
        y = target[kept]
        own = log_p.gather(1, y[:, None])
        best, said = log_p.max(1)
        found.append(torch.stack([(log_p > own).sum(1), own[:, 0], best, said, y], 1))
    ahead, own, best, said, y = torch.cat(found).double().T
    # Calibration asks for the confidence alone, as a table of one column that all rows chose.
    hit = (said == y).long().numpy()
    error = calibration_error(hit, 1 + 0 * hit, best.exp().numpy()[:, None].repeat(2, 1), 2)
    return {
        "top_1": float((ahead < 1).double().mean()),
        "top_3": float((ahead < 3).double().mean()),
        "perplexity": float((-own.mean()).exp()),
        "log_loss": float(-own.mean()),
        "calibration_error": error,
        "test_words": len(y),
    }
