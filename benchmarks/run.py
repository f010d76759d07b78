"""Speed, memory and error of every method on this machine, in one run.

    python benchmarks/run.py --out build/bench

Prints tables, and writes ``bench.json``, ``error_over_nodes.png`` and what `figures_8_9` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from errors import measure_errors
from figures_8_9 import figures_8_9
from figures_8_9 import table as figures_table
from memory import check_memory_of
from speed import SAMPLES, measure_members, measure_shape
from tables import (
    error_tables,
    kept_tables,
    member_table,
    ratio_table,
    speed_table,
)

import hitrate
from hitrate_lab.pages.made import png_of
from hitrate_lab.pages.measured.bench_pictures import error_over_nodes

MEMBER_SHAPES = [(256, classes) for classes in (2, 10, 32, 100, 1000)]
SHAPES = [(rows, classes) for rows in (256, 4096) for classes in (2, 10, 32, 100, 1000)]
CLASSES = (3, 10, 100, 1000)


def bench(out: Path, *, quick: bool = False) -> dict[str, Any]:
    """Measure everything, print tables, write files.

    Parameters
    ----------
    out : Path
        Folder for the files, created when missing.
    quick : bool
        Small shapes and few repetitions: shows that everything works, in less than a minute.

    Returns
    -------
    dict
        What ``bench.json`` holds.
    """
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    machine = hardware()
    print(hardware_line(machine))

    check_memory_of()
    limits: dict[str, Any] = {
        "seconds": 0.2 if quick else 12.0,
        "rounds": (3, 5) if quick else (3, 100),
    }
    speed, members = [], []
    for rows, classes in [(64, 2), (64, 10)] if quick else SHAPES:
        progress(f"speed, N = {rows}, C = {classes}")
        speed += measure_shape(rows, classes, **limits)
    print_speed(speed)
    for rows, classes in [(64, 10)] if quick else MEMBER_SHAPES:
        progress(f"losses, N = {rows}, C = {classes}")
        members += measure_members(rows, classes, **limits)
    print_section("Losses as Modules, next to torch's cross entropy")
    print(member_table(members))

    errors = []
    for classes in CLASSES[:2] if quick else CLASSES:
        progress(f"error, C = {classes}")
        errors.append(measure_errors(classes, quick=quick))
    print_errors(errors)
    (out / "error_over_nodes.png").write_bytes(png_of(error_over_nodes(errors)))

    progress("figures 8 and 9")
    figures = figures_8_9(out, seeds=10 if quick else 1000)
    print_section("Figures 8 and 9 of the EXACT paper")
    print(figures_table(figures))

    result = {
        "hardware": machine,
        "quick": quick,
        "seconds": time.perf_counter() - start,
        "speed": speed,
        "members": members,
        "errors": errors,
        "figures_8_9": figures,
    }
    (out / "bench.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    print(f"\n{result['seconds']:.0f} s in all; files in {out}")
    return result


def hardware() -> dict[str, Any]:
    """What the numbers depend on, besides the code."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "hitrate": hitrate.__version__,
    }


def cpu_model() -> str:
    """Name of the processor, as exactly as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def hardware_line(machine: dict[str, Any]) -> str:
    """The same for the head of the tables, in one line; and how busy the machine was."""
    load = "unknown" if machine["load"] is None else f"{machine['load']:.1f}"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, torch threads: {machine['threads']}, "
        f"{machine['system']}; hitrate {machine['hitrate']}, torch {machine['torch']}, "
        f"Python {machine['python']}\nLoad average before the run: {load}"
    )


def print_speed(speed: list[dict[str, Any]]) -> None:
    """Section on time and memory."""
    print_section("Forward and backward, float32, next to torch's cross entropy (CE)")
    print(
        "ms: median over rounds; / CE: ratio of medians; by round: median of the ratios within a "
        f"round.\nquartiles: first .. third. genz takes {SAMPLES} samples. Peak memory counts live "
        "tensors beyond the\nlogits and the target, the gradient included; / logits: in units of "
        "the logits.\n"
    )
    print(speed_table(speed))
    print(
        "\nTime, in units of cross entropy (median of the ratios by round); (others): cores that "
        "other processes used\n"
    )
    print(ratio_table(speed, "ratio"))
    print("\nPeak memory, in units of the logits\n")
    print(ratio_table(speed, "peak_bytes"))
    print(f"\n{kept_tables(speed)}")
    for result in speed:
        if "not_run" in result:
            shape = f"{result['rows']} x {result['classes']}"
            print(f"{result['method']} not run at {shape}: {result['not_run']}")


def print_errors(errors: list[dict[str, Any]]) -> None:
    """Section on errors."""
    print_section("Error against float64 truth, 100 rows for each C")
    print(
        "log p: |error of log p| / max(1, |log p|). gradient: largest error in a row / largest "
        "gradient in that\nrow. Rows: logits of scale 0.1 to 30, targets from 62 behind to 15 "
        "ahead of their best rival. Truth:\nquadrature in float64 with 400 nodes, checked against "
        "a trapezoidal rule in numpy. inf: a row without a hit.\n"
    )
    for study in errors:
        low, high = study["log_p"]
        check = study["check"]
        print(
            f"C = {study['classes']}: log p from {low:.0f} to {high:.0e}; quadrature and "
            f"trapezoidal rule agree to {check['value']:.0e} (log p), {check['gradient']:.0e} "
            "(gradient)"
        )
    print(f"\n{error_tables(errors)}")


def print_section(title: str) -> None:
    """A heading."""
    print(f"\n{title}\n{'=' * len(title)}\n")


def progress(text: str) -> None:
    """A line for whoever waits, apart from the results."""
    print(f"{time.strftime('%X')} {text} ...", file=sys.stderr, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Speed, memory and error of every method.")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder for files")
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    arguments = parser.parse_args()
    bench(arguments.out, quick=arguments.quick)


if __name__ == "__main__":
    main()
