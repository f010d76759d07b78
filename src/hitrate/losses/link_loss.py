"""The family: a noise, a link, and cross entropy's manners. Named losses are points of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hitrate.links import Link, link_named
from hitrate.losses.fused import fused_loss, may_fuse
from hitrate.losses.normalization import normalize_logits
from hitrate.losses.reduction import Batch, Options, each_class_as_target
from hitrate.probability import log_class_probabilities
from hitrate.probability.accuracy import log_p_of_target
from hitrate.probability.arguments import Core

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def family_loss(
    call: str,
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor = 1.0,
    *,
    noise: str,
    link: str | Link,
    options: Options,
    margin: float | None = None,
    normalize: bool = False,
    method: str = "auto",
    backend: str = "auto",
    nodes: int | None = None,
    samples: int = 16,
    generator: torch.Generator | None = None,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    """A link of log p; the arguments are those of `exact_loss`, `call` is what complaints show."""
    kind = link_named(link, call)
    fused = may_fuse(logits, noise, method, backend, nodes)
    if fused and logits.dim() == 2 and not normalize:
        loss = fused_loss(logits, target, sigma, kind, options, margin, noise, call)
        if loss is not None:
            return loss
        fused = False
    batch = Batch.of(logits, target, options, call)
    scale = batch.rows_of(sigma, "sigma")
    if normalize:
        batch = replace(batch, logits=normalize_logits(batch.logits, batch.ignored, process_group))
    if fused and not batch.is_soft:
        loss = fused_loss(
            batch.logits, target.reshape(-1), scale, kind, options, margin, noise, call
        )
        if loss is not None:
            return loss.reshape(batch.layout) if options.reduction == "none" else loss
    core = Core(margin, noise, method, backend, nodes, samples, generator)
    return step_by_step(batch, scale, kind, core)


def step_by_step(batch: Batch, scale: float | Tensor, link: Link, core: Core) -> Tensor:
    """log p, its link, and cross entropy's manners, one after the other."""

    def log_p(rows: Tensor, y: Tensor, scale: float | Tensor = scale) -> Tensor:
        return log_p_of_target(rows, y, scale, core)

    def log_p_of_classes(rows: Tensor) -> Tensor:
        per_class = isinstance(scale, Tensor) and scale.dim() == 2
        by_default = core.method == "auto" and core.nodes is None
        by_default = by_default and core.backend in ("auto", "torch")
        if core.margin is None and by_default and not per_class:
            return log_class_probabilities(rows, scale, noise=core.noise)
        spread = scale
        if isinstance(scale, Tensor) and scale.dim() and scale.shape[0] == rows.shape[0]:
            spread = scale.repeat_interleave(rows.shape[1], 0)
        return each_class_as_target(lambda copies, y: log_p(copies, y, spread))(rows)

    if link.of_batch:
        return batch.loss(log_p, log_p_of_classes, link.pool)
    return batch.loss(
        lambda rows, y: link(log_p(rows, y)), lambda rows: link(log_p_of_classes(rows))
    )
