"""What docs/architecture.md shows: who imports whom, and what was counted in the code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hitrate_lab.pages.house.graph_picture import graph_picture
from hitrate_lab.pages.house.import_graph import graph_of
from hitrate_lab.pages.house.sizes import PACKAGES
from hitrate_lab.pages.house.walks import RESULTS
from hitrate_lab.pages.made import Made

# The programs of each walk, as the tables call them, and the marks of their own tables.
PROGRAMS = {
    "logits to gradient": {"one step on a CPU": "walk-gradient"},
    "CSV to page": {"`hitrate compare`": "walk-page"},
    "TOML to table": {"`hitrate study run`": "walk-run", "`hitrate study report`": "walk-table"},
}
MOST_FILES = 12
Tree = dict[str, Any]


def architecture(root: Path) -> Made:
    """Who imports whom as the code is; lines and functions as they were counted."""
    counted = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    before, now = counted["before"], counted["now"]
    walks = {
        mark: walk_table(called)
        for walk, programs in PROGRAMS.items()
        for mark, called in zip(programs.values(), now["walks"][walk], strict=True)
    }
    return Made(
        {
            "docs/architecture.md": {
                "before-and-now": summary(before, now),
                "folders": folder_table(now),
                **walks,
            }
        },
        {
            f"docs/images/imports-{package}.svg": graph_picture(
                graph_of(root / "src" / package), package
            )
            for package in PACKAGES
        },
    )


def summary(before: Tree, now: Tree) -> str:
    """Lines, files, folders and functions of two commits."""
    rows = [["", f"at {before['commit']}", f"at {now['commit']}"], ["---", "---:", "---:"]]
    for package in PACKAGES:
        for what in ("lines", "files"):
            counts = (sum(size[what] for size in _of(tree, package)) for tree in (before, now))
            rows.append([f"`{package}`, {what}", *(f"{count:,}" for count in counts)])
    large = (
        sum(size["files"] > MOST_FILES for size in tree["sizes"].values()) for tree in (before, now)
    )
    rows.append([f"folders of more than {MOST_FILES} files", *map(str, large)])
    for walk, programs in PROGRAMS.items():
        for number, name in enumerate(programs):
            called = [tree["walks"][walk][number] for tree in (before, now)]
            cells = (f"{len(each)} in {len(_files(each))} files" for each in called)
            rows.append([f"functions, {walk}: {name}", *cells])
    return _table(rows)


def folder_table(tree: Tree) -> str:
    """Files and lines of each folder, without those of folders in it."""
    rows = [["folder", "files", "lines"], ["---", "---:", "---:"]]
    for folder, size in tree["sizes"].items():
        rows.append([f"`{folder}`", str(size["files"]), f"{size['lines']:,}"])
    return _table(rows)


def walk_table(called: list[str]) -> str:
    """Files in the order in which they are reached, with the public functions called there."""
    rows = [["file", "functions", "called first, in this order"], ["---", "---:", "---"]]
    for file in _files(called):
        names = [name.partition(":")[2] for name in called if name.startswith(f"{file}:")]
        public = [f"`{name}`" for name in names if not _is_private(name)]
        rows.append([f"`{file}`", str(len(names)), ", ".join(public)])
    return _table(rows)


def _is_private(name: str) -> bool:
    """Whether one of its parts is, or it is inside of another function."""
    return "<locals>" in name or any(part.startswith("_") for part in name.split("."))


def _files(called: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.partition(":")[0] for name in called))


def _of(tree: Tree, package: str) -> list[dict[str, int]]:
    return [size for folder, size in tree["sizes"].items() if folder.split("/")[0] == package]


def _table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
