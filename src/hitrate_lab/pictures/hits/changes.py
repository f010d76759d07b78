"""Right and wrong before and after: four groups of rows, areas in proportion."""

from __future__ import annotations

from typing import Any

from hitrate_lab.pictures.svg import LETTER, Element, element, picture, text
from hitrate_lab.wording import count

WIDTH, HEIGHT = 340, 236
TOP, BOTTOM = 24, 212
GAP = 3


def mosaic(changed: dict[str, Any], name: str) -> Element | None:
    """Columns: the first method right or wrong; within them the second."""
    counts = {group["kind"]: group["count"] for group in changed["groups"]}
    total = sum(counts.values())
    if not total:
        return None
    right = counts["both_right"] + counts["lost"]
    split = _share(WIDTH, right / total)
    columns = (
        (0, split, "both_right", "lost"),
        (WIDTH - _rest(WIDTH, split), WIDTH, "gained", "both_wrong"),
    )
    parts: list[Element] = []
    for start, end, upper, lower in columns:
        if end <= start:
            continue
        height = _share(BOTTOM - TOP, counts[upper] / (counts[upper] + counts[lower]))
        rest = _rest(BOTTOM - TOP, height)
        if height:
            parts += _tile(upper, counts[upper], (start, TOP, end - start, height))
        if rest:
            parts += _tile(lower, counts[lower], (start, BOTTOM - rest, end - start, rest))
    parts.append(text(0, 14, f"{changed['short_from']} right", "tick"))
    parts.append(text(WIDTH, 14, "wrong", "tick", anchor="end"))
    parts.append(
        text(0, HEIGHT - 6, f"split by {changed['short_to']}: right above, wrong below", "tick")
    )
    title = f"Rows right and wrong: {changed['from']} and {changed['to']}"
    return picture(name, (WIDTH, HEIGHT), title, changed["summary"], parts, "fit")


def _share(length: float, share: float) -> float:
    """A part of a length that leaves the gap out; what is not nothing stays visible."""
    if share in (0, 1):
        return length * share
    return min(max((length - GAP) * share, 2.0), length - GAP - 2.0)


def _rest(length: float, part: float) -> float:
    """What the part leaves behind the gap."""
    return length - part - GAP if 0 < part < length else length - part


def _tile(kind: str, number: float, box: tuple[float, float, float, float]) -> list[Element]:
    """A rectangle, with its count where that fits."""
    x, y, width, height = box
    hint = element("title", f"{kind.replace('_', ' ')}: {count(number)}")
    parts = [
        element("rect", hint, x=x, y=y, width=width, height=height, rx=2.0, class_=f"tile {kind}")
    ]
    words = count(number)
    if width > len(words) * 13 * LETTER + 10 and height > 20:
        parts.append(text(x + width / 2, y + height / 2 + 5, words, "count", anchor="middle"))
    return parts
