"""Which class is taken for which."""

from __future__ import annotations

import math
from typing import Any

from hitrate_lab.pictures.svg import LETTER, Element, element, picture, text
from hitrate_lab.wording import count, percent, shorten

SIZE = 12
# Up to here every cell holds its count; beyond, shades alone are told apart.
NUMBERED = 12
SHADES = 8


def confusion(matrix: dict[str, Any], name: str) -> Element:
    """Rows are true classes, columns predictions; a cell's shade is its share of the row.

    Shades follow the root of the share, so that rare mistakes are seen.
    """
    classes, counts = matrix["classes"], matrix["counts"]
    numbered = len(classes) <= NUMBERED
    cell = max(min(248 / len(classes), 84), _widest(counts) + 8) if numbered else 12.0
    size = SIZE if numbered else 9
    letter = size * LETTER
    labels = [shorten(label, 14) for label in classes]
    longest = max(map(len, labels))
    slanted = longest * letter > cell - 6
    left = max(longest * letter + 10, 54)
    # A slanted name needs its height above the matrix, and room for the last one to the right.
    top = 22 + (longest * letter * 0.72 + 10 if slanted else size + 6)
    tail = longest * letter * 0.72 if slanted else 0
    side = cell * len(classes)
    width, height = left + side + max(tail - cell / 2, 2) + 2, top + side + 4
    draw = _numbered if numbered else _shaded
    parts = [*draw(classes, counts, (left, top), cell)]
    for i, (label, full) in enumerate(zip(labels, classes, strict=True)):
        middle = cell * (i + 0.5)
        class_ = "tick" if numbered else "tick small"
        row = text(left - 6, top + middle + size / 3, label, class_, anchor="end")
        parts.append(_titled(row, full))
        x, y = left + middle, top - 7
        turn = f"rotate(-45 {x:.1f} {y:.1f})" if slanted else None
        anchor = "start" if slanted else "middle"
        parts.append(
            element(
                "text",
                element("title", full),
                label,
                x=x,
                y=y,
                transform=turn,
                text_anchor=anchor,
                class_=class_,
            )
        )
    parts.append(text(left, 13, "predicted →", "axis-title"))
    parts.append(text(2, top - 7, "truth ↓", "axis-title"))
    title = f"Confusion matrix: {matrix['label']}"
    return picture(name, (width, height), title, matrix["summary"], parts, "natural")


def _numbered(
    classes: list[str], counts: list[list[float]], corner: tuple[float, float], cell: float
) -> list[Element]:
    """A rectangle and a count per cell; none for what never happened but its outline."""
    left, top = corner
    parts = []
    for i, row in enumerate(counts):
        total = sum(row)
        for j, value in enumerate(row):
            share = value / total if total else 0.0
            x, y = left + cell * j, top + cell * i
            words = f"{classes[i]} taken for {classes[j]}: {count(value)} ({percent(share)})"
            right = i == j
            parts.append(
                element(
                    "rect",
                    element("title", f"{classes[i]} right: {count(value)} ({percent(share)})")
                    if right
                    else element("title", words),
                    x=x + 1,
                    y=y + 1,
                    width=cell - 2,
                    height=cell - 2,
                    rx=3.0,
                    class_="cell right" if right else "cell wrong" if value else "cell never",
                    # Pale enough for the count to stay readable on it.
                    fill_opacity=round(0.06 + 0.38 * math.sqrt(share), 2)
                    if value
                    else 0.0
                    if right
                    else None,
                )
            )
            class_ = "count" if value else "count never"
            where = (x + cell / 2, y + cell / 2 + SIZE / 3)
            parts.append(text(*where, f"{value:.0f}", class_, anchor="middle"))
    return parts


def _shaded(
    classes: list[str], counts: list[list[float]], corner: tuple[float, float], cell: float
) -> list[Element]:
    """Cells of one shade are one path: a hundred classes have ten thousand cells."""
    left, top = corner
    paths: dict[tuple[bool, int], list[str]] = {}
    for i, row in enumerate(counts):
        total = sum(row)
        for j, value in enumerate(row):
            if value:
                shade = max(1, round(SHADES * math.sqrt(value / total)))
                paths.setdefault((i == j, shade), []).append(f"M{j} {i}h1v1h-1z")
    side = cell * len(classes)
    parts = [element("rect", x=left, y=top, width=side, height=side, class_="cell never")]
    for (right, shade), cells in sorted(paths.items()):
        parts.append(
            element(
                "path",
                d="".join(cells),
                transform=f"translate({left:.1f} {top:.1f}) scale({cell:.1f})",
                class_="cell right" if right else "cell wrong",
                fill_opacity=round(0.15 + 0.85 * shade / SHADES, 2),
            )
        )
    return parts


def _widest(counts: list[list[float]]) -> float:
    return max(len(f"{value:.0f}") for row in counts for value in row) * SIZE * LETTER


def _titled(label: Element, full: str) -> Element:
    return Element(label.name, label.attributes, (element("title", full), *label.children))
