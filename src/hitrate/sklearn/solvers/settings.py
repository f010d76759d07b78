"""What one fit of a linear classifier needs to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hitrate.sklearn.goals import Goal, SoftF1
from hitrate.sklearn.solvers.row_losses import RowLoss, row_loss

# Breakpoints that the polish may sort.
BREAKPOINTS = 2_000_000
SMALLEST_SIGMA = 0.01


@dataclass(frozen=True)
class Settings:
    """What one fit needs to know.

    `sigma` is that of the last stage; infinity stops at the convex start. Without L2 it is in units
    of the scores' spread.
    """

    loss: str = "exact"
    loss_params: dict[str, Any] = field(default_factory=dict)
    l2: float = 0.0
    sigma: float = SMALLEST_SIGMA
    margin: float | None = None
    polish: bool = True
    breakpoints: int = BREAKPOINTS
    # Iterations of stages before the last, which need not come to rest.
    passing: int = 20
    max_iter: int = 100
    tol: float = 1e-4
    call: str = "AccuracyClassifier"
    # Whether accuracies along the path are wanted.
    told: bool = True
    # What decisions are judged by, where that is not their accuracy.
    goal: Goal | None = None

    def rule(self, sigma: float) -> RowLoss | SoftF1:
        """The loss of a row at one sigma."""
        if self.goal is not None:
            return self.goal.rule(sigma)
        return row_loss(self.loss, self.loss_params, sigma, self.margin, self.call)
