"""Training: expected and actual accuracy as sigma falls."""

from __future__ import annotations

from typing import Any

from hitrate_lab.pictures.svg import (
    Element,
    dot,
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

WIDTH, HEIGHT = 340, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 326, 34, 196


def curve(training: dict[str, Any], name: str) -> Element:
    """Both accuracies over the steps of sigma."""
    steps = training["steps"]
    values = [step[kind] for step in steps for kind in ("expected", "actual")]
    low, high = padded([value for value in values if value is not None])
    low, high = max(low, 0.0), min(high, 1.0)
    y = scale((low, high), (BOTTOM, TOP))
    x = scale((0.0, max(len(steps) - 1.0, 1.0)), (LEFT + 10, RIGHT - 8))
    marks = ticks(low, high, 4)
    parts = []
    for mark in marks:
        parts.append(line(LEFT, y(mark), RIGHT, y(mark), "grid"))
        words = tick_text(mark, step_of(marks))
        parts.append(text(LEFT - 6, y(mark) + 4, words, "tick", anchor="end"))
    parts.append(line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"))
    # At most six names of sigma fit.
    every = max(1, -(-len(steps) // 6))
    for i in range(0, len(steps), every):
        parts.append(line(x(i), BOTTOM, x(i), BOTTOM + 4, "axis"))
        if (sigma := steps[i]["sigma"]) is not None:
            parts.append(text(x(i), BOTTOM + 18, f"{sigma:.2g}", "tick", anchor="middle"))
    parts.append(
        text(RIGHT, HEIGHT - 14, "sigma, as training goes on →", "axis-title", anchor="end")
    )
    for kind, look in (("expected", "other"), ("actual", "better")):
        points = [(x(i), y(s[kind])) for i, s in enumerate(steps) if s[kind] is not None]
        parts.append(polyline(points, f"curve {kind}"))
        parts += [dot(*point, look, radius=4.0) for point in points]
    parts += [dot(LEFT + 6, 12, "better", radius=4.0), text(LEFT + 16, 16, "actual", "tick")]
    parts += [dot(LEFT + 76, 12, "other", radius=4.0), text(LEFT + 86, 16, "expected", "tick")]
    parts.append(text(RIGHT, 16, "accuracy, %", "axis-title", anchor="end"))
    title = f"Training of {training['label']}"
    return picture(name, (WIDTH, HEIGHT), title, training["summary"], parts, "fit")
