"""A loss of the softmax in few torch operations, on a CPU: value and gradient at once.

Step by step, autograd records some forty operations, most of them on a number per row; for small
batches that is all the time there is. Here they run unrecorded, and the gradient is made with the
value. Derivatives of the gradient go step by step.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hitrate.links import Link
from hitrate.losses.asked import Asked, step_by_step
from hitrate.losses.reduction import Batch
from hitrate.probability.arguments import Core, is_number
from hitrate.probability.dispatch import is_transformed
from hitrate.probability.execution import full_precision

# Below, probabilities lose digits.
SMALL = {torch.float32: 1e-30, torch.float64: 1e-290}


def why_not(asked: Asked) -> str:
    """What keeps a loss from this way, "" if nothing does; the dispatch knows the rest."""
    logits, _, sigma, link, _, options, _ = asked
    if type(logits) not in (Tensor, torch.nn.Parameter) or is_transformed(logits):
        return "logits of this type go step by step"
    if not is_number(sigma) or not 1e-30 < sigma < 1e30:
        return "sigma is no number of the usual size"
    if link.formula is None or link.of_batch:
        return f"{type(link).__name__} has no formula"
    if any(isinstance(n, Tensor) and n.requires_grad for n in link.numbers):
        return "a number of the link wants a gradient"
    weight = options.weight
    if weight is not None and (not isinstance(weight, Tensor) or weight.requires_grad):
        return "the weights want more than a number each"
    return ""


def softmax_loss(batch: Batch, sigma: float, link: Link, core: Core) -> Tensor:
    """The loss of rows with a class each."""
    loss: Tensor = SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
        batch.logits, batch, sigma, link, core
    )
    return loss.reshape(batch.layout) if batch.options.reduction == "none" else loss


def _behind(logits: Tensor, column: Tensor, sigma: float) -> Tensor:
    """log p (N, 1) where p itself would be too small a number."""
    return torch.log_softmax(logits / sigma, 1).gather(1, column)


def _parts(batch: Batch) -> tuple[Tensor | None, float, Tensor | None]:
    """Weights of rows (N, 1), their sum, and which rows are out; None for all 1 and for none."""
    assert batch.ignored is not None
    weight = batch.options.weight
    if weight is None:
        if not bool(batch.ignored.any()):
            return None, len(batch.logits), None
        return None, float((~batch.ignored).sum()), batch.ignored[:, None]
    part = weight.to(batch.logits)[batch.target].masked_fill_(batch.ignored, 0.0)[:, None]
    return part, float(part.sum()), part == 0


class SoftmaxLoss(torch.autograd.Function):
    """The loss, which keeps its gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, batch: Batch, sigma: float, link: Link, core: Core
    ) -> Tensor:
        """The value, and the gradient but for what comes from above."""
        options, column = batch.options, batch.target[:, None]
        assert batch.ignored is not None and link.formula is not None
        with full_precision(logits) if torch.is_autocast_enabled("cpu") else nullcontext():
            p = torch.softmax(logits if sigma == 1 else logits / sigma, 1)
            own = p.gather(1, column)
            p.scatter_(1, column, 0.0)
            # 1 - p as a sum, which keeps its digits where p is near 1.
            missing = p.sum(1, keepdim=True)
            log_p = torch.where(missing < 0.5, torch.log1p(-missing), own.log())
            if not bool((own > SMALL[p.dtype]).all()):
                log_p = torch.where(own > SMALL[p.dtype], log_p, _behind(logits, column, sigma))
            value, slope = link.formula(log_p, *link.numbers)
            part, total, out = _parts(batch)
            if part is not None:
                value, slope = value * part, slope * part
            if out is not None:
                # Without part in the loss a row adds nothing, be it infinite or not a number.
                value, slope = value.masked_fill(out, 0.0), slope.masked_fill(out, 0.0)
            value = value[:, 0] if options.reduction == "none" else value.sum()
            scale = -1 / sigma
            if options.reduction == "mean":
                value = value / total
                scale = scale / total if total else 0.0
            gradient = None
            if ctx.needs_input_grad[0]:
                slope = slope * scale
                gradient = p.mul_(slope).scatter_(1, column, (slope * missing).neg_())
                if out is not None:
                    # What is out may have held anything.
                    gradient.masked_fill_(out, 0.0)
        # Numbers that move too: the gradient has to be of the value that they gave.
        moving = [number for number in link.numbers if isinstance(number, Tensor)]
        ctx.save_for_backward(logits, gradient, *moving)
        # Without the logits, which are let go with what was saved.
        ctx.batch = replace(batch, logits=logits.new_empty(0))
        ctx.sigma, ctx.link, ctx.core = sigma, link, core
        found: Tensor = value
        return found

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, in steps if it will be differentiated itself."""
        rest = (None, None, None, None)
        logits, gradient, *_ = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return gradient * (upstream[:, None] if upstream.dim() else upstream), *rest
        batch = replace(ctx.batch, logits=logits)
        loss = step_by_step(batch, ctx.sigma, ctx.link, ctx.core)
        above = upstream.reshape(loss.shape)
        return torch.autograd.grad(loss, logits, above, create_graph=True)[0], *rest
