"""Dolan and Moré's performance profiles."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from hitrate_lab.pictures.svg import (
    LETTER,
    Element,
    line,
    picture,
    polyline,
    scale,
    step_of,
    text,
    ticks,
)
from hitrate_lab.wording import shorten

# Lines that the style sheet tells apart, by colour and by dashes; then they begin again.
LINES = 8
ROW = 20


def profile(profiles: dict[str, Any], name: str, *, wide: bool) -> Element:
    """Steps of all methods over the threshold, with their names beside or below.

    In the form of Figure 2 of "Mixing between the Cross Entropy and the Expectation Loss Terms".
    """
    curves, low = profiles["curves"], profiles["low"]
    width, size, most = (820, 13, 240) if wide else (340, 12, 150)
    longest = max(len(curve["label"]) for curve in curves)
    names = min(longest * size * LETTER + 50, most)
    left, top, bottom = 44, 30, 330 if wide else 250
    right = width - names - 16 if wide else width - 12
    x, y = scale((low, 1.0), (left, right)), scale((0.0, 1.0), (bottom, top))
    parts = _frame(low, (left, right), (top, bottom), 5 if wide else 4)
    # The first is drawn last: what others are compared with lies on top.
    for curve in reversed(curves):
        points = [(x(tau), y(share)) for tau, share in steps(curve, low)]
        parts.append(polyline(points, f"series line-{curve['index'] % LINES}"))
    columns = 1 if wide else max(1, int((width - 12) // names))
    for i, curve in enumerate(curves):
        row, column = (i, 0) if wide else divmod(i, columns)
        at = right + 16 if wide else left - 30 + column * names
        down = top + 6 + ROW * row if wide else bottom + 52 + ROW * row
        parts.append(line(at, down, at + 28, down, f"series line-{curve['index'] % LINES}"))
        label = shorten(curve["label"], int((names - 44) / (size * LETTER)))
        parts.append(text(at + 36, down + 4, label, "name" if wide else "name slim"))
    rows = 0 if wide else -(-len(curves) // columns)
    height = max(bottom + 40 + ROW * rows, top + ROW * len(curves) if wide else 0)
    return picture(name, (width, height), "Performance profiles", profiles["summary"], parts, "fit")


def steps(curve: dict[str, Any], low: float) -> list[tuple[float, float]]:
    """Corners of a profile from a threshold up to 1.

    >>> steps({"thresholds": [0.5, 0.9], "shares": [1.0, 0.4]}, 0.8)
    [(0.8, 0.4), (0.9, 0.4), (0.9, 0.0), (1.0, 0.0)]
    """
    thresholds, shares = curve["thresholds"], [*curve["shares"], 0.0]
    first = bisect_left(thresholds, low)
    corners = [(low, shares[first])]
    for k in range(first, len(thresholds)):
        corners.append((thresholds[k], shares[k]))
        if thresholds[k] < 1:
            corners.append((thresholds[k], shares[k + 1]))
    if corners[-1][0] < 1:
        corners.append((1.0, 0.0))
    return corners


def _frame(
    low: float, across: tuple[float, float], along: tuple[float, float], about: int
) -> list[Element]:
    """Grid, numbers and what they are."""
    (left, right), (top, bottom) = across, along
    x, y = scale((low, 1.0), across), scale((0.0, 1.0), (bottom, top))
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(left, y(share), right, y(share), "grid"))
        parts.append(text(left - 6, y(share) + 4, f"{100 * share:.0f}", "tick", anchor="end"))
    marks = ticks(low, 1.0, about)
    for mark in marks:
        parts.append(line(x(mark), top, x(mark), bottom, "grid"))
        digits = 2 if round(step_of(marks), 9) % 0.1 else 1
        parts.append(text(x(mark), bottom + 16, f"{mark:.{digits}f}", "tick", anchor="middle"))
    parts.append(line(left, bottom, right, bottom, "axis"))
    title = "accuracy at least τ times the best →"
    parts.append(text(right, bottom + 33, title, "axis-title", anchor="end"))
    return [*parts, text(left - 30, 14, "data sets, %", "axis-title")]
