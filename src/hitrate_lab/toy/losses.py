"""Every loss of the library, as a function of the scores f(x) of two classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import hitrate
from hitrate.losses import LOSSES
from hitrate_lab.toy.examples import Example


def zero_and(scores: Tensor) -> Tensor:
    """Logits (N, 2) of scores (N,): 0 for the label -1, f for the label 1."""
    return torch.stack([torch.zeros_like(scores), scores], -1)


HEAD = hitrate.MaxMahalanobisHead(classes=2, features=1, radius=1.0)


def minus_distances(scores: Tensor) -> Tensor:
    """Logits (N, 2) of the max-Mahalanobis head: centres -1 and 1 for the two labels."""
    # The head puts its first centre at 1, hence the minus.
    logits: Tensor = HEAD(-scores[:, None])
    return logits


@dataclass(frozen=True)
class Case:
    """A loss, the logits it takes, and whether it can have a whole interval of minimisers."""

    name: str
    loss: nn.Module
    logits: Callable[[Tensor], Tensor] = zero_and
    is_flat: bool = False

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        """Mean loss of scores (N,)."""
        loss: Tensor = self.loss(self.logits(scores), target)
        return loss

    def of_models(self, example: Example, weight: Tensor, bias: Tensor) -> Tensor:
        """Mean losses (...) of many models, weight and bias (...), on the points of an example."""
        scores = weight[..., None] * example.x + bias[..., None]  # (..., N)
        rows = scores.reshape(-1, len(example.points))
        target = example.target
        return torch.vmap(lambda row: self(row, target))(rows).view(scores.shape[:-1])


NAMES = {
    "exact": "EXACT",
    "generalized_cross_entropy": "GCE",
    "maximum_probability_cross_entropy": "MPCE",
    "max_mahalanobis_center": "max-Mahalanobis",
}
CASES: dict[str, Case] = {
    **{
        name: Case(
            NAMES.get(name, name.replace("_", " ")),
            loss(),
            minus_distances if name == "max_mahalanobis_center" else zero_and,
            is_flat=name in ("hinge", "maximum_probability_cross_entropy"),
        )
        for name, loss in LOSSES.items()
        # Where every error costs the same it is EXACT.
        if name != "expected_cost"
    },
    "truncated_gce": Case("truncated GCE", hitrate.GeneralizedCrossEntropyLoss(threshold=0.5)),
    "probit": Case("probit", hitrate.ExactLoss(link="log")),
    "exact_batch_log": Case("EXACT, batch log", hitrate.ExactLoss(link="batch_log")),
}
