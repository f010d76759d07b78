"""How many files and lines each folder of the packages has."""

from __future__ import annotations

from pathlib import Path

PACKAGES = ("hitrate", "hitrate_lab")


def sizes_of(source: Path) -> dict[str, dict[str, int]]:
    """By folder, such as "hitrate/losses": files of Python in it, and their lines.

    Parameters
    ----------
    source : Path
        The folder src of a tree.
    """
    sizes: dict[str, dict[str, int]] = {}
    for package in PACKAGES:
        for path in sorted((source / package).rglob("*.py")):
            folder = path.parent.relative_to(source).as_posix()
            size = sizes.setdefault(folder, {"files": 0, "lines": 0})
            size["files"] += 1
            size["lines"] += len(path.read_text(encoding="utf-8").splitlines())
    return sizes
