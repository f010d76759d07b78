"""A picture as a file of its own, with the colours that the page's style sheet gives it by day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hitrate_lab.pictures.svg import Element, element

NAMESPACE = "http://www.w3.org/2000/svg"
# What programs that draw SVG take as attributes, so that they need not understand style sheets.
PROPERTIES = (
    "fill",
    "fill-opacity",
    "font-family",
    "font-size",
    "font-weight",
    "paint-order",
    "stroke",
    "stroke-dasharray",
    "stroke-linecap",
    "stroke-linejoin",
    "stroke-width",
)
VARIABLE = re.compile(r"^\s+(--[\w-]+): (.+);$", re.MULTILINE)
RULE = re.compile(r"^(svg [^{]+) \{ (.+) \}$", re.MULTILINE)

Rules = list[tuple[str, frozenset[str], dict[str, str]]]


def standalone(picture: Element, style: str) -> str:
    """The text of an .svg file, on white ground.

    Parameters
    ----------
    picture : Element
    style : str
        The page's style sheet, in which all of a rule for pictures stands on one line.
    """
    rules = _rules(style)
    ground = element("rect", width="100%", height="100%", fill="#ffffff")
    title, description, *rest = picture.children
    shown = [_painted(child, rules) for child in rest if isinstance(child, Element)]
    whole = replace(
        picture,
        attributes={"xmlns": NAMESPACE, **picture.attributes, "class_": None},
        children=(title, description, ground, *shown),
    )
    return whole.__html__() + "\n"


def _painted(part: Element, rules: Rules) -> Element:
    """The element with attributes in the place of its classes."""
    classes = set(str(part.attributes.get("class_") or "").split())
    found: dict[str, str] = {}
    for name, needed, properties in rules:
        if name in ("", part.name) and needed <= classes:
            found.update(properties)
    children = tuple(
        _painted(child, rules) if isinstance(child, Element) else child for child in part.children
    )
    return replace(part, attributes={**part.attributes, "class_": None, **found}, children=children)


def _rules(style: str) -> Rules:
    """Element, classes and properties of each rule; what counts more comes later."""
    variables = dict(VARIABLE.findall(style))
    rules = [
        (*_selector(selector), dict(_properties(body, variables)))
        for selectors, body in RULE.findall(style)
        for selector in selectors.split(",")
    ]
    return sorted(rules, key=lambda rule: (len(rule[1]), bool(rule[0])))


def _selector(selector: str) -> tuple[str, frozenset[str]]:
    """The last part of one, such as "path.cell.right"."""
    name, *classes = selector.split()[-1].split(".")
    return name, frozenset(classes)


def _properties(body: str, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    for line in body.rstrip("; ").split(";"):
        name, value = (part.strip() for part in line.split(":", 1))
        if name in PROPERTIES:
            value = re.sub(r"var\((--[\w-]+)\)", lambda found: variables[found[1]], value)
            yield name, re.sub(r"light-dark\(([^,]+), [^)]+\)", r"\1", value)
