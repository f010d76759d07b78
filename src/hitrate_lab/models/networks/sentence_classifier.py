"""A classifier of texts on an encoder that is trained with it."""

from __future__ import annotations

from torch import Tensor, nn

from hitrate_lab.models.networks.last import Linear

# Of a starting weight; of what an encoder says, the share that is left out in training. BERT's.
DEVIATION, DROPOUT = 0.02, 0.1


class SentenceClassifier(nn.Module):
    """An encoder, and a linear layer on what it makes of a text.

    The linear layer is computed in float32 under autocast too, so that the loss sees its logits.

    Parameters
    ----------
    encoder : nn.Module
        From tokens (N, T) to (N, width).
    width : int
    classes : int
    """

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(DROPOUT)
        self.last = Linear(width, classes)
        nn.init.normal_(self.last.weight, std=DEVIATION)
        nn.init.zeros_(self.last.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (N, C) of tokens (N, T)."""
        logits: Tensor = self.last(self.dropout(self.encoder(tokens)))
        return logits
