"""The document of a study as its page shows it: ours beside the paper's, rankings, differences."""

from __future__ import annotations

import base64
import json
from typing import Any

from hitrate_lab.report.closer import Document, View
from hitrate_lab.report.rankings import ranking
from hitrate_lab.wording import MISSING, count, duration, plural, shorten

# Longer tables are folded away; those of a few data sets are what a reader came for.
LONG = 20
LABEL = 60
DECIMALS = 2


def study(document: Document) -> View:
    """The view of a study, finished or not."""
    tables = [_table(each) for each in document.get("tables") or []]
    rankings = [ranking(each) for each in document.get("rankings") or []]
    return {
        "name": str(document.get("name") or "a study"),
        "headline": str(document.get("title") or ""),
        "lead": f"Reproduces {document['reproduces']}." if document.get("reproduces") else "",
        "facts": _facts(document),
        "incomplete": _incomplete(document),
        "tiles": _tiles(tables, rankings),
        # What stands beside the paper's numbers comes first, else what the protocol adds.
        "is_own_first": not any(each["has_paper"] for each in tables),
        "pictures": [_picture(each) for each in document.get("pictures") or []],
        "extra": [_extra(each) for each in document.get("extra_tables") or []],
        "tables": tables,
        "rankings": rankings,
        "differences": [str(each) for each in document.get("differences") or []],
        "commands": [str(each) for each in document.get("commands") or []],
        "commits": [str(each) for each in document.get("commits") or []],
        "environments": _environments(document),
    }


def _facts(document: Document) -> list[str]:
    done, planned = document.get("done") or 0, document.get("planned") or 0
    facts = [f"{count(done)} of {plural(planned, 'run')}"]
    if failed := document.get("failed"):
        facts.append(f"{count(failed)} failed")
    for table in (document.get("tables") or [])[:1]:
        facts += [plural(len(table["rows"]), "data set"), plural(len(table["methods"]), "method")]
    facts.append(f"{duration(document.get('seconds') or 0.0)} of work")
    machines = [*(document.get("processors") or []), *(document.get("devices") or [])]
    return facts + [str(each) for each in machines]


def _incomplete(document: Document) -> View | None:
    """How far an unfinished study is."""
    done, planned = document.get("done") or 0, document.get("planned") or 0
    if done >= planned:
        return None
    failed = document.get("failed") or 0
    commands = document.get("commands") or [f"hitrate study run {document.get('name')}"]
    return {
        "share": int(100 * done / planned),
        "done": count(done),
        "planned": count(planned),
        "failed": count(failed) if failed else "",
        "command": str(commands[0]),
    }


def _tiles(tables: list[View], rankings: list[View]) -> list[View]:
    """Who ranks best, and how much agrees with the paper."""
    tiles = []
    # Further rankings than measures are parts of the first ones, such as seeds.
    for each in rankings[: len(tables)]:
        if each["diagram"] is None:
            continue
        best = each["diagram"]["methods"][0]
        words = f"mean rank {best['rank']:.2f} over {plural(each['data_sets'], 'data set')}"
        if equals := each["equals"]:
            words += f"; not told apart from {', '.join(equals)}"
        tiles.append({"title": f"Best: {each['title']}", "value": best["label"], "words": words})
    judged = [each for each in tables if each["judged"]]
    for each in judged:
        words = "of the paper’s numbers are within two standard deviations of ours"
        title = each["title"] if len(judged) > 1 else "Agreement with the paper"
        value = f"{each['within']} of {each['judged']}"
        tiles.append({"title": title, "value": value, "words": words})
    return [{**each, "value": shorten(each["value"], LABEL)} for each in tiles]


def _picture(found: dict[str, Any]) -> View:
    """A picture of the protocol's own; as an image, whatever is inside of it stays inside."""
    svg = str(found["svg"])
    code = base64.b64encode(svg.encode("utf-8", "replace")).decode("ascii")
    return {
        "name": str(found["name"]),
        "title": str(found["title"]),
        "text": str(found["text"]),
        "svg": svg,
        "address": f"data:image/svg+xml;base64,{code}",
    }


def _extra(table: dict[str, Any]) -> View:
    """A table of the protocol's own; its columns hold texts or numbers."""
    rows = [[_minus(str(each)) for each in row] for row in table["rows"]]
    head = [str(each) for each in table["head"]]
    return {
        "title": str(table["title"]),
        "head": [
            {"words": words, "is_number": k > 0 and _are_numbers([row[k] for row in rows])}
            for k, words in enumerate(head)
        ],
        "rows": rows,
        "is_long": len(rows) > LONG,
        "text": str(table["text"]),
    }


def _are_numbers(words: list[str]) -> bool:
    """Whether most of what stands in a column begins with a digit, or with a sign and a digit.

    >>> _are_numbers(["0.1", "", "+2 (0 to 4)"]), _are_numbers(["clip 1", "clip 2", "3"])
    (True, False)
    """
    there = [each.lstrip("+−*") for each in words if each not in ("", MISSING)]
    return 2 * sum(each[:1].isdigit() for each in there) >= len(there)


def _table(table: dict[str, Any]) -> View:
    """A measure: a row for each data set, a cell for each method."""
    names, variants = table["methods"], table["variants"]
    cells = [row["cells"][name] for row in table["rows"] for name in names]
    numbers = {name: _numbers(table["rows"], name) for name in names}
    every = set().union(*numbers.values())
    same = every.pop() if len(every) == 1 else None
    rows = []
    for row in table["rows"]:
        shown = [
            _cell(
                row["cells"][name],
                is_best=name in row["best"],
                is_paper_best=name in row["paper_best"],
                show_n=len(numbers[name]) > 1,
            )
            for name in names
        ]
        rows.append(
            {"name": _short(row["data_set"]), "is_complete": row["complete"], "cells": shown}
        )
    return {
        "title": str(table["title"]),
        "methods": [
            {
                "label": shorten(str(name), LABEL),
                "is_variant": name in variants,
                # Where methods differ in their number of runs, each says its own.
                "n": next(iter(numbers[name])) if not same and len(numbers[name]) == 1 else None,
            }
            for name in names
        ],
        "rows": rows,
        "is_long": len(rows) > LONG,
        "has_best": table["has_best"],
        "has_paper": any(cell["paper"] is not None for cell in cells),
        "n": same,
        "within": table["within"],
        "judged": table["judged"],
        "variants": len(variants),
        "unfinished": sum(not row["is_complete"] for row in rows),
        "best": [
            {
                # Variants are not counted.
                "count": MISSING if name in variants else table["best"][name],
                "paper": table["paper_best"][name] if _has_paper(table["rows"], name) else None,
            }
            for name in names
        ],
    }


def _numbers(rows: list[dict[str, Any]], name: str) -> set[int]:
    """Of how many runs the means of a method are."""
    return {row["cells"][name]["n"] for row in rows} - {0}


def _has_paper(rows: list[dict[str, Any]], name: str) -> bool:
    return any(row["cells"][name]["paper"] is not None for row in rows)


def _cell(cell: dict[str, Any], *, is_best: bool, is_paper_best: bool, show_n: bool) -> View:
    """Ours, and below it the paper's with whether it is near."""
    near = {True: "near", False: "far"}.get(cell["within"], "")
    return {
        "value": cell["mean"],
        "text": _number(cell["mean"], cell["std"]),
        "is_best": is_best,
        "n": f"n = {cell['n']}" if show_n and cell["n"] else "",
        "paper": "" if cell["paper"] is None else _number(cell["paper"], cell["paper_std"]),
        "is_paper_best": is_paper_best,
        "near": near,
    }


def _environments(document: Document) -> list[list[tuple[str, str]]]:
    """Versions that runs were made with, each set of them once."""
    return [
        [(str(name), str(version)) for name, version in json.loads(each).items()]
        for each in document.get("made_with") or []
    ]


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return MISSING
    deviation = "" if std is None else f" ± {std:,.{DECIMALS}f}"
    return _minus(f"{mean:,.{DECIMALS}f}{deviation}")


def _minus(text: str) -> str:
    """A number with a true minus, a dash where there is none; other texts as they are."""
    if text == "-":
        return MISSING
    return f"−{text[1:]}" if text[:1] == "-" and text[1:2].isdigit() else text


def _short(data_set: str) -> str:
    return data_set.split("/")[-1]
