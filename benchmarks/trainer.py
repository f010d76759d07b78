"""Images per second of `hitrate_lab.training.Trainer` next to a bare loop of the same network.

    python benchmarks/trainer.py --out trainer.json

A Wide ResNet on images of CIFAR's shape that lie on the device, SGD, cross entropy. The bare loop
indexes rows, computes and steps, and nothing else; the two take turns, the figure is the ratio of
medians. On a GPU in bfloat16 with channels last, compiled and not; on a CPU small and in float32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hitrate_lab.models.networks.wide_resnet import wide_resnet
from hitrate_lab.training import Options, Rows, Trainer

BATCH = 256


def options_of(device: str, epochs: int, *, is_compiled: bool) -> Options:
    """The same for both."""
    is_gpu = device == "cuda"
    return Options(
        epochs=epochs,
        batch_size=BATCH,
        learning_rate=0.01,
        rate="constant",
        precision="bfloat16" if is_gpu else "float32",
        channels_last=is_gpu,
        compile=is_compiled,
    )


def bare(model: nn.Module, rows: Rows, options: Options) -> None:
    """The loop that one would write."""
    device = rows.x.device
    network = torch.compile(model) if options.compile else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    half = options.precision == "bfloat16"
    for _ in range(options.epochs):
        order = torch.randperm(len(rows), device=device)
        for chosen in torch.split(order, BATCH):
            x = rows.x[chosen].float() / 255
            if options.channels_last:
                x = x.contiguous(memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                value = loss(network(x), rows.target[chosen])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()


def seconds(run: Any, device: str) -> float:
    """Of a call, all of its work on the device included."""
    started = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def measure(
    device: str, depth: int, width: int, steps: int, rounds: int, *, is_compiled: bool
) -> Any:
    """Images per second of both ways."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (BATCH * steps, 3, 32, 32), generator=generator, dtype=torch.uint8)
    target = torch.randint(10, (len(images),), generator=generator)
    rows = Rows(images, target).to(device)
    options = options_of(device, 1, is_compiled=is_compiled)
    model = wide_resnet(10, depth=depth, width=width).to(device)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    ways = {
        "bare loop": lambda: bare(model, rows, options),
        "trainer": lambda: Trainer(model, rows, options).fit(),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        seconds(run, device)
    for _ in range(rounds):
        for name, run in ways.items():
            times[name].append(seconds(run, device))
    per_second = {name: len(rows) / statistics.median(t) for name, t in times.items()}
    return {
        "network": f"WRN-{depth}-{width}",
        "compiled": is_compiled,
        "images_per_second": {name: round(value) for name, value in per_second.items()},
        "ratio": round(per_second["trainer"] / per_second["bare loop"], 3),
        "n": rounds,
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    depth, width = (16, 8) if device == "cuda" else (10, 1)
    found = []
    for is_compiled in (False, True) if device == "cuda" else (False,):
        found.append(
            measure(device, depth, width, options.steps, options.rounds, is_compiled=is_compiled)
        )
        print(json.dumps(found[-1]), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps({"torch": torch.__version__, "cases": found}, indent=2))


if __name__ == "__main__":
    main()
