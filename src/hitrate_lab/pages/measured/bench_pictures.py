"""Pictures of what `make bench` measures: errors over nodes and over sample sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hitrate.probability.methods.quadrature import default_nodes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"value": "log p", "gradient": "gradient"}
OF_CLASSES = tuple(zip(("#d55e00", "#56a5d8", "#0b4f8a", "#1b7a4b"), "o^sD", strict=True))
LABELS = {
    "monte_carlo": "Monte Carlo",
    "genz_given_order": "Genz, given order",
    "genz": "Genz, hardest first",
}
COLOURS = {
    "monte_carlo": "#d55e00",
    "genz_given_order": "#56a5d8",
    "genz": "#0b4f8a",
    "quadrature": "#1b7a4b",
}
MARKERS = {"monte_carlo": "o", "genz_given_order": "^", "genz": "s"}
TITLES = {
    "value": ("RMSE of p", "Figure 8: error of the value"),
    "gradient": ("RMSE of dp/dm", "Figure 9: error of the gradient"),
}


def sampling_error(result: dict[str, Any], name: str) -> Figure:
    """Figure 8 or 9: two sampled methods, their 1 / sqrt(S) lines, the deterministic level."""
    from matplotlib.figure import Figure

    ylabel, title = TITLES[name]
    sizes = [point["samples"] for point in result["curves"]["monte_carlo"]]
    figure = Figure(figsize=(7.0, 5.4), dpi=160, layout="constrained")
    axes = figure.subplots()
    for method, points in result["curves"].items():
        line = result["one_sample_rmse"][method][name] / np.sqrt(sizes)
        axes.plot(sizes, line, color=COLOURS[method], linewidth=1, alpha=0.5)
        style: dict[str, Any] = {
            "color": COLOURS[method],
            "marker": MARKERS[method],
            "markersize": 5,
        }
        seen = [point for point in points if point["runs_with_a_hit"]]
        rmse = np.array([point[f"{name}_rmse"] for point in seen])
        low, high = np.array([point[f"{name}_interval"] for point in seen]).T
        axes.errorbar(
            [point["samples"] for point in seen],
            rmse,
            yerr=np.maximum([rmse - low, high - rmse], 0.0),
            linestyle="none",
            elinewidth=1.2,
            capsize=2.5,
            label=LABELS[method],
            **style,
        )
        missed = [point for point in points if not point["runs_with_a_hit"]]
        if missed:
            # Only zeros were sampled: the error is the truth itself, no measure of the spread.
            axes.plot(
                [point["samples"] for point in missed],
                [point[f"{name}_rmse"] for point in missed],
                linestyle="none",
                markerfacecolor="none",
                label=f"{LABELS[method]}, no hit in any run",
                **style | {"markersize": 9},
            )
    axes.axhline(
        result["quadrature"][f"{name}_rmse"],
        color=COLOURS["quadrature"],
        linewidth=2,
        label="hitrate's quadrature, float32 (no samples)",
    )
    equal = result["monte_carlo_samples_equal_to_one_genz_sample"]
    given, sorted_ = (
        readable(equal[m][name]["extrapolated"]) for m in ("genz_given_order", "genz")
    )
    axes.set_title(title, loc="left", fontsize=12, pad=22)
    axes.text(
        0.0,
        1.02,
        f"Monte Carlo samples worth one of Genz: {given} (given order), {sorted_} (hardest first)",
        transform=axes.transAxes,
        fontsize=9,
        color="0.3",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes[::2], [str(size) for size in sizes[::2]])
    axes.set_xlabel("sample size S")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        frameon=False,
        fontsize=9,
        ncols=2,
        loc="outside lower center",
        title=f"RMSE over {result['seeds']} seeds; bars: 95 % bootstrap; lines: $1/\\sqrt{{S}}$",
        title_fontsize=9,
    )
    return figure


def readable(number: float) -> str:
    """Two significant digits, with thousands separated."""
    return f"{float(f'{number:.2g}'):,.0f}"


def error_over_nodes(studies: list[dict[str, Any]]) -> Figure:
    """Error of the quadrature over its nodes: value and gradient down, dtypes across."""
    from matplotlib.figure import Figure

    dtypes = ("float32", "float64")
    figure = Figure(figsize=(9.0, 6.6), dpi=160, layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    for line, name in zip(grid, NAMES, strict=True):
        for axes, dtype in zip(line, dtypes, strict=True):
            for study, (colour, marker) in zip(studies, OF_CLASSES, strict=False):
                default = default_nodes(study["classes"], getattr(torch, dtype))
                points = sorted(
                    (e["nodes"] or default, e[name]["max"])
                    for e in study["errors"]
                    if (e["method"], e["dtype"]) == ("quadrature", dtype)
                )
                style: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 1.2}
                label = f"C = {study['classes']}"
                axes.plot(*zip(*points, strict=True), marker=marker, label=label, **style)
                ring = style | {"marker": "o", "markersize": 11, "markerfacecolor": "none"}
                axes.plot(default, dict(points)[default], **ring)
            axes.axhline(torch.finfo(getattr(torch, dtype)).eps, color="0.6", linewidth=1)
            axes.set_yscale("log")
            axes.grid(alpha=0.25, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel(f"largest error of {NAMES[name]}")
    for axes, dtype in zip(grid[0], dtypes, strict=True):
        axes.set_title(dtype, loc="left", fontsize=11)
    for axes in grid[1]:
        axes.set_xlabel("nodes")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        frameon=False,
        fontsize=9,
        ncols=len(labels),
        loc="outside lower center",
        title="Largest of 100 rows; rings: default number of nodes; grey: machine epsilon",
        title_fontsize=9,
    )
    return figure
