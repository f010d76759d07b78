"""Results as pictures: those of the paper with every loss, and one for the temperature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

import hitrate
from hitrate_lab.toy.examples import FIRST, SECOND, Example, Fit, Model
from hitrate_lab.toy.losses import zero_and
from hitrate_lab.toy.studies import MARGINS, Results, Row, TemperatureRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"cross entropy": "#D55E00", "hinge": "#007A5A", "EXACT": "#0072B2"}
GOOD, POOR = "#0072B2", "#D55E00"
GRAYS = {1.0: "0.8", 0.3: "0.65", 0.1: "0.5", 0.03: "0.3", 0.01: "0"}
# Left out of the temperature's picture: each has the minimiser of another.
TWINS = {
    "cross entropy": "complement objective",
    "expectation": "mean absolute error",
    "EXACT": "EXACT, batch log",
}


def draw_summary(results: Results) -> Figure:
    """The README's picture: expected accuracy over b, and decisions on the second example."""
    figure, (left, right) = _panels(1, 2, (12, 5), dpi=150)
    _plot_expected_accuracy(left)
    for loss, fit in _of_the_paper(results.first).items():
        low, high = fit.thresholds
        color = COLORS[loss]
        for end in {low, high}:
            left.axvline(end, color=color, lw=2.5)
        left.axvspan(low, high, color=color, alpha=0.15, lw=0)
        x, y, align = {"EXACT": (0.03, 1.06, "left"), "hinge": (0.125, 0.36, "center")}.get(
            loss, (-0.03, 0.36, "right")
        )
        text = f"{loss}\n{fit.text}\n{fit.accuracies(FIRST)[0]:.1%}"
        left.text(low + x, y, text, ha=align, color=color, weight="bold", size=9)
    _plot_points(left, FIRST, 0.14)
    left.set(title="Example 1, f = x - b: expected accuracy (raw logits)", ylim=(0, 1.28))
    left.legend(loc="upper left", frameon=False)
    _plot_decisions(right, _of_the_paper(results.second))
    _legend_of_points(figure, errors=True)
    return figure


def draw_thresholds(results: Results) -> Figure:
    """Figure 1: the data, and where each loss puts the threshold."""
    figure, (axes,) = _panels(1, 1, (9, 7))
    left, right, count = -0.45, 1.45, len(results.first)
    axes.axvspan(0, 0.25, color=GOOD, alpha=0.12, lw=0)
    _plot_points(axes, FIRST, count)
    for lane, row in enumerate(reversed(results.first)):
        low, high = row.lowest.thresholds
        color = GOOD if row.lowest.is_perfect(FIRST) else POOR
        axes.axhline(lane, color="0.9", lw=0.8, zorder=0)
        if low > right:
            axes.plot(right - 0.05, lane, ">", color=color, ms=9)
        elif low == high:
            axes.plot([low, low], [lane - 0.3, lane + 0.3], color=color, lw=3.5)
        else:
            axes.fill_between([low, high], lane - 0.3, lane + 0.3, color=color, alpha=0.6, lw=0)
        text = row.lowest.text.removeprefix("→ ")
        align = "left" if high + 0.2 < right else "right"
        at = min(high + 0.03, right - 0.09)
        axes.text(at, lane, text, color=color, ha=align, va="center", weight="bold")
        axes.plot(
            row.annealed.thresholds[0], lane, "D", color="black", mfc="white", ms=5.5, zorder=3
        )
    axes.set_yticks(range(count + 1), [*(row.loss for row in reversed(results.first)), "data"])
    axes.set(xlim=(left, right), ylim=(-0.6, count + 0.6), xlabel="threshold b")
    axes.set_title("Example 1, f = x - b: least loss (bars), trained with σ from 10 to 0.01 (◇)")
    _legend_of_points(figure)
    return figure


def draw_expected_accuracy(results: Results) -> Figure:
    """Figure 3: expected accuracy over b for several sigma."""
    figure, (axes,) = _panels(1, 1, (7.5, 4.5))
    axes.axvspan(0, 0.25, color=GOOD, alpha=0.12, lw=0)
    _plot_expected_accuracy(axes)
    _plot_points(axes, FIRST, 0.14)
    axes.set(title="Example 1: expected accuracy of f = x - b", ylim=(0, 1.08))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.16), frameon=False)
    _legend_of_points(figure)
    return figure


def draw_margins(results: Results) -> Figure:
    """Figure 4: EXACT loss over b, with and without margin, and its minima."""
    margins = (None, *MARGINS)
    figure, panels = _panels(1, len(margins), (13, 4.5), share=True)
    b = torch.linspace(-1.5, 4.5, 601, dtype=torch.float64)
    rows = [row for row in results.sigmas if row.sigma >= 0.03]
    for axes, margin in zip(panels, margins, strict=True):
        axes.axvspan(0, 0.25, color=GOOD, alpha=0.12, lw=0)
        for row, gray in zip(rows, np.linspace(0.8, 0, len(rows)), strict=True):
            color = str(gray)
            axes.plot(b, _exact_loss(b, row.sigma, margin), color=color, label=f"σ = {row.sigma:g}")
            least, _ = (row.lowest if margin is None else row.with_margin[margin]).thresholds
            if least < b[-1]:
                value = _exact_loss(torch.tensor([least]).double(), row.sigma, margin)
                axes.plot(least, value, "o", color=color, mec="black", ms=7, zorder=3)
        title = "no margin" if margin is None else f"margin {margin:g}"
        axes.set(title=title, xlabel="threshold b", xlim=(-1.5, 4.5))
    panels[0].set_ylabel("EXACT loss, 1 - mean p")
    panels[-1].legend(loc="lower right", frameon=False)
    figure.suptitle("Example 1: dots mark the minima, the band the perfect thresholds")
    return figure


def draw_decisions(results: Results) -> Figure:
    """Figure 10: decisions of every loss at its optimum on the second example."""
    figure, (axes,) = _panels(1, 1, (9, 10))
    _plot_decisions(axes, {row.loss: row.lowest for row in results.second})
    _legend_of_points(figure, errors=True)
    return figure


def draw_temperatures(results: Results) -> Figure:
    """The minimising b over the largest temperature allowed, for each loss."""
    from matplotlib import colormaps

    figure, (axes,) = _panels(1, 1, (9.5, 5.5))
    axes.axhspan(1e-3, 0.25, color=GOOD, alpha=0.12, lw=0)
    axes.text(0.55, 0.052, "perfect: 0 < b < 0.25", color=GOOD, va="bottom", weight="bold")
    rows = [row for row in results.temperatures if row.loss not in (*TWINS.values(), "MPCE")]
    curves = sorted(((row.loss, *_bounded(row)) for row in rows), key=lambda curve: -curve[3][0])
    colors = colormaps["turbo"](np.linspace(0.03, 0.97, len(curves)))
    for number, (loss, k, low, high) in enumerate(curves):
        color, style = colors[number], ("-", "--", ":")[number % 3]
        label = f"{loss} (and {TWINS[loss]})" if loss in TWINS else loss
        is_finite = np.isfinite(high)
        if np.array_equal(low, high):
            axes.plot(k[is_finite], high[is_finite], style, color=color, lw=2, label=label)
        else:
            axes.fill_between(
                k, low, high, color=color, alpha=0.25, lw=0, label=f"{loss} (interval)"
            )
        jump = np.argmax(is_finite)
        if jump and high[jump] < 0.25:
            # Before, the loss was least at infinity.
            axes.plot(k[jump], high[jump], "o", color=color, mec="black", ms=8, zorder=3)
    axes.set(xscale="log", yscale="log", xlim=(0.5, 300), ylim=(0.05, 20))
    axes.set_yticks([0.05, 0.125, 0.25, 0.5, 1, 2, 5, 10, 20], minor=False)
    axes.set_xticks([1, 3, 10, 30, 100, 300], minor=False)
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set(xlabel="largest temperature K", ylabel="b of least loss, k ≤ K")
    axes.set_title("Example 1 with a temperature, f = k (x - b)")
    axes.legend(loc="upper right", frameon=False)
    return figure


FIGURES: dict[str, Callable[[Results], Figure]] = {
    "toy": draw_summary,
    "toy_figure_1": draw_thresholds,
    "toy_figure_3": draw_expected_accuracy,
    "toy_figure_4": draw_margins,
    "toy_figure_10": draw_decisions,
    "toy_temperature": draw_temperatures,
}


def _panels(
    rows: int, columns: int, size: tuple[float, float], *, share: bool = False, dpi: int = 110
) -> tuple[Figure, list[Axes]]:
    """A white figure and its axes, without frames."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=dpi, layout="constrained", facecolor="white")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=share).flat)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _of_the_paper(rows: Sequence[Row]) -> dict[str, Fit]:
    """The paper's three losses, each as the paper treats it: EXACT trained, the others least."""
    fits = {row.loss: row.annealed if row.loss == "EXACT" else row.lowest for row in rows}
    return {loss: fits[loss] for loss in COLORS}


def _exact_loss(b: torch.Tensor, sigma: float, margin: float | None = None) -> torch.Tensor:
    """1 - mean p of f = x - b on the first example, for thresholds (B,)."""
    scores = FIRST.x - b[:, None]  # (B, N)
    target = FIRST.target.repeat(len(b))
    p = hitrate.expected_accuracy(zero_and(scores.flatten()), target, sigma, margin=margin)
    return 1 - p.view(scores.shape).mean(1)


def _plot_expected_accuracy(axes: Axes) -> None:
    """E[accuracy] of f = x - b over b for several sigma."""
    b = torch.linspace(-0.6, 1.2, 721, dtype=torch.float64)
    for sigma, gray in GRAYS.items():
        axes.plot(b, 1 - _exact_loss(b, sigma), color=gray, label=f"σ = {sigma:g}")
    axes.set(xlabel="threshold b", ylabel="expected accuracy", xlim=(-0.6, 1.2))
    axes.set_yticks(np.arange(6) / 5)


def _plot_decisions(axes: Axes, fits: dict[str, Fit]) -> None:
    """One lane per loss on the second example: the points, the region called +1, the errors."""
    left, right = -10, 3.5
    lanes = list(reversed(fits.items()))
    is_crowded = len(lanes) > 5
    for lane, (loss, fit) in enumerate(lanes):
        low, high = fit.thresholds
        threshold = (low + high) / 2
        weight = fit.models[0].weight
        model = Model(weight, -weight * threshold) if weight else fit.models[0]
        accuracy = fit.accuracies(SECOND)[0]
        by_accuracy = GOOD if accuracy > 0.7 else POOR
        color = by_accuracy if is_crowded else COLORS[loss]
        edge = max(threshold, left)
        axes.fill_between([edge, right], lane - 0.36, lane + 0.36, color=color, alpha=0.2, lw=0)
        if edge > left:
            axes.plot([edge, edge], [lane - 0.36, lane + 0.36], color=color, lw=3)
        text = f"threshold {fit.text}".replace("threshold none", "no threshold")
        text += ", w → ∞" if fit.grows else ""
        # In low lanes, where there is no point above or below.
        at = -3.8 if is_crowded else edge + 0.15
        axes.text(at, lane + 0.2, text, color=color, weight="bold", va="center")
        _plot_points(axes, SECOND, lane, model, size=7 if is_crowded else 9)
    names = [f"{loss}\n{fit.accuracies(SECOND)[0]:.0%}" for loss, fit in lanes]
    axes.set(title="Example 2, f = w x + c: shaded where the model says +1", xlabel="x")
    axes.set(xlim=(left, right), ylim=(-0.5, len(lanes) - 0.5))
    axes.set_yticks(range(len(lanes)), names)


def _plot_points(
    axes: Axes, example: Example, y: float, model: Model | None = None, *, size: float = 9
) -> None:
    """Points on a line at height y: filled for +1, open for -1, a cross under a model's errors."""
    axes.axhline(y, color="0.6", lw=0.8, zorder=1)
    for x, label in zip(example.points, example.labels, strict=True):
        fill = "black" if label > 0 else "white"
        axes.plot(x, y, "o", ms=size, color="black", mfc=fill, zorder=3)
        if model and not model.accuracy([x], [label]):
            axes.plot(x, y - 0.22, "x", ms=size - 1, mew=2, color="black")


def _legend_of_points(figure: Figure, *, errors: bool = False) -> None:
    """What filled and open points mean, and crosses, below the panels."""
    from matplotlib.lines import Line2D

    marks = {"label +1": ("o", "black"), "label -1": ("o", "white")}
    if errors:
        marks["misclassified"] = ("x", "black")
    handles = [
        Line2D([], [], ls="none", marker=marker, color="black", mfc=fill, ms=8, label=label)
        for label, (marker, fill) in marks.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)


def _bounded(row: TemperatureRow) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Temperatures K >= 1/2 (K,), and the ends of the interval of b of least loss for k <= K."""
    weights = [float(k) for k in row.valleys.weight if k >= 0.5]
    fits = [(found := row.valleys.up_to(k)).fit(found.lowest) for k in weights]
    low, high = zip(*(fit.thresholds for fit in fits), strict=True)
    return np.array(weights), np.array(low), np.array(high)
