"""Which part of a package imports which: the picture of docs/architecture.md, from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# The name of what a package itself exports, its own __init__.py.
FACADE = "__init__"
Graph = dict[str, set[str]]


def graph_of(package: Path) -> Graph:
    """For each part of a package, a file or folder at its top, the other parts that it imports.

    Imports inside of functions count; those for types alone do too.

    Parameters
    ----------
    package : Path
        Its folder.
    """
    paths = sorted(package.rglob("*.py"))
    parts = {path.relative_to(package).with_suffix("").parts[0] for path in paths}
    graph: Graph = {part: set() for part in sorted(parts)}
    for path in paths:
        here = path.relative_to(package).with_suffix("").parts[0]
        folder = [package.name, *path.relative_to(package).parent.parts]
        for name in _imported(path, folder):
            top, *inner = name.split(".")
            if top == package.name:
                graph[here].add(inner[0] if inner and inner[0] in parts else FACADE)
    return {part: others - {part} for part, others in graph.items()}


def rows_of(graph: Graph) -> list[list[str]]:
    """The parts in rows, each right below the lowest part that imports it.

    Raises
    ------
    ValueError
        If parts import one another in a circle.
    """
    rows: list[list[str]] = []
    left = dict(graph)
    while left:
        imported = set().union(*left.values())
        top = [part for part in left if part not in imported]
        if not top:
            raise ValueError(f"{', '.join(left)} import one another in a circle")
        rows.append(top)
        left = {part: others for part, others in left.items() if part not in top}
    return rows


def reduced(graph: Graph) -> Graph:
    """The graph without arrows that go a longer way too."""
    below = {part: set[str]() for part in graph}
    for row in reversed(rows_of(graph)):
        for part in row:
            for other in graph[part]:
                below[part] |= {other} | below[other]
    return {
        part: {
            other
            for other in others
            if not any(other in below[between] for between in others - {other})
        }
        for part, others in graph.items()
    }


def _imported(path: Path, folder: list[str]) -> Iterator[str]:
    """Full dotted names of all imports in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)
