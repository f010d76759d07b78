"""Linear softmax heads trained for top-5 accuracy, for top-1 accuracy and by cross entropy.

    python benchmarks/top_k_training.py --out benchmarks/results/top_k_training.json

A published table of many classes, of which each seed draws its own training, held-out and test
rows. Every loss has the same steps, batches, initial weights and grid of learning rates; for each
seed, loss and k the rate is the one with the highest top-k accuracy on the held-out rows. The file
is written after every seed, and seeds that it has are not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor, nn

import hitrate
from hitrate_lab.datasets.sets import standardised
from hitrate_lab.datasets.uci import read_uci

RATES = (0.1, 0.3, 1.0)
BATCH = 256
# Training and held-out rows; all others are for testing.
ROWS, HELD_OUT = 3000, 4000
SETS = {"letter": (5,)}
EPOCHS = 12

# Steps -> a loss, and what to do after every step.
Method = Callable[[int], tuple[nn.Module, Callable[[], None]]]


def methods(ks: tuple[int, ...]) -> dict[str, Method]:
    """Cross entropy, and from likelihood to error of the k highest."""

    def entropy(steps: int) -> tuple[nn.Module, Callable[[], None]]:
        return nn.CrossEntropyLoss(), lambda: None

    def annealed(k: int) -> Method:
        def make(steps: int) -> tuple[nn.Module, Callable[[], None]]:
            plan = hitrate.recipe("annealed", total_steps=steps, k=k)
            return plan.loss, plan.step

        return make

    named: dict[str, Method] = {"cross entropy": entropy}
    return named | {f"annealed, k={k}": annealed(k) for k in (1, *ks)}


def drawn(name: str, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Training, held-out and test rows, standardised by the first."""
    found = read_uci(name)
    parts = [(found.X_train, found.y_train), (found.X_test, found.y_test)]
    if found.X_validation is not None:
        parts.append((found.X_validation, found.y_validation))
    x = np.concatenate([rows for rows, _ in parts])
    y = np.concatenate([labels for _, labels in parts])
    order = np.random.default_rng(seed).permutation(len(y))
    x, y = x[order], y[order]
    x, _ = standardised(x, np.arange(ROWS))
    ends = {
        "train": (0, ROWS),
        "held out": (ROWS, ROWS + HELD_OUT),
        "test": (ROWS + HELD_OUT, None),
    }
    return {
        part: (torch.from_numpy(x[first:last]).float(), torch.from_numpy(y[first:last]))
        for part, (first, last) in ends.items()
    }


def trained(make: Method, rate: float, data: Any, classes: int, seed: int) -> nn.Linear:
    """A linear head after so many epochs of Adam, with a rate that falls to zero."""
    torch.manual_seed(seed)
    x, y = data["train"]
    head = nn.Linear(x.shape[1], classes)
    steps = EPOCHS * -(-len(y) // BATCH)
    loss, after = make(steps)
    optimizer = torch.optim.Adam(head.parameters(), rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(BATCH):
            optimizer.zero_grad()
            loss(head(x[rows]), y[rows]).backward()
            optimizer.step()
            falling.step()
            after()
    return head


@torch.no_grad()
def accuracies(
    head: nn.Linear, rows: tuple[Tensor, Tensor], ks: tuple[int, ...]
) -> dict[str, float]:
    """Share of targets among the k highest."""
    logits, y = head(rows[0]), rows[1]
    hit = logits.topk(max(ks), 1).indices == y[:, None]
    return {str(k): float(hit[:, :k].any(1).double().mean()) for k in ks}


def of_seed(name: str, ks: tuple[int, ...], seed: int) -> dict[str, Any]:
    """Every method's test accuracies, each k with the rate that its held-out accuracy chose."""
    data = drawn(name, seed)
    classes = int(max(y.max() for _, y in data.values())) + 1
    counted = (1, *sorted(ks))
    found: dict[str, Any] = {}
    for method, make in methods(ks).items():
        tries = []
        for rate in RATES:
            start = time.process_time()
            head = trained(make, rate, data, classes, seed)
            scores = {part: accuracies(head, data[part], counted) for part in ("held out", "test")}
            tries.append({"rate": rate, "cpu_seconds": time.process_time() - start, **scores})
        best = {k: max(tries, key=lambda t: t["held out"][str(k)]) for k in counted}
        found[method] = {
            "test": {str(k): best[k]["test"][str(k)] for k in counted},
            "rate": {str(k): best[k]["rate"] for k in counted},
            "cpu_seconds": statistics.median(t["cpu_seconds"] for t in tries),
        }
        print(name, seed, method, found[method], flush=True)
    return found


def summary(runs: dict[str, Any]) -> dict[str, Any]:
    """Means over seeds, and differences to cross entropy with intervals of Student's t."""
    seeds = list(runs.values())
    shown: dict[str, Any] = {}
    for method in seeds[0]:
        shown[method] = {}
        for k in seeds[0][method]["test"]:
            values = np.array([100 * seed[method]["test"][k] for seed in seeds])
            base = np.array([100 * seed["cross entropy"]["test"][k] for seed in seeds])
            gain, n = values - base, len(seeds)
            half = scipy.stats.t.ppf(0.975, n - 1) * gain.std(ddof=1) / n**0.5 if n > 1 else None
            shown[method][f"top-{k}"] = {
                "mean": values.mean(),
                "std": values.std(ddof=1) if n > 1 else None,
                "gain": gain.mean(),
                "half_of_95": half,
                "n": n,
            }
    return shown


def hardware() -> dict[str, Any]:
    """What it ran on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    sets: dict[str, Any] = known.get("sets", {})
    for name, ks in SETS.items():
        runs = sets.setdefault(name, {"runs": {}})["runs"]
        for seed in range(options.seeds):
            if str(seed) not in runs:
                runs[str(seed)] = of_seed(name, ks, seed)
            sets[name]["summary"] = summary(runs)
            settings = {"rates": RATES, "epochs": EPOCHS, "batch": BATCH, "rows": ROWS}
            result = {"hardware": hardware(), "settings": settings, "sets": sets}
            options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
