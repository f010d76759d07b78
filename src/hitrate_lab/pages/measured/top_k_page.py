"""The tables and the picture of docs/top_k.md.

The results are those of ``benchmarks/top_k_training.py`` and ``benchmarks/top_k_speed.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import hitrate
from hitrate_lab.pages.made import Made, png_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path("benchmarks") / "results"


def top_k(root: Path) -> Made:
    """What two benchmarks found, and a picture that comes from the code."""
    training, speed = (
        json.loads((root / RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("top_k_training", "top_k_cpu")
    )
    return Made(
        {"docs/top_k.md": {"training": training_table(training), "speed": speed_table(speed)}},
        {"docs/images/top_k.png": png_of(draw())},
    )


def training_table(found: dict[str, Any]) -> str:
    """Test accuracies, and differences to cross entropy with their intervals."""
    lines = []
    for name, of_set in found["sets"].items():
        shown = of_set["summary"]
        ks = list(next(iter(shown.values())))
        count = shown["cross entropy"][ks[0]]["n"]
        lines += [f"| {name}, n = {count} | {' | '.join(ks)} |", "|---|" + "---|" * len(ks)]
        for method, by_k in shown.items():
            cells = []
            for k in ks:
                cell = f"{by_k[k]['mean']:.2f} ± {by_k[k]['std']:.2f}"
                if method != "cross entropy":
                    cell += f" ({by_k[k]['gain']:+.2f} ± {by_k[k]['half_of_95']:.2f})"
                cells.append(cell)
            lines.append(f"| {method} | {' | '.join(cells)} |")
        lines.append("")
    settings, machine = found["settings"], found["hardware"]
    rates = ", ".join(map(str, settings["rates"]))
    lines.append(
        "Test accuracy in %, mean ± standard deviation over seeds, each with rows of its own; in "
        "brackets the difference to cross entropy, with its 95 % interval (Student's t, paired by "
        f"seed). Linear softmax heads, {settings['rows']} training rows, {settings['epochs']} "
        f"epochs of Adam, batches of {settings['batch']}; the learning rate, of {rates}, is for "
        "each loss, seed and column the one with the highest accuracy of that column's k on 4000 "
        "held-out rows. *annealed* is the recipe: normal noise, from likelihood to error. "
        f"{machine['cpu']}, torch {machine['torch']}; `benchmarks/top_k_training.py`."
    )
    return "\n".join(lines)


def speed_table(found: dict[str, Any]) -> str:
    """Milliseconds, and ratios to cross entropy."""
    cases = found["cases"]
    names = list(dict.fromkeys(name for case in cases for name in case["ms"]))
    heads = [f"{case['rows']} x {case['classes']}" for case in cases]
    lines = [f"| ms | {' | '.join(heads)} |", "|---|" + "---|" * len(cases)]
    for name in names:
        cells = []
        for case in cases:
            there = name in case["ms"]
            cells.append(f"{case['ms'][name]:.3g} ({case['ratio'][name]:.3g})" if there else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    rounds = min(case["rounds"] for case in cases)
    lines += [
        "",
        "Forward and backward of a float32 batch of random logits, link -log p: medians over "
        f"{rounds} rounds in which the losses take turns, in brackets the ratio to torch's cross "
        f"entropy. {found['hardware']}, {found['clock']}, torch {found['torch']}; other programs "
        "were running. `benchmarks/top_k_speed.py`.",
    ]
    beside = found["beside_difftopk"]
    if isinstance(beside, dict):
        missing = beside["rows_without_gradient"]
        lines += [
            "",
            "difftopk 0.2.0 ranks the 16 highest scores by an odd-even network, with the settings "
            "that its authors print for CIFAR-100. On 256 rows of 100 classes with a spread of 2, "
            f"and all its weight on k = 5, its loss is {beside['theirs']:.2f} and ours "
            f"{beside['ours']:.2f}; the median cosine between the gradients of a row is "
            f"{beside['median_cosine_of_gradients']:.2f}. They are two smoothings of one number: "
            f"neither is the other's truth. Rows without any gradient: {missing['theirs']} of "
            f"theirs, {missing['ours']} of ours.",
        ]
    return "\n".join(lines)


def draw() -> Figure:
    """The probability of a hit over the target's lead, and who gets the gradient."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    lead = torch.linspace(-4.0, 8.0, 121, dtype=torch.float64)
    level = torch.cat([lead[:, None], torch.zeros(121, 99, dtype=torch.float64)], 1)
    # A hundred classes, of which the target is the thirteenth.
    scores = torch.linspace(2.5, -5.0, 100, dtype=torch.float64)[None].requires_grad_()
    for k in (1, 2, 5, 10):
        p = hitrate.expected_accuracy(level, torch.zeros(121, dtype=torch.long), k=k)
        left.plot(lead, p, label=f"k = {k}")
        value = hitrate.log_expected_accuracy(scores, torch.tensor([12]), 0.5, k=k)
        (slope,) = torch.autograd.grad(value.sum(), scores)
        slope = -slope[0].index_fill(0, torch.tensor([12]), 0.0)
        share = (slope / slope.sum()).index_fill(0, torch.tensor([12]), torch.nan)
        right.plot(torch.arange(1, 31), share[:30], marker=".", label=f"k = {k}")
    left.set(xlabel="target's lead over 99 level rivals, in sigma", ylabel="p")
    right.set(xlabel="rank of the rival's score", ylabel="share of the gradient")
    right.axvline(13, color="0.7", linestyle=":", label="the target")
    left.legend()
    right.legend()
    return figure
