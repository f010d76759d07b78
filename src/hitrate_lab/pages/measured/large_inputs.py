"""Time and memory of large inputs: `hitrate.headroom`, and the command line on a million rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from hitrate_lab.pages.made import Made

RESULTS = Path("benchmarks") / "results"
HEADROOM, MILLION = RESULTS / "headroom_time.json", RESULTS / "million_rows.json"


def large_inputs(root: Path) -> Made:
    """What was measured of both."""
    return Made(
        {
            "docs/when_it_pays.md": {"headroom-time": when_there(root / HEADROOM, headroom_time)},
            "docs/sklearn.md": {"million-rows": when_there(root / MILLION, million_rows)},
        }
    )


def headroom_time(found: dict[str, Any]) -> str:
    """Seconds of processor and clock."""
    seconds = found["seconds"]
    used, clock = seconds["processor"], seconds["clock"]
    return (
        f"{found['rows']:,} rows of {found['features']} features, {found['classes']} classes, no "
        f"head given: {median(used):.1f} s of processor time (median of {found['n']}; "
        f"{min(used):.1f} to {max(used):.1f}), as much as {found['processor_in_products']:,} "
        "products of the features with ten columns. Other programs were running, so that the clock "
        f"said {min(clock):.0f} to {max(clock):.0f} s. Float32, {of_machine(found['machine'])}"
    )


def million_rows(found: dict[str, Any]) -> str:
    """Time and memory of the commands."""
    lines = ["| command | clock | processor | peak memory |", "|---|---|---|---|"]
    for command in ("compare", "fit", "predict"):
        if row := found.get(command):
            lines.append(
                f"| `hitrate {command}` | {row['clock_seconds']:.0f} s | "
                f"{row['processor_seconds']:.0f} s | {row['peak_gib']:.2f} GiB |"
            )
    what = (
        f"{found['rows']:,} rows, {found['columns']} columns of float32, "
        f"{found['numbers_gib']:.2f} GiB as numbers and {found['file_gib']:.2f} GiB as a file; one "
        "run, other programs running. "
    )
    return "\n".join([*lines, "", what + of_machine(found["machine"])])


def of_machine(machine: dict[str, Any]) -> str:
    """What ran it."""
    return (
        f"{machine['threads']} thread of {machine['cpu']}, scikit-learn {machine['scikit-learn']}, "
        f"torch {machine['torch']}."
    )


def when_there(path: Path, told: Callable[[dict[str, Any]], str]) -> str:
    """What a file of results says, where there is one."""
    if not path.exists():
        return "Not measured yet."
    return told(json.loads(path.read_text(encoding="utf-8")))
