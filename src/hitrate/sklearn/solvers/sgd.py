"""The paper's training of linear models: stochastic steps under a falling sigma."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hitrate.recipes import recipe
from hitrate.schedules import geometric
from hitrate.sklearn.solvers.objective import top
from hitrate.sklearn.solvers.settings import Settings
from hitrate.sklearn.solvers.standardized import Standardized

Array = NDArray[Any]

SIGMA_START = 10.0
LAST_LEARNING_RATE = 1e-4
# How often held-out accuracy is looked at.
LOOKS = 40


def train(
    table: Standardized,
    theta: Array | None,
    settings: Settings,
    *,
    batch_size: int,
    learning_rate: float,
    held_out: Standardized | None,
    patience: int,
    random: np.random.Generator,
) -> tuple[Array, int]:
    """Momentum 0.9, gradients divided by their running norm, a learning rate that falls to 1e-4.

    Sigma falls from 10 to its end. Logits are normalised over the batch where the loss knows how,
    so that sigma has a scale. With `held_out` rows training stops when their accuracy has not
    risen at `patience` looks, and the best weights are kept.

    Parameters
    ----------
    table : Standardized
    theta : array, shape (F + 1, D), optional
        Where to start.
    settings : Settings
        `max_iter` is the number of steps, `l2` the weight decay.
    batch_size, learning_rate, patience
        As in the estimator.
    held_out : Standardized, optional
    random : Generator

    Returns
    -------
    theta : array, shape (F + 1, D)
    steps : int
        That were made.
    """
    steps = settings.max_iter
    generator = torch.Generator().manual_seed(int(random.integers(2**31)))
    if theta is None:
        shape = (table.features + 1, table.classes - 1)
        weights = 0.01 * torch.randn(shape, generator=generator)
    else:
        weights = torch.from_numpy(theta.astype(np.float32))
    weights.requires_grad_()
    optimizer = torch.optim.SGD([weights], lr=learning_rate, momentum=0.9, weight_decay=settings.l2)
    changes: dict[str, Any] = {"reduction": "none", **settings.loss_params}
    if settings.loss == "exact":
        sigma = geometric(SIGMA_START, settings.sigma)
        changes = {"sigma": sigma, "normalize": True, **changes}
    if settings.margin is not None:
        changes["margin"] = settings.margin
    plan = recipe(
        settings.loss, total_steps=steps, optimizer=optimizer, normalize_gradient=True, **changes
    )
    fall = (LAST_LEARNING_RATE / learning_rate) ** (1 / max(steps - 1, 1))
    target = torch.from_numpy(table.target)
    # Weights were shares of one; a batch's mean should be of the order of a row's loss.
    share = torch.from_numpy(np.asarray(table.weight * table.rows, np.float32))
    look_every = max(1, steps // LOOKS)
    best, highest, waited = weights.detach().clone(), -1.0, 0
    order, at = torch.empty(0, dtype=torch.long), 0
    step = 0
    for step in range(1, steps + 1):
        if at >= len(order):
            order, at = torch.randperm(table.rows, generator=generator), 0
        some = order[at : at + batch_size]
        at += batch_size
        x = torch.from_numpy(table.dense(some.numpy()))
        scores = x @ weights[:-1] + weights[-1]
        logits = torch.nn.functional.pad(scores, (1, 0))
        optimizer.zero_grad()
        (plan.loss(logits, target[some]) * share[some]).mean().backward()
        optimizer.step()
        plan.step()
        for group in optimizer.param_groups:
            group["lr"] *= fall
        if held_out is not None and step % look_every == 0:
            now = weights.detach().numpy().astype(np.float64)
            accuracy = float(held_out.weight @ (top(held_out.scores(now)) == held_out.target))
            waited += 1
            if accuracy > highest:
                best, highest, waited = weights.detach().clone(), accuracy, 0
            if waited >= patience:
                break
    final = weights.detach() if held_out is None else best
    return final.numpy().astype(np.float64), step
