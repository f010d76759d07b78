"""A loss in few operations, on a CPU: value and gradient at once.

Step by step, autograd records some forty operations, most of them on a number per row; for small
batches that is all the time there is. Here they run unrecorded, those on a number per row in numpy
on the same memory, and the gradient is made with the value. Derivatives of the gradient go step by
step.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hitrate.losses.asked import Asked, step_by_step
from hitrate.losses.numpy_links import in_numpy
from hitrate.losses.reduction import REDUCTIONS, Batch, Options
from hitrate.probability import arguments
from hitrate.probability.arguments import Core, is_number
from hitrate.probability.autograd import LogProbability, Margined
from hitrate.probability.dispatch import is_transformed
from hitrate.probability.execution import BLOCK, full_precision

Array = npt.NDArray[Any]

# Below, numbers lose digits.
SMALL = {torch.float32: 1e-30, torch.float64: 1e-290}
# Scores up to here have exponentials, and ratios of them, that float32 holds.
USUAL = 30.0


def why_not(asked: Asked) -> str:
    """What keeps a loss from this way, "" if nothing does; what is wrong complains later.

    The dispatch knows the rest.
    """
    logits, target, sigma, link, core, options, _ = asked
    if type(logits) not in (Tensor, torch.nn.Parameter) or is_transformed(logits):
        return "logits of this type go step by step"
    if logits.dim() != 2:
        return "the rows lie next to each other"
    if not is_number(sigma) or not 1e-30 < sigma < 1e30:
        return "sigma is no number of the usual size"
    if link.formula is None or link.of_batch:
        return f"{type(link).__name__} has no formula"
    # A compiler would trace the search for names, and stays away anyway.
    if not torch.compiler.is_compiling() and in_numpy(link.formula) is None:
        return f"the formula of {type(link).__name__} has names of its own"
    if any(isinstance(n, Tensor) and n.requires_grad for n in link.numbers):
        return "a number of the link wants a gradient"
    if core.nodes is not None or core.samples != Core().samples:
        return "nodes or samples were asked for"
    if core.margin is not None and not (is_number(core.margin) and core.margin >= 0):
        return "the margin is no number"
    rows, classes = logits.shape
    if not rows or classes < 2 or not logits.is_floating_point():
        return "there are no rows of classes"
    if not isinstance(target, Tensor) or target.shape != (rows,) or not target.is_cpu:
        return "there is not one class per row"
    if target.dtype not in arguments.INDEX_DTYPES:
        return "targets are no class indices"
    weight, smoothing = options.weight, options.label_smoothing
    if options.reduction not in REDUCTIONS or not (is_number(smoothing) and 0 <= smoothing <= 1):
        return "the options are wrong, or more than numbers"
    if weight is None:
        return ""
    if not isinstance(weight, Tensor) or weight.requires_grad or weight.shape != (classes,):
        return "the weights want more than a number each"
    return ""


def loss_at_once(asked: Asked, way: str) -> Tensor:
    """The loss of rows with a class each, for which nothing speaks against it."""
    logits, target, *rest = asked
    if logits.dtype not in SMALL:
        logits = logits.float()
    loss: Tensor = LossAtOnce.apply(logits, target, rest, way)  # type: ignore[no-untyped-call]
    return loss


class LossAtOnce(torch.autograd.Function):
    """The loss, which keeps what its gradient is made of."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, rest: list[Any], way: str) -> Tensor:
        """The value, and two factors of the gradient: one per class, one per row."""
        sigma, link, core, options, call = rest
        numbers = link.numbers
        # As in torch, what is infinite or not a number shows in the loss, and nowhere else.
        with np.errstate(all="ignore"):
            classes, ignored = _classes(target, logits.shape[1], options, call)
            if way == "softmax":
                log_p, pull, share = _softmax(logits, classes, sigma)
                value, slope = in_numpy(link.formula)(log_p, *map(float, numbers))  # type: ignore[misc]
                slope = slope * share
            else:
                found, pull = _by_margins(logits, classes, sigma, core, way)
                value, slope = (part.numpy() for part in link.formula(found, *numbers))
            part, total, out = _parts(classes, ignored, options, logits)
            if part is not None:
                value, slope = value * part, slope * part
            if out is not None:
                # Without part in the loss a row adds nothing, be it infinite or not a number.
                value, slope = np.where(out, 0.0, value), np.where(out, 0.0, slope)
                pull[out] = 0.0
            if options.reduction != "none" and way == "softmax":
                value = np.add.reduce(value)
            elif options.reduction != "none":
                # Where it costs little, as step by step to the last digit.
                value = torch.from_numpy(value).sum().numpy()
            if options.reduction == "mean":
                value, slope = value / total, slope / (total or 1.0)
        dtype = pull.dtype
        # Numbers that move too: the gradient has to be of the value that they gave.
        moving = [number for number in numbers if isinstance(number, Tensor)]
        factors = torch.from_numpy(pull), torch.from_numpy(np.asarray(slope, dtype)[:, None])
        ctx.save_for_backward(logits, target, *factors, *moving)
        ctx.rest = rest
        return torch.from_numpy(np.asarray(value, dtype))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, in steps if it will be differentiated itself."""
        logits, target, pull, slope, *_ = ctx.saved_tensors
        rest = (None, None, None)
        if not torch.is_grad_enabled():
            above = upstream[:, None] if upstream.dim() else upstream
            return pull * (slope * above), *rest
        sigma, link, core, options, call = ctx.rest
        loss = step_by_step(Batch.of(logits, target, options, call), sigma, link, core)
        return torch.autograd.grad(loss, logits, upstream, create_graph=True)[0], *rest


def _classes(
    target: Tensor, count: int, options: Options, call: object
) -> tuple[Array, Array | None]:
    """Class indices (N,), checked; and which rows are ignored (N,), None for none."""
    classes, ignored = target.long().numpy(), None
    # As unsigned numbers, those below 0 are the largest.
    if np.maximum.reduce(classes.view(np.uint64)) < count and not 0 <= options.ignore_index < count:
        return classes, None
    ignored = classes == options.ignore_index
    classes = np.where(ignored, 0, classes)
    arguments.check_range(torch.from_numpy(classes), count, call)
    return classes, ignored if ignored.any() else None


def _softmax(logits: Tensor, classes: Array, sigma: float) -> tuple[Array, Array, Array]:
    """log p (N,), and two factors of its gradient: pull (N, C) and share (N,)."""
    scores = logits if sigma == 1 else logits / sigma
    # Torch shares larger work among threads.
    odds = _exponentials(scores.numpy()) if scores.numel() < BLOCK else None
    is_plain = odds is not None
    if odds is None:
        odds = torch.softmax(scores, 1).contiguous().numpy()
    # The targets' places, as the numbers lie in memory.
    own_place = np.arange(0, odds.size, odds.shape[1]) + classes
    flat = odds.reshape(-1)
    own = flat[own_place]
    flat[own_place] = 0.0
    # A sum without the target: of p near 1 the digits of 1 - p are kept.
    others = np.einsum("ij->i", odds) if is_plain else torch.from_numpy(odds).sum(1).numpy()
    flat[own_place] = -others
    log_p = -np.log1p(others / own)
    if not is_plain and not own.min() > SMALL[logits.dtype]:
        column = torch.from_numpy(classes)[:, None]
        behind = torch.log_softmax(scores, 1).gather(1, column)[:, 0].numpy()
        log_p = np.where(own > SMALL[logits.dtype], log_p, behind)
    return log_p, odds, (-1 / sigma) / (own + others)


def _by_margins(
    logits: Tensor, classes: Array, sigma: float, core: Core, way: str
) -> tuple[Tensor, Array]:
    """log p (N,) and its gradient (N, C), by a method of the noise."""
    noise = arguments.noise_named(core.noise, "")
    steps = Margined(getattr(noise, way))
    column = logits.new_full((), sigma).expand(len(classes), 1)
    with full_precision(logits) if torch.is_autocast_enabled("cpu") else nullcontext():
        log_p, gradient, _ = LogProbability.forward(
            logits, torch.from_numpy(classes), column, core.margin, False, noise, steps
        )
    return log_p, gradient.numpy()


def _exponentials(scores: Array) -> Array | None:
    """Of scores of usual size, where all of their ratios are numbers too."""
    if np.maximum.reduce(scores, None) < USUAL and np.minimum.reduce(scores, None) > -USUAL:
        found: Array = np.exp(scores, order="C")
        return found
    return None


def _parts(
    classes: Array, ignored: Array | None, options: Options, logits: Tensor
) -> tuple[Array | None, float, Array | None]:
    """Weights of rows (N,), their sum, and which rows are out; None for all 1 and for none."""
    if options.weight is None:
        if ignored is None:
            return None, len(classes), None
        return None, float(len(classes) - ignored.sum()), ignored
    part = options.weight.to(logits).numpy()[classes]
    if ignored is not None:
        part[ignored] = 0.0
    return part, float(part.sum()), part == 0
