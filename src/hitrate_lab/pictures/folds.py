"""One method beside the baseline, fold by fold."""

from __future__ import annotations

from typing import Any

from hitrate_lab.metrics import METRICS, Description
from hitrate_lab.pictures.svg import (
    Element,
    element,
    line,
    picture,
    scale,
    step_of,
    text,
    tick_text,
    ticks,
)

WIDTH, HEIGHT = 160, 176
LEFT, RIGHT, TOP, BOTTOM = 58, 138, 12, 146


def folds(
    pair: dict[str, Any],
    domain: tuple[float, float],
    name: str,
    metric: Description = METRICS["accuracy"],
) -> Element:
    """Lines from the baseline's number to the method's on the same fold.

    Without a baseline to pair with, the folds are dots on one line.
    """
    y = scale(domain, (BOTTOM, TOP))
    marks = ticks(*domain, 5)
    parts: list[Element] = []
    for mark in marks:
        parts.append(line(36, y(mark), WIDTH - 2, y(mark), "grid"))
        words = tick_text(mark, step_of(marks), unit=100 if metric.is_share else 1)
        parts.append(text(30, y(mark) + 4, words, "tick", anchor="end"))
    paired = pair["pairs"] is not None
    if paired:
        for before, after in pair["pairs"]:
            gain = metric.sign * (after - before)
            kind = "better" if gain > 0 else "worse" if gain < 0 else "unclear"
            parts.append(line(LEFT, y(before), RIGHT, y(after), f"fold {kind}"))
            parts.append(_end(LEFT, y(before), "baseline"))
            parts.append(_end(RIGHT, y(after), kind))
        parts.append(text(LEFT, HEIGHT - 10, "baseline", "tick", anchor="middle"))
        parts.append(text(RIGHT, HEIGHT - 10, "method", "tick", anchor="middle"))
    else:
        middle = (LEFT + RIGHT) / 2
        parts += [_end(middle, y(value), "other") for value in pair["values"]]
        parts.append(text(middle, HEIGHT - 10, "test folds", "tick", anchor="middle"))
    unit = ", in percent" if metric.is_share else ""
    title = f"{metric.title} per fold{unit}: {pair['label']}"
    return picture(name, (WIDTH, HEIGHT), title, pair["summary"], parts, "fit")


def _end(x: float, y: float, kind: str) -> Element:
    return element("circle", cx=x, cy=y, r=3.0, class_=f"mark {kind}")
