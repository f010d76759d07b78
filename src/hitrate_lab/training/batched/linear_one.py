"""One linear classifier at a time, as anyone would write it: the twin of `linear.train_linears`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hitrate.recipes import recipe
from hitrate.schedules import Curve, geometric, linear

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

# First weights (F + 1, C - 1): of the size of those of `nn.Linear`, or close to 0.
STARTS: dict[str, Callable[[tuple[int, int], torch.Generator], torch.Tensor]] = {
    "uniform": lambda shape, random: (
        (2 * torch.rand(shape, generator=random) - 1) / math.sqrt(shape[0] - 1)
    ),
    "small": lambda shape, random: 0.01 * torch.randn(shape, generator=random),
}
FALLS = {"geometric": geometric, "linear": linear}


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
        As "exact tables" plans it: loss, start (one of `STARTS`), steps, batch_size, momentum,
        weight_decay, learning_rate, last_learning_rate, clip (of the gradient's norm, or None),
        margin (or None), normalize_gradient; of EXACT, else None, sigma (first, last and how it
        falls, or first, lowest and "learned") and samples (of Genz's method, or None to integrate
        numerically); of hinge, else None, rivals ("max", the worst, or "mean_over_rivals").
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
    weights = STARTS[training["start"]]((x.shape[1] + 1, classes - 1), generator)
    weights.requires_grad_()
    changes: dict[str, Any] = {}
    learned: list[torch.Tensor] = []
    first_sigma, lowest, _ = training["sigma"] or (1.0, 1.0, None)
    if training["loss"] == "exact":
        changes["normalize"] = True
        curve = sigma_curve(training["sigma"])
        if curve is None:
            learned = [torch.zeros((), requires_grad=True)]
        else:
            changes["sigma"] = curve
        if training["samples"] is not None:
            random = torch.Generator().manual_seed(seed)
            changes.update(method="genz", samples=training["samples"], generator=random)
    if training["margin"] is not None:
        changes["margin"] = training["margin"]
    factor = 1.0
    if training["rivals"] == "mean_over_rivals":
        changes["rivals"], factor = "sum", 1 / (classes - 1)
    optimizer = torch.optim.SGD(
        [{"params": [weights], "weight_decay": training["weight_decay"]}, {"params": learned}],
        lr=first,
        momentum=training["momentum"],
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
        sigma = [(first_sigma * each.exp()).clamp(min=lowest) for each in learned]
        (factor * plan.loss(logits, target[some], *sigma)).backward()
        if training["clip"] is not None:
            torch.nn.utils.clip_grad_norm_([weights, *learned], training["clip"])
        optimizer.step()
        plan.step()
        for group in optimizer.param_groups:
            group["lr"] *= fall
    return weights.detach().numpy()


def predicted(weights: NDArray[np.float32], x: Floats) -> Labels:
    """Classes (N,) with the highest score; the first where several have it."""
    scores = x.astype(np.float32) @ weights[:-1] + weights[-1]
    found: Labels = np.argmax(np.pad(scores, ((0, 0), (1, 0))), axis=1)
    return found


def sigma_curve(sigma: list[Any]) -> Curve | None:
    """How sigma moves from its first value to its last; None where it is learned."""
    first, last, how = sigma
    return None if how == "learned" else FALLS[how](first, last)
