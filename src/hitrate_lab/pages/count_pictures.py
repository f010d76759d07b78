"""Pictures of what else is counted: balanced accuracy, costs and the F-measure.

All of two classes whose score is normal, of deviation 1: about 0 for the first, about 2 for the
second, which is one row in ten. Values come out of the library's own functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import hitrate
from hitrate_lab.pages.loss_pictures import legend, panels, style
from hitrate_lab.pages.made import Made, png_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES, MEANS = torch.tensor([0.9, 0.1], dtype=torch.float64), (0.0, 2.0)
# To overlook the second class, and to leave the decision to somebody else.
MISSED, ABSTAINING = 9.0, 0.5
ROWS = 1000


def sample() -> tuple[Tensor, Tensor]:
    """Scores (N,), quantiles rather than draws, and classes (N,)."""
    scores, target = [], []
    for c, share in enumerate(SHARES.tolist()):
        count = round(share * ROWS)
        places = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        scores.append(MEANS[c] + math.sqrt(2) * torch.erfinv(2 * places - 1))
        target.append(torch.full((count,), c))
    return torch.cat(scores), torch.cat(target)


def logits_at(scores: Tensor, threshold: float) -> Tensor:
    """Logits (N, 2) of the classifier that says 1 above the threshold."""
    return torch.stack([torch.full_like(scores, threshold), scores], 1)


def draw_balanced() -> Figure:
    """Where the boundary lies, and what the loss makes of it."""
    figure, left, right = panels()
    x = torch.linspace(-3, 5, 801, dtype=torch.float64)
    for c, share in enumerate(SHARES.tolist()):
        density = share * torch.exp(-0.5 * (x - MEANS[c]) ** 2) / math.sqrt(2 * math.pi)
        left.plot(x, density, **style(c))
        left.annotate(f"class {c}", (MEANS[c] + 0.3, float(density.max())))
    scores, target = sample()
    thresholds = torch.linspace(-1, 4, 51, dtype=torch.float64)
    ways = {"all rows alike": None, "class_prior": hitrate.class_prior(target)}
    for number, (label, prior) in enumerate(ways.items(), 2):
        losses = torch.stack(
            [
                hitrate.exact_loss(logits_at(scores, float(t)), target, 0.3, class_prior=prior)
                for t in thresholds
            ]
        )
        best = float(thresholds[losses.argmin()])
        right.plot(thresholds, losses, label=label, **style(number))
        right.plot(best, float(losses.min()), "o", color=style(number)["color"])
        left.axvline(best, **style(number))
    left.set(xlabel="score", ylabel="share times density", ylim=(0, None))
    right.set(xlabel="threshold", ylabel="expected error, sigma = 0.3", ylim=(0, 0.6))
    legend(figure, right)
    return figure


def draw_cost() -> Figure:
    """Expected costs of the decisions over the posterior, and the loss of both classes."""
    figure, left, right = panels()
    q = torch.linspace(0, 1, 201, dtype=torch.float64)
    cost = torch.tensor([[0.0, 1.0], [MISSED, 0.0]], dtype=torch.float64)
    expected = torch.stack([1 - q, q], 1) @ cost
    for c in (0, 1):
        left.plot(q, expected[:, c], label=f"decide for class {c}", **style(c))
    left.axhline(ABSTAINING, label="abstain", **style(2))
    left.axvline(1 / (1 + MISSED), color="black", lw=1)
    left.set(xlabel="probability of class 1", ylabel="expected cost", xlim=(0, 0.4), ylim=(0, 2))
    f = torch.linspace(-4, 4, 201, dtype=torch.float64)
    logits = torch.stack([torch.zeros_like(f), f], 1)
    for y in (0, 1):
        target = torch.full((len(f),), y)
        loss = hitrate.expected_cost_loss(logits, target, cost, reduction="none")
        right.plot(f, loss, **style(3 + y))
        right.annotate(f"class {y} is right", (-3.5 if y else 1.0, 8.2 if y else 1.3))
    right.set(xlabel="logit of class 1 less that of class 0", ylabel="expected cost, sigma = 1")
    legend(figure, left, columns=3)
    return figure


def draw_f_beta() -> Figure:
    """The measure over the threshold, expected and without noise, and for three beta."""
    figure, left, right = panels()
    scores, target = sample()
    thresholds = torch.linspace(-1, 4, 51, dtype=torch.float64)

    def measures(sigma: float, beta: float) -> Tensor:
        losses = [
            hitrate.expected_f_beta_loss(
                logits_at(scores, float(t)), target, "binary", beta, sigma=sigma
            )
            for t in thresholds
        ]
        return 1 - torch.stack(losses)

    for number, sigma in enumerate((1e-3, 0.3, 1.0)):
        label = "no noise" if sigma < 0.01 else f"sigma = {sigma:g}"
        left.plot(thresholds, measures(sigma, 1.0), label=label, **style(number))
    for number, beta in enumerate((0.5, 1.0, 2.0), 3):
        values = measures(0.3, beta)
        best = int(values.argmax())
        right.plot(thresholds, values, **style(number))
        dot = style(number)["color"]
        right.plot(float(thresholds[best]), float(values[best]), "o", color=dot)
        place = (float(thresholds[best]) - 0.9, float(values[best]) + 0.015)
        right.annotate(f"beta = {beta:g}", place)
    left.set(xlabel="threshold", ylabel="F1 of class 1", ylim=(0, 0.8))
    right.set(xlabel="threshold", ylabel="F of class 1, sigma = 0.3", ylim=(0, 0.8))
    legend(figure, left, columns=3)
    return figure


def pictures() -> Iterator[tuple[str, Figure]]:
    """Every picture with the name of its file."""
    yield "balanced", draw_balanced()
    yield "cost", draw_cost()
    yield "f_beta", draw_f_beta()


def counts(root: Path) -> Made:
    """Every picture; all come from the code, none from results."""
    return Made(pictures={f"docs/images/{name}.png": png_of(figure) for name, figure in pictures()})
