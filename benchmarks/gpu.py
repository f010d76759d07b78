"""Time and memory of one training step's loss on a GPU: `python benchmarks/gpu.py --out gpu.json`.

One run measures all: for each (N, C, dtype) forward and backward of EXACT, of torch's cross
entropy (eager, and compiled with --compiled), of our torch path, and of the paper's sampler.
Methods take turns, round by round, so that what disturbs one disturbs all. Times are medians over
rounds of the wall clock per step in eager mode, and of the GPU alone by replaying a CUDA graph.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import hitrate

SMALL = [(rows, classes) for rows in (256, 4096) for classes in (2, 10, 100, 1000)]
LARGE = [(1024, 16384), (8192, 32768), (4096, 131072)]
SAMPLED = [(256, 10), (256, 100), (256, 1000)]
# Our torch path holds several buffers of the logits' size.
TORCH_UP_TO = 2**25

Step = Callable[[], object]


def step_of(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> Step:
    """Forward and backward, as a training loop calls them."""

    def step() -> None:
        logits.grad = None
        loss(logits, target).backward()

    return step


def wall(step: Step, repeats: int) -> float:
    """Seconds per step."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def compare(steps: dict[str, Step], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Microseconds of each step, one per round, the steps taking turns."""
    repeats = {}
    for name, step in steps.items():
        for _ in range(3):
            step()
        repeats[name] = max(1, min(100, int(seconds / wall(step, 3))))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(1e6 * wall(step, repeats[name]))
    return times


def on_the_gpu(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor) -> float:
    """Microseconds of a step without the CPU: replays of a CUDA graph of several steps."""
    copies = 8 if logits.numel() < 2**24 else 1

    def step() -> None:
        for _ in range(copies):
            torch.autograd.grad(loss(logits, target), logits)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    times = [wall(graph.replay, 5) for _ in range(9)]
    return 1e6 * statistics.median(times) / copies


def extra_memory(step: Step, logits: Tensor) -> float:
    """Peak memory above what the logits and the rest take, as a multiple of the logits."""
    step()
    logits.grad = None
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    logits.grad = None
    return peak / (logits.numel() * logits.element_size())


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a large copy on the device."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    destination = torch.empty_like(source)
    times = [wall(lambda: destination.copy_(source), 20) for _ in range(9)]
    return 2 * source.numel() / statistics.median(times)


def measure(
    rows: int, classes: int, dtype: torch.dtype, options: argparse.Namespace, bandwidth: float
) -> dict[str, object]:
    """All figures of one case."""
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(rows, classes, device="cuda", generator=generator).to(dtype)
    logits.requires_grad_()
    target = torch.randint(classes, (rows,), device="cuda", generator=generator)
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "exact": hitrate.ExactLoss(),
        "cross entropy": torch.nn.CrossEntropyLoss(),
    }
    if options.compiled:
        # For this shape alone: left to itself, torch compiles for any from the second one on.
        torch.compiler.reset()
        losses["cross entropy, compiled"] = torch.compile(F.cross_entropy, dynamic=False)
    if options.references and rows * classes <= TORCH_UP_TO:
        losses["exact, torch"] = hitrate.ExactLoss(backend="torch")
    if options.references and dtype == torch.float32 and (rows, classes) in SAMPLED:
        losses["genz, 16 samples"] = hitrate.ExactLoss(method="genz", samples=16)
    steps = {name: step_of(loss, logits, target) for name, loss in losses.items()}
    memory = {name: extra_memory(step, logits) for name, step in steps.items()}
    times = compare(steps, options.rounds, options.seconds)
    medians = {name: statistics.median(t) for name, t in times.items()}
    gpu = {name: on_the_gpu(losses[name], logits, target) for name in ("exact", "cross entropy")}
    # The least that must be moved: logits read, gradients written.
    moved = 2 * logits.numel() * logits.element_size()
    case = {
        "rows": rows,
        "classes": classes,
        "dtype": str(dtype).removeprefix("torch."),
        "us": {name: round(t, 1) for name, t in medians.items()},
        "spread": {name: [round(min(t), 1), round(max(t), 1)] for name, t in times.items()},
        "gpu_us": {name: round(t, 1) for name, t in gpu.items()},
        "memory": {name: round(m, 3) for name, m in memory.items()},
        "ratio": round(medians["exact"] / medians["cross entropy"], 3),
        "gpu_ratio": round(gpu["exact"] / gpu["cross entropy"], 3),
        "of_copy": round(moved / (1e-6 * gpu["exact"]) / bandwidth, 3),
        "of_copy_eager": round(moved / (1e-6 * medians["exact"]) / bandwidth, 3),
    }
    print(json.dumps(case), flush=True)
    return case


def main() -> None:
    """Measure the cases asked for and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a JSON file for the results")
    parser.add_argument("--commit", default="", help="what was measured")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.02, help="of one method in one round")
    parser.add_argument("--compiled", action="store_true", help="also compiled cross entropy")
    parser.add_argument("--references", action="store_true", help="also torch path and sampler")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    options = parser.parse_args()
    bandwidth = copy_bandwidth()
    print(f"copy: {bandwidth / 1e12:.2f} TB/s", flush=True)
    import triton

    result: dict[str, object] = {
        "hardware": torch.cuda.get_device_name(),
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "commit": options.commit,
        "rounds": options.rounds,
        "copy_bytes_per_s": bandwidth,
        "cases": [
            measure(rows, classes, getattr(torch, dtype), options, bandwidth)
            for rows, classes in SMALL + LARGE
            for dtype in options.dtypes.split(",")
        ],
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
