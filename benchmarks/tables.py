"""Results as plain text tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from hitrate.probability.methods.gridded import NODES as GRIDDED_DEFAULT
from hitrate.probability.methods.quadrature import default_nodes
from hitrate_lab.pages.measured.bench_pictures import NAMES

TITLES = {
    "max": "largest error of all rows",
    "median": "median error over rows",
    "between": "largest error of rows whose target is at most 12 behind and 4 ahead",
}


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Columns as wide as they need, the first `left` ones to the left, the others to the right.

    An empty row gives an empty line.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*filter(None, lines), strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=False))
        ).rstrip()
        for line in lines
    )


def speed_table(results: list[dict[str, Any]]) -> str:
    """Every shape and method: time, ratio, memory."""
    rows: list[list[str]] = []
    for number, result in enumerate(results):
        first = result["method"] == results[0]["method"]
        if first and number:
            rows.append([])
        shape = f"{result['rows']} x {result['classes']}" if first else ""
        if "not_run" in result:
            rows.append([shape, result["method"], "not run", *[""] * 7])
            continue
        low, high = (1e3 * x for x in result["seconds_quartiles"])
        rows.append(
            [
                shape,
                result["method"],
                _three(1e3 * result["seconds"]),
                f"{_three(low)} .. {_three(high)}",
                _three(result["ratio_of_medians"]),
                _three(result["ratio"]),
                " .. ".join(map(_three, result["ratio_quartiles"])),
                str(result["rounds"]),
                f"{result['peak_bytes'] / 1024:,.0f}",
                f"{result['peak_bytes'] / result['logits_bytes']:.1f}",
            ]
        )
    header = ["N x C", "method", "ms", "quartiles", "/ CE", "by round", "quartiles", "rounds"]
    return text_table([*header, "peak KiB", "/ logits"], rows, left=2)


def ratio_table(results: list[dict[str, Any]], name: str) -> str:
    """One number per method and shape: ``ratio`` (time) or ``peak_bytes`` (memory)."""
    shapes = list(dict.fromkeys((r["rows"], r["classes"]) for r in results))
    methods = list(dict.fromkeys(r["method"] for r in results))
    by_key = {(r["method"], r["rows"], r["classes"]): r for r in results}

    def cell(method: str, shape: tuple[int, int]) -> str:
        result = by_key[method, *shape]
        if "not_run" in result:
            return "not run"
        if name == "ratio":
            return _three(result["ratio"])
        return f"{result['peak_bytes'] / result['logits_bytes']:.1f}"

    header = ["N x C", *(f"{rows} x {classes}" for rows, classes in shapes)]
    lines = [[method, *(cell(method, shape) for shape in shapes)] for method in methods]
    if name == "ratio":
        others = (by_key[methods[0], *shape]["others"] for shape in shapes)
        lines += [["(others)", *("unknown" if x is None else f"{x:.1f}" for x in others)]]
    return text_table(header, lines)


def member_table(results: list[dict[str, Any]]) -> str:
    """Median ratio to cross entropy, and its quartiles, of each loss and shape."""
    rows = [
        [
            f"{result['rows']} x {result['classes']}",
            result["loss"],
            _three(1e3 * result["seconds"]),
            _three(result["ratio"]),
            " .. ".join(map(_three, result["ratio_quartiles"])),
        ]
        for result in results
    ]
    return text_table(["N x C", "loss", "ms", "by round", "quartiles"], rows, left=2)


def kept_tables(results: list[dict[str, Any]]) -> str:
    """What the gridded method keeps for later calls, which its peak does not count."""
    kept = [r["table_bytes"] // 1024 for r in results if r["method"] == "gridded"]
    return (
        f"Between calls, gridded keeps tables of {min(kept)} to {max(kept)} KiB for each number of "
        "classes; they are not in its peak."
    )


def error_tables(studies: list[dict[str, Any]]) -> str:
    """One table per method and dtype: nodes or samples down, classes across."""
    kinds = dict.fromkeys((e["method"], e["dtype"]) for e in studies[0]["errors"])
    parts = []
    for method, dtype in kinds:
        sampled = any("samples" in e for e in studies[0]["errors"] if e["method"] == method)
        # Rows far behind or ahead go to the quadrature: "between" shows the grid alone.
        measures = ["max", *(["median"] if sampled else ["between"] if method == "gridded" else [])]
        for measure in measures:
            title = f"{method}, {dtype}: {TITLES[measure]}"
            if not sampled:
                title += f"; by default {_defaults(method, dtype, studies)}"
            parts.append(f"{title}\n{_error_table(studies, method, dtype, measure)}")
    return "\n\n".join(parts)


def _error_table(studies: list[dict[str, Any]], method: str, dtype: str, measure: str) -> str:
    columns = [
        [e for e in study["errors"] if (e["method"], e["dtype"]) == (method, dtype)]
        for study in studies
    ]
    count = "samples" if "samples" in columns[0][0] else "nodes"
    header = [count, *(f"{NAMES[n]}, C={s['classes']}" for n in NAMES for s in studies)]
    rows = []
    for settings in zip(*columns, strict=True):
        label = settings[0][count]
        cells = [_error(e, name, measure) for name in NAMES for e in settings]
        rows.append(["default" if label is None else str(label), *cells])
    return text_table(header, rows)


def _error(result: dict[str, Any], name: str, measure: str) -> str:
    if "not_run" in result:
        return "not run"
    number = result[name][measure]
    return "inf" if number is None else f"{number:.1e}"


def _defaults(method: str, dtype: str, studies: list[dict[str, Any]]) -> str:
    kind = getattr(torch, dtype)
    if method == "gridded":
        return f"{GRIDDED_DEFAULT[kind]} nodes per width of the narrowest peak"
    counts = (str(default_nodes(study["classes"], kind)) for study in studies)
    return f"{', '.join(counts)} nodes"


def _three(number: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:#.3g}"
