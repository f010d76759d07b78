"""The GPU's tables and pictures, from committed results.

The results are those of one run each of `benchmarks/gpu.py` (`benchmarks/results/gpu.json`),
`benchmarks/gpu_members.py` (`gpu_members.json`), `benchmarks/gpu_training.py`
(`gpu_training.json`) and `benchmarks/gpu_linear.py` (`gpu_linear.json`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.pages.made import Made, png_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path("benchmarks") / "results"


def gpu(root: Path) -> Made:
    """What four runs on one GPU say."""
    found = {
        name: json.loads((root / RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("gpu", "gpu_members", "gpu_training", "gpu_linear")
    }
    return Made(
        {
            "docs/measured.md": {"gpu-short": short(found["gpu_members"])},
            "docs/gpu.md": {
                "gpu-members": members(found["gpu_members"]),
                "gpu-time": time(found["gpu"]),
                "gpu-references": references(found["gpu"]),
                "gpu-training": training(found["gpu_training"]),
            },
            "docs/vocabulary.md": {"gpu-linear": linear(found["gpu_linear"])},
        },
        {
            "docs/images/gpu_roofline.png": png_of(draw(found["gpu"])),
            "docs/images/gpu_ratios.png": png_of(draw_ratios(found["gpu_members"])),
        },
    )


def time_of(microseconds: float) -> str:
    """In the unit one would say it in."""
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1e3:.3g} ms"


def short(gpu: dict[str, Any]) -> str:
    """What a reader of the README wants to know: some members, by their class targets."""
    base, names = "cross entropy, torch", ["mixed", "exact", "exact, normalised"]
    lines = [
        f"| N x C | dtype | cross entropy of torch | {' | '.join(names)} | memory |",
        "|---|---|---|" + "---|" * (len(names) + 1),
    ]
    for case in gpu["cases"]:
        found = case["class"]
        ratios = [f"{found[n]['eager_ratio']:.2f} / {found[n]['gpu_ratio']:.2f}" for n in names]
        memory = max(found[name]["memory"] for name in names)
        lines.append(
            f"| {case['rows']} x {case['classes']} | {case['dtype']} | "
            f"{time_of(found[base]['eager_us'])} / {time_of(found[base]['gpu_us'])} | "
            f"{' | '.join(ratios)} | {memory:.2f} |"
        )
    note = (
        "Forward and backward, in eager mode / on the GPU alone: microseconds of torch's cross "
        f"entropy, then ratios to it, medians over {gpu['rounds']} rounds in which the losses took "
        "turns, in one run. Memory is the most that any of them takes beyond the logits, as a "
        f"multiple of them; torch's is 3. {gpu['device']}, torch {gpu['torch']}."
    )
    return "\n".join([*lines, "", note])


def members(gpu: dict[str, Any]) -> str:
    """Losses of the softmax, each as ratios to torch's cross entropy with the same targets."""
    base, own = "cross entropy, torch", "cross entropy"
    names = [name for name in gpu["cases"][0]["class"] if name != base]
    kinds = {"class": "classes", "smoothed": "smoothed", "soft": "probabilities"}
    lines = [
        f"| N x C | dtype | targets | torch, GPU alone | {' | '.join(names)} | memory | torch's |",
        "|---|---|---|---|" + "---|" * (len(names) + 2),
    ]
    for case in gpu["cases"]:
        shape = f"{case['rows']} x {case['classes']} | {case['dtype']}"
        for kind, title in kinds.items():
            found = case[kind]
            cells = [time_of(found[base]["gpu_us"])]
            for name in names:
                one = found.get(name)
                told = one and f"{one['eager_ratio']:.2f} / {one['gpu_ratio']:.2f}"
                cells.append(told or "")
            cells += [f"{found[name]['memory']:.2f}" for name in (own, base)]
            lines.append(f"| {shape} | {title} | {' | '.join(cells)} |")
    note = (
        "Ratios of time to torch's cross entropy with the same targets: eager / on the GPU alone, "
        f"by replaying CUDA graphs. Forward and backward, medians over {gpu['rounds']} rounds in "
        "which the losses took turns, in one run. Smoothing is 0.1. Memory is the peak beyond the "
        f"logits, as a multiple of them. {gpu['device']}, torch {gpu['torch']}."
    )
    return "\n".join([*lines, "", note])


def about(gpu: dict[str, Any]) -> str:
    """What was measured, on what."""
    return (
        f"Forward and backward, eager, random normal logits, sigma 1: medians over {gpu['rounds']} "
        "rounds in which the methods took turns, in one run. Ratios are to torch's "
        "cross entropy; the one on the GPU alone replays CUDA graphs. Memory is the peak "
        "beyond the logits, as a multiple of them; cross entropy's is 3. "
        f"{gpu['hardware']}, torch {gpu['torch']}, Triton {gpu['triton']}."
    )


def time(gpu: dict[str, Any]) -> str:
    """Every case."""
    lines = [
        "| N | C | dtype | cross entropy | compiled | EXACT | least to most | ratio "
        "| GPU alone: cross entropy | EXACT | ratio | of a copy's bandwidth | memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in gpu["cases"]:
        us, alone = case["us"], case["gpu_us"]
        least, most = case["spread"]["exact"]
        lines.append(
            f"| {case['rows']} | {case['classes']} | {case['dtype']} | "
            f"{time_of(us['cross entropy'])} | {time_of(us['cross entropy, compiled'])} | "
            f"{time_of(us['exact'])} | {time_of(least)} to {time_of(most)} | {case['ratio']:.2f} | "
            f"{time_of(alone['cross entropy'])} | {time_of(alone['exact'])} | "
            f"{case['gpu_ratio']:.2f} | {100 * case['of_copy']:.1f} % | "
            f"{case['memory']['exact']:.3f} |"
        )
    copy = f"The copy moves {gpu['copy_bytes_per_s'] / 1e12:.2f} TB/s."
    return "\n".join([*lines, "", about(gpu) + " " + copy])


def references(gpu: dict[str, Any]) -> str:
    """Our torch path, and the paper's sampler."""
    lines = [
        "| N | C | EXACT | by torch operations | the paper's sampler, 16 samples | its memory |",
        "|---|---|---|---|---|---|",
    ]
    for case in gpu["cases"]:
        us = case["us"]
        if case["dtype"] != "float32" or "exact, torch" not in us:
            continue
        sampled, memory = "not run", ""
        if "genz, 16 samples" in us:
            genz = us["genz, 16 samples"]
            sampled = f"{time_of(genz)}, {genz / us['exact']:,.0f} x"
            mebibytes = case["memory"]["genz, 16 samples"] * case["rows"] * case["classes"] / 2**18
            memory = f"{mebibytes:,.0f} MiB"
        torch_time = us["exact, torch"]
        lines.append(
            f"| {case['rows']} | {case['classes']} | {time_of(us['exact'])} | "
            f"{time_of(torch_time)}, {torch_time / us['exact']:,.0f} x | {sampled} | {memory} |"
        )
    return "\n".join(lines)


def training(found: dict[str, Any]) -> str:
    """What a training step costs more, a line for each loss and a column for each network."""
    cases = found["cases"]
    heads = [f"{case['network']}, {case['classes']} classes" for case in cases]
    base = [f"{case['ms']['cross entropy']:.1f} ms" for case in cases]
    lines = [
        f"| loss | {' | '.join(heads)} |",
        "|---|" + "---|" * len(cases),
        f"| cross entropy | {' | '.join(base)} |",
    ]
    for name in cases[0]["ms"]:
        if name != "cross entropy":
            more = [f"{case['overhead_percent'][name]:+.1f} %" for case in cases]
            lines.append(f"| {name} | {' | '.join(more)} |")
    paper = [f"{case['paper_percent']} %" if case["paper_percent"] else "" for case in cases]
    lines.append(f"| the paper, its own sampler | {' | '.join(paper)} |")
    line = (
        f"Batch size {found['batch']}, bfloat16 autocast, SGD; with recipes also their schedules "
        f"and gradient normalisers. Medians over {found['rounds']} rounds in which the losses took "
        f"turns. {found['hardware']}, torch {found['torch']}. The paper's figures are of another "
        "machine."
    )
    return "\n".join([*lines, "", line])


def linear(found: dict[str, Any]) -> str:
    """The last layer with its loss, by pieces and from all logits."""
    lines = [
        "| loss | all logits | by pieces | memory, all logits | by pieces | error in weights, all "
        "logits | by pieces |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, ways in found["time"].items():
        cells = []
        for told in ("{ms:.1f} ms, {ratio:.2f}", "1 / {part:.1f}", "{weight:.1e}"):
            for way in ("all logits", "by pieces"):
                facts = ways[way]
                cells.append(
                    told.format(
                        **facts,
                        part=1 / facts["memory_of_logits"],
                        weight=found["errors"][name][way]["weight"],
                    )
                )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    tried = [name for name, ways in found["time"].items() if len(ways) > 2]
    lines += [
        "",
        f"| rows at a time | memory | {' | '.join(tried)} | error in weights, {tried[0]} |",
        "|---|---|" + "---|" * (len(tried) + 1),
    ]
    for way in list(found["time"][tried[0]])[2:]:
        cells = ["{ms:.1f} ms, {ratio:.2f}".format(**found["time"][name][way]) for name in tried]
        part = 1 / found["time"][tried[0]][way]["memory_of_logits"]
        error = found["errors"][tried[0]][way]["weight"]
        lines.append(f"| {way.split()[0]} | 1 / {part:.1f} | {' | '.join(cells)} | {error:.1e} |")
    sizes = found["tokens, width, vocabulary"]
    tokens, width, words = sizes["time"]
    line = (
        f"{tokens} tokens, hidden states of {width}, {words} words, bfloat16: milliseconds of "
        "value and gradients, and their ratio to matrix product and torch's cross entropy; medians "
        f"over {found['rounds']} rounds in which all took turns. Memory is the peak beyond inputs "
        "and their gradients, as a part of all logits. Errors are of the gradient in the weights, "
        "against float64, as a part of its size, with a vocabulary of "
        f"{sizes['errors'][2]} and as many pieces; those of value and hidden states are the same "
        f"both ways. {found['device']}, torch {found['torch']}."
    )
    return "\n".join([*lines, "", line])


def draw(gpu: dict[str, Any]) -> Figure:
    """Bandwidth over size, against that of a copy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    peak = gpu["copy_bytes_per_s"]
    marks = {"float32": "o", "bfloat16": "s"}
    for dtype, mark in marks.items():
        cases = sorted(
            (c for c in gpu["cases"] if c["dtype"] == dtype), key=lambda c: c["rows"] * c["classes"]
        )
        size = [c["rows"] * c["classes"] for c in cases]
        bytes_each = 4 if dtype == "float32" else 2
        for name, colour in (("exact", "C0"), ("cross entropy", "C1")):
            rate = [
                2 * n * bytes_each / (1e-6 * c["gpu_us"][name]) / 1e12
                for n, c in zip(size, cases, strict=True)
            ]
            style = "-" if dtype == "float32" else "--"
            label = f"{'EXACT' if name == 'exact' else name}, {dtype}"
            axes.loglog(size, rate, mark + style, color=colour, label=label, markersize=5)
    axes.axhline(peak / 1e12, color="0.4", linewidth=1)
    axes.text(600, 1.1 * peak / 1e12, "device copy", color="0.3")
    axes.set_ylim(top=2.5 * peak / 1e12)
    axes.set_xlabel("logits in the batch, N x C")
    axes.set_ylabel("TB/s: logits read once, gradients written once")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.2)
    return figure


def draw_ratios(gpu: dict[str, Any]) -> Figure:
    """Every member's time on the GPU alone next to torch's cross entropy, over the size."""
    from matplotlib.figure import Figure

    kinds = {"class": "class targets", "smoothed": "smoothed targets", "soft": "probabilities"}
    cases = sorted(gpu["cases"], key=lambda c: c["rows"] * c["classes"])
    figure = Figure(figsize=(11, 4), dpi=130, layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    names = [name for name in cases[0]["class"] if name != "cross entropy, torch"]
    for axes, (kind, title) in zip(panels, kinds.items(), strict=True):
        for colour, name in enumerate(names):
            for dtype, style in (("float32", "o-"), ("bfloat16", "s--")):
                there = [c for c in cases if name in c[kind] and c["dtype"] == dtype]
                size = [c["rows"] * c["classes"] for c in there]
                ratio = [c[kind][name]["gpu_ratio"] for c in there]
                label = name if dtype == "float32" else None
                axes.loglog(size, ratio, style, color=f"C{colour}", label=label, markersize=4)
        axes.axhline(1.0, color="0.4", linewidth=1)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("logits in the batch, N x C")
        axes.grid(alpha=0.2)
    ticks = [0.2, 0.5, 1, 2, 5, 10]
    panels[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    panels[0].minorticks_off()
    panels[0].set_ylabel("time / torch's cross entropy, GPU alone")
    panels[0].plot([], [], "s--", color="0.4", label="in bfloat16", markersize=4)
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=8, frameon=False, fontsize=8)
    return figure
