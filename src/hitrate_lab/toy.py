"""Two toy problems on which cross entropy and hinge miss the most accurate threshold.

    python -m hitrate_lab.toy --out build/demo

One feature, two classes, and f(x) = w x + c says +1 where it is not negative. Example 1 holds the
weight at 1, so f(x) = x - b; with a free weight cross entropy and hinge would separate it too.
Example 2 answers that objection: it learns weight and bias, so every loss chooses its own scale.
Nothing is looked up. Cross entropy (Newton) and hinge (all vertices of a piecewise linear function)
are convex and solved to the global optimum. EXACT is trained by gradient descent on ``1 - mean p``.

One recipe trains EXACT on both examples. The logits (0, f(x)) are normalised by the mean and the
standard deviation of all logits of the batch, which fixes the ratio of scale to sigma; sigma falls
geometrically from 10 to 0.01; the gradient is divided by a running mean of its norm. No margin is
needed: while sigma is large the normalised objective has a single maximum, and descent follows it.
Raw logits would need one: in example 1 their maximum lies near b = 385 when sigma is 10.
As sigma vanishes the maximum moves to the middle of the most accurate interval of thresholds:
of (0, 0.25) in example 1, of (-6, -5) in example 2, where all thresholds are equally accurate.

References
----------
"EXACT: How to Train Your Accuracy", Sections 3 and 4.5, Appendices D and E.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import hitrate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUMMARY = "Compare cross entropy, hinge and EXACT on the two toy problems of the EXACT paper."
COLORS = {"cross entropy": "#D55E00", "hinge": "#007A5A", "EXACT": "#0072B2"}


@dataclass(frozen=True)
class Example:
    """Points with labels -1 or 1, and what the paper reports: loss -> (threshold, accuracy)."""

    name: str
    points: tuple[float, ...]
    labels: tuple[int, ...]
    learn_weight: bool
    paper: dict[str, tuple[str, float]]


EXAMPLES = (
    Example(
        "1: f = x - b",
        (-0.25, 0.0, 0.25),
        (-1, -1, 1),
        learn_weight=False,
        paper={
            "cross entropy": ("0.7", 2 / 3),
            "hinge": ("[0.75, 1]", 2 / 3),
            "EXACT": ("0.125", 1.0),
        },
    ),
    Example(
        "2: f = w x + c",
        (-6.0, -5.0, -4.0, 0.0, 2.0),
        (-1, 1, 1, -1, 1),
        learn_weight=True,
        paper={"cross entropy": ("-7.75", 0.6), "hinge": ("-11", 0.6), "EXACT": ("-5.35", 0.8)},
    ),
)


@dataclass(frozen=True)
class Model:
    """f(x) = weight * x + bias; predicts 1 where f(x) >= 0 and -1 elsewhere."""

    weight: float
    bias: float

    @property
    def threshold(self) -> float:
        """Where f changes sign; infinite for a constant f (-inf: 1 everywhere)."""
        return -self.bias / self.weight if self.weight else math.copysign(math.inf, -self.bias)

    def accuracy(self, points: Sequence[float], labels: Sequence[int]) -> float:
        """Share of the points that get their label."""
        scores = self.weight * np.asarray(points) + self.bias
        return float(np.mean(np.where(scores >= 0, 1, -1) == np.asarray(labels)))


@dataclass(frozen=True)
class Row:
    """One loss on one example; several models are the ends of a whole interval of minimisers."""

    example: Example
    loss: str
    models: tuple[Model, ...]

    @property
    def accuracy(self) -> float:
        """Accuracy of the least accurate of the models."""
        return min(m.accuracy(self.example.points, self.example.labels) for m in self.models)

    @property
    def threshold(self) -> str:
        """Threshold, interval of thresholds, or the verdict of a constant model."""
        if not self.models[0].weight:
            return f"none (always {self.models[0].bias:+.0f})"
        values = sorted(m.threshold for m in self.models)
        return f"{values[0]:.3f}" if len(values) == 1 else f"[{values[0]:g}, {values[-1]:g}]"


def design(points: Sequence[float], learn_weight: bool) -> tuple[np.ndarray, np.ndarray]:
    """Offset (N,) and columns (N, P) of f = offset + columns @ theta; theta is (w, c) or (c,)."""
    x = np.asarray(points, dtype=float)
    ones = np.ones_like(x)
    return (0 * x, np.stack([x, ones], 1)) if learn_weight else (x, ones[:, None])


def model_of(theta: Sequence[float]) -> Model:
    """Model with parameters (w, c), or with (c,) and w = 1."""
    return Model(*map(float, theta)) if len(theta) == 2 else Model(1.0, float(theta[0]))


def minimize_cross_entropy(
    offset: np.ndarray, columns: np.ndarray, labels: Sequence[int]
) -> tuple[float, np.ndarray]:
    """Minimum and minimiser of Σ log(1 + exp(-y f)) by Newton steps, halved until the loss falls.

    Converges to the global minimum of this convex function where there is one (data not separable).
    """
    y = np.asarray(labels, dtype=float)

    def value(theta: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * (offset + columns @ theta)).sum())

    theta = np.zeros(columns.shape[1])
    for _ in range(100):
        q = 1 / (1 + np.exp(y * (offset + columns @ theta)))  # probability given to the wrong class
        hessian = columns.T @ (columns * (q * (1 - q))[:, None])
        step = np.linalg.solve(hessian, columns.T @ (y * q))
        while np.abs(step).max() > 1e-12 and value(theta + step) > value(theta):
            step = step / 2
        theta = theta + step
        if np.abs(step).max() <= 1e-12:
            break
    return value(theta), theta


def minimize_hinge(
    offset: np.ndarray, columns: np.ndarray, labels: Sequence[int]
) -> tuple[float, np.ndarray]:
    """Minimum of Σ max(0, 1 - y f), and every vertex (V, P) that attains it.

    The sum is convex, and linear between the kinks y f = 1. With both classes present its
    minimisers form a polytope, and each corner is a point where P kinks meet: so try them all.
    A single vertex means a unique minimiser.
    """
    y = np.asarray(labels, dtype=float)
    vertices = []
    for subset in map(list, combinations(range(len(y)), columns.shape[1])):
        if abs(np.linalg.det(columns[subset])) > 1e-12:
            vertices.append(np.linalg.solve(columns[subset], (y - offset)[subset]))
    thetas = np.array(vertices)
    values = np.maximum(0, 1 - y * (offset + thetas @ columns.T)).sum(1)
    lowest = thetas[values <= values.min() + 1e-12]
    return float(values.min()), np.unique(lowest.round(12) + 0.0, axis=0)


def fit_cross_entropy(points: Sequence[float], labels: Sequence[int], learn_weight: bool) -> Model:
    """Model of least cross entropy."""
    return model_of(minimize_cross_entropy(*design(points, learn_weight), labels)[1])


def fit_hinge(
    points: Sequence[float], labels: Sequence[int], learn_weight: bool
) -> tuple[Model, ...]:
    """Models of least hinge loss: the corners of the set of minimisers, or the only one."""
    return tuple(map(model_of, minimize_hinge(*design(points, learn_weight), labels)[1]))


def fit_exact(
    points: Sequence[float],
    labels: Sequence[int],
    learn_weight: bool,
    *,
    start: Sequence[float] | None = None,
    steps: int = 1000,
    sigma: tuple[float, float] = (10.0, 0.01),
    learning_rate: tuple[float, float] = (0.3, 1e-4),
) -> Model:
    """Model of highest expected accuracy, by gradient descent on ``1 - mean p``.

    Parameters
    ----------
    points, labels : (N,)
        Feature values, and classes -1 or 1.
    learn_weight : bool
        Learn (w, c); otherwise w = 1 and c = -b alone is learned.
    start : sequence of float, optional
        First (w, c) or (c,). Threshold 0 by default.
    steps : int
        Gradient steps.
    sigma, learning_rate : (float, float)
        First and last value; geometric in between. ``sigma`` is the noise on each of the two
        scores, so p = Phi(y f / (sigma * sqrt(2))).

    Returns
    -------
    Model
    """
    offset, columns = map(torch.from_numpy, design(points, learn_weight))
    target = (torch.tensor(labels) > 0).long()
    start = start or ((1.0, 0.0) if learn_weight else (0.0,))
    theta = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    mean_norm = None
    for step in range(steps):
        progress = step / (steps - 1)
        sigma_now, rate = (a * (b / a) ** progress for a, b in (sigma, learning_rate))
        scores = offset + columns @ theta
        logits = torch.stack([torch.zeros_like(scores), scores], 1)  # (N, 2)
        logits = (logits - logits.mean()) / logits.std(correction=0)
        loss = 1 - hitrate.expected_accuracy(logits, target, sigma_now).mean()
        (gradient,) = torch.autograd.grad(loss, theta)
        norm = float(gradient.norm())
        mean_norm = norm if mean_norm is None else 0.9 * mean_norm + 0.1 * norm
        with torch.no_grad():
            theta -= rate * gradient / max(mean_norm, 1e-300)
    return model_of(theta.tolist())


def compute_rows(examples: Sequence[Example] = EXAMPLES) -> list[Row]:
    """Fit the three losses to each example."""
    rows = []
    for example in examples:
        data = example.points, example.labels, example.learn_weight
        rows.append(Row(example, "cross entropy", (fit_cross_entropy(*data),)))
        rows.append(Row(example, "hinge", fit_hinge(*data)))
        rows.append(Row(example, "EXACT", (fit_exact(*data),)))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Rows as plain text, the paper's numbers beside ours."""
    head = ("example", "loss", "threshold", "accuracy", "paper: threshold", "paper: accuracy")
    cells = [head]
    for row in rows:
        threshold, accuracy = row.example.paper[row.loss]
        ours = (row.threshold, f"{row.accuracy:.1%}")
        cells.append((row.example.name, row.loss, *ours, threshold, f"{accuracy:.1%}"))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, tuple("-" * w for w in widths))
    lines = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def notes(rows: Sequence[Row]) -> str:
    """Losses of example 2 at our optimum and at the paper's threshold, found there by a grid."""
    lines = []
    for row in rows:
        solve = {"cross entropy": minimize_cross_entropy, "hinge": minimize_hinge}.get(row.loss)
        if solve is None or not row.example.learn_weight:
            continue
        points, labels = row.example.points, row.example.labels
        theirs, _ = row.example.paper[row.loss]
        best, _ = solve(*design(points, learn_weight=True), labels)
        columns = np.asarray(points)[:, None] - float(theirs)  # f = w (x - threshold)
        pinned, _ = solve(0 * columns[:, 0], columns, labels)
        if pinned > best + 1e-6:
            weight, bias = row.models[0].weight, row.models[0].bias
            lines.append(
                f"Example 2, {row.loss}: the least summed loss is {best:.4f} (w = {weight:.4f}, "
                f"c = {bias:.4f});\n  a threshold of {theirs} allows no less than {pinned:.4f}."
            )
    return "\n".join(lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Picture of the fits: expected accuracy over b (example 1), decisions (example 2)."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(12, 5), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    draw_expected_accuracy(left, [row for row in rows if not row.example.learn_weight])
    draw_decisions(right, [row for row in rows if row.example.learn_weight])
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    marks = {"label +1": ("o", "black"), "label -1": ("o", "white"), "misclassified": ("x", None)}
    handles = [
        Line2D([], [], ls="none", marker=marker, color="black", mfc=fill, ms=8, label=label)
        for label, (marker, fill) in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_expected_accuracy(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw E[accuracy] of f = x - b over b for several sigma, and where each loss puts b."""
    example = rows[0].example
    b = torch.linspace(-0.6, 1.2, 721, dtype=torch.float64)
    target = (torch.tensor(example.labels) > 0).long()
    scores = torch.tensor(example.points, dtype=torch.float64) - b[:, None]  # (B, N)
    logits = torch.stack([torch.zeros_like(scores), scores], -1).flatten(0, 1)  # (B * N, 2)
    for sigma, gray in {1.0: "0.8", 0.3: "0.65", 0.1: "0.5", 0.03: "0.3", 0.01: "0"}.items():
        p = hitrate.expected_accuracy(logits, target.repeat(len(b)), sigma).view(scores.shape)
        axes.plot(b, p.mean(1), color=gray, label=f"σ = {sigma:g}")
    for row in rows:
        ends = [model.threshold for model in row.models]
        for end in ends:
            axes.axvline(end, color=COLORS[row.loss], lw=2.5)
        axes.axvspan(min(ends), max(ends), color=COLORS[row.loss], alpha=0.15, lw=0)
        x, y, align = {"EXACT": (0.03, 1.06, "left"), "hinge": (0.125, 0.36, "center")}.get(
            row.loss, (-0.03, 0.36, "right")
        )
        text = f"{row.loss}\n{row.threshold}\n{row.accuracy:.1%}"
        axes.text(min(ends) + x, y, text, ha=align, color=COLORS[row.loss], weight="bold", size=9)
    draw_points(axes, example, 0.14)
    axes.set(title="Example 1, f = x - b: expected accuracy (raw logits)", xlabel="threshold b")
    axes.set(ylabel="expected accuracy", xlim=(-0.6, 1.2), ylim=(0, 1.28), yticks=np.arange(6) / 5)
    axes.legend(loc="upper left", frameon=False)


def draw_decisions(axes: Axes, rows: Sequence[Row]) -> None:
    """One lane per loss: the points, the region called +1 (shaded) and the errors."""
    example, (left, right) = rows[0].example, (-10, 3.5)
    for lane, row in enumerate(reversed(rows)):
        model, color = row.models[0], COLORS[row.loss]
        edge = max(model.threshold, left)
        axes.fill_between([edge, right], lane - 0.36, lane + 0.36, color=color, alpha=0.2, lw=0)
        if edge > left:
            axes.plot([edge, edge], [lane - 0.36, lane + 0.36], color=color, lw=3)
        text = f"threshold {row.threshold}".replace("threshold none", "no threshold")
        axes.text(edge + 0.15, lane + 0.2, text, color=color, weight="bold", va="center")
        draw_points(axes, example, lane, model)
    names = [f"{row.loss}\n{row.accuracy:.0%}" for row in reversed(rows)]
    axes.set(title="Example 2, f = w x + c: shaded where the model says +1", xlabel="x")
    axes.set(xlim=(left, right), ylim=(-0.5, len(rows) - 0.5))
    axes.set_yticks(range(len(rows)), names)


def draw_points(axes: Axes, example: Example, y: float, model: Model | None = None) -> None:
    """Points on a line at height y: filled for +1, open for -1, a cross under a model's errors."""
    axes.axhline(y, color="0.6", lw=0.8, zorder=1)
    for x, label in zip(example.points, example.labels, strict=True):
        fill = "black" if label > 0 else "white"
        axes.plot(x, y, "o", ms=9, color="black", mfc=fill, zorder=3)
        if model and not model.accuracy([x], [label]):
            axes.plot(x, y - 0.22, "x", ms=8, mew=2, color="black")


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, write the picture."""
    parser = argparse.ArgumentParser(prog="python -m hitrate_lab.toy", description=SUMMARY)
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for toy.png")
    out = parser.parse_args(argv).out
    rows = compute_rows()
    print(table(rows), notes(rows), sep="\n\n")
    out.mkdir(parents=True, exist_ok=True)
    draw(rows).savefig(out / "toy.png", dpi=150)
    print(f"\n{out / 'toy.png'}")


if __name__ == "__main__":
    main()
