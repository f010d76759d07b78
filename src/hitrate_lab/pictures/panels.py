"""Panels with the same steps across: a few lines in each, with an interval at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hitrate_lab.pictures.svg import (
    LETTER,
    Element,
    dot,
    element,
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

# Of a panel's frame, and from one panel to the next.
WIDTH, HEIGHT = 250, 150
ACROSS, DOWN = 316, 218
LEFT, TOP = 54, 64
# Shapes, so that lines can be told apart without colours; at most so many lines.
SHAPES = ("better", "other", "worse", "baseline")
# For a file of its own: a rule to a line, as `standalone` reads them.
STYLE = "\n".join(
    [
        "svg text { fill: #15202b; font-family: system-ui, sans-serif; font-size: 13px; }",
        "svg .tick { fill: #4e5d6c; font-size: 12px; }",
        "svg .strong { font-size: 12px; font-weight: 600; }",
        "svg .grid { stroke: #e3e8ed; }",
        "svg .axis { stroke: #4e5d6c; }",
        *(
            rule
            for shape, colour in zip(
                SHAPES, ("#005f9e", "#6b7885", "#b24300", "#2e7d32"), strict=True
            )
            for rule in (
                f"svg .series.{shape} {{ fill: none; stroke: {colour}; stroke-width: 1.6; }}",
                f"svg .reach.{shape} {{ stroke: {colour}; stroke-width: 1; }}",
                f"svg .mark.{shape} {{ fill: {colour}; stroke: #ffffff; stroke-width: 0.8; }}",
            )
        ),
    ]
)

# Shares: a value and the ends of its interval; None where there is none.
Place = tuple[float, float, float] | None


def panels(
    shown: Mapping[str, Mapping[str, Sequence[Place]]],
    steps: Sequence[str],
    axes: tuple[str, str],
    name: str,
    title: str,
    description: str,
    *,
    columns: int = 3,
    sign: bool = True,
) -> Element:
    """Panels in rows, with one legend above; each has a scale of its own, with zero on it.

    Parameters
    ----------
    shown : mapping
        By the panels' titles: a place for each step, by the lines' names, four at most.
    steps : sequence of str
        Words below.
    axes : (x, y)
        Their words.
    name : str
        Makes ids unique.
    title, description : str
        For those who cannot see it.
    columns : int
    sign : bool
        Whether numbers are differences.
    """
    names = list(dict.fromkeys(each for lines in shown.values() for each in lines))
    parts = _legend(names, axes[1])
    for place, (heading, lines) in enumerate(shown.items()):
        row, column = divmod(place, columns)
        panel = [text(0, -9, heading, "strong"), *_panel(lines, names, steps, axes[0], sign)]
        move = f"translate({LEFT + ACROSS * column},{TOP + DOWN * row})"
        parts.append(element("g", *panel, transform=move))
    rows = -(-len(shown) // columns)
    size = LEFT + ACROSS * min(columns, max(len(shown), 1)), TOP + DOWN * rows
    return picture(name, size, title, description, parts, "fit")


def _legend(names: Sequence[str], words: str) -> list[Element]:
    parts = [text(8, 20, words, "tick")]
    at = 8 + len(words) * 12 * LETTER + 24
    for shape, name in zip(SHAPES, names, strict=False):
        parts += [line(at, 16, at + 26, 16, f"series {shape}"), dot(at + 13, 16, shape, radius=4.2)]
        parts.append(text(at + 34, 20, name))
        at += 34 + len(name) * 13 * LETTER + 22
    return parts


def _panel(
    lines: Mapping[str, Sequence[Place]],
    names: Sequence[str],
    steps: Sequence[str],
    words: str,
    sign: bool,
) -> list[Element]:
    ends = [end for places in lines.values() for each in places if each for end in each]
    low, high = padded([*ends, 0.0])
    y = scale((low, high), (HEIGHT, 0.0))
    marks = ticks(low, high, 5)
    parts = []
    for mark in marks:
        parts.append(line(0, y(mark), WIDTH, y(mark), "axis" if mark == 0 else "grid"))
        shown = tick_text(mark, step_of(marks), sign=sign)
        parts.append(text(-6, y(mark) + 4, shown, "tick", anchor="end"))
    every = WIDTH / len(steps)
    at = [every * (k + 0.5) for k in range(len(steps))]
    for x, step in zip(at, steps, strict=True):
        parts.append(text(x, HEIGHT + 18, step, "tick", anchor="middle"))
    parts.append(text(WIDTH / 2, HEIGHT + 36, words, "tick", anchor="middle"))
    for name, places in lines.items():
        k = names.index(name)
        # Beside each other, so that intervals can be seen.
        xs = [x + 4 * (k - (len(names) - 1) / 2) for x in at]
        known = [(x, each) for x, each in zip(xs, places, strict=True)]
        for (a, one), (b, other) in pairwise(known):
            if one and other:
                parts.append(polyline([(a, y(one[0])), (b, y(other[0]))], f"series {SHAPES[k]}"))
        for x, each in known:
            if each:
                parts.append(line(x, y(each[1]), x, y(each[2]), f"reach {SHAPES[k]}"))
                parts.append(dot(x, y(each[0]), SHAPES[k], name, radius=4.2))
    return parts
