"""One model at a time, as anyone would write it: the twin that `train_many` is tested against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hitrate_lab.training.batched.setting import History, Orders, Setting, Split, starting_weights
from hitrate_lab.training.batched.variants import Variant


def train_one(
    split: Split, setting: Setting, variant: Variant, learning_rate: float, seed: int
) -> History:
    """Train one model with `nn.Linear`, `torch.optim` and a loss of hitrate's.

    The arguments are those of `train_many`, one of each.
    """
    validation: list[int] = []
    test: list[int] = []
    for model in epochs_of_one(split, setting, variant, learning_rate, seed):
        with torch.no_grad():
            for hits, (x, y) in ((validation, split.validation), (test, split.test)):
                hits.append(int((model(x).argmax(1) == y).sum()))
    return History(np.array(validation), np.array(test), weights_of(model))


def epochs_of_one(
    split: Split, setting: Setting, variant: Variant, learning_rate: float, seed: int
) -> Iterator[nn.Sequential]:
    """The model after each epoch."""
    model = build(setting, split, seed)
    rule = setting.optimizer
    options: dict[str, Any] = {"lr": learning_rate, "weight_decay": rule.weight_decay}
    optimizer: torch.optim.Optimizer
    if rule.name == "adam":
        optimizer = torch.optim.Adam(model.parameters(), **options)
    else:
        optimizer = torch.optim.SGD(model.parameters(), momentum=rule.momentum, **options)
    plan = variant.plan(setting.epochs)
    x, y = split.train
    orders = Orders(seed, len(x))
    for epoch in range(setting.epochs):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * rule.rate_at(epoch, setting.epochs)
        for some in torch.split(orders.next(), setting.batch_size):
            loss = variant.factor * plan.loss(model(x[some]), y[some]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        plan.step()
        yield model


def build(setting: Setting, split: Split, seed: int) -> nn.Sequential:
    """The model at its start."""
    parts: list[nn.Module] = []
    for weights in starting_weights(seed, setting.layers(split)):
        layer = nn.Linear(weights.shape[1] - 1, weights.shape[0])
        with torch.no_grad():
            layer.weight.copy_(weights[:, :-1])
            layer.bias.copy_(weights[:, -1])
        parts += [nn.ReLU(), layer] if parts else [layer]
    return nn.Sequential(*parts)


def weights_of(model: nn.Sequential) -> list[Tensor]:
    """(outputs, inputs + 1) of each layer, the bias last."""
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    return [torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], 1) for layer in layers]
