"""Options of losses beyond cross entropy's: top-k, classes of different frequency, costs."""

import random
from typing import Any

# What the options here are called; cross entropy of torch has none of them.
NAMES = ("k", "class_prior", "reweighting", "logit_adjustment", "class_margin")
# Losses that are no link of log p, and have no k.
WITHOUT_K = (
    "hinge",
    "complement_objective",
    "maximum_probability_cross_entropy",
    "max_mahalanobis_center",
    "expected_cost",
)


def add_options(
    draw: random.Random, generator: Any, name: str, classes: int, target: Any, options: Any
) -> bool:
    """Draw some, and add them to `options`; whether a complaint of them may be right."""
    may_complain = False
    if name not in WITHOUT_K and draw.random() < 0.15:
        options["k"] = draw.choice((1, 2, 2, 3, classes - 1))
        # Sigmas of classes, margins and methods do not go with every k.
        may_complain = options["k"] > 1
    if draw.random() < 0.15:
        may_complain |= _balance(draw, generator, classes, target, options)
    return may_complain


def costs(draw: random.Random, generator: Any, classes: int) -> tuple[dict[str, Any], bool]:
    """Arguments of the expected cost, and whether complaints may be right."""
    import torch

    arguments: dict[str, Any] = {"noise": draw.choice(("normal", "logistic", "gumbel"))}
    arguments["sigma"] = draw.choice((1.0, 0.3, 1e-4, 1e4, torch.tensor(2.0)))
    decisions = classes
    if draw.random() < 0.2:
        # Targets may name the decision to abstain.
        arguments["abstain_cost"] = draw.choice((0.0, 0.3, 1e30))
        decisions -= 1
    if draw.random() < 0.6:
        matrix = torch.rand(decisions, decisions, generator=generator)
        arguments["cost"] = matrix * draw.choice((1.0, 1.0, 100.0, 1e30))
    return arguments, "abstain_cost" in arguments


def _balance(
    draw: random.Random, generator: Any, classes: int, target: Any, options: dict[str, Any]
) -> bool:
    import torch

    may_complain = False
    if draw.random() < 0.7:
        prior = torch.rand(classes, generator=generator) + 0.01
        if draw.random() < 0.2:
            prior[draw.randrange(classes)] = draw.choice((1e-6, 1e4))
        elif draw.random() < 0.1:
            prior[draw.randrange(classes)] = draw.choice((0.0, -1.0, float("nan")))
            may_complain = True
        options["class_prior"] = prior
        for name in ("reweighting", "logit_adjustment"):
            if draw.random() < 0.5:
                value = draw.choice((0.0, 0.5, 1.0, 1.5))
                options[name] = torch.tensor(value) if draw.random() < 0.2 else value
    if draw.random() < 0.4:
        options["class_margin"] = torch.rand(classes, generator=generator)
        # It takes class indices without smoothing.
        may_complain |= target.is_floating_point() or "label_smoothing" in options
    return may_complain
