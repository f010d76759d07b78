"""What a loss is asked for, in one piece; and its plain answer, step by step."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from hitrate.links import Link
from hitrate.losses.ways.reduction import Batch, EachClass, Options
from hitrate.probability import log_class_probabilities
from hitrate.probability.accuracy import log_p_of_target
from hitrate.probability.arguments import Core

# Ways that hold a dozen tensors of the logits' size; others hold more.
LIGHT = ("closed_form", "two_classes", "kernel", "softmax")


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
    batch: Batch, sigma: float | Tensor, link: Link, core: Core, *, way: str = ""
) -> Tensor:
    """log p, its link, and cross entropy's options, one after the other.

    Torch differentiates this as often as asked. On the `way` each_class classes as targets share
    nothing, and go one by one.
    """
    each_class, is_heavy = way == "each_class", way not in LIGHT
    # One sigma for each row goes with them.
    beside = _as_rows(sigma, batch) if isinstance(sigma, Tensor) else None

    def log_p(rows: Tensor, y: Tensor, scale: float | Tensor = sigma) -> Tensor:
        return log_p_of_target(rows, y, scale, core)

    def log_p_of_classes(rows: Tensor, scale: float | Tensor = sigma) -> Tensor:
        return log_class_probabilities(rows, scale, noise=core.noise)

    of_classes = EachClass(log_p) if each_class else log_p_of_classes
    if link.of_batch or link.formula is None:
        pool = link.pool if link.of_batch else None
        after = None if link.of_batch else link
        return batch.loss(log_p, of_classes, pool, link=after, beside=beside, is_heavy=is_heavy)

    def linked(*given: Tensor) -> Tensor:
        return link(log_p(*given))

    def linked_classes(*given: Tensor) -> Tensor:
        return link(log_p_of_classes(*given))

    every = EachClass(linked) if each_class else linked_classes
    return batch.loss(linked, every, beside=beside, is_heavy=is_heavy)


def _as_rows(sigma: Tensor, batch: Batch) -> Tensor:
    """With one row for each of the batch's (R, 1) or (R, C), checked later."""
    rows = batch.logits.shape[0]
    if sigma.dim() < 2:
        sigma = sigma.reshape(-1, 1)
    return sigma.expand(rows, -1) if sigma.shape[0] == 1 else sigma
