"""A leaf: expected accuracy as a metric of torchmetrics; needs ``hitrate[torchmetrics]``.

A whole program::

    import torch
    from hitrate.integrations.torchmetrics import ExpectedAccuracy

    metric = ExpectedAccuracy(sigma=1.0)
    for _ in range(3):
        metric.update(torch.randn(64, 10), torch.randint(10, (64,)))
    print(metric.compute())  # {"accuracy": ..., "expected_accuracy": ...}
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hitrate.metrics import Counts, counts_of, shares
from hitrate.probability.noises import Noise

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.torchmetrics needs torchmetrics: pip install 'hitrate[torchmetrics]'"
    ) from error

__all__ = ["ExpectedAccuracy"]


class ExpectedAccuracy(Metric):  # type: ignore[misc]
    """`hitrate.metrics.ExpectedAccuracy` for hosts that ask for a Metric, as Lightning's log does.

    Parameters
    ----------
    sigma : float
    noise : str or Noise
    ignore_index : int
        As there.
    **options
        Of every Metric.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    def __init__(
        self,
        sigma: float = 1.0,
        *,
        noise: str | Noise = "normal",
        ignore_index: int = -100,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.sigma = sigma
        self.noise = noise
        self.ignore_index = ignore_index
        for name in Counts._fields:
            zero = torch.zeros((), dtype=torch.float64)
            self.add_state(name, zero, dist_reduce_fx="sum")

    def update(self, logits: Tensor, target: Tensor) -> None:
        """Count a batch."""
        counts = counts_of(logits, target, self.sigma, self.noise, self.ignore_index)
        for name, value in counts._asdict().items():
            setattr(self, name, getattr(self, name) + value.to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """Both accuracies of all that was counted."""
        return shares(Counts(*(getattr(self, name) for name in Counts._fields)))
