"""Generalised cross entropy: between cross entropy and mean absolute error, for noisy labels."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from hitrate.links import GCE, Number
from hitrate.losses.base import function_of
from hitrate.losses.link_loss import Call, LinkLoss, LinkOptions, link_loss
from hitrate.losses.ways.asked import Asked
from hitrate.losses.ways.reduction import Batch, Options
from hitrate.probability.accuracy import log_p_of_target

__all__ = ["GeneralizedCrossEntropyLoss", "generalized_cross_entropy_loss"]


@dataclass(frozen=True, repr=False)
class Pruned(GCE):
    """The plain loss for rows that are kept, the constant of the threshold for the others."""

    kept: Tensor | None = None  # (R,)

    def __call__(self, log_p: Tensor) -> Tensor:
        """Choose by row."""
        assert self.kept is not None and self.threshold is not None
        plain = GCE(self.q)
        limit = plain(torch.full_like(log_p, math.log(self.threshold)))
        return torch.where(self.kept.reshape(-1, *[1] * (log_p.dim() - 1)), plain(log_p), limit)


class GeneralizedCrossEntropyLoss(LinkLoss):
    r"""Box-Cox transform of p, optionally truncated.

    .. math::

        L = \frac{1 - p_y^q}{q}, \qquad
        L = \frac{1 - \tau^q}{q} \text{ where } p_y \le \tau

    The paper prunes by epochs, not by steps: which samples lie below the threshold is decided now
    and then for the whole training set, and in between the pruned ones stay out. For that, tell the
    Module how many `rows` the training set has, call `prune` with every row's logits, and hand the
    rows' positions to the loss. The kept rows then have the plain loss, the pruned ones a constant.

    Parameters
    ----------
    q : float
        0 is cross entropy, 1 the expectation loss. A `Schedule` can drive it.
    threshold : float, optional
        :math:`\tau`: rows less likely than this count as if they were, and have no gradient.
    rows : int, optional
        Size of the training set, for pruning by row; of the Module only.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    k : int
        How many of the highest scores count as a hit.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.generalized_cross_entropy_loss(logits, torch.tensor([0, 0]))
    tensor(0.7592)
    >>> hitrate.generalized_cross_entropy_loss(logits, torch.tensor([0, 0]), threshold=0.5)
    tensor(0.4519)
    >>> loss = hitrate.GeneralizedCrossEntropyLoss(0.7, threshold=0.5, rows=2)
    >>> logits, target = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    >>> loss.prune(logits, target, torch.tensor([0, 1]))
    >>> loss.kept
    tensor([ True, False])
    >>> loss(logits, target, torch.tensor([0, 1]))
    tensor(0.3353)

    References
    ----------
    Zhang, Sabuncu. Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy
    Labels. 2018.
    """

    kept: Tensor | None
    make_link = GCE

    def __init__(
        self,
        q: Number = 0.7,
        threshold: float | None = None,
        *,
        rows: int | None = None,
        samples: int | None = None,
        **options: Unpack[LinkOptions],
    ) -> None:
        super().__init__(GCE(q, threshold), **options)
        if samples is not None:
            warnings.warn(
                "GeneralizedCrossEntropyLoss(samples=) is now rows=",
                DeprecationWarning,
                stacklevel=2,
            )
            rows = samples
        self.rows = rows
        kept = None if rows is None else torch.ones(rows, dtype=torch.bool)
        self.register_buffer("kept", kept)

    def forward(self, input: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        """Loss of logits `input`; with `index`, the rows' positions, by what was pruned."""
        if index is None:
            return super().forward(input, target)
        kept, threshold = self._pruning()
        link = Pruned(self.q, threshold, kept[self._checked(index, target)].reshape(-1))
        call = Call("generalized_cross_entropy_loss", GCE(self.q, threshold))
        return link_loss(Asked(input, target, 1.0, link, self.core, self.options, call))

    @torch.no_grad()
    def prune(self, logits: Tensor, target: Tensor, index: Tensor) -> None:
        """Decide anew which of the rows at `index` stay: those with p above the threshold.

        `index` has a position for each class index in `target`. Call it with all rows, batch by
        batch; one whose target is ignored stays.
        """
        kept, threshold = self._pruning()
        call = f"{type(self).__name__}.prune()"
        batch = Batch.of(logits, target, Options(ignore_index=self.ignore_index), call)
        if batch.ignored is None:
            raise ValueError(f"{call}: pruning takes class indices, not probabilities")
        p = log_p_of_target(batch.logits, batch.target, 1.0, self.core).exp()
        kept[self._checked(index, target).reshape(-1)] = (p > threshold) | batch.ignored

    def _checked(self, index: Tensor, target: Tensor) -> Tensor:
        if index.shape != target.shape:
            raise ValueError(
                f"{type(self).__name__}: index must have target's shape {tuple(target.shape)}, "
                f"got {tuple(index.shape)}"
            )
        return index

    def _pruning(self) -> tuple[Tensor, float]:
        if self.kept is None or self.threshold is None:
            raise ValueError(
                f"{type(self).__name__}: pruning by row needs threshold= and rows=, got "
                f"threshold={self.threshold}, rows={self.rows}"
            )
        return self.kept, self.threshold


generalized_cross_entropy_loss = function_of(GeneralizedCrossEntropyLoss)
