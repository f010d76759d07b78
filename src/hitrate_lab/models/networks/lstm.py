"""Recurrent networks over numbers of words, as in Mixing's Table 3."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LastState(nn.Module):
    """Embeddings, one or two layers of LSTM cells, and a linear layer on the last word's output.

    Parameters
    ----------
    vocabulary : int
    units : int
        Of each layer, and numbers of an embedding.
    layers : int
    classes : int
    """

    def __init__(self, vocabulary: int, units: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, units, padding_idx=0)
        self.layers = nn.LSTM(units, units, layers, batch_first=True)
        self.last = nn.Linear(units, classes)

    def forward(self, words: Tensor) -> Tensor:
        """Logits (N, C) of words (N, T), with 0 behind shorter texts."""
        states = self.layers(self.embedding(words))[0]
        ends = (words != 0).sum(1).clamp_min(1) - 1
        found: Tensor = self.last(states[torch.arange(len(words), device=words.device), ends])
        return found
