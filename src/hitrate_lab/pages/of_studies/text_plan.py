"""What the studies of texts would take that no committed run shows yet."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made
from hitrate_lab.studies import Study, plan_of, read_study
from hitrate_lab.studies.text.lstm import ARCHITECTURES

PAGE, MARK, COLLECTION = "docs/reproduction/text.md", "texts-to-run", "texts/"
# Of a forward pass, and of the pass back, which is two products for each one; a product's
# multiplications and additions.
PASSES, OPERATIONS = 3, 2
# Gates of a unit, each of which sees the word and the state.
LSTM_GATES, GRU_GATES = 4, 3


def text_plan(root: Path) -> Made:
    """A table of the studies without committed runs: operations, and hours of a core.

    Hours are operations over those of a second that committed runs of the same protocol did.
    """
    done: list[tuple[Study, Path]] = []
    rest: list[tuple[Study, Path]] = []
    for path in sorted((root / "studies").glob("*.toml")):
        study = read_study(path)
        if all(name.startswith(COLLECTION) for name in study.data_sets):
            file = root / "studies" / "results" / f"{path.stem}.jsonl.gz"
            (done if file.is_file() else rest).append((study, file))
    speed = {
        protocol: _speed([file for study, file in done if study.protocol == protocol])
        for protocol in {study.protocol for study, _ in rest}
    }
    head = ["study", "runs", "operations", "hours of a core", "command"]
    rows = [_row(study, speed[study.protocol]) for study, _ in rest]
    lines = [head, ["---", "---:", "---:", "---:", "---"], *rows]
    block = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return Made({PAGE: {MARK: block if rows else "None: all of them have committed runs."}})


def _row(study: Study, speed: float | None) -> list[str]:
    plan = plan_of(study)
    total = operations(plan)
    return [
        f"`{study.name}`",
        str(len(plan)),
        f"{total:.1e}" if total else "-",
        f"{total / speed / 3600:.1f}" if total and speed else "-",
        f"`hitrate study run {study.name}`",
    ]


def _speed(files: Iterable[Path]) -> float | None:
    """Operations a second of committed runs; None where there are none."""
    work, seconds = 0.0, 0.0
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            runs = [json.loads(line) for line in lines]
        work += operations([run["specification"] for run in runs])
        seconds += sum(run["result"]["seconds"] for run in runs)
    return work / seconds if seconds else None


def operations(plan: Iterable[dict[str, Any]]) -> float:
    """Multiplications and additions of trainings; 0 for protocols that nobody counted.

    Parameters
    ----------
    plan : iterable of dict
        Specifications.
    """
    counted = ((COUNTED.get(spec["protocol"].rpartition(" ")[0]), spec) for spec in plan)
    return PASSES * OPERATIONS * float(sum(count(spec) for count, spec in counted if count))


def _of_lstm(spec: dict[str, Any]) -> int:
    layers, units = ARCHITECTURES[spec["architecture"]]
    words = spec["rows"] * spec["training"]["epochs"] * spec["words"]
    return int(words * layers * LSTM_GATES * 2 * units**2)


def _of_next_words(spec: dict[str, Any]) -> int:
    steps = spec["base_steps"] + len(spec["methods"]) * spec["steps"]
    words = steps * spec["streams"] * spec["length"]
    hidden = spec["hidden"]
    return int(words * (GRU_GATES * 2 * hidden**2 + hidden * spec["vocabulary"]))


COUNTED: dict[str, Callable[[dict[str, Any]], int]] = {
    "next words": _of_next_words,
    "text LSTM": _of_lstm,
}
