"""Small multiples: the same few lines in a panel for each data set, over one logarithmic axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hitrate_lab.pictures.svg import (
    LETTER,
    Element,
    element,
    line,
    picture,
    polyline,
    scale,
    text,
)

COLUMNS = 5
# Of a panel's frame, and from one panel to the next.
WIDTH, HEIGHT = 164, 124
ACROSS, DOWN = 184, 164
LEFT, TOP = 50, 62
# Lines that the style tells apart, by colour and by dashes.
LINES = 3
# For a file of its own: a rule to a line, as `standalone` reads them.
STYLE = "\n".join(
    [
        "svg text { fill: #15202b; font-family: system-ui, sans-serif; font-size: 13px; }",
        "svg .tick { fill: #4e5d6c; font-size: 12px; }",
        "svg .strong { font-size: 12px; font-weight: 600; }",
        "svg .grid { stroke: #e3e8ed; }",
        "svg .axis { stroke: #4e5d6c; }",
        "svg .series { fill: none; stroke: #4e5d6c; stroke-width: 1.8; stroke-linejoin: round; }",
        "svg .series.line-1 { stroke: #b24300; stroke-dasharray: 5 3; }",
        "svg .series.line-2 { stroke: #005f9e; stroke-width: 2.4; }",
        "svg .fall { fill: #4e5d6c; }",
        "svg .fall.line-1 { fill: #b24300; }",
        "svg .fall.line-2 { fill: #005f9e; }",
    ]
)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axes:
    """What all panels share: names of both axes, the end of x, and the powers of ten of y."""

    x: str
    y: str
    end: float
    powers: tuple[int, int]


def multiples(
    panels: Mapping[str, Mapping[str, Points]],
    axes: Axes,
    name: str,
    title: str,
    description: str,
) -> Element:
    """Panels in rows of five, with one legend above.

    A line that leaves the picture below, to 0 for example, ends in a mark that points down.

    Parameters
    ----------
    panels : mapping
        By their titles: points of each line, by its name. The same line has the same look in all.
    axes : Axes
    name : str
        Makes ids unique.
    title, description : str
        For those who cannot see it.
    """
    names = list(dict.fromkeys(each for lines in panels.values() for each in lines))
    drawn = {
        heading: {each: above(points, 10.0 ** axes.powers[0]) for each, points in lines.items()}
        for heading, lines in panels.items()
    }
    falls = any(_falls(parts) for lines in drawn.values() for parts in lines.values())
    parts = _legend(names, axes, falls)
    for place, (heading, lines) in enumerate(drawn.items()):
        row, column = divmod(place, COLUMNS)
        # Numbers of x stand below the last panel of each column.
        is_last = place + COLUMNS >= len(panels)
        panel = [
            text(0, -9, heading, "strong"),
            *_frame(axes, is_first=column == 0, is_last=is_last),
            *_lines(lines, names, axes),
        ]
        x, y = LEFT + ACROSS * column, TOP + DOWN * row
        parts.append(element("g", *panel, transform=f"translate({x},{y})"))
    rows = -(-len(panels) // COLUMNS)
    width = LEFT + ACROSS * min(COLUMNS, max(len(panels), 1))
    return picture(name, (width, TOP + DOWN * rows + 12), title, description, parts, "fit")


def above(points: Points, least: float) -> list[list[tuple[float, float]]]:
    """Parts of a line above the least value, with the steps from and to what lies below, as 0.

    >>> above([(0, 1.0), (1, 0.0), (2, 0.0), (3, 0.0), (4, 2.0), (5, 3.0)], 0.1)
    [[(0, 1.0), (1, 0.0)], [(3, 0.0), (4, 2.0), (5, 3.0)]]
    """
    shown = [(x, y if y >= least else 0.0) for x, y in points]
    parts: list[list[tuple[float, float]]] = []
    for before, now in itertools.pairwise(shown):
        if before[1] or now[1]:
            if not parts or parts[-1][-1] is not before:
                parts.append([before])
            parts[-1].append(now)
    return parts


def _falls(parts: Sequence[Points]) -> bool:
    """Whether a line leaves the picture below and does not come back."""
    return bool(parts) and parts[-1][-1][1] == 0


def _legend(names: Sequence[str], axes: Axes, falls: bool) -> list[Element]:
    """The name of y, names of lines, and what the mark is, from left to right."""
    parts = [text(8, 20, axes.y, "tick")]
    at = 8 + len(axes.y) * 12 * LETTER + 24
    for k, name in enumerate(names):
        parts.append(line(at, 16, at + 30, 16, f"series line-{k % LINES}"))
        parts.append(text(at + 38, 20, name))
        at += 38 + len(name) * 13 * LETTER + 24
    if falls:
        words = f"from here on below {_power(axes.powers[0])}, or 0"
        parts += [_fall(at, 13, "line-0"), text(at + 12, 20, words)]
    return parts


def _frame(axes: Axes, *, is_first: bool, is_last: bool) -> list[Element]:
    """Grid and axes of a panel; numbers only at the left and at the bottom of the picture."""
    bottom, top = axes.powers
    y = scale((bottom, top), (HEIGHT, 0.0))
    parts = []
    for power in range(bottom, top + 1):
        parts.append(line(0, y(power), WIDTH, y(power), "grid"))
        # Every second one has room for its number.
        if is_first and not power % 2:
            parts.append(text(-6, y(power) + 4, _power(power), "tick", anchor="end"))
    parts.append(line(0, HEIGHT, WIDTH, HEIGHT, "axis"))
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        at = share * WIDTH
        parts.append(line(at, HEIGHT, at, HEIGHT + 4, "axis"))
        if is_last:
            words = f"{share * axes.end:,.0f}"
            parts.append(text(at, HEIGHT + 19, words, "tick", anchor=anchor))
    if is_last:
        parts.append(text(WIDTH / 2, HEIGHT + 36, axes.x, "tick", anchor="middle"))
    return parts


def _lines(
    lines: Mapping[str, Sequence[Points]], names: Sequence[str], axes: Axes
) -> list[Element]:
    x = scale((0.0, axes.end), (0.0, WIDTH))
    y = scale(axes.powers, (HEIGHT, 0.0))
    drawn = []
    for name, parts in lines.items():
        kind = f"line-{names.index(name) % LINES}"
        for part in parts:
            places = [(x(at), y(math.log10(value)) if value else HEIGHT) for at, value in part]
            drawn.append(polyline(places, f"series {kind}"))
        if _falls(parts):
            drawn.append(_fall(x(parts[-1][-1][0]), HEIGHT + 1, kind))
    return drawn


def _fall(x: float, y: float, kind: str) -> Element:
    """A triangle that points down."""
    points = f"{x - 4:.1f},{y:.1f} {x + 4:.1f},{y:.1f} {x:.1f},{y + 7:.1f}"
    return element("polygon", points=points, class_=f"fall {kind}")


def _power(power: int) -> str:
    """A power of ten.

    >>> _power(-7), _power(0), _power(12)
    ('10⁻⁷', '1', '10¹²')
    """
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if power else "1"
