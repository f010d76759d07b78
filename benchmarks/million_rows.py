"""Time and peak memory of the command line on a Parquet file of a million rows and 50 columns.

    OMP_NUM_THREADS=1 python benchmarks/million_rows.py

`compare` with the linear methods in one process, `fit` and `predict`, each a process of its own.
Memory is what this process and all below it have in RAM together, looked at ten times a second.
A straight boundary and noise: this is about time and memory, and no loss has anything to gain.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from machine import machine
from pyarrow import parquet
from sklearn_data import ROOT

COLUMNS, PART = 50, 100_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def table(path: Path, rows: int) -> None:
    """Write rows of float32 features and the class "won" or "lost"."""
    random = np.random.default_rng(0)
    direction = random.standard_normal(COLUMNS).astype(np.float32) / COLUMNS**0.5
    names = [*(f"x{k}" for k in range(COLUMNS)), "outcome"]
    writer = None
    for start in range(0, rows, PART):
        x = random.standard_normal((min(PART, rows - start), COLUMNS), dtype=np.float32)
        won = x @ direction + 0.3 * random.standard_normal(len(x)) > 0.2
        words = pyarrow.array(np.where(won, "won", "lost"))
        part = pyarrow.Table.from_arrays([*map(pyarrow.array, x.T), words], names=names)
        writer = writer or parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()


def memory(root: int) -> int:
    """Bytes in RAM of a process and all below it."""
    below: dict[int, list[int]] = {}
    size: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            size[int(folder.name)] = PAGE * int((folder / "statm").read_text().split()[1])
        except OSError:
            continue
        below.setdefault(parent, []).append(int(folder.name))
    waiting, total = [root], 0
    while waiting:
        each = waiting.pop()
        total += size.get(each, 0)
        waiting += below.get(each, [])
    return total


def measured(words: list[str]) -> dict[str, Any]:
    """Run `hitrate` with these words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+") as said:
        run = subprocess.Popen(
            [sys.executable, "-m", "hitrate_lab", *words], stdout=said, stderr=subprocess.STDOUT
        )
        while run.poll() is None:
            peak = max(peak, memory(run.pid))
            time.sleep(0.1)
        said.seek(0)
        text = said.read()
    if run.returncode:
        raise RuntimeError(text)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "clock_seconds": round(time.perf_counter() - begin, 1),
        "processor_seconds": round(used, 1),
        "peak_gib": round(peak / 2**30, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/million_rows.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.parquet")
        table(path, arguments.rows)
        document: dict[str, Any] = {
            "what": "hitrate's commands on a Parquet file of float32 columns and two classes",
            "rows": arguments.rows,
            "columns": COLUMNS,
            "file_gib": round(path.stat().st_size / 2**30, 3),
            "numbers_gib": round(4 * arguments.rows * COLUMNS / 2**30, 3),
            "folds": 5,
        }
        model, target = f"{folder}/model", ["--target", "outcome"]
        compare = "--models linear --folds 5 --repeats 1 --jobs 1".split()
        out = f"{folder}/predictions.parquet"
        commands = {
            "compare": [str(path), *target, *compare, "--out", f"{folder}/report"],
            "fit": [str(path), *target, "--method", "linear/exact", "--out", model],
            "predict": [model, str(path), "--out", out],
        }
        for name, words in commands.items():
            document[name] = measured([name, *words])
            print(name, document[name], flush=True)
            if name == "compare":
                found = json.loads(Path(folder, "report", "comparison.json").read_text())
                document["methods"] = {
                    each["label"]: {
                        "accuracy": round(100 * each["accuracy"]["mean"], 2),
                        "difference": each["difference"]
                        and round(100 * each["difference"]["mean"], 2),
                        "fit_seconds": each["fit_seconds"],
                    }
                    for each in found["methods"]
                }
                document["advice"] = found["advice"]
            document["machine"] = machine()
            arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
