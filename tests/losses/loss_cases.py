"""The losses under contract: one line each, and the whole contract follows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import hitrate
from hitrate.links import GCE, LINKS, Focused, Mixed
from hitrate.losses import LOSSES
from hitrate.probability.noises import NOISES


@dataclass(frozen=True)
class Case:
    name: str
    module: type[torch.nn.Module]
    function: Callable[..., torch.Tensor]
    arguments: dict[str, Any] = field(default_factory=dict)

    def __call__(self, logits, target, **options):
        return self.function(logits, target, **self.arguments, **options)

    def build(self, **options):
        return self.module(**self.arguments, **options)

    @property
    def of_batch(self):
        return self.arguments.get("link") == "batch_log"


def exact(**arguments):
    shown = ",".join(str(v).replace(" ", "") for v in arguments.values())
    return Case(f"exact[{shown}]", hitrate.ExactLoss, hitrate.exact_loss, arguments)


# Every loss of the registry with its defaults, and some with other arguments.
OTHER_ARGUMENTS = {
    "mixed[0.3]": ("mixed", {"focus": 0.3}),
    "truncated": ("generalized_cross_entropy", {"q": 0.5, "threshold": 0.2}),
    "hinge[2]": ("hinge", {"margin": 2.0}),
    "hinge[sum]": ("hinge", {"rivals": "sum"}),
}


def named(name, loss, arguments=None):
    return Case(name, LOSSES[loss], getattr(hitrate, f"{loss}_loss"), arguments or {})


NAMED = [
    *(named(name, name) for name in LOSSES),
    *(named(name, *rest) for name, rest in OTHER_ARGUMENTS.items()),
]


def family() -> Iterator[Case]:
    """Every noise with every link, and a few with a margin, other parameters or methods."""
    for noise in NOISES:
        for link in LINKS:
            yield exact(noise=noise, link=link)
    yield exact(sigma=0.3, margin=1.5)
    yield exact(sigma=2.0, margin=0.5, link="log")
    yield exact(sigma=0.5, margin=1.0, noise="gumbel", link="log")
    yield exact(sigma=3.0, link=Mixed(0.5, 2.0))
    yield exact(link=Focused(0.4), noise="logistic")
    yield exact(link=GCE(0.3, 0.1), sigma=0.7)
    yield exact(method="quadrature", link="log")


CASES = [*NAMED, *family()]
