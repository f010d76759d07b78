"""What attacks on hitrate came to: the fuzzer's summaries and what is said of bad files, as one.

    make fuzz LONG=1
    python benchmarks/robustness.py build/fuzz --out benchmarks/results/robustness.json

Takes all summaries that the folder has, however deep; several of one target are added up.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from file_messages import messages
from machine import machine


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Gather what the fuzzer found.")
    parser.add_argument("summaries", type=Path, help="a folder")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(given.summaries.rglob("*.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(summary["target"], []).append(summary)
    document = {
        "hardware": machine(),
        "targets": {name: added(summaries) for name, summaries in sorted(found.items())},
        "messages": messages(),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    given.out.write_text(text + "\n", encoding="utf-8")


def added(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """One summary of several, with the seeds of each."""
    outcomes: Counter[str] = Counter()
    for summary in summaries:
        outcomes.update(summary["outcomes"])
    seeds = sorted((summary["first_seed"], summary["cases"]) for summary in summaries)
    return {
        "seeds": [{"first": first, "cases": cases} for first, cases in seeds],
        "cases": sum(summary["cases"] for summary in summaries),
        "inputs": sum(summary["inputs"] for summary in summaries),
        "findings": [each for summary in summaries for each in summary["findings"]],
        "outcomes": dict(sorted(outcomes.items())),
        "peak_mebibytes": max(summary["peak_mebibytes"] for summary in summaries),
        "slowest_cpu_seconds": max(summary["slowest_cpu_seconds"] for summary in summaries),
        "wall_seconds": sum(summary["wall_seconds"] for summary in summaries),
        "described": summaries[-1]["described"],
    }


if __name__ == "__main__":
    main()
