"""What a loss adds to a training step of the paper's networks: `python benchmarks/gpu_training.py`.

Wide ResNet 28-10 and 16-8 on random 32 x 32 images, batch size 256, SGD with momentum, bfloat16
autocast. Steps with cross entropy, with EXACT, and with every recipe, its schedules and gradient
normaliser included, take turns, in blocks; the figure is the ratio of the medians, next to the
paper's for its own loss.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from gpu import wall
from torch import Tensor, nn

import hitrate
from hitrate.recipes import RECIPES
from hitrate_lab.models.networks import network

EXACT = hitrate.ExactLoss()
# Depth, width, classes; the overhead that the paper reports for its own loss, in percent.
CASES = [(28, 10, 10, 0.3), (28, 10, 100, 5.5), (16, 8, 10, 3.7), (16, 8, 100, None)]
BATCH = 256


def step_of(model: nn.Module, name: str, x: Tensor, y: Tensor) -> Callable[[], None]:
    """One training step."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    plan = None
    if name in RECIPES:
        plan = hitrate.recipe(name, total_steps=10_000, optimizer=optimizer)
        plan.loss.cuda()
    loss = plan.loss if plan else {"cross entropy": nn.CrossEntropyLoss(), "exact": EXACT}[name]

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(x)
        loss(logits, y).backward()
        optimizer.step()
        if plan:
            plan.step()

    return step


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    cases = []
    for depth, width, classes, paper in CASES:
        torch.manual_seed(0)
        model = (
            network(f"wide_resnet_{depth}_{width}", classes)
            .cuda()
            .to(memory_format=torch.channels_last)
        )
        x = torch.randn(BATCH, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(classes, (BATCH,), device="cuda")
        names = ["cross entropy", "exact", *RECIPES]
        steps = {name: step_of(model, name, x, y) for name in names}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            wall(step, 3)
        for _ in range(options.rounds):
            for name, step in steps.items():
                times[name].append(1e3 * wall(step, 6))
        medians = {name: statistics.median(t) for name, t in times.items()}
        base = medians["cross entropy"]
        case = {
            "network": f"WRN-{depth}-{width}",
            "classes": classes,
            "ms": {name: round(t, 2) for name, t in medians.items()},
            "spread": {name: [round(min(t), 2), round(max(t), 2)] for name, t in times.items()},
            "overhead_percent": {n: round(100 * (t / base - 1), 2) for n, t in medians.items()},
            "paper_percent": paper,
        }
        print(json.dumps(case), flush=True)
        cases.append(case)
    result = {
        "hardware": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": options.commit,
        "batch": BATCH,
        "rounds": options.rounds,
        "cases": cases,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
