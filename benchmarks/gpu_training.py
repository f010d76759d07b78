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
import torch.nn.functional as F
from gpu import wall
from torch import Tensor, nn

import hitrate
from hitrate.recipes import RECIPES

EXACT = hitrate.ExactLoss()
# Depth, width, classes; the overhead that the paper reports for its own loss, in percent.
CASES = [(28, 10, 10, 0.3), (28, 10, 100, 5.5), (16, 8, 10, 3.7), (16, 8, 100, None)]
BATCH = 256


class Block(nn.Module):
    """Two 3 x 3 convolutions with their shortcut, activation first."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(channels), nn.BatchNorm2d(wider)
        self.one = nn.Conv2d(channels, wider, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(wider, wider, 3, 1, 1, bias=False)
        same = channels == wider and stride == 1
        self.shortcut = None if same else nn.Conv2d(channels, wider, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = F.relu(self.first(x))
        x = x if self.shortcut is None else self.shortcut(y)
        return x + self.two(F.relu(self.second(self.one(y))))


def wide_resnet(depth: int, width: int, classes: int) -> nn.Module:
    """A Wide ResNet for 32 x 32 images."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    channels = 16
    for group in range(3):
        wider = 16 * width * 2**group
        for block in range((depth - 4) // 6):
            layers.append(Block(channels, wider, 2 if group and not block else 1))
            channels = wider
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, classes))


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
        model = wide_resnet(depth, width, classes).cuda().to(memory_format=torch.channels_last)
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
