"""The last layer with its loss by pieces, next to the matrix product and the loss of all logits.

    python benchmarks/gpu_linear.py --out gpu_linear.json

Time and memory at a large vocabulary, in turns; errors of both ways against float64, relative to
the size of the whole, at a smaller vocabulary with as many pieces.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hitrate

# Tokens, hidden states, vocabulary; for time, and for errors.
LARGE, SMALLER = (8192, 4096, 131072), (8192, 1024, 8192)
# Rows at a time where errors are measured: as many as at the large vocabulary.
ROWS = 496
# More rows at a time, for who has the memory, and the losses that are tried with them.
MORE, TRIED = (1024, 2048, 4096), ("cross entropy", "exact")


def losses() -> dict[str, nn.CrossEntropyLoss]:
    """Torch's cross entropy first, and what is measured beside it."""
    return {
        "cross entropy, torch": nn.CrossEntropyLoss(),
        "cross entropy": hitrate.CrossEntropyLoss(),
        "mixed": hitrate.MixedLoss(0.25),
        "expectation": hitrate.ExpectationLoss(),
        "annealed": hitrate.recipe("annealed", total_steps=100).loss.cuda(),
        "exact": hitrate.ExactLoss(),
    }


def problem(tokens: int, width: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, weights and targets, some of which are the likeliest."""
    generator = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(tokens, width, device="cuda", generator=generator).bfloat16()
    weight = torch.randn(vocabulary, width, device="cuda", generator=generator) / width**0.5
    target = torch.randint(vocabulary, (tokens,), device="cuda", generator=generator)
    return hidden, (2 * weight).bfloat16(), target


def step(
    loss: nn.Module,
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    by_pieces: bool,
    rows: int | None = None,
) -> Callable[[], Tensor]:
    """Value and gradients."""

    def run() -> Tensor:
        hidden.grad = weight.grad = None
        if by_pieces:
            value = hitrate.linear_loss(hidden, weight, target, loss=loss, rows=rows)
        else:
            value = loss(hidden @ weight.T, target)
        value.backward()
        return value.detach()

    return run


def milliseconds(run: Callable[[], Any]) -> float:
    """Of one call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def memory(run: Callable[[], Any], hidden: Tensor, weight: Tensor) -> int:
    """Bytes at the peak beyond what is there, and beyond the gradients of the two."""
    hidden.grad = weight.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    own = sum(tensor.numel() * tensor.element_size() for tensor in (hidden, weight))
    return torch.cuda.max_memory_allocated() - before - own


def timed(rounds: int) -> dict[str, Any]:
    """Time and memory, all logits and by pieces."""
    hidden, weight, target = problem(*LARGE)
    hidden.requires_grad_()
    weight.requires_grad_()
    steps = {
        (name, by_pieces): step(loss, hidden, weight, target, by_pieces=by_pieces)
        for name, loss in losses().items()
        for by_pieces in (False, True)
    }
    more = {
        (name, rows): step(losses()[name], hidden, weight, target, by_pieces=True, rows=rows)
        for name in TRIED
        for rows in MORE
    }
    for run in (*steps.values(), *more.values()):
        run()
    taken: dict[Any, list[float]] = {key: [] for key in (*steps, *more)}
    for _ in range(rounds):
        for key, run in (*steps.items(), *more.items()):
            taken[key].append(milliseconds(run))
    logits = 2 * LARGE[0] * LARGE[2]
    base = statistics.median(taken["cross entropy, torch", False])

    def facts(key: Any, run: Callable[[], Any]) -> dict[str, float]:
        found = statistics.median(taken[key])
        part = memory(run, hidden, weight) / logits
        return {"ms": found, "ratio": found / base, "memory_of_logits": part}

    by_loss: dict[str, Any] = {}
    for name in losses():
        ways = (("all logits", False), ("by pieces", True))
        by_loss[name] = {way: facts((name, which), steps[name, which]) for way, which in ways}
        by_loss[name] |= {
            f"{rows} rows": facts((name, rows), more[name, rows]) for rows in MORE if name in TRIED
        }
    return by_loss


def errors() -> dict[str, Any]:
    """Relative errors, in the size of the whole, of the value and both gradients."""
    hidden, weight, target = problem(*SMALLER)
    found: dict[str, Any] = {}
    for name, loss in losses().items():
        exact = [tensor.double().requires_grad_() for tensor in (hidden, weight)]
        truth = [loss(exact[0] @ exact[1].T, target).detach()]
        truth += torch.autograd.grad(loss(exact[0] @ exact[1].T, target), exact)
        found[name] = {}
        ways: dict[str, int | None] = {"all logits": None, "by pieces": ROWS}
        ways |= {f"{rows} rows": rows for rows in MORE if name in TRIED}
        for way, rows in ways.items():
            inputs = [tensor.clone().requires_grad_() for tensor in (hidden, weight)]
            if rows is None:
                value = loss(inputs[0] @ inputs[1].T, target)
            else:
                value = hitrate.linear_loss(*inputs, target, loss=loss, rows=rows)
            ours = [value.detach(), *torch.autograd.grad(value, inputs)]
            found[name][way] = {
                what: float((a.double() - b).norm() / b.norm())
                for what, a, b in zip(("value", "hidden", "weight"), ours, truth, strict=True)
            }
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": options.rounds,
        "tokens, width, vocabulary": {"time": LARGE, "errors": SMALLER},
    }
    for name, part in (("time", lambda: timed(options.rounds)), ("errors", errors)):
        result[name] = part()
        print(json.dumps(result[name], indent=1), flush=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
