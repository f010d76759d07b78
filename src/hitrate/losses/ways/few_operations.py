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

from hitrate.losses.ways.asked import Asked, step_by_step
from hitrate.losses.ways.margins_in_numpy import Found, by_moments, by_two_classes, places
from hitrate.losses.ways.numpy_links import in_numpy
from hitrate.losses.ways.reduction import REDUCTIONS, Batch, Options
from hitrate.probability import arguments
from hitrate.probability.accuracy import steps_of
from hitrate.probability.arguments import Core, is_number
from hitrate.probability.autograd import LogProbability
from hitrate.probability.dispatch import is_transformed
from hitrate.probability.execution import BLOCK, full_precision
from hitrate.probability.methods.closed_forms import two_classes
from hitrate.probability.methods.gridded import gridded

Array = npt.NDArray[Any]

PLAIN = (Tensor, torch.nn.Parameter)
# Below, numbers lose digits.
SMALL = {torch.float32: 1e-30, torch.float64: 1e-290}
# Methods of a noise that have a twin in numpy for usual numbers.
QUICK = {gridded: by_moments, two_classes: by_two_classes}
# Scores up to here have exponentials, and ratios of them, that float32 holds.
USUAL = 30.0


def why_not(asked: Asked) -> str:
    """What keeps a loss from this way, "" if nothing does; what is wrong complains later.

    The dispatch knows the rest.
    """
    logits, target, sigma, link, core, options, _ = asked
    if type(logits) not in PLAIN or is_transformed(logits):
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
    return _at_once(asked.logits, asked.target, list(asked[2:]), way)


def _at_once(logits: Tensor, target: Tensor, rest: list[Any], way: str) -> Tensor:
    if logits.dtype not in SMALL:
        logits = logits.float()
    loss: Tensor = LossAtOnce.apply(logits, target, rest, way)  # type: ignore[no-untyped-call]
    return loss


class ReadyAtOnce:
    """What a Module keeps for batches like one that went this way; see `ready.Ready`, of kernels.

    Parameters
    ----------
    asked : Asked
        Nothing speaks against this way, and sigma is a number that does not move.
    way : str
    """

    def __init__(self, asked: Asked, way: str) -> None:
        logits, target, self.sigma, link, _, options, _ = asked
        self._rest, self._way = list(asked[2:]), way
        self._classes, self._dtype, self._target_dtype = logits.shape[1], logits.dtype, target.dtype
        numbers = *vars(link).values(), options.weight
        self.watched = tuple(number for number in numbers if isinstance(number, Tensor))

    def serves(self, logits: Tensor, target: Tensor) -> bool:
        """Whether others are like those that it was made for."""
        return (
            type(logits) in PLAIN
            and type(target) is Tensor
            and logits.dtype is self._dtype
            and target.dtype is self._target_dtype
            and logits.dim() == 2
            and logits.shape[1] == self._classes
            and target.shape == logits.shape[:1]
            and len(target) > 0
            and logits.is_cpu
            and target.is_cpu
            and not is_transformed(logits)
        )

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return _at_once(logits, target, self._rest, self._way)


class LossAtOnce(torch.autograd.Function):
    """The loss, which keeps its gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, rest: list[Any], way: str) -> Tensor:
        """The value, with the gradient for later."""
        value, gradient = _value_and_gradient(logits, target, rest, way)
        # Numbers that move too: the gradient has to be of the value that they gave.
        numbers = *rest[1].numbers, rest[3].weight
        moving = [number for number in numbers if isinstance(number, Tensor)]
        ctx.save_for_backward(logits, target, *moving)
        ctx.kept, ctx.rest, ctx.way = [gradient], rest, way
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, in steps if it will be differentiated itself."""
        logits, target, *_ = ctx.saved_tensors
        rest = (None, None, None)
        if torch.is_grad_enabled():
            sigma, link, core, options, call = ctx.rest
            loss = step_by_step(Batch.of(logits, target, options, call), sigma, link, core)
            return torch.autograd.grad(loss, logits, upstream, create_graph=True)[0], *rest
        # The first to ask is given the memory itself: fresh memory costs as much as all sums. On a
        # graph that was retained, the gradient is found anew.
        if ctx.kept:
            gradient = ctx.kept.pop()
        else:
            _, gradient = _value_and_gradient(logits, target, ctx.rest, ctx.way)
        above = upstream[:, None] if upstream.dim() else upstream
        if is_transformed(upstream) or torch._C._functorch.is_legacy_batchedtensor(upstream):
            # Several upstreams at once share the gradient.
            return gradient * above, *rest
        if upstream.dim() or float(upstream) != 1.0:
            gradient *= above
        return gradient, *rest


def _value_and_gradient(
    logits: Tensor, target: Tensor, rest: list[Any], way: str
) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient (N, C); of rows, if they are not added up."""
    sigma, link, core, options, call = rest
    # As in torch, what is infinite or not a number shows in the loss, and nowhere else.
    with np.errstate(all="ignore"):
        classes, ignored = _classes(target, logits.shape[1], options, call)
        if way == "softmax":
            log_p, gradient, share = _softmax(logits, classes, sigma)
        else:
            log_p, gradient, share = _by_margins(logits, classes, sigma, core, way)
        pull = gradient.numpy()
        dtype = pull.dtype
        formula: Any = in_numpy(link.formula)
        value, slope = formula(log_p, *map(float, link.numbers))
        value, slope = value.astype(dtype, copy=False), slope * share
        part, total, out = _parts(classes, ignored, options, logits)
        if part is not None:
            value, slope = value * part, slope * part
        if out is not None:
            # Without part in the loss a row adds nothing, be it infinite or not a number.
            value, slope = np.where(out, 0.0, value), np.where(out, 0.0, slope)
            pull[out] = 0.0
        if options.reduction != "none":
            value = dtype.type(np.add.reduce(value, dtype=log_p.dtype))
        if options.reduction == "mean":
            value, slope = value / dtype.type(total), slope / (total or 1.0)
        pull *= slope.astype(dtype)[:, None]
    return torch.from_numpy(np.asarray(value, dtype)), gradient


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


def _softmax(logits: Tensor, classes: Array, sigma: float) -> tuple[Array, Tensor, Array]:
    """log p (N,), and two factors of its gradient: one per class (N, C), and one per row (N,)."""
    scores = logits if sigma == 1 else logits / sigma
    if sigma < 1 and not bool(torch.isfinite(scores.abs().amax())):
        # Only differences count, and those from the highest are no larger than they have to be.
        below = logits - logits.amax(1, keepdim=True)
        lowest = torch.finfo(logits.dtype).min / 4
        scores = (below / sigma).clamp(min=lowest).where(~torch.isneginf(logits), -torch.inf)
    # Torch shares larger work among threads.
    found = _exponentials(scores) if scores.numel() < BLOCK else None
    is_plain = found is not None
    if found is None:
        found = torch.softmax(scores, 1).contiguous()
    odds = found.numpy()
    own_place = places(found.shape, classes)
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
    return log_p, found, (-1 / sigma) / (own + others)


def _by_margins(logits: Tensor, classes: Array, sigma: float, core: Core, way: str) -> Found:
    """log p (N,), and two factors of its gradient: per class (N, C), and per row or for all."""
    noise = arguments.noise_named(core.noise, "")
    quick = QUICK.get(getattr(noise, way))
    assert not isinstance(core.margin, Tensor)
    found = quick(logits, classes, sigma, core.margin) if quick and logits.is_contiguous() else None
    if found is not None:
        return found
    steps = steps_of(way, noise, logits.dtype, core)
    column = logits.new_full((), sigma).expand(len(classes), 1)
    with full_precision(logits) if torch.is_autocast_enabled("cpu") else nullcontext():
        log_p, gradient, _ = LogProbability.forward(
            logits, torch.from_numpy(classes), column, core.margin, False, noise, steps
        )
    return log_p.double().numpy(), gradient, 1.0


def _exponentials(scores: Tensor) -> Tensor | None:
    """Of scores of usual size, where all of their ratios are numbers too."""
    x = scores.numpy()
    if np.maximum.reduce(x, None) < USUAL and np.minimum.reduce(x, None) > -USUAL:
        found = torch.empty_like(scores, memory_format=torch.contiguous_format)
        np.exp(x, out=found.numpy())
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
