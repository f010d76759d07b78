"""Every member of the family next to cross entropy, on a GPU.

    python benchmarks/gpu_members.py --out gpu_members.json

For each shape, one run of rounds in which the losses take turns: members by their class targets,
with smoothing and with probability targets, next to torch's cross entropy with the same. The file
is written after every shape.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu import compare, extra_memory, on_the_gpu, step_of
from torch import Tensor, nn

import hitrate

SHAPES = [
    (256, 10, "float32"),
    (512, 100, "bfloat16"),
    (1024, 1000, "bfloat16"),
    (4096, 100, "float32"),
    (4096, 1000, "float32"),
    (2048, 32768, "bfloat16"),
    (2048, 32768, "float32"),
    (2048, 131072, "bfloat16"),
]
SMOOTHING = 0.1
# Up to so many classes EXACT takes targets of all classes here.
ALL_UP_TO = 1000

Loss = Callable[[Tensor, Tensor], Tensor]


def members(classes: int) -> dict[str, dict[str, Loss]]:
    """By kind of target, cross entropy first."""
    losses: dict[str, Callable[..., Loss]] = {
        "cross entropy, torch": nn.CrossEntropyLoss,
        "cross entropy": hitrate.CrossEntropyLoss,
        "mixed": lambda **o: hitrate.MixedLoss(0.25, **o),
        "expectation": hitrate.ExpectationLoss,
        "generalized": hitrate.GeneralizedCrossEntropyLoss,
        "exact": hitrate.ExactLoss,
        # With a number that moves, where a user who does not care leaves it: on the CPU.
        "annealed": lambda: hitrate.recipe("annealed", total_steps=100).loss,
        "exact, normalised": lambda: hitrate.ExactLoss(normalize=True, margin=0.5),
    }
    some = ["cross entropy, torch", "cross entropy", "mixed"]
    some += ["exact"] if classes <= ALL_UP_TO else []
    return {
        "class": {name: make() for name, make in losses.items()},
        "smoothed": {name: losses[name](label_smoothing=SMOOTHING) for name in some},
        "soft": {name: losses[name]() for name in some},
    }


def measure(rows: int, classes: int, dtype: str, rounds: int) -> dict[str, Any]:
    """Medians of microseconds, eager and on the GPU alone, and memory, with the ratios."""
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(rows, classes, device="cuda", generator=generator)
    soft = torch.softmax(logits.flip(0), 1).to(getattr(torch, dtype))
    logits = logits.to(getattr(torch, dtype)).requires_grad_()
    target = torch.randint(classes, (rows,), device="cuda", generator=generator)
    case: dict[str, Any] = {"rows": rows, "classes": classes, "dtype": dtype}
    for kind, losses in members(classes).items():
        y = soft if kind == "soft" else target
        first = {}
        for name, loss in losses.items():
            start = time.perf_counter()
            step_of(loss, logits, y)()
            torch.cuda.synchronize()
            first[name] = time.perf_counter() - start
        steps = {name: step_of(loss, logits, y) for name, loss in losses.items()}
        times = compare(steps, rounds, 0.02)
        eager = {name: statistics.median(t) for name, t in times.items()}
        alone = {name: on_the_gpu(loss, logits, y) for name, loss in losses.items()}
        memory = {name: extra_memory(step, logits) for name, step in steps.items()}
        base = "cross entropy, torch"
        case[kind] = {
            name: {
                "eager_us": eager[name],
                "eager_ratio": eager[name] / eager[base],
                "gpu_us": alone[name],
                "gpu_ratio": alone[name] / alone[base],
                "memory": memory[name],
                "first_call_s": first[name],
            }
            for name in losses
        }
    return case


def line(case: dict[str, Any]) -> str:
    """A case as a few lines of text."""
    lines = [f"{case['rows']} x {case['classes']}, {case['dtype']}"]
    for kind in ("class", "smoothed", "soft"):
        for name, f in case[kind].items():
            lines.append(
                f"  {kind:9s}{name:22s} eager {f['eager_ratio']:5.2f}  gpu {f['gpu_ratio']:5.2f} "
                f"({f['gpu_us']:.1f} us)  memory {f['memory']:4.2f} first {f['first_call_s']:.1f} s"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first so many")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": options.rounds,
        "cases": [],
    }
    for shape in SHAPES[: options.shapes]:
        case = measure(*shape, options.rounds)
        result["cases"].append(case)
        print(line(case), flush=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
