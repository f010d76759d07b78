"""Our version of the paper's sampler next to the authors' own package, on a CPU.

    python benchmarks/authors_sampler.py

Needs their package, `exact_pytorch` of github.com/tinkoff-ai/exact, on the path. Writes
``benchmarks/results/authors_sampler.json``, which the README's table quotes.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from run import cpu_model

import hitrate

OUT = Path(__file__).resolve().parent / "results" / "authors_sampler.json"
ROWS, SAMPLES, ROUNDS = 256, 16, 15
CLASSES = (2, 10, 32, 100)


def seconds(call: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(classes: int) -> dict[str, Any]:
    """Medians over rounds in which both take turns: forward and backward."""
    from exact_pytorch.criterion import EXACTLoss  # type: ignore[import-not-found]

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, classes, generator=generator).requires_grad_()
    target = torch.randint(classes, (ROWS,), generator=generator)
    theirs = EXACTLoss(sample_size=SAMPLES)
    calls = {
        "authors": lambda: theirs(logits, target).backward(),
        "ours": lambda: hitrate.exact_loss(
            logits, target, method="genz", samples=SAMPLES
        ).backward(),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(seconds(call))
    ms = {name: 1e3 * statistics.median(each) for name, each in times.items()}
    return {"classes": classes, "ms": ms, "ratio": ms["ours"] / ms["authors"]}


def main() -> None:
    """Measure and write."""
    result = {
        "cpu": cpu_model(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rows": ROWS,
        "samples": SAMPLES,
        "rounds": ROUNDS,
        "cases": [measure(classes) for classes in CLASSES],
    }
    OUT.write_text(json.dumps(result, indent=2) + "\n")
    print({case["classes"]: round(case["ratio"], 2) for case in result["cases"]})


if __name__ == "__main__":
    main()
