"""An import graph as a picture: parts in rows, arrows downwards."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

from hitrate_lab.pages.house.import_graph import Graph, reduced, rows_of
from hitrate_lab.pictures.standalone import NAMESPACE
from hitrate_lab.pictures.svg import Element, element, text

HEIGHT, BETWEEN, GAP, MARGIN = 30.0, 46.0, 22.0, 16.0
LETTER, PASSING = 8.2, 14.0  # widths of a letter, and of a line between boxes
FONT = "system-ui, sans-serif"
SWEEPS = 8

# A box by its name, or a place where the arrow of two boxes passes a row.
Place = str | tuple[str, str, int]


def graph_picture(graph: Graph, name: str) -> str:
    """The text of an .svg file.

    Arrows that go a longer way too are left out.

    Parameters
    ----------
    graph : dict
        As from `graph_of`.
    name : str
        Of the package.
    """
    arrows = reduced(graph)
    joined = {part for part, others in arrows.items() if others}.union(*arrows.values())
    rows, ways = _placed(
        [[part for part in row if part in joined] for row in rows_of(graph)], arrows
    )
    total = max(map(_wide, rows))
    middle: dict[Place, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        x = MARGIN + (total - _wide(row)) / 2
        for place in row:
            width = _width(place)
            middle[place] = (x + width / 2, MARGIN + number * (HEIGHT + BETWEEN))
            x += width + GAP
    told = "; ".join(
        f"{part} imports {', '.join(sorted(others))}" for part, others in arrows.items() if others
    )
    size = (total + 2 * MARGIN, len(rows) * (HEIGHT + BETWEEN) - BETWEEN + 2 * MARGIN)
    svg = element(
        "svg",
        element("title", f"Who imports whom in {name}", id=f"{name}-title"),
        element("desc", told, id=f"{name}-text"),
        element("rect", width="100%", height="100%", fill="#ffffff"),
        *[_arrow([middle[place] for place in way]) for way in ways],
        *[_box(place, *middle[place]) for row in rows for place in row if isinstance(place, str)],
        xmlns=NAMESPACE,
        viewBox=f"0 0 {size[0]:g} {size[1]:g}",
        width=size[0],
        height=size[1],
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-text",
    )
    return svg.__html__() + "\n"


def _placed(parts: list[list[str]], arrows: Graph) -> tuple[list[list[Place]], list[list[Place]]]:
    """Rows in which each place is near those it is joined with, and the places of each arrow."""
    row_of = {part: number for number, row in enumerate(parts) for part in row}
    rows: list[list[Place]] = [list(row) for row in parts]
    ways: list[list[Place]] = []
    for part, others in arrows.items():
        for other in sorted(others):
            passed: list[Place] = [(part, other, k) for k in range(row_of[part] + 1, row_of[other])]
            for number, place in enumerate(passed, row_of[part] + 1):
                rows[number].append(place)
            ways.append([part, *passed, other])
    joins: dict[Place, list[Place]] = {place: [] for row in rows for place in row}
    for way in ways:
        for upper, lower in pairwise(way):
            joins[upper].append(lower)
            joins[lower].append(upper)
    for sweep in range(SWEEPS):
        for number in range(len(rows)) if sweep % 2 else reversed(range(len(rows))):
            near = rows[number - 1] if sweep % 2 else rows[(number + 1) % len(rows)]
            at = {place: (k + 0.5) / len(near) for k, place in enumerate(near)}
            old = {place: (k + 0.5) / len(rows[number]) for k, place in enumerate(rows[number])}
            wanted = {
                place: fmean([at[other] for other in joins[place] if other in at] or [old[place]])
                for place in rows[number]
            }
            rows[number].sort(key=wanted.__getitem__)
    return rows, ways


def _width(place: Place) -> float:
    return 2 * 12 + LETTER * len(place) if isinstance(place, str) else PASSING


def _wide(row: list[Place]) -> float:
    return sum(map(_width, row)) + GAP * (len(row) - 1)


def _box(part: str, x: float, y: float) -> Element:
    width = _width(part)
    return element(
        "g",
        element(
            "rect",
            x=x - width / 2,
            y=y,
            width=width,
            height=HEIGHT,
            rx=6.0,
            fill="#eef4fa",
            stroke="#33658a",
        ),
        text(x, y + HEIGHT / 2 + 5, part, anchor="middle"),
        font_family=FONT,
        font_size=14.0,
        fill="#1a202c",
    )


def _arrow(points: list[tuple[float, float]]) -> Element:
    """A curve from below the first place to above the last one, with a head."""
    (x, y), *others = points
    y += HEIGHT
    path = [f"M{x:.1f} {y:.1f}"]
    for number, (to_x, top) in enumerate(others, 1):
        path.append(f"C{x:.1f} {y + 24:.1f} {to_x:.1f} {top - 24:.1f} {to_x:.1f} {top:.1f}")
        x, y = to_x, top
        if number < len(others):
            y += HEIGHT
            path.append(f"V{y:.1f}")
    head = f"M{x - 4:.1f} {y - 7:.1f}L{x:.1f} {y:.1f}L{x + 4:.1f} {y - 7:.1f}"
    return element("path", d=" ".join([*path, head]), fill="none", stroke="#7a8a99")
