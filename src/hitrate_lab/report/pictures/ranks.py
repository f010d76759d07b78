"""The critical-difference diagram."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hitrate_lab.report.pictures.svg import (
    LETTER,
    Element,
    dot,
    element,
    line,
    picture,
    polyline,
    text,
)
from hitrate_lab.report.wording import shorten

ROW = 24


def ranks(diagram: dict[str, Any], name: str, *, wide: bool) -> Element:
    """Average ranks on a line, best at the left; a bar joins what cannot be told apart."""
    methods = diagram["methods"]  # sorted by rank
    width, inset, size = (820, 230, 13) if wide else (340, 128, 11)
    room = int((inset - 12) / (size * LETTER)) - (5 if wide else 0)
    left, right = inset, width - inset
    axis, highest = 64, max(len(methods), 2)
    half = (len(methods) + 1) // 2
    bars = axis + 14
    first = bars + 9 * len(diagram["groups"]) + 18
    height = first + ROW * half + 2

    def x(rank: float) -> float:
        return left + (rank - 1) / (highest - 1) * (right - left)

    parts = [line(left, axis, right, axis, "axis")]
    every = 1 if highest <= 8 or wide else 2
    for rank in range(1, highest + 1):
        parts.append(line(x(rank), axis - 5, x(rank), axis, "axis"))
        if (rank - 1) % every == 0:
            parts.append(text(x(rank), axis - 10, str(rank), "tick", anchor="middle"))
    parts += _critical(diagram["critical_difference"], left, width, x)
    parts.append(text(0, axis - 10, "average rank", "axis-title"))
    for i, method in enumerate(methods):
        at = x(method["rank"])
        is_left = i < half
        # The outermost names stand highest, so no line crosses another's name.
        y = first + ROW * (i if is_left else len(methods) - 1 - i) + 6
        edge = inset - 8 if is_left else width - inset + 8
        parts.append(polyline([(at, axis), (at, y), (edge, y)], "elbow"))
        label = shorten(method["label"], room)
        # A phone has no room for the number; the table below has it.
        label += f" {method['rank']:.2f}" if wide else ""
        class_ = ("name" if wide else "name slim") + (" strong" if i == 0 else "")
        where, anchor = (edge - 4, "end") if is_left else (edge + 4, "start")
        parts.append(text(where, y + size / 3, label, class_, anchor=anchor))
    for i, (start, end) in enumerate(diagram["groups"]):
        y = bars + 9 * i
        x1, x2 = x(methods[start]["rank"]) - 4, x(methods[end]["rank"]) + 4
        parts.append(element("line", x1=x1, y1=y, x2=x2, y2=y, class_="group"))
    for i, method in enumerate(methods):
        kind = "baseline" if method["is_baseline"] else "better" if i == 0 else "other"
        hint = f"{method['label']}: {method['rank']:.2f}"
        parts.append(dot(x(method["rank"]), axis, kind, hint, 4.5))
    title = "Average ranks and critical difference"
    return picture(name, (width, height), title, diagram["summary"], parts, "fit")


def _critical(
    difference: float, left: float, width: float, x: Callable[[float], float]
) -> list[Element]:
    """The yardstick: as long as a difference of ranks must be."""
    # With few data sets it may be longer than all ranks; then it runs out of the picture.
    end, y = min(left + x(1 + difference) - x(1), width), 22
    parts = [line(left, y, end, y, "reference solid"), line(left, y - 4, left, y + 4, "axis")]
    if end < width:
        parts.append(line(end, y - 4, end, y + 4, "axis"))
    return [*parts, text(left, y - 9, f"critical difference {difference:.2f}", "tick")]
