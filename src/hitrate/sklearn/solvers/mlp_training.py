"""Training of a network with one hidden layer, under a loss that may move."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hitrate.losses.expected_cost import expected_cost_loss
from hitrate.losses.expected_f_beta import ExpectedFBetaLoss
from hitrate.recipes import recipe
from hitrate.sklearn.goals import Goal
from hitrate.sklearn.solvers.standardized import Standardized

Array = NDArray[Any]

# A batch is one of so many parts of the rows, within these sizes.
PARTS, SMALLEST, LARGEST = 20, 16, 256
# Of running counts, where a batch is too small for an F-measure.
MOMENTUM = 0.9


@dataclass(frozen=True)
class Network:
    """Weights of the hidden layer (F + 1, H) and the output (H + 1, C), the biases last."""

    hidden: Array
    output: Array

    def scores(self, table: Standardized) -> Array:
        """Scores (N, D) of all classes but the first, whose own are subtracted."""
        scores = np.empty((table.rows, self.output.shape[1] - 1))
        weights = self.output[:, 1:] - self.output[:, :1]
        for block in table.blocks(65_536):
            active = np.maximum(table.scores(self.hidden, block), 0)
            scores[block] = active @ weights[:-1] + weights[-1]
        return scores


@dataclass(frozen=True)
class TrainingOptions:
    """How to train: the estimator's parameters that the loop needs."""

    call: str
    loss: str
    loss_params: Mapping[str, Any]
    weight_decay: float
    learning_rate: float
    # None for a part of the rows.
    batch_size: int | None
    epochs: int
    patience: int
    device: torch.device


@dataclass
class Training:
    """A trained network and its history, one number per epoch."""

    network: Network
    best_epoch: int = 0
    losses: list[float] = field(default_factory=list)
    # On held-out rows; 0 where there are none.
    accuracies: list[float] = field(default_factory=list)
    interrupted: bool = False


def random_network(
    features: int, hidden: int, classes: int, random: np.random.Generator
) -> Network:
    """Uniform weights within one over the root of a layer's inputs, as torch's own layers have."""
    layers = []
    for inputs, outputs in ((features, hidden), (hidden, classes)):
        reach = 1 / math.sqrt(inputs)
        layers.append(random.uniform(-reach, reach, (inputs + 1, outputs)))
    return Network(*layers)


def train_network(
    table: Standardized,
    held_out: Standardized | None,
    start: Network,
    plan: TrainingOptions,
    random: np.random.Generator,
    last: int | None = None,
) -> Training:
    """AdamW with a learning rate that falls along a cosine to zero.

    With `held_out` rows the epoch that has most of them right is kept, the latest of those that
    tie, and training stops when they have not become more for `patience` epochs. A
    KeyboardInterrupt after the first epoch ends the training as well, with what it has.

    Parameters
    ----------
    table : Standardized
    held_out : Standardized, optional
    start : Network
    plan : TrainingOptions
    random : Generator
        Of the order of rows.
    last : int, optional
        The epoch after which to stop, on a path that is as long as ever.
    """
    generator = torch.Generator().manual_seed(int(random.integers(2**31)))
    device = plan.device
    parameters = [
        torch.tensor(part, dtype=torch.float32, device=device, requires_grad=True)
        for layer in (start.hidden, start.output)
        for part in (layer[:-1], layer[-1])
    ]
    groups: list[dict[str, Any]] = [
        {"params": parameters[::2]},
        {"params": parameters[1::2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups,
        lr=plan.learning_rate,
        weight_decay=plan.weight_decay,
        fused=True,
    )
    # Equal parts: the logits of a lone row could not be normalised.
    size = plan.batch_size or min(max(table.rows // PARTS, SMALLEST), LARGEST)
    batches = max(1, round(table.rows / size))
    steps = batches * plan.epochs
    try:
        # Adam is blind to the size of gradients; there is nothing to normalise.
        moving = recipe(
            plan.loss,
            total_steps=steps,
            normalize_gradient=False,
            **{**plan.loss_params, "reduction": "none"},
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{plan.call}: loss_params={dict(plan.loss_params)!r}: {error}") from error
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rows, target = _rows(table, device), torch.from_numpy(table.target).to(device)
    # Weights were shares of one; a batch's mean should be of the order of a row's loss.
    share = torch.from_numpy(np.asarray(table.weight * table.rows, np.float32)).to(device)
    moving.loss.to(device)
    of_goal = None if table.goal is None else goal_loss(table.goal, device)

    result, highest, rose = Training(start), -math.inf, 0
    try:
        for epoch in range(1, (last or plan.epochs) + 1):
            total = torch.zeros((), device=device)
            order = torch.randperm(table.rows, generator=generator).to(device)
            for some in torch.tensor_split(order, batches):
                logits = _logits(rows(some), parameters)
                loss = (moving.loss(logits, target[some]) * share[some]).mean()
                if of_goal is not None:
                    part = fall.last_epoch / steps
                    loss = (1 - part) * loss + part * of_goal(logits, target[some], share[some])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                fall.step()
                moving.step()
                total += loss.detach() * (len(some) / table.rows)
            accuracy = 0.0 if held_out is None else _accuracy(held_out, parameters, device)
            result.losses.append(float(total))
            result.accuracies.append(accuracy)
            if accuracy > highest:
                highest, rose = accuracy, epoch
            if accuracy >= highest:
                result.network, result.best_epoch = _network(parameters), epoch
            if held_out is not None and epoch - rose >= plan.patience:
                break
    except KeyboardInterrupt:
        if not result.losses:
            raise
        result.interrupted = True
    return result


def goal_loss(goal: Goal, device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The objective of a goal for a batch of logits (n, C), targets and weights (n,).

    Its noise is Gumbel's, as cross entropy's is, which the training starts from.
    """
    if goal.cost is not None:
        cost = torch.from_numpy(goal.cost).to(device, torch.float32)

        def of_cost(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
            each = expected_cost_loss(logits, target, cost, noise="gumbel", reduction="none")
            return (each * weight).mean()

        return of_cost
    rule = ExpectedFBetaLoss(noise="gumbel", momentum=MOMENTUM, num_classes=goal.classes)
    rule.to(device)

    def of_counts(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        # A row of weight w counts w times, as a target of mass w does.
        mass = torch.zeros_like(logits).scatter(1, target[:, None], weight[:, None])
        loss: Tensor = rule(logits, mass)
        return loss

    return of_counts


def _rows(table: Standardized, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Standardised rows by their numbers: from the device, or, if sparse, made dense one by one."""
    if table.sparse:
        return lambda some: torch.from_numpy(table.dense(some.cpu().numpy())).to(device)
    x = torch.from_numpy(table.dense(np.arange(table.rows))).to(device)
    return lambda some: x[some]


def _logits(x: Tensor, parameters: list[Tensor]) -> Tensor:
    """Scores (n, C) of rows (n, F)."""
    w, b, v, c = parameters
    return torch.addmm(c, torch.addmm(b, x, w).relu(), v)


def _accuracy(table: Standardized, parameters: list[Tensor], device: torch.device) -> float:
    """Weighted share of rows that are right, or what the table's goal makes of the decisions."""
    rows, best = _rows(table, device), np.empty(table.rows, np.int64)
    with torch.no_grad():
        for block in table.blocks(65_536):
            some = torch.arange(block.start, block.stop, device=device)
            best[block] = _logits(rows(some), parameters).argmax(1).cpu().numpy()
    # A millionth is rounding, or a row of next to no weight: no reason to prefer an epoch.
    if table.goal is not None:
        return round(table.goal.counted(table.target, best, table.weight)[0], 6)
    return round(float(table.weight @ (best == table.target)), 6)


def _network(parameters: list[Tensor]) -> Network:
    """A copy of the weights as they are now."""
    w, b, v, c = (part.detach().cpu().numpy().astype(np.float64) for part in parameters)
    return Network(np.vstack([w, b]), np.vstack([v, c]))
