"""The losses under contract: one line each, and the whole contract follows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import hitrate
from hitrate.links import GCE, LINKS, Focused, Mixed
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


NAMED = [
    Case("cross_entropy", hitrate.CrossEntropyLoss, hitrate.cross_entropy_loss),
    Case("exact", hitrate.ExactLoss, hitrate.exact_loss),
    Case("expectation", hitrate.ExpectationLoss, hitrate.expectation_loss),
    Case("mixed", hitrate.MixedLoss, hitrate.mixed_loss, {"focus": 0.3}),
    Case("focal", hitrate.FocalLoss, hitrate.focal_loss),
    Case("mean_absolute_error", hitrate.MeanAbsoluteErrorLoss, hitrate.mean_absolute_error_loss),
    Case(
        "generalized_cross_entropy",
        hitrate.GeneralizedCrossEntropyLoss,
        hitrate.generalized_cross_entropy_loss,
    ),
    Case(
        "truncated",
        hitrate.GeneralizedCrossEntropyLoss,
        hitrate.generalized_cross_entropy_loss,
        {"q": 0.5, "threshold": 0.2},
    ),
    Case("tamed_cross_entropy", hitrate.TamedCrossEntropyLoss, hitrate.tamed_cross_entropy_loss),
    Case("hinge", hitrate.HingeLoss, hitrate.hinge_loss, {"margin": 2.0}),
    Case("hinge[sum]", hitrate.HingeLoss, hitrate.hinge_loss, {"rivals": "sum"}),
    Case(
        "complement_objective", hitrate.ComplementObjectiveLoss, hitrate.complement_objective_loss
    ),
    Case(
        "maximum_probability_cross_entropy",
        hitrate.MaximumProbabilityCrossEntropyLoss,
        hitrate.maximum_probability_cross_entropy_loss,
    ),
    Case(
        "max_mahalanobis_center",
        hitrate.MaxMahalanobisCenterLoss,
        hitrate.max_mahalanobis_center_loss,
    ),
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
