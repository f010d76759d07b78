"""Pictures of every loss, of the links and of the schedules.

A loss is drawn beside its gradient, over the softmax probability p of the target. The logits are
[0, f], or with more rivals those of a given split of 1 - p, so that all losses are compared at the
same logits. Values and gradients come out of the library's own functions, by autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import hitrate
from hitrate.links import LINKS, BatchLog, Mixed
from hitrate.schedules import NAMED
from hitrate_lab.pages.made import Made, png_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Loss = Callable[..., Tensor]  # loss(logits, target, reduction="none")

# Okabe and Ito's colours, less the yellow, which is faint on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
GREY: dict[str, Any] = {"color": "0.6", "lw": 4.5, "zorder": 1}
STYLES = ("-", "--", "-.", ":")
SIZE = (8.0, 4.2)
DPI = 150


@dataclass(frozen=True)
class Trace:
    """A labelled curve: a loss and a slope of it, over x."""

    label: str
    x: Tensor
    loss: Tensor
    slope: Tensor


@dataclass(frozen=True)
class Curve:
    """A loss with its parameters, and how the rest of the probability is split over the rivals."""

    label: str
    loss: Loss
    rest: tuple[float, ...] = (1.0,)


def probabilities() -> Tensor:
    """Values of p, 1/2000 apart, and the ends as near to 0 and 1 as matters."""
    ends = torch.tensor([1e-6, 1e-4], dtype=torch.float64)
    middle = torch.linspace(0, 1, 2001, dtype=torch.float64)[1:-1]
    return torch.cat([ends, middle, 1 - ends.flip(0)])


def logits_at(p: Tensor, rest: Sequence[float] = (1.0,)) -> Tensor:
    """Logits (P, 1 + rivals): the target's comes first, and has softmax probability p."""
    rivals = torch.tensor(rest, dtype=p.dtype).log().expand(len(p), -1)
    return torch.cat([torch.logit(p)[:, None], rivals], 1)


def trace(curve: Curve, column: int = 0) -> Trace:
    """A loss over p, and the size of its gradient in one logit: the target's is in column 0."""
    p = probabilities()
    logits = logits_at(p, curve.rest).requires_grad_()
    target = torch.zeros(len(p), dtype=torch.long)
    loss = curve.loss(logits, target, reduction="none")
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    return Trace(curve.label, p, loss.detach(), slope[:, column].abs())


def each(loss: Loss, label: str, **values: Sequence[Any]) -> list[Curve]:
    """A curve for each value of one parameter."""
    ((name, options),) = values.items()
    return [Curve(f"{label} = {value:g}", partial(loss, **{name: value})) for value in options]


CROSS_ENTROPY = Curve("cross entropy", hitrate.cross_entropy_loss)
SPLITS = {"1:1": (0.5, 0.5), "9:1": (0.9, 0.1)}

# The curves of every loss that is drawn over p, by its name in `hitrate.losses.LOSSES`.
CURVES: dict[str, list[Curve]] = {
    "cross_entropy": each(
        hitrate.cross_entropy_loss, "smoothing", label_smoothing=(0.05, 0.1, 0.2)
    ),
    "exact": [
        *each(hitrate.exact_loss, "σ", sigma=(0.5, 1.0, 3.0)),
        Curve("σ = 3, margin 1", partial(hitrate.exact_loss, sigma=3.0, margin=1.0)),
        Curve("σ = 1, log link", partial(hitrate.exact_loss, link="log")),
    ],
    "expectation": [Curve("expectation loss", hitrate.expectation_loss)],
    "mixed": each(hitrate.mixed_loss, "F", focus=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
    "focal": each(hitrate.focal_loss, "γ", gamma=(0.0, 1.0, 2.0, 5.0)),
    "mean_absolute_error": [
        Curve("mean absolute error", hitrate.mean_absolute_error_loss),
        Curve("expectation loss", hitrate.expectation_loss),
    ],
    "generalized_cross_entropy": [
        *each(hitrate.generalized_cross_entropy_loss, "q", q=(0.0, 0.3, 0.7, 1.0)),
        Curve(
            "q = 0.7, threshold 0.5",
            partial(hitrate.generalized_cross_entropy_loss, q=0.7, threshold=0.5),
        ),
    ],
    "tamed_cross_entropy": each(hitrate.tamed_cross_entropy_loss, "α", alpha=(0.0, 0.5, 1.0, 2.0)),
    "hinge": each(hitrate.hinge_loss, "margin", margin=(0.0, 0.5, 1.0, 2.0)),
    "complement_objective": [
        Curve(f"complement objective, rest {name}", hitrate.complement_objective_loss, split)
        for name, split in SPLITS.items()
    ],
    "maximum_probability_cross_entropy": [
        Curve(
            f"{classes} classes, rest equal" if classes > 2 else "2 classes",
            hitrate.maximum_probability_cross_entropy_loss,
            (1 / (classes - 1),) * (classes - 1),
        )
        for classes in (2, 3, 10)
    ],
    "expected_cost": [
        Curve(
            f"an error costs {price:g}",
            partial(hitrate.expected_cost_loss, cost=torch.tensor([[0.0, price], [1.0, 0.0]])),
        )
        for price in (1.0, 2.0, 3.0)
    ],
}


def curves_of(name: str) -> list[Curve]:
    """The curves of a loss; its default alone, where nobody chose others."""
    default = Curve(name.replace("_", " "), getattr(hitrate, f"{name}_loss"))
    return CURVES.get(name, [default])


# What Figure 1 of the mixing paper combines: alpha of cross entropy, beta of the expectation loss.
MIXTURES = ((1, 0), (1, 0.5), (1, 1), (1, 2), (1, 5), (0.5, 1), (0, 1))


def draw_loss(name: str) -> Figure:
    """Picture of a loss by its name in `hitrate.losses.LOSSES`."""
    if name == "max_mahalanobis_center":
        return draw_center_loss()
    if name == "complement_objective":
        return draw_complement_objective()
    figure, left, right = panels()
    traces = [trace(curve) for curve in curves_of(name)]
    plot(left, right, [trace(CROSS_ENTROPY)], **GREY)
    plot(left, right, traces)
    label_axes(left, right, traces)
    legend(figure, left)
    return figure


def draw_complement_objective() -> Figure:
    """Over p with the rest split in two ways, and the gradient in a rival's logit.

    In the target's logit its gradient is that of cross entropy.
    """
    figure, left, right = panels()
    traces = [trace(curve, column=1) for curve in CURVES["complement_objective"]]
    for dashes, (split, rest) in zip(("-", ":"), SPLITS.items(), strict=True):
        grey = Curve(f"cross entropy, rest {split}", hitrate.cross_entropy_loss, rest)
        plot(left, right, [trace(grey, column=1)], **GREY | {"ls": dashes})
    plot(left, right, traces)
    label_axes(left, right, traces)
    right.set(ylabel="|gradient| of the likelier rival's logit")
    legend(figure, left, columns=2)
    return figure


def draw_center_loss() -> Figure:
    """Over a feature z of one dimension, where two centres lie at 1 and -1."""
    figure, left, right = panels()
    head = hitrate.MaxMahalanobisHead(2, 1, radius=1.0).double()
    z = torch.linspace(-2.5, 2.5, 501, dtype=torch.float64)
    shown: dict[str, tuple[Loss, dict[str, Any]]] = {
        "cross entropy of the same logits": (hitrate.cross_entropy_loss, GREY),
        "max-Mahalanobis": (hitrate.max_mahalanobis_center_loss, {"color": COLORS[0]}),
    }
    for label, (function, look) in shown.items():
        feature = z.clone().requires_grad_()
        target = torch.zeros(len(z), dtype=torch.long)
        loss = function(head(feature[:, None]), target, reduction="none")
        (slope,) = torch.autograd.grad(loss.sum(), feature)
        plot(left, right, [Trace(label, z, loss.detach(), slope.abs())], **look)
    own, other = head.centers[:, 0].tolist()
    for axes in (left, right):
        axes.axvline(own, color="black", lw=1, ls="--", label="target's centre")
        axes.axvline(other, color="black", lw=1, ls=":", label="other centre")
        axes.set(xlabel="feature z")
    left.set(ylabel="loss", ylim=(-0.2, 6.5))
    right.set(ylabel="|gradient| of z", ylim=(-0.1, 3.6))
    legend(figure, left, columns=4)
    return figure


def draw_figure_1() -> Figure:
    """Figure 1 of the mixing paper, with a dot at the largest gradient of each mixture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SIZE[0], 4.6), dpi=DPI, layout="constrained", facecolor="white")
    axes = figure.subplots()
    marked: list[tuple[float, float]] = []
    for number, (alpha, beta) in reversed(list(enumerate(MIXTURES))):
        loss = partial(hitrate.exact_loss, noise="gumbel", link=Mixed(alpha, beta))
        curve = trace(Curve(f"α = {alpha:g}, β = {beta:g}", loss))
        look = GREY if beta == 0 else style(number)
        axes.plot(curve.x, curve.slope, label=curve.label, **look)
        top = int(curve.slope.argmax())
        x, y = float(curve.x[top]), float(curve.slope[top])
        # Dots in the same place lie on top of larger ones.
        below = sum(abs(x - a) + abs(y - b) < 1e-3 for a, b in marked)
        marked.append((x, y))
        dot: dict[str, Any] = {"color": look["color"], "ms": 6 + 4 * below, "zorder": 5 - below / 9}
        axes.plot(x, y, "o", clip_on=False, **dot)
    axes.set(xlabel="softmax probability p of the target", xlim=(0, 1), ylim=(0, None))
    axes.set(ylabel="|gradient| of the target's logit")
    axes.tick_params(axis="y", pad=8)
    tidy(axes)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", frameon=False)
    return figure


def draw_links() -> Figure:
    """Every link with its default parameters; those that are the same then share a curve."""
    figure, left, right = panels()
    plot(left, right, [trace(Curve("log", partial(of_link, link="log")))], **GREY)
    traces: list[Trace] = []
    for name in LINKS:
        if name == "log":
            continue
        loss = of_row_in_batch if name == "batch_log" else partial(of_link, link=name)
        curve = trace(Curve(name, loss))
        if traces and torch.equal(curve.loss, traces[-1].loss):
            curve = replace(curve, label=f"{traces.pop().label}, {name}")
        traces.append(curve)
    plot(left, right, traces)
    label_axes(left, right, traces)
    legend(figure, left)
    return figure


def of_link(logits: Tensor, target: Tensor, link: str, reduction: str) -> Tensor:
    """A link of the softmax probability."""
    return hitrate.exact_loss(logits, target, noise="gumbel", link=link, reduction=reduction)


def of_row_in_batch(logits: Tensor, target: Tensor, reduction: str, rows: int = 10) -> Tensor:
    """What a row costs `BatchLog` beyond a sure one, times the rows; the others are at p = 1/2."""
    assert reduction == "none"
    link = BatchLog()
    log_p = logits.log_softmax(1).gather(1, target[:, None])
    others = torch.full((rows - 1,), 0.5, dtype=logits.dtype).log()
    batches = [torch.cat([row, others]) for row in log_p]
    sure = link(torch.cat([others.new_zeros(1), others]))
    return rows * torch.stack([link(batch) - sure for batch in batches])


def draw_schedules() -> Figure:
    """The papers' schedules by name, those of sigma on the left, of the focus on the right."""
    figure, left, right = panels()
    progress = torch.linspace(0, 1, 2001, dtype=torch.float64).tolist()
    drawn = {left: 0, right: 0}
    for name, schedule in NAMED.items():
        axes = left if name.startswith("sigma") else right
        values = [schedule(t) for t in progress]
        axes.plot(progress, values, label=name, **style(drawn[axes]))
        drawn[axes] += 1
    left.set(xlabel="progress", ylabel="sigma", yscale="log")
    left.set_yticks([0.01, 0.1, 1.0, 10.0], ["0.01", "0.1", "1", "10"])
    left.minorticks_off()
    right.set(xlabel="progress", ylabel="focus F", ylim=(-0.03, 0.55))
    for axes in (left, right):
        axes.set(xlim=(0, 1))
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    return figure


def panels() -> tuple[Figure, Axes, Axes]:
    """A figure with two panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    tidy(left)
    tidy(right)
    return figure, left, right


def tidy(axes: Axes) -> None:
    """Two spines, and thin lines behind the curves."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", lw=0.8)
    axes.set_axisbelow(True)


def plot(left: Axes, right: Axes, traces: Sequence[Trace], **look: Any) -> None:
    """Loss on the left, gradient on the right, the same look for both."""
    for number, curve in enumerate(traces):
        left.plot(curve.x, curve.loss, label=curve.label, **style(number) | look)
        right.plot(curve.x, curve.slope, label=curve.label, **style(number) | look)


def style(number: int) -> dict[str, Any]:
    """Colour and dashes of the curve with that number."""
    return {"color": COLORS[number], "ls": STYLES[number % len(STYLES)], "lw": 2}


def label_axes(left: Axes, right: Axes, traces: Sequence[Trace]) -> None:
    """Name the axes over p; what goes to infinity leaves a panel at its top."""
    for axes in (left, right):
        axes.set(xlabel="softmax probability p of the target", xlim=(0, 1))
    lowest = min(float(curve.loss.min()) for curve in traces)
    left.set(ylabel="loss", ylim=(min(-0.1, 1.1 * lowest), 4))
    highest = max(1.0, *(float(curve.slope.max()) for curve in traces))
    right.set(ylabel="|gradient| of the target's logit", ylim=(-0.04, min(1.05 * highest, 2.0)))


def legend(figure: Figure, axes: Axes, columns: int | None = None) -> None:
    """One legend for both panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    columns = columns or (3 if len(labels) in (3, 5, 6) else 4)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def figures() -> Iterator[tuple[str, Figure]]:
    """Every picture with the name of its file."""
    for name in hitrate.losses.LOSSES:
        yield name, draw_loss(name)
    yield "figure_1", draw_figure_1()
    yield "links", draw_links()
    yield "schedules", draw_schedules()


def losses(root: Path) -> Made:
    """Every picture; all come from the code, none from results."""
    return Made(
        pictures={f"docs/images/losses/{name}.png": png_of(figure) for name, figure in figures()}
    )
