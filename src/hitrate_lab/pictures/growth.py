"""How something grows: lines in panels whose axes are logarithms, named where they end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hitrate_lab.pictures.svg import (
    LETTER,
    Element,
    dot,
    element,
    line,
    picture,
    polyline,
    scale,
    text,
)

WIDTH, HEIGHT = 490, 296
LEFT, RIGHT, TOP, BOTTOM = 62, 356, 40, 240
# Names of lines keep this distance.
APART = 15
# Shapes that tell lines apart without colour, one after the other.
KINDS = ("baseline", "worse", "other", "better", "unclear")
# For a file of its own: a rule to a line, as `standalone` reads them.
STYLE = "\n".join(
    [
        "svg text { fill: #15202b; font-family: system-ui, sans-serif; font-size: 13px; }",
        "svg .tick { fill: #4e5d6c; font-size: 12px; }",
        "svg .strong { font-weight: 600; }",
        "svg .grid { stroke: #e3e8ed; }",
        "svg .axis { stroke: #4e5d6c; }",
        "svg .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }",
        "svg .mark { stroke: #ffffff; stroke-width: 1.5; paint-order: stroke; }",
        *(
            f"svg .{part}.{kind} {{ {paint}: {colour}; }}"
            for kind, colour in zip(
                KINDS, ("#4e5d6c", "#b24300", "#00775a", "#005f9e", "#8d3f78"), strict=True
            )
            for part, paint in (("curve", "stroke"), ("mark", "fill"), ("name", "fill"))
        ),
        "svg .mark.unclear { fill: #ffffff; stroke: #8d3f78; stroke-width: 2; }",
    ]
)


@dataclass(frozen=True)
class Panel:
    """Lines over a common axis; y is above 0, in the unit that `tick` gives words to."""

    title: str
    axis: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    tick: Callable[[float], str]


def growth(panels: Sequence[Panel], name: str, title: str, description: str) -> Element:
    """Panels, two to a row; a line has the same colour and mark in all of them.

    Parameters
    ----------
    panels : sequence of Panel
    name : str
        Makes ids unique.
    title, description : str
        For those who cannot see it.
    """
    names = list(dict.fromkeys(each for panel in panels for each in panel.lines))
    parts = []
    for place, panel in enumerate(panels):
        x, y = WIDTH * (place % 2), HEIGHT * (place // 2)
        parts.append(element("g", *_panel(panel, names), transform=f"translate({x},{y})"))
    size = (WIDTH * min(2, len(panels)), HEIGHT * -(-len(panels) // 2))
    return picture(name, size, title, description, parts, "fit")


def _panel(panel: Panel, names: Sequence[str]) -> list[Element]:
    points = [point for each in panel.lines.values() for point in each]
    parts = [text(LEFT, 20, panel.title, "strong")]
    if not points:
        return parts
    bottom, top = _decades([y for _, y in points])
    exponents = range(bottom, top + 1)
    y_at = scale((bottom, top), (BOTTOM, TOP))
    ends = [math.log2(pick(x for x, _ in points)) for pick in (min, max)]
    x_at = scale((ends[0], ends[1]), (LEFT + 10, RIGHT - 8))
    for exponent in exponents:
        parts.append(line(LEFT, y_at(exponent), RIGHT, y_at(exponent), "grid"))
        words = panel.tick(10.0**exponent)
        # More than a few would touch.
        if len(exponents) <= 8 or not (exponent - bottom) % 2:
            parts.append(text(LEFT - 6, y_at(exponent) + 4, words, "tick", anchor="end"))
    parts.append(line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"))
    for x in sorted({x for x, _ in points}):
        at = x_at(math.log2(x))
        parts.append(line(at, BOTTOM, at, BOTTOM + 4, "axis"))
        parts.append(text(at, BOTTOM + 18, f"{x:g}", "tick", anchor="middle"))
    parts.append(text(RIGHT, BOTTOM + 38, panel.axis, "tick", anchor="end"))

    drawn = {
        name: [(x_at(math.log2(x)), y_at(math.log10(y))) for x, y in sorted(line_points)]
        for name, line_points in panel.lines.items()
        if line_points
    }
    heights = _apart({name: each[-1][1] for name, each in drawn.items()})
    for name, places in drawn.items():
        kind = KINDS[names.index(name) % len(KINDS)]
        parts.append(polyline(places, f"curve {kind}"))
        parts += [dot(*place, kind, radius=4.0) for place in places]
        # Beside the line's end, moved where other names are in the way.
        place = (places[-1][0] + 12, heights[name] + 4)
        parts.append(text(*place, _fitting(name), f"name {kind}"))
    return parts


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Powers of ten around all values.

    >>> _decades([0.002, 15.0])
    (-3, 2)
    """
    bottom, top = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return bottom, max(top, bottom + 1)


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """The same heights, moved up and down until no two names touch.

    >>> _apart({"a": 100.0, "b": 110.0, "c": 200.0})
    {'a': 97.5, 'b': 112.5, 'c': 200.0}
    """
    # Neighbours that are too close share a group, which is as high as its mean would be.
    groups: list[list[str]] = []
    places: list[float] = []
    for name in sorted(heights, key=lambda each: heights[each]):
        groups.append([name])
        places.append(heights[name])
        while len(groups) > 1 and _low(places[-1], groups[-1]) - _high(places[-2], groups[-2]) < 0:
            last, before = groups.pop(), groups.pop()
            del places[-2:]
            groups.append(before + last)
            places.append(sum(heights[each] for each in groups[-1]) / len(groups[-1]))
    moved = {}
    for place, group in zip(places, groups, strict=True):
        for k, name in enumerate(group):
            moved[name] = place + APART * (k - (len(group) - 1) / 2)
    return {name: moved[name] for name in heights}


def _low(place: float, group: Sequence[str]) -> float:
    return place - APART * len(group) / 2


def _high(place: float, group: Sequence[str]) -> float:
    return place + APART * len(group) / 2


def _fitting(name: str) -> str:
    """A name that ends inside of the picture."""
    most = int((WIDTH - RIGHT - 10) / (12 * LETTER))
    return name if len(name) <= most else f"{name[: most - 1]}…"
