"""Generalised cross entropy: between cross entropy and mean absolute error, for noisy labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hitrate.links import GCE
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Batch, Options


def generalized_cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    q: float = 0.7,
    threshold: float | None = None,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Box-Cox transform of p, optionally truncated.

    .. math::

        L = \frac{1 - p_y^q}{q}, \qquad
        L = \frac{1 - k^q}{q} \text{ where } p_y \le k

    Parameters
    ----------
    logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
    target : Tensor
        Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
    q : float
        0 is cross entropy, 1 the expectation loss.
    threshold : float, optional
        k: rows less likely than this count as if they were, and have no gradient.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.functional.cross_entropy`.

    Returns
    -------
    Tensor
        A number, or with ``reduction="none"`` one per target.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.generalized_cross_entropy_loss(logits, torch.tensor([0, 0]))
    tensor(0.7592)
    >>> hitrate.generalized_cross_entropy_loss(logits, torch.tensor([0, 0]), threshold=0.5)
    tensor(0.4519)

    References
    ----------
    Zhang, Sabuncu. Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy
    Labels. 2018.
    """
    return family_loss(
        f"generalized_cross_entropy_loss(q={q!r}, threshold={threshold!r})",
        logits,
        target,
        noise="gumbel",
        link=GCE(q, threshold),
        options=Options(weight, ignore_index, reduction, label_smoothing),
    )


@dataclass(frozen=True)
class Pruned(GCE):
    """The plain loss for rows that are kept, the constant of the threshold for the others."""

    kept: Tensor | None = None  # (R,)

    def __call__(self, log_p: Tensor) -> Tensor:
        """Choose by row."""
        assert self.kept is not None and self.threshold is not None
        plain = GCE(self.q)
        limit = plain(torch.full_like(log_p, math.log(self.threshold)))
        return torch.where(self.kept.reshape(-1, *[1] * (log_p.dim() - 1)), plain(log_p), limit)


class GeneralizedCrossEntropyLoss(ClassificationLoss):
    r"""Generalised cross entropy as a Module; see `generalized_cross_entropy_loss`.

    The paper prunes by epochs, not by steps: which samples lie below the threshold is decided now
    and then for the whole training set, and in between the pruned ones stay out. For that, say how
    many `samples` there are, call `prune` with every sample's logits, and hand the samples'
    positions to the loss. The kept samples then have the plain loss, the pruned ones a constant.

    Parameters
    ----------
    q, threshold, weight, ignore_index, reduction, label_smoothing
        As in `generalized_cross_entropy_loss`. A `Schedule` can drive `q`.
    samples : int, optional
        Size of the training set, for pruning by sample.

    Examples
    --------
    >>> import torch, hitrate
    >>> loss = hitrate.GeneralizedCrossEntropyLoss(0.7, threshold=0.5, samples=2)
    >>> logits, target = torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    >>> loss.prune(logits, target, torch.tensor([0, 1]))
    >>> loss.kept
    tensor([ True, False])
    >>> loss(logits, target, torch.tensor([0, 1]))
    tensor(0.3353)
    """

    kept: Tensor | None

    def __init__(
        self,
        q: float = 0.7,
        threshold: float | None = None,
        *,
        samples: int | None = None,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        self.q = q
        self.threshold = threshold
        self.samples = samples
        kept = None if samples is None else torch.ones(samples, dtype=torch.bool)
        self.register_buffer("kept", kept)

    def forward(self, input: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        """Loss of logits `input`; with `index`, the samples' positions, by what was pruned."""
        if index is None:
            return generalized_cross_entropy_loss(
                input, target, self.q, self.threshold, **self.options
            )
        kept, threshold = self._pruning()
        link = Pruned(self.q, threshold, kept[self._checked(index, target)].reshape(-1))
        call = f"{type(self).__name__}(q={self.q!r}, threshold={threshold!r})"
        options = Options(**self.options)
        return family_loss(call, input, target, noise="gumbel", link=link, options=options)

    @torch.no_grad()
    def prune(self, logits: Tensor, target: Tensor, index: Tensor) -> None:
        """Decide anew which of the samples at `index` stay: those with p above the threshold.

        `index` has a position for each class index in `target`. Call it with all samples, batch by
        batch; one whose target is ignored stays.
        """
        kept, threshold = self._pruning()
        call = f"{type(self).__name__}.prune()"
        batch = Batch.of(logits, target, Options(ignore_index=self.ignore_index), call)
        if batch.ignored is None:
            raise ValueError(f"{call}: pruning takes class indices, not probabilities")
        p = batch.logits.softmax(1).gather(1, batch.target[:, None])[:, 0]
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
                f"{type(self).__name__}: pruning by sample needs threshold= and samples=, got "
                f"threshold={self.threshold}, samples={self.samples}"
            )
        return self.kept, self.threshold
