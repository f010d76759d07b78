"""The tables and pictures of the CPU in docs/measured.md, from committed results.

The results are those of one full run: ``make bench``, then copy ``build/bench/bench.json`` to
``benchmarks/results/cpu.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made, png_of
from hitrate_lab.pages.measured.bench_pictures import error_over_nodes, sampling_error

RESULTS = Path("benchmarks") / "results"
COLUMNS = {"auto": "hitrate (auto)", "quadrature": "quadrature", "genz": "the paper's sampler"}


def cpu(root: Path) -> Made:
    """What one run of the benchmarks says."""
    results = json.loads((root / RESULTS / "cpu.json").read_text(encoding="utf-8"))
    authors = json.loads((root / RESULTS / "authors_sampler.json").read_text(encoding="utf-8"))
    figures = results["figures_8_9"]
    return Made(
        {"docs/measured.md": {"bench": markdown(results, authors)}},
        {
            "docs/images/error_over_nodes.png": png_of(error_over_nodes(results["errors"])),
            "docs/images/figure_8.png": png_of(sampling_error(figures, "value")),
            "docs/images/figure_9.png": png_of(sampling_error(figures, "gradient")),
        },
    )


def markdown(results: dict[str, Any], authors: dict[str, Any]) -> str:
    """Time and memory at N = 256, the errors at default nodes, and what they were measured on."""
    speed = {(r["classes"], r["method"]): r for r in results["speed"] if r["rows"] == 256}
    lines = [
        f"| C | cross entropy | {' | '.join(COLUMNS.values())} | memory, auto |",
        "|---|---|" + "---|" * (len(COLUMNS) + 1),
    ]
    for classes in sorted({classes for classes, _ in speed}):
        base = speed[classes, "cross_entropy"]
        cells = [f"{1e3 * base['seconds']:.2g} ms"]
        for method in COLUMNS:
            row = speed[classes, method]
            cells.append("not run" if "not_run" in row else _times(row["ratio"]))
        auto = speed[classes, "auto"]
        cells.append(f"{auto['peak_bytes'] / 1024:,.0f} KiB")
        lines.append(f"| {classes} | {' | '.join(cells)} |")
    lines += ["", *member_lines(results.get("members", []))]
    machine = results["hardware"]
    rounds = [r["rounds"] for r in results["speed"] if "rounds" in r and r["rows"] == 256]
    return "\n".join(
        [
            *lines,
            "Forward and backward of a float32 batch of 256 rows; ratios to torch's cross entropy "
            f"are medians over {min(rounds)} to {max(rounds)} interleaved rounds within one run. "
            "Memory is the peak beyond the logits: the gradient and copies of the logits' size; a "
            "workspace of up to 4 MiB, which a thread keeps, is not in it. "
            "The paper's sampler takes 16 samples; it is ours, "
            f"{beside_the_authors(authors)} "
            f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}, Python "
            f"{machine['python']}. Quartiles, other shapes and errors: "
            "`benchmarks/results/cpu.json`; measure yours with `make bench`.",
        ]
    )


def member_lines(members: list[dict[str, Any]]) -> list[str]:
    """Losses as Modules, in units of cross entropy; nothing where they were not measured."""
    if not members:
        return []
    classes = sorted({member["classes"] for member in members})
    lines = ["| Module | " + " | ".join(f"C = {c}" for c in classes) + " |"]
    lines.append("|---|" + "---|" * len(classes))
    by_key = {(member["loss"], member["classes"]): member for member in members}
    for loss in dict.fromkeys(member["loss"] for member in members):
        cells = [_times(by_key[loss, c]["ratio"]) for c in classes]
        lines.append(f"| `{loss}` | {' | '.join(cells)} |")
    return [*lines, ""]


def beside_the_authors(found: dict[str, Any]) -> str:
    """How our sampler compares with theirs, from one run of `benchmarks/authors_sampler.py`."""
    ratios = [f"{case['ratio']:.2g}" for case in found["cases"]]
    classes = [str(case["classes"]) for case in found["cases"]]
    return (
        f"which took {', '.join(ratios[:-1])} and {ratios[-1]} times as long as the authors' own "
        f"package at {', '.join(classes[:-1])} and {classes[-1]} classes, in turns on the same "
        "cores."
    )


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} x" if ratio >= 100 else f"{ratio:.1f} x"
