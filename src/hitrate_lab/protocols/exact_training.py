"""A linear classifier trained as in EXACT's section 5.4: stochastic steps of a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hitrate.recipes import recipe
from hitrate.schedules import geometric

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

# Of the first weights; the paper does not say.
START_SCALE = 0.01


def train_linear(
    x: Floats, y: Labels, classes: int, training: dict[str, Any], seed: int
) -> NDArray[np.float32]:
    """Train and give back the weights, the intercepts in the last row.

    The score of the first class is 0. Batches go through the rows in a new order each time; the
    last one of a pass may be smaller. The learning rate falls geometrically with each step.

    Parameters
    ----------
    x : array, shape (N, F)
        Standardised.
    y : array of int, shape (N,)
    classes : int
        C.
    training : dict
        As `exact_tables` plans it: loss, steps, batch_size, momentum, weight_decay, learning_rate,
        last_learning_rate, clip (of the gradient's norm, or None), margin (or None), sigma (of
        EXACT: first and last, or "learned"; else None) and normalize_gradient.
    seed : int
        Of the first weights and of the order of rows.

    Returns
    -------
    array, shape (F + 1, C - 1)
    """
    steps, first = training["steps"], training["learning_rate"]
    generator = torch.Generator().manual_seed(seed)
    rows = torch.from_numpy(np.ascontiguousarray(x, np.float32))
    target = torch.from_numpy(y)
    weights = START_SCALE * torch.randn((x.shape[1] + 1, classes - 1), generator=generator)
    weights.requires_grad_()
    changes: dict[str, Any] = {}
    learned: list[torch.Tensor] = []
    if training["loss"] == "exact":
        changes["normalize"] = True
        if training["sigma"] == "learned":
            # From 1, in the middle of the schedule that it replaces.
            learned = [torch.zeros((), requires_grad=True)]
        else:
            changes["sigma"] = geometric(*training["sigma"])
    if training["margin"] is not None:
        changes["margin"] = training["margin"]
    optimizer = torch.optim.SGD(
        [weights, *learned],
        lr=first,
        momentum=training["momentum"],
        weight_decay=training["weight_decay"],
    )
    plan = recipe(
        training["loss"],
        total_steps=steps,
        optimizer=optimizer,
        normalize_gradient=training["normalize_gradient"],
        **changes,
    )
    fall = (training["last_learning_rate"] / first) ** (1 / max(steps - 1, 1))
    order, at = torch.empty(0, dtype=torch.long), 0
    for _ in range(steps):
        if at >= len(order):
            order, at = torch.randperm(len(rows), generator=generator), 0
        some = order[at : at + training["batch_size"]]
        at += training["batch_size"]
        scores = rows[some] @ weights[:-1] + weights[-1]
        logits = torch.nn.functional.pad(scores, (1, 0))
        optimizer.zero_grad()
        sigma = [each.exp() for each in learned]
        plan.loss(logits, target[some], *sigma).backward()
        if training["clip"] is not None:
            torch.nn.utils.clip_grad_norm_([weights, *learned], training["clip"])
        optimizer.step()
        plan.step()
        optimizer.param_groups[0]["lr"] *= fall
    return weights.detach().numpy()


def predicted(weights: NDArray[np.float32], x: Floats) -> Labels:
    """Classes (N,) with the highest score; the first where several have it."""
    scores = x.astype(np.float32) @ weights[:-1] + weights[-1]
    found: Labels = np.argmax(np.pad(scores, ((0, 0), (1, 0))), axis=1)
    return found
