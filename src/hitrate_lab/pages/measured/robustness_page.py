"""The tables of docs/robustness.md, from what ``benchmarks/robustness.py`` gathered."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made

RESULTS = Path("benchmarks") / "results" / "robustness.json"
BEYOND = "beyond the dtype's range"
Found = dict[str, Any]


def robustness(root: Path) -> Made:
    """What was attacked and what came of it, kills, peaks, and messages word for word."""
    found = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    targets = found["targets"]
    blocks = {
        "attacks": attacks_table(targets, found["hardware"]),
        "kills": kills_table(targets["kills"]["outcomes"]),
        "peaks": peaks_table(targets["peaks"]),
        "messages": messages_table(found["messages"]),
    }
    return Made({"docs/robustness.md": blocks})


def attacks_table(targets: dict[str, Found], machine: Found) -> str:
    """How many cases of each kind, and what they ended with."""
    folders, files = targets["model_folders"], targets["bad_files"]
    losses, kills, peaks = targets["losses"], targets["kills"], targets["peaks"]
    by_end = {end: _ending_with(files["outcomes"], end) for end in ("fitted", "refused")}
    rows = {
        "model folders changed and sealed again": (
            f"{folders['cases']:,}",
            f"{folders['outcomes'].get('refused', 0):,} refused in one line, "
            f"{folders['outcomes'].get('predicted', 0):,} predicted, and rightly",
            folders,
        ),
        "bad files through `fit` and `predict`": (
            f"{files['cases']:,}",
            f"{by_end['refused']:,} refused in one line, {by_end['fitted']:,} fitted and predicted",
            files,
        ),
        "calls of losses": (
            f"{losses['cases']:,} of {losses['inputs']:,} rows",
            f"{losses['outcomes'].get('complaint', 0):,} complaints (`ValueError`, `TypeError`), "
            f"{losses['outcomes'].get('as in float64', 0):,} held against float64, "
            f"{losses['outcomes'].get(BEYOND, 0):,} beyond the range of their dtype, which "
            "float64 tells; no NaN in the rest",
            losses,
        ),
        "kills of `compare` and `study run`": (
            f"{kills['inputs']:,}",
            "the same command ended with the numbers of an undisturbed one",
            kills,
        ),
        "peaks of losses with their gradients": (
            f"{peaks['cases']:,} of {peaks['described']['calls']:,}",
            "at most 8 times the logits",
            peaks,
        ),
    }
    lines = ["| attack | cases | what came of it | findings |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {count} | {came} | {len(target['findings'])} |"
        for name, (count, came, target) in rows.items()
    ]
    slowest = max(folders["slowest_cpu_seconds"], files["slowest_cpu_seconds"])
    versions = folders["described"]
    lines += [
        "",
        "A finding is a crash, a hang, a traceback, memory above the limit, or a wrong result. The "
        f"most memory of a folder was {folders['peak_mebibytes']:.0f} MiB above the start and of a "
        f"file {files['peak_mebibytes']:.0f} MiB; the slowest of both took {slowest:.1f} s of CPU "
        f"time. {machine['cpu']}, one process; torch {versions['torch']}, XGBoost "
        f"{versions['xgboost']}, LightGBM {versions['lightgbm']}, Python {machine['python']}. "
        "Seeds and counts of each kind: `benchmarks/results/robustness.json`.",
    ]
    return "\n".join(lines)


def _ending_with(outcomes: dict[str, int], end: str) -> int:
    return sum(count for name, count in outcomes.items() if name.endswith(end))


def kills_table(outcomes: dict[str, int]) -> str:
    """How often each signal went where, of both commands; and when."""
    told = re.compile(r"(\w+) to the (\w+), (\w+)")
    counts: dict[str, dict[str, int]] = {}
    for name, count in outcomes.items():
        if parts := told.fullmatch(name):
            row = counts.setdefault(parts[1], {})
            row[parts[2]] = row.get(parts[2], 0) + count
    victims = ("command", "worker", "group")
    lines = ["| signal | command | a worker | the whole group |", "|---|---|---|---|"]
    for number in sorted(counts):
        cells = " | ".join(str(counts[number].get(victim, 0)) for victim in victims)
        lines.append(f"| {number} | {cells} |")
    moments = [f"{count} {name}" for name, count in outcomes.items() if name.startswith("at ")]
    of = {name: _ending_with(outcomes, f", {name}") for name in ("compare", "study")}
    lines += [
        "",
        f"{of['compare']} in `compare`, {of['study']} in `study run`; {', '.join(moments)}.",
    ]
    return "\n".join(lines)


def peaks_table(target: Found) -> str:
    """How many calls of each size stayed within so many times the logits."""
    told = re.compile(r"(.+): up to (\d+) times")
    counts: dict[str, dict[int, int]] = {}
    for name, count in target["outcomes"].items():
        if parts := told.fullmatch(name):
            counts.setdefault(parts[1], {})[int(parts[2])] = count
    most = range(1, 9)
    lines = [
        f"| logits | {' | '.join(f'<= {k}' for k in most)} |",
        "|---|" + "---|" * len(most),
    ]
    for size, row in sorted(counts.items(), reverse=True):
        lines.append(f"| {size} | {' | '.join(str(row.get(k, 0)) for k in most)} |")
    lines += [
        "",
        "Calls by their peak, in bytes of the logits (float32, one thread): "
        f"{target['cases']:,} of {target['described']['calls']:,} in random order. "
        f"torch {target['described']['torch']}.",
    ]
    return "\n".join(lines)


def messages_table(messages: list[dict[str, str]]) -> str:
    """What is said of each file."""
    lines = ["| file | exit | standard error |", "|---|---|---|"]
    for each in messages:
        said = each["said"].replace("|", "\\|").replace("\n", "` `")
        lines.append(f"| {each['file']} | {each['exit']} | {f'`{said}`' if said else ''} |")
    return "\n".join(lines)
