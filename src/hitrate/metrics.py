"""Accuracy and expected accuracy side by side, counted over batches and processes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hitrate.probability import expected_accuracy
from hitrate.probability.arguments import noise_named
from hitrate.probability.noises import Noise

__all__ = ["ExpectedAccuracy"]


class Counts(NamedTuple):
    """What batches add up to, each ()."""

    hits: Tensor
    expected: Tensor
    rows: Tensor


def counts_of(
    logits: Tensor, target: Tensor, sigma: float | Tensor, noise: str | Noise, ignore_index: int
) -> Counts:
    """Hits, expected hits and rows of logits (N, C) or (N, C, d1, ...)."""
    call = f"ExpectedAccuracy(sigma={sigma}, noise={noise!r})"
    if logits.dim() < 2 or target.shape != logits.shape[:1] + logits.shape[2:]:
        raise ValueError(
            f"{call}: needs logits (N, C) or (N, C, d1, ...) and class indices (N,) or (N, d1, "
            f"...), got {tuple(logits.shape)} and {tuple(target.shape)}"
        )
    rows = logits.detach().movedim(1, -1).reshape(-1, logits.shape[1])
    target = target.reshape(-1)
    kept = target != ignore_index
    rows, target = rows[kept], target[kept]
    p = expected_accuracy(rows, target, sigma, noise=noise)
    hits = (rows.argmax(1) == target).sum().double()
    return Counts(hits, p.double().sum(), kept.sum().double())


def shares(counts: Counts) -> dict[str, Tensor]:
    """The two accuracies."""
    return {
        "accuracy": counts.hits / counts.rows,
        "expected_accuracy": counts.expected / counts.rows,
    }


class ExpectedAccuracy(nn.Module):
    """Accuracy, and what it would be with noise of size sigma on the scores.

    The two side by side tell how far the hits are from the boundary: with a small sigma they agree;
    an expected accuracy far below says that many hits are narrow, and one above that many misses
    are. The interface is that of a metric of torchmetrics, which it does not need:
    `hitrate.integrations.torchmetrics` has one for hosts that ask for its own class.

    Parameters
    ----------
    sigma : float
        Size of the noise: that of the loss in training, or 1.
    noise : str or Noise
    ignore_index : int
        A target that does not count.
    sync_on_compute : bool
        Whether `compute` is of all processes together, where torch.distributed runs.

    Examples
    --------
    >>> import torch
    >>> from hitrate.metrics import ExpectedAccuracy
    >>> metric = ExpectedAccuracy(sigma=0.5)
    >>> logits, target = torch.tensor([[2.0, 0.0], [0.0, 0.1]]), torch.tensor([0, 1])
    >>> metric(logits, target)  # of this batch
    {'accuracy': tensor(1., dtype=torch.float64), 'expected_accuracy': tensor(0.7769, dtype=...)}
    >>> metric.update(logits, 1 - target)
    >>> metric.compute()["accuracy"]  # of all since the last reset
    tensor(0.5000, dtype=torch.float64)
    >>> metric.reset()
    """

    hits: Tensor
    expected: Tensor
    rows: Tensor

    def __init__(
        self,
        sigma: float = 1.0,
        *,
        noise: str | Noise = "normal",
        ignore_index: int = -100,
        sync_on_compute: bool = True,
    ) -> None:
        super().__init__()
        if not sigma > 0:
            raise ValueError(f"ExpectedAccuracy(sigma={sigma!r}): sigma must be a positive number")
        noise_named(noise, "ExpectedAccuracy")
        self.sigma = sigma
        self.noise = noise
        self.ignore_index = ignore_index
        self.sync_on_compute = sync_on_compute
        for name in Counts._fields:
            zero = torch.zeros((), dtype=torch.float64)
            self.register_buffer(name, zero, persistent=False)

    @torch.no_grad()
    def update(self, logits: Tensor, target: Tensor) -> None:
        """Count a batch.

        Parameters
        ----------
        logits : Tensor, shape (N, C) or (N, C, d1, ...)
        target : Tensor, shape (N,) or (N, d1, ...)
            Class indices.
        """
        self._add(self._counts_of(logits, target))

    @torch.no_grad()
    def forward(self, logits: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Count a batch, and return its own accuracies."""
        counts = self._counts_of(logits, target)
        self._add(counts)
        return shares(counts)

    def compute(self) -> dict[str, Tensor]:
        """Both accuracies of all that was counted; not a number where nothing was."""
        counts = Counts(self.hits, self.expected, self.rows)
        if self.sync_on_compute and dist.is_available() and dist.is_initialized():
            total = torch.stack(counts)
            dist.all_reduce(total)
            counts = Counts(*total.unbind())
        return shares(counts)

    def reset(self) -> None:
        """Begin anew."""
        for name in Counts._fields:
            getattr(self, name).zero_()

    def merge_state(self, other: ExpectedAccuracy) -> None:
        """Take in what another one has counted."""
        self._add(Counts(other.hits, other.expected, other.rows))

    def extra_repr(self) -> str:
        """Its settings."""
        return f"sigma={self.sigma}, noise={self.noise!r}"

    def _counts_of(self, logits: Tensor, target: Tensor) -> Counts:
        return counts_of(logits, target, self.sigma, self.noise, self.ignore_index)

    def _add(self, counts: Counts) -> None:
        for name, value in counts._asdict().items():
            getattr(self, name).add_(value.to(self.hits.device))

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        # In half precision it would soon count no further.
        kept = {name: getattr(self, name) for name in Counts._fields}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in kept.items():
            moved = getattr(self, name)
            if moved.device.type != "mps":
                setattr(self, name, value.to(moved.device))
        return self
