"""How often a method is right when it says it is sure."""

from __future__ import annotations

from typing import Any

from hitrate_lab.pictures.svg import Element, dot, element, line, picture, polyline, text
from hitrate_lab.wording import count, percent

WIDTH, HEIGHT = 340, 372
LEFT, RIGHT, TOP, BOTTOM = 44, 330, 10, 258
# The counts stand below, on the same axis.
COUNTS_TOP, COUNTS_BOTTOM = 276, 328


def reliability(diagram: dict[str, Any], name: str) -> Element:
    """Accuracy over confidence, a bin a dot, and the number of rows in each bin."""
    parts = []
    for mark in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(line(_x(mark), TOP, _x(mark), BOTTOM, "grid"))
        parts.append(line(LEFT, _y(mark), RIGHT, _y(mark), "grid"))
        parts.append(text(LEFT - 6, _y(mark) + 4, f"{100 * mark:.0f}", "tick", anchor="end"))
        anchor = "end" if mark == 1 else "middle"
        at = min(_x(mark) + (6 if mark == 1 else 0), WIDTH)
        parts.append(text(at, COUNTS_BOTTOM + 16, f"{100 * mark:.0f}", "tick", anchor=anchor))
    parts.append(line(_x(0), _y(0), _x(1), _y(1), "reference"))
    largest = max(part["count"] for part in diagram["bins"])
    for part in diagram["bins"]:
        x1, x2 = _x(part["low"]), _x(part["high"])
        height = max((COUNTS_BOTTOM - COUNTS_TOP) * part["count"] / largest, 1.0)
        rectangle = {"x": x1 + 1, "y": COUNTS_BOTTOM - height, "width": max(x2 - x1 - 2, 1.0)}
        hint = element(
            "title", f"{percent(part['low'])} to {percent(part['high'])}: {part['count']:.0f}"
        )
        parts.append(Element("rect", {**rectangle, "height": height, "class": "bar"}, (hint,)))
    points = [(_x(part["confidence"]), _y(part["accuracy"])) for part in diagram["bins"]]
    for part, (x, y) in zip(diagram["bins"], points, strict=True):
        parts.append(line(x, y, x, _y(part["confidence"]), "gap"))
    parts.append(polyline(points, "curve better"))
    for part, (x, y) in zip(diagram["bins"], points, strict=True):
        words = f"says {percent(part['confidence'])}, right {percent(part['accuracy'])}"
        parts.append(dot(x, y, "better", f"{words} ({count(part['count'])} rows)", 4.5))
    parts.append(line(LEFT, COUNTS_BOTTOM, RIGHT, COUNTS_BOTTOM, "axis"))
    parts.append(text(LEFT - 6, COUNTS_TOP + 9, _compact(largest), "tick", anchor="end"))
    parts.append(text(LEFT - 6, COUNTS_BOTTOM, "0", "tick", anchor="end"))
    parts.append(text(LEFT + 6, TOP + 14, "right, %", "axis-title"))
    parts.append(text(LEFT + 6, COUNTS_TOP + 8, "rows", "axis-title"))
    parts.append(text(RIGHT, HEIGHT - 6, "confidence, %", "axis-title", anchor="end"))
    title = f"Reliability: {diagram['label']}"
    return picture(name, (WIDTH, HEIGHT), title, diagram["summary"], parts, "fit")


def _x(share: float) -> float:
    return LEFT + share * (RIGHT - LEFT)


def _y(share: float) -> float:
    return BOTTOM - share * (BOTTOM - TOP)


def _compact(value: float) -> str:
    """A count in five characters at most."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.0f}{letter}"
    return f"{value:.0f}"
