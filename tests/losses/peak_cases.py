"""Calls whose peak memory is measured, and how: any loss with any option, of two sizes."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from loss_cases import CASES, Case, exact

import hitrate

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from memory import memory_of

# Peak in bytes of the logits, of which the gradient alone has one.
MOST = 8.0
SIZES = ((64, 1000), (4096, 100))
OPTIONS = ("plain", "weight", "none", "smoothed", "soft")
FAMILY = {
    "normal": exact(noise="normal", link="log"),
    "logistic": exact(noise="logistic"),
    "gumbel": exact(noise="gumbel", link="gce"),
}
SIGMAS = ("learned", "row", "class", "row and class")


@dataclass(frozen=True)
class Call:
    """A loss of logits (rows, classes) with an option, and a kind of sigma."""

    case: Case
    option: str
    rows: int
    classes: int
    sigma: str | None = None

    def __str__(self) -> str:
        sigma = f", sigma of {self.sigma}" if self.sigma else ""
        return f"{self.case.name}, {self.option}{sigma}, {self.rows} x {self.classes}"


def calls() -> Iterator[Call]:
    """Every loss with every option, every noise with every kind of sigma and with a margin."""
    for rows, classes in SIZES:
        for case in CASES:
            for option in OPTIONS:
                if not (case.of_batch and option == "none"):
                    yield Call(case, feasible(case, option), rows, classes)
        for noise, case in FAMILY.items():
            for option in ("plain", "smoothed"):
                for sigma in SIGMAS:
                    alone = option == "smoothed" and "class" in sigma
                    yield Call(case, "sparse" if alone else option, rows, classes, sigma)
                for more in ({"normalize": True}, {"margin": 1.0}):
                    other = exact(**{**case.arguments, "noise": noise}, **more)
                    yield Call(other, feasible(other, option), rows, classes)


def feasible(case: Case, option: str) -> str:
    """The option, or, where classes as targets share nothing, that with one target of a row.

    As many pieces of the same size take C times as long: minutes.
    """
    alone = (
        case.name == "hinge[sum]"
        or case.arguments.get("margin") is not None
        or "method" in case.arguments
    )
    return "sparse" if alone and option in ("smoothed", "soft") else option


def options_of(name, rows, classes, target):
    """Target and options."""
    generator = torch.Generator().manual_seed(1)
    if name == "soft":
        return torch.softmax(torch.randn(rows, classes, generator=generator), 1), {}
    if name == "sparse":
        return torch.nn.functional.one_hot(target, classes).float(), {}
    given = {
        "plain": {},
        "weight": {"weight": torch.rand(classes, generator=generator) + 0.5},
        "none": {"reduction": "none"},
        "smoothed": {"label_smoothing": 0.1},
    }
    return target, given[name]


def peak_of(call):
    """Bytes of forward and backward, in those of the logits."""
    case, rows, classes = call.case, call.rows, call.classes
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator, requires_grad=True)
    target = torch.randint(classes, (rows,), generator=generator)
    target, options = options_of(call.option, rows, classes, target)
    shapes = {"row": (rows,), "class": (1, classes), "row and class": (rows, classes)}
    if call.sigma is not None:
        spread = torch.rand(shapes.get(call.sigma, ()), generator=generator)
        options["sigma"] = (0.5 + spread).requires_grad_(call.sigma == "learned")

    def run():
        case(logits, target, **options).sum().backward()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if case.module is hitrate.ExactLoss and case.arguments.get("noise", "normal") == "normal":
            # Tables of a few megabytes are made once for all batches alike, and are not the call's.
            with torch.no_grad():
                case(logits, target, **options)
        return memory_of(run).peak / (logits.numel() * logits.element_size())
    finally:
        torch.set_num_threads(threads)
