"""Elements, scales and axis ticks: all that the pictures share."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Value = str | float | None
# Widest letters of common interface fonts take about this part of the font size, on average.
LETTER = 0.58


@dataclass(frozen=True)
class Element:
    """An element of SVG. Text and attributes are escaped here and nowhere else."""

    name: str
    attributes: dict[str, Value]
    children: tuple[Element | str, ...] = ()

    def __html__(self) -> str:
        """Markup, by the protocol that templates ask for."""
        return "".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield f"<{self.name}"
        for name, value in self.attributes.items():
            if value is not None:
                # class_ and stroke_width are class and stroke-width; viewBox stays.
                yield f' {name.strip("_").replace("_", "-")}="{_text(value)}"'
        if not self.children:
            yield "/>"
            return
        yield ">"
        for child in self.children:
            yield html.escape(child) if isinstance(child, str) else child.__html__()
        yield f"</{self.name}>"


def element(name: str, *children: Element | str, **attributes: Value) -> Element:
    """An element; None drops an attribute.

    >>> element("text", "a < b", x=1.0, class_="label").__html__()
    '<text x="1" class="label">a &lt; b</text>'
    """
    return Element(name, attributes, children)


def picture(
    name: str,
    size: tuple[float, float],
    title: str,
    description: str,
    children: Sequence[Element],
    class_: str | None = None,
) -> Element:
    """A whole picture with its title and description; the name makes its ids unique."""
    width, height = size
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-text"),
        *children,
        viewBox=f"0 0 {_text(width)} {_text(height)}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-text",
        class_=class_,
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Element:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text(x: float, y: float, words: str, class_: str = "", *, anchor: str | None = None) -> Element:
    """One line of text."""
    return element("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def polyline(points: Sequence[tuple[float, float]], class_: str) -> Element:
    """A line through points."""
    path = " ".join(f"{_text(x)},{_text(y)}" for x, y in points)
    return element("polyline", points=path, class_=class_)


def dot(x: float, y: float, kind: str, title: str | None = None, radius: float = 5.5) -> Element:
    """A mark whose shape says what its colour says.

    Circle: better; open circle: unclear; triangle: worse; diamond: baseline; square: other.
    """
    r = radius
    children = (element("title", title),) if title else ()
    class_ = f"mark {kind}"
    if kind == "worse":
        points = [(x - r, y - 0.8 * r), (x + r, y - 0.8 * r), (x, y + r)]
    elif kind == "baseline":
        points = [(x - r, y), (x, y - r), (x + r, y), (x, y + r)]
    elif kind == "other":
        r *= 0.8
        points = [(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]
    else:
        return element("circle", *children, cx=x, cy=y, r=r * 0.9, class_=class_)
    path = " ".join(f"{_text(a)},{_text(b)}" for a, b in points)
    return element("polygon", *children, points=path, class_=class_)


def scale(domain: tuple[float, float], range_: tuple[float, float]) -> Callable[[float], float]:
    """A linear map that keeps what lies outside the domain at its ends."""
    (low, high), (start, end) = domain, range_
    span = high - low or 1.0

    def at(value: float) -> float:
        share = min(max((value - low) / span, 0.0), 1.0)
        return start + share * (end - start)

    return at


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between low and high, roughly as many as wanted.

    >>> ticks(0.913, 0.957, 4)
    [0.92, 0.93, 0.94, 0.95]
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / about))
    step = min((power * m for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs((high - low) / s - about))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def padded(values: Sequence[float], least: float = 0.01) -> tuple[float, float]:
    """The range of values and a little more, never narrower than the least."""
    low, high = min(values), max(values)
    room = max(0.06 * (high - low), (least - (high - low)) / 2, 0.0)
    return low - room, high + room


def tick_text(value: float, step: float, *, sign: bool = False, unit: float = 100) -> str:
    """A tick with as many digits as the step between ticks needs; by default in percent."""
    digits = max(0, -math.floor(math.log10(unit * step) + 1e-9)) if step > 0 else 0
    if abs(unit * step * 10**digits - round(unit * step * 10**digits)) > 1e-6:
        digits += 1
    shown = f"{unit * value:+.{digits}f}" if sign else f"{unit * value:.{digits}f}"
    return shown[1:] if sign and not float(shown) else shown.replace("-", "−")


def step_of(values: Sequence[float]) -> float:
    """The distance between ticks."""
    return values[1] - values[0] if len(values) > 1 else 0.0


def _text(value: str | float) -> str:
    """An attribute: numbers with two digits after the point at most."""
    if isinstance(value, str):
        return html.escape(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"
