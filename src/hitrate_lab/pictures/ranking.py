"""Means of a metric and differences to the baseline, with their intervals."""

from __future__ import annotations

from typing import Any

from hitrate_lab.metrics import METRICS, Description
from hitrate_lab.pictures.svg import (
    LETTER,
    Element,
    dot,
    line,
    padded,
    picture,
    scale,
    step_of,
    text,
    tick_text,
    ticks,
)
from hitrate_lab.wording import shorten

SIZE = 13
TOP, BOTTOM = 44, 30
ACCURACY = METRICS["accuracy"]


def ranking(
    methods: list[dict[str, Any]],
    name: str,
    *panels: str,
    wide: bool = False,
    metric: Description = ACCURACY,
) -> Element | None:
    """One row per method: a dot and its interval.

    A wide picture has the names in a column and its panels, score and difference, side by side.
    A narrow one has one panel, with the names above the rows, and fits a phone.
    """
    methods = [method for method in methods if method["mean"] is not None]
    if not any(method["difference"] for method in methods):
        panels = tuple(panel for panel in panels if panel == "score")
    if not methods or not panels:
        return None
    size, parts = _beside(methods, panels, metric) if wide else _above(methods, panels[0], metric)
    title = f"Mean {metric.words} of each method"
    if len(panels) == 1:
        title = _title(panels[0], metric)
    description = "; ".join(method[f"{kind}_title"] for kind in panels for method in methods)
    return picture(name, size, title, description, parts, "fit")


def _title(kind: str, metric: Description) -> str:
    if kind == "difference":
        return "Difference to the baseline" + (", points" if metric.is_share else "")
    return f"Mean {metric.words}" + (", %" if metric.is_share else "")


def _beside(
    methods: list[dict[str, Any]], panels: tuple[str, ...], metric: Description
) -> tuple[tuple[float, float], list[Element]]:
    """Names in one column, then the panels."""
    width, row = 1062, 34
    longest = max(len(method["label"]) for method in methods)
    names = min(max(longest * SIZE * LETTER + 24, 130), 320)
    values, gap = 62, 36
    panel = (width - names - gap * (len(panels) - 1)) / len(panels) - values
    height = TOP + row * len(methods) + BOTTOM
    parts = []
    for i, method in enumerate(methods):
        y = TOP + row * (i + 0.5)
        if i % 2 == 0:
            parts.append(_stripe(0, y - row / 2, width, row))
        parts.append(_name(method, 8, y + SIZE / 3, int((names - 16) / (SIZE * LETTER))))
    for number, kind in enumerate(panels):
        left = names + number * (panel + values + gap)
        rows = [TOP + row * (i + 0.5) for i in range(len(methods))]
        parts += _panel(methods, kind, metric, (left, left + panel), rows, (TOP, height - BOTTOM))
        at = left + panel + values - 4
        for method, y in zip(methods, rows, strict=True):
            parts.append(_value(method, kind, at, y + SIZE / 3))
    return (width, height), parts


def _above(
    methods: list[dict[str, Any]], kind: str, metric: Description
) -> tuple[tuple[float, float], list[Element]]:
    """One panel, each name above its row."""
    width, row = 340, 44
    height = TOP + row * len(methods) + BOTTOM
    rows = [TOP + row * i + 30.0 for i in range(len(methods))]
    parts = []
    for i, (method, y) in enumerate(zip(methods, rows, strict=True)):
        if i % 2 == 0:
            parts.append(_stripe(0, y - 30, width, row))
        parts.append(_name(method, 8, y - 12, 30))
        parts.append(_value(method, kind, width - 8, y - 12))
    ends = (TOP, height - BOTTOM)
    parts += _panel(methods, kind, metric, (20, width - 20), rows, ends, is_named=True)
    return (width, height), parts


def _panel(
    methods: list[dict[str, Any]],
    kind: str,
    metric: Description,
    across: tuple[float, float],
    rows: list[float],
    down: tuple[float, float],
    *,
    is_named: bool = False,
) -> list[Element]:
    """Axis, reference line, and a dot with its interval in each row."""
    found = [_numbers(method, kind) for method in methods]
    ends = [value for numbers in found if numbers for value in numbers if value is not None]
    low, high = padded([*ends, 0.0] if kind == "difference" else ends)
    if kind == "score":
        low, high = metric.clipped(low), metric.clipped(high)
    x = scale((low, high), across)
    marks = ticks(low, high, 5 if across[1] - across[0] > 240 else 4)
    step, (top, bottom) = step_of(marks), down
    # Upright lines keep clear of names that stand above the rows.
    stretches = [(y - 7, y + 11) for y in rows] if is_named else [(top - 4, bottom)]
    left = 8 if is_named else across[0]
    parts = [text(left, top - 28, _title(kind, metric), "axis-title")]
    for mark in marks:
        parts += [line(x(mark), start, x(mark), end, "grid") for start, end in stretches]
        words = tick_text(mark, step, sign=kind == "difference", unit=100 if metric.is_share else 1)
        parts.append(text(x(mark), bottom + 18, words, "tick", anchor="middle"))
    reference = 0.0 if kind == "difference" else _baseline(methods)
    if reference is not None:
        at = x(reference)
        parts += [line(at, start, at, end, "reference") for start, end in stretches]
        anchor = "start" if at < across[0] + 30 else "end" if at > across[1] - 30 else "middle"
        parts.append(text(at, top - 9, "baseline", "tick", anchor=anchor))
    for method, numbers, y in zip(methods, found, rows, strict=True):
        if numbers is None:
            continue
        mean, start, end = numbers
        verdict = method["verdict"]
        if start is not None and end is not None:
            parts.append(line(x(start), y, x(end), y, f"interval {verdict}"))
            parts += [line(x(v), y - 4, x(v), y + 4, f"interval {verdict}") for v in (start, end)]
        parts.append(dot(x(mean), y, verdict, method[f"{kind}_title"]))
    return parts


def _numbers(method: dict[str, Any], kind: str) -> tuple[float, float | None, float | None] | None:
    """Mean and ends of the interval; None where there is nothing to show."""
    found = method if kind == "score" else method["difference"]
    if not found or found["mean"] is None:
        return None
    return found["mean"], found["low"], found["high"]


def _baseline(methods: list[dict[str, Any]]) -> float | None:
    return next((method["mean"] for method in methods if method["is_baseline"]), None)


def _stripe(x: float, y: float, width: float, height: float) -> Element:
    return Element("rect", dict(x=x, y=y, width=width, height=height, rx=4.0, class_="stripe"))


def _name(method: dict[str, Any], x: float, y: float, characters: int) -> Element:
    class_ = "name strong" if method["is_best"] else "name"
    return text(x, y, shorten(method["label"], characters), class_)


def _value(method: dict[str, Any], kind: str, x: float, y: float) -> Element:
    return text(x, y, method[f"{kind}_text"], "value", anchor="end")
