"""Optimizers by name."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from hitrate.optim import ASAM
from hitrate_lab.training.options import Options


def optimizer_of(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """The one that is asked for, over the model's parameters."""
    groups = _groups(model, options)
    if options.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if options.optimizer == "adam" else torch.optim.AdamW
        return kind(groups, lr=options.learning_rate)
    sgd = functools.partial(
        torch.optim.SGD,
        lr=options.learning_rate,
        momentum=options.momentum,
        nesterov=options.nesterov,
    )
    return ASAM(groups, sgd, rho=options.rho) if options.optimizer == "asam" else sgd(groups)


def _groups(model: nn.Module, options: Options) -> list[dict[str, Any]]:
    """Parameters that decay, and those that do not."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decay = [(name, p) for name, p in named if options.decay_vectors or p.dim() > 1]
    rest = [(name, p) for name, p in named if not options.decay_vectors and p.dim() <= 1]
    groups = [
        {"params": decay, "weight_decay": options.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
