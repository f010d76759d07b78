"""Results as tables: plain text for the screen, Markdown for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hitrate_lab.toy.convex import SOLVERS, design
from hitrate_lab.toy.examples import FIRST, Example, Fit
from hitrate_lab.toy.studies import (
    LARGEST_TEMPERATURES,
    MARGINS,
    STARTS,
    THRESHOLD_STARTS,
    Results,
    Row,
)

# A header, then rows.
Cells = list[list[str]]


def first_table(results: Results) -> Cells:
    """Study 1."""
    head = ["loss", "least at b =", "accuracy", "σ 10 → 0.01: b =", "accuracy", "paper"]
    return [head, *([row.loss, row.lowest.text, *_common(row)] for row in results.first)]


def second_table(results: Results) -> Cells:
    """Study 2."""
    head = ["loss", "least at w =", "threshold", "accuracy"]
    head += ["σ 10 → 0.01: threshold", "accuracy", "paper"]
    fits = [(row, row.lowest) for row in results.second]
    return [head, *([row.loss, fit.weight_text, fit.text, *_common(row)] for row, fit in fits)]


def sigma_table(results: Results) -> Cells:
    """EXACT in study 1, with neither schedule nor temperature."""
    head = ["σ", "least at b =", "accuracy", f"perfect descents of {len(THRESHOLD_STARTS)}"]
    for margin in MARGINS:
        head += [f"margin {margin:g}: b =", "accuracy"]
    cells = [head]
    for row in results.sigmas:
        line = [f"{row.sigma:g}", *_fit(row.lowest, FIRST), str(row.perfect_starts)]
        for margin in MARGINS:
            line += _fit(row.with_margin[margin], FIRST)
        cells.append(line)
    return cells


def temperature_table(results: Results) -> Cells:
    """Study 3, global minima: the b of least loss among all k <= K."""
    head = ["loss", *(f"K = {k:g}" for k in LARGEST_TEMPERATURES), "perfect above k ="]
    cells = [head]
    for row in results.temperatures:
        least = f"{row.perfect_from:.3f}" if row.perfect_from else "0"
        cells.append([row.loss, *(fit.text for fit in row.bounded.values()), least])
    return cells


def descent_table(results: Results) -> Cells:
    """Study 3, descents: where the common start leads, and how many starts end perfect."""
    head = ["loss", "k", "b", "accuracy", "perfect from step", f"perfect starts of {len(STARTS)}"]
    cells = [head]
    for row in results.temperatures:
        model = row.descent
        step = "never" if row.perfect_step is None else str(row.perfect_step)
        accuracy = f"{model.accuracy(FIRST.points, FIRST.labels):.1%}"
        numbers = [f"{model.weight:.2f}", f"{model.threshold:.3f}", accuracy, step]
        cells.append([row.loss, *numbers, str(row.perfect_starts)])
    return cells


TABLES: dict[str, tuple[str, Callable[[Results], Cells]]] = {
    "example1": ("Example 1, f = x - b", first_table),
    "sigma": ("Example 1, EXACT with a fixed σ", sigma_table),
    "example2": ("Example 2, f = w x + c", second_table),
    "temperature": (
        "Example 1 with a temperature, f = k (x - b): b of least loss, k <= K",
        temperature_table,
    ),
    "descent": ("Example 1 with a temperature, descent from k = 1, b = 0", descent_table),
}


def optima(rows: Sequence[Row]) -> list[str]:
    """Losses of example 2 at our optimum and at the paper's threshold, found there by a grid."""
    lines = []
    for row in rows:
        if row.loss not in SOLVERS or not row.example.learn_weight:
            continue
        solve, (theirs, _) = SOLVERS[row.loss], row.example.paper[row.loss]
        points, labels = row.example.points, row.example.labels
        best, theta = solve(*design(points, learn_weight=True), labels)
        columns = np.asarray(points)[:, None] - float(theirs)  # f = w (x - threshold)
        pinned, _ = solve(0 * columns[:, 0], columns, labels)
        weight, bias = np.ravel(theta)
        lines.append(
            f"Example 2, {row.loss}: the least summed loss is {best:.4f} (w = {weight:.4f}, "
            f"c = {bias:.4f}); a threshold of {theirs} allows no less than {pinned:.4f}."
        )
    return lines


def as_text(cells: Cells) -> str:
    """Columns as wide as they need."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
    padded = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def as_markdown(cells: Cells) -> str:
    """A table of Markdown."""
    lines = [cells[0], ["---"] * len(cells[0]), *cells[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def report(results: Results) -> str:
    """All tables, for the screen."""
    parts = [f"{title}\n\n{as_text(table(results))}" for title, table in TABLES.values()]
    return "\n\n\n".join([*parts, "\n".join(optima(results.second))])


def blocks(results: Results) -> dict[str, str]:
    """All tables for docs/toy.md, by the names of their marks there."""
    texts = {f"toy-{name}": as_markdown(table(results)) for name, (_, table) in TABLES.items()}
    return texts | {"toy-optima": "\n".join(f"- {line}" for line in optima(results.second))}


def _common(row: Row) -> list[str]:
    """Accuracy at the minimum, threshold and accuracy of the trained model, the paper's numbers."""
    threshold, accuracy = row.example.paper.get(row.loss, ("", 0.0))
    paper = f"{threshold} ({accuracy:.1%})" if threshold else ""
    return [_fit(row.lowest, row.example)[1], *_fit(row.annealed, row.example), paper]


def _fit(fit: Fit, example: Example) -> list[str]:
    """Threshold and accuracy."""
    low, high = fit.accuracies(example)
    return [fit.text, f"{low:.1%}" if low == high else f"{low:.1%} to {high:.1%}"]
