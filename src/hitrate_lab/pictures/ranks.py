"""The critical-difference diagram."""

from __future__ import annotations

import math
from typing import Any

from hitrate_lab.pictures.svg import (
    LETTER,
    Element,
    dot,
    line,
    picture,
    polyline,
    scale,
    text,
)
from hitrate_lab.wording import shorten

ROW, BAR = 26, 11
AXIS = 46
TITLE = "Mean ranks: a critical-difference diagram"
# Bars go a little beyond their methods, and keep this far from one another.
OVER, GAP = 5, 10


def ranks(diagram: dict[str, Any], name: str, *, wide: bool) -> Element:
    """Mean ranks on a line, best at the left; a thick bar joins methods that are not told apart.

    Names hang from the line, the better half at the left. The line goes from the whole number
    below the best rank to the one above the worst.
    """
    methods = diagram["methods"]  # sorted by rank
    width, size, most, room = (820, 13, 250, 40) if wide else (340, 12, 104, 8)
    letters = int((most - 12) / (size * LETTER))
    labels = [shorten(method["label"], letters) for method in methods]
    half = (len(methods) + 1) // 2
    # Names stand left of the one and right of the other.
    left, right = (
        max((len(label) * size * LETTER + 14 for label in side), default=50.0)
        for side in (labels[:half], labels[half:])
    )
    right = width - right
    low = math.floor(methods[0]["rank"])
    high = max(math.ceil(methods[-1]["rank"]), low + 1)
    x = scale((low, high), (left + room, right - room))
    bars = [
        (x(methods[start]["rank"]) - OVER, x(methods[end]["rank"]) + OVER)
        for start, end in diagram["groups"]
    ]
    levels = _levels(bars)
    first = AXIS + BAR * (max(levels, default=-1) + 1) + 26
    height = first + ROW * (half - 1) + 12
    parts = _axis(low, high, x(low), x(high))
    for i, method in enumerate(methods):
        at, is_left = x(method["rank"]), i < half
        # The outermost names stand highest, so no line crosses another's name.
        y = first + ROW * (i if is_left else len(methods) - 1 - i)
        edge = left if is_left else right
        parts.append(polyline([(at, AXIS), (at, y), (edge, y)], "elbow"))
        class_ = ("name" if wide else "name slim") + (" strong" if i == 0 else "")
        where, anchor = (edge - 6, "end") if is_left else (edge + 6, "start")
        parts.append(text(where, y + size / 3, labels[i], class_, anchor=anchor))
        if wide:
            # A phone has no room for the number; the table below has it.
            inner, side = (edge + 4, "start") if is_left else (edge - 4, "end")
            parts.append(text(inner, y - 5, f"{method['rank']:.2f}", "tick", anchor=side))
    for (start, end), level in zip(bars, levels, strict=True):
        parts.append(line(start, AXIS + 15 + BAR * level, end, AXIS + 15 + BAR * level, "group"))
    # Marks may overlap: the best lies on top.
    for i, method in reversed([*enumerate(methods)]):
        kind = "baseline" if method["is_baseline"] else "better" if i == 0 else "other"
        hint = f"{method['label']}: {method['rank']:.2f}"
        parts.append(dot(x(method["rank"]), AXIS, kind, hint, 5.0))
    return picture(name, (width, height), TITLE, diagram["summary"], parts, "fit")


def _axis(low: int, high: int, left: float, right: float) -> list[Element]:
    """The line with its whole numbers, and halves where there is room for them."""
    x = scale((low, high), (left, right))
    step = (right - left) / (high - low)
    every = max(1, math.ceil(26 / step))
    parts = [line(left, AXIS, right, AXIS, "axis")]
    for rank in range(low, high + 1):
        parts.append(line(x(rank), AXIS - 7, x(rank), AXIS, "axis"))
        if (rank - low) % every == 0:
            parts.append(text(x(rank), AXIS - 12, str(rank), "tick", anchor="middle"))
    if step > 50:
        halves = (rank + 0.5 for rank in range(low, high))
        parts += [line(x(half), AXIS - 4, x(half), AXIS, "axis") for half in halves]
    middle = (left + right) / 2
    return [
        *parts,
        text(middle, 12, "mean rank, better at the left", "axis-title", anchor="middle"),
    ]


def _levels(bars: list[tuple[float, float]]) -> list[int]:
    """How deep each bar hangs: side by side where a gap is left, so that two do not read as one."""
    ends: list[float] = []
    levels = []
    for start, end in bars:
        level = next((k for k, last in enumerate(ends) if last + GAP <= start), len(ends))
        ends[level : level + 1] = [end]
        levels.append(level)
    return levels
