"""What a loss is asked for, in one piece; and its plain answer, step by step."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from hitrate.links import Link
from hitrate.losses.reduction import Batch, Options, each_class_as_target
from hitrate.probability import log_class_probabilities
from hitrate.probability.accuracy import log_p_of_target
from hitrate.probability.arguments import Core


class Asked(NamedTuple):
    """Logits, target, and the arguments of `exact_loss`, gathered."""

    logits: Tensor
    target: Tensor
    sigma: float | Tensor
    link: Link
    core: Core
    options: Options
    # What complaints begin with.
    call: object


def step_by_step(
    batch: Batch, sigma: float | Tensor, link: Link, core: Core, *, each_class: bool = False
) -> Tensor:
    """log p, its link, and cross entropy's options, one after the other.

    Torch differentiates this as often as asked. `each_class` says that classes as targets share
    nothing, and go one by one.
    """

    def log_p(rows: Tensor, y: Tensor, sigma: float | Tensor = sigma) -> Tensor:
        return log_p_of_target(rows, y, sigma, core)

    def log_p_of_classes(rows: Tensor) -> Tensor:
        if not each_class:
            return log_class_probabilities(rows, sigma, noise=core.noise)
        each = sigma
        if isinstance(sigma, Tensor) and sigma.dim() and sigma.shape[0] == rows.shape[0]:
            each = sigma.repeat_interleave(rows.shape[1], 0)
        return each_class_as_target(lambda copies, y: log_p(copies, y, each))(rows)

    if link.of_batch:
        return batch.loss(log_p, log_p_of_classes, link.pool)
    return batch.loss(
        lambda rows, y: link(log_p(rows, y)), lambda rows: link(log_p_of_classes(rows))
    )
