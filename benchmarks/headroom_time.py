"""Seconds of `hitrate.headroom` on 50,000 x 512 features and 10 classes, no head given.

    OMP_NUM_THREADS=1 python benchmarks/headroom_time.py

Processor time beside the clock's, since other programs may be running, and beside both the time of
one product of the features with ten columns, so that machines can be compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from machine import machine
from sklearn_data import ROOT

import hitrate

ROWS, FEATURES, CLASSES = 50_000, 512, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/headroom_time.json")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, FEATURES, generator=generator)
    scores = features @ torch.randn(FEATURES, CLASSES, generator=generator)
    # Noise that leaves a third of the rows wrong.
    uniform = torch.rand(ROWS, CLASSES, generator=generator).clamp(1e-9, 1 - 1e-7)
    target = (scores - 8 * torch.log(-torch.log(uniform))).argmax(1)
    product = torch.randn(FEATURES, CLASSES, generator=generator)
    found: dict[str, list[float]] = {"clock": [], "processor": [], "product": []}
    for seed in range(arguments.repeats):
        begin = time.process_time()
        for _ in range(20):
            features @ product
        found["product"].append(round((time.process_time() - begin) / 20, 5))
        clock, begin = time.perf_counter(), time.process_time()
        said = hitrate.headroom(features, target, seed=seed)
        found["processor"].append(round(time.process_time() - begin, 3))
        found["clock"].append(round(time.perf_counter() - clock, 3))
        print(said, {key: values[-1] for key, values in found.items()}, flush=True)
    document = {
        "what": "seconds of hitrate.headroom, float32, synthetic; product is features @ (F, C)",
        "rows": ROWS,
        "features": FEATURES,
        "classes": CLASSES,
        "n": arguments.repeats,
        "seconds": found,
        "processor_in_products": round(
            statistics.median(found["processor"]) / statistics.median(found["product"])
        ),
        "machine": machine(),
    }
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
