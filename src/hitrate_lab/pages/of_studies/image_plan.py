"""What the studies of images would take that no committed run shows yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hitrate_lab.datasets.images import IMAGE_SETS
from hitrate_lab.datasets.long_tail import counts_of
from hitrate_lab.pages.made import Made
from hitrate_lab.studies import Study, plan_of, read_study
from hitrate_lab.studies.networks.settings import COLLECTION

PAGE = "docs/reproduction/images.md"
PROTOCOL = 'protocol = "image networks"'
# Images to learn from, where a study does not say how many of them; side, channels.
ROWS = {
    "mnist": 60_000,
    "fashion_mnist": 60_000,
    "cifar_10": 50_000,
    "cifar_100": 50_000,
    "svhn": 73_257,
    "cinic_10": 90_000,
}
SHAPES = {"mnist": (1, 28), "fashion_mnist": (1, 28)}
OTHERS = (3, 32)
# Of a forward pass, and of the pass back, which is two products for each one.
PASSES = 3
# What a large GPU does of a network's operations in half precision while it trains; its data sheet
# says ten times that.
PER_SECOND = 1e14


def image_plan(root: Path) -> Made:
    """A table of the studies without committed runs: operations, and hours of a GPU."""
    rows = []
    for path in sorted((root / "studies").glob("*.toml")):
        done = root / "studies" / "results" / f"{path.stem}.jsonl.gz"
        if PROTOCOL in path.read_text(encoding="utf-8") and not done.is_file():
            rows.append(_row(read_study(path)))
    head = ["study", "runs", "operations", "hours at 100 Tflop/s", "command"]
    lines = [head, ["---", "---:", "---:", "---:", "---"], *rows]
    block = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return Made({PAGE: {"images-to-run": block}})


def _row(study: Study) -> list[str]:
    plan = plan_of(study)
    known: dict[tuple[str, str], int] = {}
    total = 0.0
    for spec in plan:
        place = spec["data_set"].removeprefix(COLLECTION), spec["model"]
        if place not in known:
            known[place] = operations(*place)
        total += known[place] * _images(spec)
    hours = total / PER_SECOND / 3600
    shown = f"{hours:.1f}" if hours < 10 else f"{hours:.0f}"
    device = " --device cuda"
    return [
        f"`{study.name}`",
        str(len(plan)),
        f"{total:.1e}",
        shown if float(shown) else "below 0.1",
        f"`hitrate study run {study.name}{device}`",
    ]


def _images(spec: dict[str, Any]) -> int:
    """Images that a training sees, each as often as it does; ASAM sees each of them twice."""
    training, name = spec["training"], spec["data_set"].removeprefix(COLLECTION)
    rows = spec["rows"] or ROWS[name]
    if "imbalance" in spec:
        rows = sum(counts_of(rows, IMAGE_SETS[name].classes, spec["imbalance"]))
    return int(rows * training["epochs"] * (2 if training["optimizer"] == "asam" else 1))


def operations(data_set: str, model: str) -> int:
    """Additions and multiplications for one image in training, of products and convolutions.

    Parameters
    ----------
    data_set : str
        A name of `ROWS`.
    model : str
        A name of `NETWORKS`.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from hitrate_lab.models.networks import network

    channels, side = SHAPES.get(data_set, OTHERS)
    with torch.device("meta"):
        made = network(model, IMAGE_SETS[data_set].classes, channels=channels, side=side).eval()
        with FlopCounterMode(display=False) as counter:
            made(torch.zeros(1, channels, side, side))
    return PASSES * int(counter.get_total_flops())
