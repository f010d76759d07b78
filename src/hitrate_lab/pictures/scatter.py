"""Points of two or three kinds, and a line with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hitrate_lab.pictures.svg import (
    Element,
    dot,
    line,
    padded,
    picture,
    polyline,
    scale,
    step_of,
    text,
    tick_text,
    ticks,
)

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 622, 52, 346
# For a file of its own: a rule to a line, as `standalone` reads them.
STYLE = "\n".join(
    [
        "svg text { fill: #15202b; font-family: system-ui, sans-serif; font-size: 13px; }",
        "svg .tick { fill: #4e5d6c; font-size: 12px; }",
        "svg .axis-title { fill: #4e5d6c; font-size: 12px; font-weight: 600; }",
        "svg .grid { stroke: #e3e8ed; }",
        "svg .axis { stroke: #4e5d6c; }",
        "svg .curve { fill: none; stroke: #005f9e; stroke-width: 2; }",
        "svg .curve.end { stroke-width: 1.2; stroke-dasharray: 5 4; }",
        "svg .mark { stroke: #ffffff; stroke-width: 1; }",
        "svg .mark.other { fill: #8695a4; }",
        "svg .mark.better { fill: #005f9e; }",
        "svg .mark.text { fill: #b35900; }",
    ]
)


@dataclass(frozen=True)
class Point:
    """One mark; shares, shown in points of a percentage."""

    x: float
    y: float
    name: str
    kind: str = "other"


def scatter(
    points: Sequence[Point],
    curve: Sequence[tuple[float, float, float, float]],
    kinds: Sequence[tuple[str, str]],
    axes: tuple[str, str],
    name: str,
    title: str,
    description: str,
) -> Element:
    """Points, in front of them those of a later kind; and a line with the ends of its interval.

    Parameters
    ----------
    points : sequence of Point
    curve : sequence of (x, y, low, high)
        None for no line.
    kinds : sequence of (kind, words)
    axes : (x, y)
        Their words.
    name : str
        Makes ids unique.
    title, description : str
        For those who cannot see it.
    """
    xs = [point.x for point in points]
    ys = [point.y for point in points]
    (left, right), (low, high) = padded(xs), padded([*ys, 0.0])
    x, y = scale((left, right), (LEFT, RIGHT)), scale((low, high), (BOTTOM, TOP))
    parts = []
    marks = ticks(low, high, 6)
    for mark in marks:
        parts.append(line(LEFT, y(mark), RIGHT, y(mark), "axis" if mark == 0 else "grid"))
        words = tick_text(mark, step_of(marks), sign=True)
        parts.append(text(LEFT - 6, y(mark) + 4, words, "tick", anchor="end"))
    parts.append(line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"))
    marks = ticks(left, right, 8)
    for mark in marks:
        parts.append(line(x(mark), BOTTOM, x(mark), BOTTOM + 4, "axis"))
        words = tick_text(mark, step_of(marks), sign=True)
        parts.append(text(x(mark), BOTTOM + 18, words, "tick", anchor="middle"))
    parts.append(text(RIGHT, BOTTOM + 40, axes[0], "axis-title", anchor="end"))
    parts.append(text(8, 18, axes[1], "axis-title"))
    at = LEFT
    for kind, words in kinds:
        parts.append(dot(at + 5, 36, kind, radius=4.0))
        parts.append(text(at + 14, 40, words, "tick"))
        at += 30 + 7 * len(words)
    order = [kind for kind, _ in kinds]
    for point in sorted(points, key=lambda point: order.index(point.kind)):
        parts.append(dot(x(point.x), y(point.y), point.kind, point.name, radius=3.6))
    for place, look in ((1, "curve"), (2, "curve end"), (3, "curve end")):
        if curve:
            parts.append(polyline([(x(each[0]), y(each[place])) for each in curve], look))
    return picture(name, (WIDTH, HEIGHT), title, description, parts, "fit")
