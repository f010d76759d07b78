"""Gradient descent: EXACT's recipe with falling noise, and Adam on temperature and threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import hitrate
from hitrate import schedules
from hitrate.optim import GradientNormalizer
from hitrate_lab.toy.examples import Example, Fit, Model
from hitrate_lab.toy.losses import Case, zero_and


class Tempered(nn.Module):
    """Any loss of normalised scores divided by sigma, as `ExactLoss(sigma, normalize=True)` is."""

    def __init__(self, case: Case, sigma: float = 1.0) -> None:
        super().__init__()
        self.case = case
        self.sigma = sigma

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Loss of scores (N,)."""
        low, high = hitrate.normalize_logits(zero_and(scores)).unbind(-1)
        return self.case((high - low) / self.sigma, target)


def anneal(
    case: Case,
    example: Example,
    *,
    start: Sequence[float] | None = None,
    steps: int = 300,
    sigma: str = "sigma_10_to_0.01",
    learning_rate: tuple[float, float] = (0.3, 1e-4),
) -> Fit:
    """Train as EXACT is trained: normalised logits, falling sigma, normalised gradients.

    No margin is needed: while sigma is large the normalised objective of EXACT has a single
    optimum, and descent follows it. As sigma vanishes it moves to the middle of the most accurate
    interval of thresholds.

    Parameters
    ----------
    case, example
        What to train, on what.
    start : sequence of float, optional
        First (w, c), or (c,) where w = 1. Threshold 0 by default.
    steps : int
        Gradient steps.
    sigma : str
        A schedule of `hitrate.schedules`. Sigma is the noise on each of the two scores, so EXACT
        has p = Phi(y f / (sigma * sqrt(2))).
    learning_rate : (float, float)
        First and last value; geometric in between.

    Returns
    -------
    Fit
        One model.
    """
    x, target = example.x, example.target
    start = start or ((1.0, 0.0) if example.learn_weight else (0.0,))
    theta = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    loss = Tempered(case)
    noise = hitrate.Schedule(loss, "sigma", sigma, total_steps=steps)
    rate = schedules.geometric(*learning_rate)
    optimizer = torch.optim.SGD([theta])
    GradientNormalizer(optimizer)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate(step / (steps - 1))
        optimizer.zero_grad()
        weight, bias = theta if example.learn_weight else (1.0, theta[0])
        loss(weight * x + bias, target).backward()
        optimizer.step()
        noise.step()
    return Fit((Model(*theta.tolist()) if example.learn_weight else Model(1.0, theta.item()),))


def descend(
    losses: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    steps: int = 300,
    learning_rate: tuple[float, float] = (0.1, 1e-3),
) -> Tensor:
    """Run Adam from many starts at once; the way that each has taken.

    Its steps do not depend on the scale of a loss, so that one rate and one budget suit all.

    Parameters
    ----------
    losses : callable
        Parameters (S, P) of S runs to their losses (S,).
    start : Tensor, shape (S, P)
    steps : int
    learning_rate : (float, float)
        First and last value; half a cosine in between.

    Returns
    -------
    Tensor, shape (steps + 1, S, P)
    """
    theta = nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([theta])
    rate = schedules.cosine(*learning_rate)
    path = [start]
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate(step / (steps - 1))
        optimizer.zero_grad()
        torch.autograd.backward(losses(theta).sum())
        optimizer.step()
        path.append(theta.detach().clone())
    return torch.stack(path)
