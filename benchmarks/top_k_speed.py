"""What top-k losses cost on a CPU or GPU, next to cross entropy, to k = 1 and to difftopk.

    python benchmarks/top_k_speed.py --out benchmarks/results/top_k_cpu.json
    python benchmarks/top_k_speed.py --device cuda --out benchmarks/results/top_k_gpu.json

Forward and backward of a float32 batch. The losses take turns, and the medians are of processor
time on a CPU, where other programs may be running, and of wall time on a GPU. `difftopk` (Petersen
et al. 2022) is measured where it can be imported, with the settings that its authors print for
CIFAR-100 and the odd-even network: 16 scores, "logistic_phi", P_K = .2 for k = 1 to 5. Its loss and
gradient stand beside ours on the same logits, with P_K = 1 for k = 5, as ours is of that.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hitrate

SHAPES = [(256, 10), (256, 100), (256, 1000)]
GPU_SHAPES = [*SHAPES, (4096, 1000)]
KS = (2, 5)
Loss = Callable[[Tensor, Tensor], Tensor]


def losses(classes: int, device: str) -> dict[str, Loss]:
    """By name, cross entropy first."""
    found: dict[str, Loss] = {
        "cross entropy, torch": nn.CrossEntropyLoss(),
        "normal, k=1": hitrate.ExactLoss(link="log"),
    }
    for k in KS:
        found[f"normal, k={k}"] = hitrate.ExactLoss(link="log", k=k)
    found["Gumbel, k=5"] = hitrate.CrossEntropyLoss(k=5)
    found["logistic, k=5"] = hitrate.ExactLoss(link="log", noise="logistic", k=5)
    if find_spec("difftopk") is not None and classes > 16:
        found["difftopk, k=5"] = their_loss(classes, device)
    return found


def their_loss(classes: int, device: str, p_k: tuple[float, ...] = (0.2,) * 5) -> Loss:
    """Top-k cross entropy by a sorting network: the published loss."""
    from difftopk import TopKCrossEntropyLoss

    loss: Loss = TopKCrossEntropyLoss(
        diffsort_method="odd_even",
        inverse_temperature=1.0,
        p_k=list(p_k),
        n=classes,
        m=16,
        distribution="logistic_phi",
        art_lambda=0.5,
        device=device,
        top1_mode="sm",
    )
    return loss


def measured(shape: tuple[int, int], rounds: int, device: str) -> dict[str, Any]:
    """Medians of milliseconds, and ratios to cross entropy; in each round losses take turns."""
    rows, classes = shape
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator, device=device).requires_grad_()
    target = torch.randint(classes, (rows,), generator=generator, device=device)
    clock = time.process_time if device == "cpu" else time.perf_counter
    taken: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    for turn in range(rounds + 1):
        for name, loss in losses(classes, device).items():
            if name in failed:
                continue
            start = clock()
            try:
                torch.autograd.grad(loss(logits, target), logits)
            except Exception as error:  # Of somebody else's program: anything.
                failed[name] = f"{type(error).__name__}: {error}"
                continue
            if device != "cpu":
                torch.cuda.synchronize()
            if turn:
                taken.setdefault(name, []).append(1e3 * (clock() - start))
    middle = {name: statistics.median(times) for name, times in taken.items()}
    base = middle["cross entropy, torch"]
    return {
        "rows": rows,
        "classes": classes,
        "rounds": rounds,
        "ms": middle,
        "quartiles": {n: statistics.quantiles(t, n=4)[::2] for n, t in taken.items()},
        "ratio": {name: time_ / base for name, time_ in middle.items()},
        "failed": failed,
    }


def beside_theirs(rows: int = 256, classes: int = 100) -> dict[str, Any] | None:
    """Loss, and cosine of the gradients, of difftopk and of ours on the same logits."""
    if find_spec("difftopk") is None:
        return None
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator) * 2
    target = torch.randint(classes, (rows,), generator=generator)
    results = []
    theirs = their_loss(classes, "cpu", (0.0, 0.0, 0.0, 0.0, 1.0))
    for loss in (hitrate.ExactLoss(link="log", k=5), theirs):
        x = logits.clone().requires_grad_()
        value = loss(x, target)
        results.append((float(value.detach()), torch.autograd.grad(value, x)[0]))
    (ours, gradient), (other, their_gradient) = results
    cosine = nn.functional.cosine_similarity(gradient, their_gradient, dim=1).median()
    return {
        "ours": ours,
        "theirs": other,
        "median_cosine_of_gradients": float(cosine),
        "rows_without_gradient": {
            "ours": int((gradient.abs().amax(1) == 0).sum()),
            "theirs": int((their_gradient.abs().amax(1) == 0).sum()),
        },
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    shapes = SHAPES if options.device == "cpu" else GPU_SHAPES
    result: dict[str, Any] = {
        "hardware": torch.cuda.get_device_name()
        if options.device == "cuda"
        else (names or ["?"])[0],
        "clock": "processor time, one thread" if options.device == "cpu" else "wall time",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "beside_difftopk": beside_theirs() or "difftopk cannot be imported here",
        "cases": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        case = measured(shape, options.rounds, options.device)
        result["cases"].append(case)
        print(json.dumps(case["ms"]), case["failed"], flush=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
