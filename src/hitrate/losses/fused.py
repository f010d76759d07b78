"""A loss in one kernel: log p, link, weights, ignored rows and mean, on a GPU.

The same numbers come out of `link_loss` step by step; this saves its passes over the logits, its
memory and most of its calls. What the kernels do not know goes the long way, as `why_not` tells the
dispatch. So do derivatives of the gradient, and transforms of `torch.func`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from hitrate.links import Link
from hitrate.losses import standardized
from hitrate.losses.asked import Asked, step_by_step
from hitrate.losses.normalization import Normalization
from hitrate.losses.reduction import REDUCTIONS, Batch, Options
from hitrate.losses.standardized import Prepared, Standard
from hitrate.probability import arguments
from hitrate.probability.arguments import Core, is_number
from hitrate.probability.dispatch import is_transformed
from hitrate.probability.execution import is_eager_cpu


def why_not(asked: Asked) -> str:
    """What keeps a loss from being one kernel, "" if nothing does; what is wrong complains later.

    The noise, dtype and device are the dispatch's business.
    """
    logits, target, sigma, link, core, options, _ = asked
    if type(logits) not in (Tensor, torch.nn.Parameter):
        return "logits of this type are not memory that a kernel can read"
    classes = logits.shape[1]
    rows = logits.numel() // max(classes, 1)
    noise = arguments.noise_named(core.noise, "")
    any_layout = noise.loss_kernel is not None
    may_be_of_all = any_layout or noise.classes_kernel is not None
    is_of_all = _is_of_all(target, options)
    if classes < 2:
        return "there are not two classes"
    if not any_layout and logits.dim() > 2:
        return "the rows lie next to each other"
    if not rows or not isinstance(target, Tensor) or target.device != logits.device:
        return "there is not one target per row"
    if target.is_floating_point():
        if not may_be_of_all:
            return "targets are no class indices"
        if target.shape != logits.shape or target.requires_grad or options.ignore_index >= 0:
            return "probabilities are not those of a row each"
    elif target.dtype not in arguments.INDEX_DTYPES:
        return "targets are no class indices"
    elif target.shape != logits.shape[:1] + logits.shape[2:]:
        return "there is not one class per row"
    if options.is_smoothed and not may_be_of_all:
        return "smoothed targets are of all classes"
    smoothing = options.label_smoothing
    if not (arguments.is_moving(smoothing) or (is_number(smoothing) and 0 <= smoothing <= 1)):
        return "smoothing is no number from 0 to 1"
    if link.formula is None or link.of_batch:
        return f"{type(link).__name__} has no formula that kernels can run"
    if any(isinstance(n, Tensor) and not arguments.is_moving(n) for n in link.numbers):
        return "a number of the link wants a gradient"
    if abs(options.ignore_index) >= 2**31 or options.reduction not in REDUCTIONS:
        return "the options are beyond the kernel"
    weight = options.weight
    if weight is not None:
        if not isinstance(weight, Tensor) or weight.shape != (classes,):
            return "weights are wrong"
        if weight.requires_grad:
            return "the weights want a gradient"
    if isinstance(core.margin, Tensor):
        if not arguments.is_moving(core.margin):
            return "the margin is no number"
    elif core.margin is not None and not (arguments.is_number(core.margin) and core.margin >= 0):
        return "the margin is no number"
    if isinstance(sigma, Tensor):
        if (any_layout or is_of_all) and sigma.requires_grad:
            return "sigma wants a gradient"
        if sigma.numel() != 1 and (sigma.shape != (rows,) or sigma.device != logits.device):
            return "sigma is neither one nor one per row"
        if is_eager_cpu(sigma) and not bool((sigma > 0).all()):
            return "sigma is not positive"
    elif not arguments.is_number(sigma) or not 1e-37 < sigma < 1e38:
        return "sigma is no positive number of float32"
    # A tensor inside a transform, or with a tangent, has more to it than its values.
    if is_transformed(logits) or (isinstance(sigma, Tensor) and is_transformed(sigma)):
        return "inside a transform of torch.func a loss goes step by step"
    return ""


def _is_of_all(target: object, options: Options) -> bool:
    """Whether every class of a row is a target, more or less."""
    is_soft = isinstance(target, Tensor) and target.is_floating_point()
    return is_soft or options.is_smoothed


def may_standardize(asked: Asked) -> bool:
    """Whether the kernels may standardise logits on their way, if they may make the loss."""
    sigma = asked.sigma
    is_plain = type(asked.logits) in (Tensor, torch.nn.Parameter) and asked.logits.dim() == 2
    return is_plain and not (isinstance(sigma, Tensor) and sigma.requires_grad)


def fused_loss(asked: Asked, normalization: Normalization | None = None) -> Tensor:
    """The loss of rows (R, C), or (N, C, D), for which nothing speaks against it.

    With a normalization, of standardised logits.
    """
    prepared = _prepared(asked)
    standard = None
    if normalization is not None:
        standard = standardized.facts_of(prepared, normalization)
        prepared = standardized.in_units_of(standard, prepared)
    if torch.is_grad_enabled():
        sigma = prepared.sigma
        wanted = prepared.logits.requires_grad
        learned = isinstance(sigma, Tensor) and sigma.requires_grad
        if wanted or learned:
            logits, target, sigma, weight, rule = prepared
            rest = (target, weight, rule, asked.link, asked.core, wanted, learned, standard)
            loss: Tensor = FusedLoss.apply(logits, sigma, rest)  # type: ignore[no-untyped-call]
            return loss
    found: Tensor = _kernels().forward(*prepared, wanted=False, learned=False).loss
    return found


def value_and_gradient(asked: Asked, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of rows, and its gradient, which may overwrite the logits.

    Upstream is one number, or one per row.
    """
    launch = _kernels()
    prepared = _prepared(asked)
    found = launch.forward(*prepared, wanted=True, learned=False)
    *tensors, rule = prepared
    gradient = launch.backward(*tensors, found, rule, upstream, overwrite=True)
    return found.loss, gradient


def _prepared(asked: Asked) -> Prepared:
    """What the kernels take, its values checked where looking is free."""
    logits, target, sigma, link, core, options, call = asked
    if target.is_floating_point():
        arguments.check_probabilities(target, call)
    elif target.is_cpu and is_eager_cpu(target):
        aside = target == options.ignore_index
        arguments.check_range(target.masked_fill(aside, 0), logits.shape[1], call)
    launch = _kernels()
    noise = arguments.noise_named(core.noise, call)
    of_rows = noise.classes_kernel if _is_of_all(target, options) else noise.kernel
    kernel = noise.loss_kernel or of_rows
    assert kernel is not None and link.formula is not None
    formula = launch.compiled(link.formula)
    ending = (options.reduction, options.ignore_index, core.margin, options.label_smoothing)
    rule = launch.Rule(kernel, formula, *link.numbers, *ending)
    weight = options.weight
    if weight is not None:
        weight = weight.to(logits.device).contiguous()
    if isinstance(sigma, Tensor):
        # Like any number, a single one may come from anywhere; off the device it is just a number.
        if sigma.is_cpu and logits.is_cuda and not sigma.requires_grad:
            sigma = float(sigma)
        else:
            sigma = sigma.to(logits.device).contiguous()
    return Prepared(logits.contiguous(), target.contiguous(), sigma, weight, rule)


@functools.cache
def _kernels() -> Any:
    """The launchers, imported when a loss first needs them."""
    from hitrate.kernels import launch

    return launch


class FusedLoss(torch.autograd.Function):
    """The loss, with what its gradient is made from; see `fused_loss`."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        sigma: float | Tensor,
        rest: tuple[Tensor, Tensor | None, Any, Link, Core, bool, bool, Standard | None],
    ) -> Tensor:
        """The value."""
        target, weight, rule, link, core, wanted, learned, ctx.standard = rest
        launch = _kernels()
        found = launch.forward(logits, target, sigma, weight, rule, wanted=wanted, learned=learned)
        loss: Tensor = found.loss
        is_tensor = isinstance(sigma, Tensor)
        # Numbers that move too: the gradient has to be of the value that they gave.
        moving = [n for n in rule if isinstance(n, Tensor)]
        ctx.save_for_backward(logits, target, weight, sigma if is_tensor else None, *moving)
        ctx.number = None if is_tensor else sigma
        ctx.rule, ctx.link, ctx.core, ctx.learned = rule, link, core, learned
        # Whether the gradient is there, but for what comes from above.
        at_once = launch.is_at_once(rule, logits.shape[1])
        ctx.is_ready = wanted and not learned and at_once
        # Not the loss: that would hold on to this.
        ctx.found = found._replace(loss=None)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, by the kernels unless it will be differentiated itself."""
        launch = _kernels()
        if ctx.is_ready and ctx.found is not None and not torch.is_grad_enabled():
            found, ctx.found = ctx.found, None
            if ctx.standard is None:
                gradient = launch.scaled(found.gradient, found.work, upstream, ctx.rule)
            else:
                logits, target, *_ = ctx.saved_tensors
                gradient, scaling = found.gradient, (upstream, found.work)
                standardized.pull_back(ctx.standard, gradient, logits, target, scaling)
            return gradient, None, None
        logits, target, weight, sigma, *_ = ctx.saved_tensors
        if sigma is None:
            sigma = ctx.number
        wanted, learned = ctx.needs_input_grad[0], ctx.learned and ctx.needs_input_grad[1]
        to_logits = to_sigma = None
        if torch.is_grad_enabled():
            # The same without the kernels' own ways, which torch differentiates as often as asked.
            rule, core = ctx.rule, ctx.core._replace(backend="auto")
            options = Options(weight, rule.ignore_index, rule.reduction, rule.smoothing)
            batch = Batch.of(logits, target, options, "exact_loss")
            if ctx.standard is not None:
                sigma = ctx.standard.sigma
                batch = standardized.by_torch(ctx.standard, batch)
            loss = step_by_step(batch, sigma, ctx.link, core)
            upstream = upstream.reshape(loss.shape)
            inputs = [*([logits] if wanted else []), *([sigma] if learned else [])]
            gradients = list(torch.autograd.grad(loss, inputs, upstream, create_graph=True))
            to_logits = gradients.pop(0) if wanted else None
            to_sigma = gradients.pop(0) if learned else None
            return to_logits, to_sigma, None
        found, ctx.found = ctx.found, None
        if found is None:
            # Called before, with the graph retained: the gradient was given away.
            found = launch.forward(
                logits, target, sigma, weight, ctx.rule, wanted=wanted, learned=learned
            )
        if learned:
            each = launch.slope_in_sigma(len(logits), found, ctx.rule, upstream)
            to_sigma = each if sigma.numel() > 1 else each.sum().reshape(sigma.shape)
        if wanted:
            to_logits = launch.backward(logits, target, sigma, weight, found, ctx.rule, upstream)
            if ctx.standard is not None:
                standardized.pull_back(ctx.standard, to_logits, logits, target)
        return to_logits, to_sigma, None
