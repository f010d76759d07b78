"""A loss of logits that are made some rows at a time: its value and gradients.

With a mean or a sum gradients are made with the value; else, and in float16, in the backward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hitrate.losses.base import ClassificationLoss
from hitrate.losses.exact import ExactLoss
from hitrate.losses.generalized_cross_entropy import GeneralizedCrossEntropyLoss
from hitrate.losses.link_loss import LinkLoss
from hitrate.losses.ways import fused
from hitrate.losses.ways.ready import kernels
from hitrate.losses.ways.way import way_of
from hitrate.probability.dispatch import HAS_TRITON
from hitrate.probability.execution import full_precision

HALF_OR_SINGLE = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Job:
    """A loss of many rows, some at a time."""

    loss: nn.CrossEntropyLoss
    target: Tensor  # (N,) class indices, or (N, C) probabilities
    rows: int
    parameters: Sequence[Tensor]  # Of the loss itself.
    classes: int

    @property
    def per_row(self) -> bool:
        """Whether each row's loss is wanted."""
        return self.loss.reduction == "none"

    def divisor(self, like: Tensor) -> Tensor:
        """What the mean divides by, as cross entropy does; 1 for a sum."""
        target, weight = self.target, self.loss.weight
        if isinstance(self.loss, ClassificationLoss):
            logits = like.new_empty(0, self.classes)
            weight = self.loss.options.weighted(logits, type(self.loss).__name__).weight
        one = torch.ones((), dtype=_wide(like.dtype), device=like.device)
        if self.loss.reduction != "mean":
            return one
        if target.is_floating_point():
            return one * len(target)
        there = target != self.loss.ignore_index
        if weight is None:
            return one * there.sum()
        inside = target.masked_fill(~there | (target < 0) | (target >= len(weight)), 0)
        return (weight.to(one)[inside] * there).sum()

    def pieces(self) -> Iterator[slice]:
        """Rows at a time, the last ones fewer."""
        for start in range(0, len(self.target), self.rows):
            yield slice(start, min(start + self.rows, len(self.target)))


class Gradients:
    """Room for the gradients that are wanted, filled piece by piece."""

    def __init__(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> None:
        hidden, weight, bias, *parameters = (
            tensor if tensor is not None and is_wanted else None
            for tensor, is_wanted in zip(inputs, wanted, strict=True)
        )
        room = torch.empty_like if len(inputs[0]) else torch.zeros_like
        self.hidden = None if hidden is None else room(hidden)
        self.weight = None if weight is None else room(weight)
        self.bias = None if bias is None else torch.zeros_like(bias, dtype=_wide(bias.dtype))
        self._bias_dtype = None if bias is None else bias.dtype
        self.parameters = [None if p is None else torch.zeros_like(p) for p in parameters]

    def add(self, piece: slice, g: Tensor, hidden: Tensor, weight: Tensor) -> None:
        """Take in the gradient (n, C) of a piece's logits."""
        if self.hidden is not None:
            torch.mm(g, weight, out=self.hidden[piece])
        if self.weight is not None and piece.start == 0:
            torch.mm(g.T, hidden[piece], out=self.weight)
        elif self.weight is not None:
            self.weight.addmm_(g.T, hidden[piece])
        if self.bias is not None:
            self.bias += g.sum(0, dtype=self.bias.dtype)

    def add_parameters(self, found: Sequence[Tensor]) -> None:
        """Take in a piece's gradients of the loss's own parameters."""
        for whole, part in zip(self.parameters, found, strict=True):
            if whole is not None:
                whole += part

    def times(self, factor: Tensor | None) -> list[Tensor | None]:
        """All of them, in place times a number."""
        bias = None if self.bias is None else self.bias.to(self._bias_dtype)
        found = [self.hidden, self.weight, bias, *self.parameters]
        for tensor in found:
            if tensor is not None and factor is not None:
                _multiply(tensor, factor)
        return found


def _multiply(tensor: Tensor, factor: Tensor) -> None:
    """In place; what comes from above is mostly 1, of which torch would make a pass over memory."""
    if tensor.is_cuda and HAS_TRITON and tensor.is_contiguous() and tensor.dtype in HALF_OR_SINGLE:
        kernels().times(tensor, factor)
    else:
        tensor.mul_(factor)


def _run(
    job: Job,
    inputs: Sequence[Tensor | None],
    upstream: Tensor | None,
    gradients: Gradients | None,
) -> Tensor:
    """Losses (N,), or their sum; with room for gradients those of upstream times the sum.

    Upstream is one number, or one per row.
    """
    hidden, weight, bias = inputs[:3]
    assert hidden is not None and weight is not None
    room = torch.empty(
        (min(job.rows, len(hidden)), len(weight)), dtype=hidden.dtype, device=hidden.device
    )
    loss = copy.copy(job.loss)
    loss.reduction = "none" if job.per_row else "sum"
    found = []
    for piece in job.pieces():
        logits = room[: piece.stop - piece.start]
        if bias is None:
            torch.mm(hidden[piece], weight.T, out=logits)
        else:
            torch.addmm(bias, hidden[piece], weight.T, out=logits)
        target = job.target[piece]
        if gradients is None:
            found.append(_value(loss, logits, target))
            continue
        assert upstream is not None
        above = upstream[piece] if upstream.dim() else upstream
        value, *slopes = _value_and_gradient(loss, logits, target, above, job.parameters)
        found.append(value)
        gradients.add(piece, slopes[0], hidden, weight)
        gradients.add_parameters(slopes[1:])
    if job.per_row:
        return torch.cat(found) if found else hidden.new_empty(0, dtype=_wide(hidden.dtype))
    return torch.stack(found).sum() if found else hidden.new_zeros((), dtype=_wide(hidden.dtype))


def _value(loss: nn.CrossEntropyLoss, logits: Tensor, target: Tensor) -> Tensor:
    """The loss of a piece; torch's own would be summed up in half precision."""
    wide = isinstance(loss, ClassificationLoss)
    value: Tensor = loss(logits if wide else logits.to(_wide(logits.dtype)), target)
    return value


def _value_and_gradient(
    loss: nn.CrossEntropyLoss,
    logits: Tensor,
    target: Tensor,
    upstream: Tensor,
    parameters: Sequence[Tensor],
) -> list[Tensor]:
    """The loss of a piece, and gradients of its logits, which it may overwrite, and parameters."""
    if not parameters and isinstance(loss, LinkLoss) and _is_plain(loss):
        asked = loss.asked(logits, target)
        if way_of(asked).way == "fused":
            return [*fused.value_and_gradient(asked, upstream)]
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        value = _value(loss, leaf, target)
        slopes = torch.autograd.grad(
            value, [leaf, *parameters], upstream.to(value.dtype), materialize_grads=True
        )
    return [value.detach(), *slopes]


def _is_plain(loss: LinkLoss) -> bool:
    """Whether calling it does no more than what it asks for."""
    if loss._forward_hooks or loss._forward_pre_hooks or loss.options.is_balanced:
        return False
    return type(loss).forward in (
        LinkLoss.forward,
        ExactLoss.forward,
        GeneralizedCrossEntropyLoss.forward,
    )


class PiecewiseLoss(torch.autograd.Function):
    """See `linear_loss`."""

    @staticmethod
    def forward(ctx: Any, job: Job, *inputs: Tensor | None) -> Tensor:
        """The value, and with it the gradients but for what comes from above."""
        hidden = inputs[0]
        assert hidden is not None
        ctx.job, ctx.gradients = job, None
        # The loss's numbers too: gradients have to be of the value that they gave.
        ctx.save_for_backward(*inputs, *job.loss.buffers())
        ctx.count = len(inputs)
        wanted = ctx.needs_input_grad[1:]
        at_once = any(wanted) and not job.per_row and hidden.dtype != torch.float16
        gradients = Gradients(inputs, wanted) if at_once else None
        divisor = job.divisor(hidden)
        with full_precision(hidden):
            value = _run(job, inputs, _share(divisor), gradients)
        ctx.gradients = gradients
        # As cross entropy says, even where smoothing leaves something.
        return torch.where(divisor == 0, torch.nan, value / divisor)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients, made now if they are not there."""
        inputs, job = ctx.saved_tensors[: ctx.count], ctx.job
        gradients, ctx.gradients = ctx.gradients, None
        with torch.no_grad(), full_precision(inputs[0]):
            if gradients is not None:
                found = gradients.times(upstream)
            else:
                gradients = Gradients(inputs, ctx.needs_input_grad[1:])
                _run(job, inputs, upstream * _share(job.divisor(inputs[0])), gradients)
                found = gradients.times(None)
        if torch.is_grad_enabled():
            found = [
                None if one is None else NoSecondOrder.apply(one, *inputs)  # type: ignore[no-untyped-call]
                for one in found
            ]
        return None, *found


class NoSecondOrder(torch.autograd.Function):
    """A gradient that refuses to be differentiated, rather than pass for a constant."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *inputs: Tensor) -> Tensor:
        """Hand through."""
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        """Refuse."""
        raise RuntimeError("linear_loss: second derivatives are not available")


def _share(divisor: Tensor) -> Tensor:
    """What a row's loss counts for in the whole; nothing where there is nothing to divide by."""
    return torch.where(divisor == 0, 0.0, 1 / divisor)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What sums of such numbers are kept in."""
    return torch.promote_types(dtype, torch.float32)
