"""A loss in one kernel: log p, link, weights, ignored rows and mean, on a GPU.

The same numbers come out of `family_loss` step by step; this saves its passes over the logits, its
memory and most of its calls. What the kernels do not know goes the long way: `fused_loss` says so
by returning None. So do derivatives of the gradient, and transforms of `torch.func`.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hitrate.links import GCE, Error, Focal, Focused, Link, Log, Mixed, Tamed
from hitrate.losses.reduction import REDUCTIONS, Batch, Options
from hitrate.probability import arguments
from hitrate.probability.dispatch import HAS_TRITON
from hitrate.probability.execution import is_eager_cpu

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def fused_loss(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    link: Link,
    options: Options,
    margin: float | None,
    noise: str,
    call: str,
) -> Tensor | None:
    """The loss for normal or logistic noise; None where only the long way leads there."""
    if not _fits(logits, target, sigma, margin, options):
        return None
    numbers = _link_numbers(link)
    if numbers is None:
        return None
    if is_eager_cpu(target):
        aside = target == options.ignore_index
        arguments.check_range(target.masked_fill(aside, 0), logits.shape[1], call)
    launch = _kernels()
    manners = (options.reduction, options.ignore_index, margin)
    rule = launch.Rule(*numbers, *manners, noise == "logistic")
    weight = options.weight
    if weight is not None:
        weight = weight.to(logits.device).contiguous()
    if isinstance(sigma, Tensor):
        # Like any number, a single one may come from anywhere.
        sigma = sigma.to(logits.device).contiguous()
    logits, target = logits.contiguous(), target.contiguous()
    if torch.is_grad_enabled():
        wanted = logits.requires_grad
        learned = isinstance(sigma, Tensor) and sigma.requires_grad
        if wanted or learned:
            rest = (target, weight, rule, link, wanted, learned)
            loss: Tensor = FusedLoss.apply(logits, sigma, rest)  # type: ignore[no-untyped-call]
            return loss
    found: Tensor = launch.forward(
        logits, target, sigma, weight, rule, wanted=False, learned=False
    ).loss
    return found


def may_fuse(logits: Tensor, noise: str, method: str, backend: str, nodes: int | None) -> bool:
    """Whether a call is for the kernels at all: a quick look, for those that are not."""
    if not isinstance(logits, Tensor) or backend not in ("auto", "triton"):
        return False
    if backend == "auto" and not logits.is_cuda:
        return False
    by_default = noise in ("normal", "logistic") and method == "auto" and nodes is None
    return by_default and not torch.compiler.is_compiling()


@functools.cache
def _kernels() -> Any:
    """The launchers, imported when they are first wanted."""
    from hitrate.kernels import launch

    return launch


def _fits(
    logits: Tensor, target: Tensor, sigma: float | Tensor, margin: float | None, options: Options
) -> bool:
    """Whether the call is right, and one for the kernels; those that are wrong complain later."""
    # A tensor of another type, sharded or without values, is not memory that a kernel can read.
    if not HAS_TRITON or type(logits) not in (Tensor, torch.nn.Parameter):
        return False
    if logits.dtype not in DTYPES or logits.dim() != 2:
        return False
    rows, classes = logits.shape
    if not rows or classes < 2:
        return False
    if not isinstance(target, Tensor) or target.dtype not in arguments.INDEX_DTYPES:
        return False
    if target.shape != (rows,) or target.device != logits.device:
        return False
    if abs(options.ignore_index) >= 2**31 or options.label_smoothing != 0:
        return False
    if options.reduction not in REDUCTIONS:
        return False
    weight = options.weight
    if weight is not None and (weight.shape != (classes,) or weight.requires_grad):
        return False
    if margin is not None and not (type(margin) in (int, float) and margin >= 0):
        return False
    if isinstance(sigma, Tensor):
        if sigma.numel() != 1 and (sigma.shape != (rows,) or sigma.device != logits.device):
            return False
        if is_eager_cpu(sigma) and not bool((sigma > 0).all()):
            return False
    elif type(sigma) not in (int, float) or not 0 < sigma < math.inf:
        return False
    if not logits.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return False
    # A tensor inside a transform, or with a tangent, has more to it than its values.
    if torch._C._are_functorch_transforms_active():
        return False
    return not (_has_tangent(logits) or (isinstance(sigma, Tensor) and _has_tangent(sigma)))


def _has_tangent(a: Tensor) -> bool:
    """Whether a tensor takes part in forward mode."""
    # Outside of it no tensor does: the quick answer, for every training step.
    if getattr(forward_ad, "_current_level", 0) < 0:
        return False
    return forward_ad.unpack_dual(a).tangent is not None  # type: ignore[no-untyped-call]


def _link_numbers(link: Link) -> tuple[int, float, float] | None:
    """A link as its kernel's number and two parameters; None for one that has no kernel."""
    epilogue, kind = _kernels().epilogue, type(link)
    if isinstance(link, Focused) and kind is Focused:
        link, kind = link.mixture, Mixed
    if kind is Error:
        return int(epilogue.MIXED), 0.0, 1.0
    if kind is Log:
        return int(epilogue.MIXED), 1.0, 0.0
    if isinstance(link, Mixed) and kind is Mixed:
        return int(epilogue.MIXED), float(link.alpha), float(link.beta)
    if isinstance(link, GCE) and kind is GCE:
        lowest = -math.inf if link.threshold is None else math.log(link.threshold)
        return int(epilogue.GCE), float(link.q), lowest
    if isinstance(link, Focal) and kind is Focal:
        return int(epilogue.FOCAL), float(link.gamma), 0.0
    if isinstance(link, Tamed) and kind is Tamed:
        return int(epilogue.TAMED), float(link.alpha), 0.0
    return None


class FusedLoss(torch.autograd.Function):
    """The loss, with what its gradient is made from; see `fused_loss`."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        sigma: float | Tensor,
        rest: tuple[Tensor, Tensor | None, Any, Link, bool, bool],
    ) -> Tensor:
        """The value."""
        target, weight, rule, link, wanted, learned = rest
        loss: Tensor
        loss, gradient, work = _kernels().forward(
            logits, target, sigma, weight, rule, wanted=wanted, learned=learned
        )
        is_tensor = isinstance(sigma, Tensor)
        ctx.save_for_backward(logits, target, weight, sigma if is_tensor else None)
        ctx.number = None if is_tensor else sigma
        ctx.rule, ctx.link, ctx.learned = rule, link, learned
        # Whether the gradient is there, but for what comes from above.
        ctx.is_ready = wanted and not learned and rule.is_at_once(logits.shape[1])
        # Not the loss: that would hold on to this.
        ctx.found = (gradient, work)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, by the kernels unless it will be differentiated itself."""
        launch = _kernels()
        if ctx.is_ready and ctx.found is not None and not torch.is_grad_enabled():
            gradient, work = ctx.found
            ctx.found = None
            return launch.scaled(gradient, work, upstream, ctx.rule), None, None
        logits, target, weight, sigma = ctx.saved_tensors
        if sigma is None:
            sigma = ctx.number
        wanted, learned = ctx.needs_input_grad[0], ctx.learned and ctx.needs_input_grad[1]
        to_logits = to_sigma = None
        if torch.is_grad_enabled():
            from hitrate.losses.link_loss import step_by_step
            from hitrate.probability.arguments import Core

            options = Options(weight, ctx.rule.ignore_index, ctx.rule.reduction)
            batch = Batch.of(logits, target, options, "exact_loss")
            noise = "logistic" if ctx.rule.logistic else "normal"
            loss = step_by_step(batch, sigma, ctx.link, Core(ctx.rule.margin, noise))
            inputs = [*([logits] if wanted else []), *([sigma] if learned else [])]
            gradients = list(torch.autograd.grad(loss, inputs, upstream, create_graph=True))
            to_logits = gradients.pop(0) if wanted else None
            to_sigma = gradients.pop(0) if learned else None
            return to_logits, to_sigma, None
        if ctx.found is None:
            # Called before, with the graph retained: the gradient was given away.
            _, gradient, work = launch.forward(
                logits, target, sigma, weight, ctx.rule, wanted=wanted, learned=learned
            )
        else:
            gradient, work = ctx.found
        ctx.found = None
        found = launch.Found(upstream, gradient, work)
        if learned:
            each = launch.slope_in_sigma(len(logits), found, ctx.rule, upstream)
            to_sigma = each if sigma.numel() > 1 else each.sum().reshape(sigma.shape)
        if wanted:
            to_logits = launch.backward(logits, target, sigma, found, ctx.rule, upstream)
        return to_logits, to_sigma, None
