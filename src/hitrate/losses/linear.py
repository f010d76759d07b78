"""The last layer and its loss together: logits in pieces, never all there.

For a large vocabulary the logits and their gradient outweigh everything else in memory. Here a few
rows' logits are made at a time, and turned into the loss, and, in their own place, into their
gradient, which at once goes into those of the layer: three matrix products, as with all logits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hitrate.losses import fused
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.exact import ExactLoss
from hitrate.losses.generalized_cross_entropy import GeneralizedCrossEntropyLoss
from hitrate.losses.link_loss import LinkLoss
from hitrate.losses.named import CrossEntropyLoss
from hitrate.losses.way import way_of
from hitrate.probability.execution import full_precision
from hitrate.probability.sharded import is_sharded

__all__ = ["LinearLoss", "linear_loss"]

# Bytes of the logits that are there at a time, and the number whose multiple their rows are.
ROOM, MULTIPLE = 124 * 2**20, 16


def linear_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    loss: nn.CrossEntropyLoss | None = None,
    rows: int | None = None,
) -> Tensor:
    """``loss(hidden @ weight.T + bias, target)`` without all logits being there at once.

    Parameters
    ----------
    hidden : Tensor, shape (N, H) or (..., H)
    weight : Tensor, shape (C, H)
        As in `torch.nn.Linear`.
    target : Tensor, shape (N,) or (...)
        Class indices, or probabilities of shape (N, C) or (..., C).
    bias : Tensor, shape (C,), optional
    loss : Module
        Any loss of this library, or torch's cross entropy, with its options; by default
        `CrossEntropyLoss`. Parameters of its own get their gradient. Not one that looks at the
        whole batch: `normalize=True`, or the link "batch_log".
    rows : int, optional
        How many rows' logits are there at a time; by default as many as fit in 124 MiB.

    Returns
    -------
    Tensor
        A number, or with ``reduction="none"`` one per target.

    Notes
    -----
    With a mean or a sum gradients are made with the value, so a step takes three matrix products;
    with ``reduction="none"`` and in float16, whose gradients need the scale that comes from above,
    the logits are made once more in the backward pass. The gradient of `weight` is added up in its
    own precision, once for each piece: in half precision more `rows` at a time keep more digits of
    it, and take less time. There are no second derivatives, and no transforms of `torch.func`.

    Examples
    --------
    >>> import torch, hitrate
    >>> hidden, weight = torch.eye(3), torch.eye(3)
    >>> hitrate.linear_loss(hidden, weight, torch.tensor([0, 1, 2]), loss=hitrate.MixedLoss(0.25))
    tensor(1.3992)
    """
    loss = CrossEntropyLoss() if loss is None else loss
    _check(hidden, weight, target, bias, loss, rows)
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    flat = hidden.reshape(-1, hidden.shape[-1])
    is_soft = target.is_floating_point()
    labels = target.reshape(-1, len(weight)) if is_soft else target.reshape(-1).long()
    parameters = [p for p in loss.parameters() if p.requires_grad]
    job = Job(loss, labels, _rows_at_a_time(flat, weight, rows), parameters)
    found: Tensor = PiecewiseLoss.apply(  # type: ignore[no-untyped-call]
        job, flat, weight, bias, *parameters
    )
    return found.reshape(hidden.shape[:-1]) if loss.reduction == "none" else found


class LinearLoss(nn.Module):
    """A last layer with its loss, see `linear_loss`: logits without a target, the loss with one.

    Parameters
    ----------
    linear : Linear
        The layer, whose parameters this shares: it may be tied to an embedding. A plain one, since
        only its weight and bias are used: no adapter, and no hooks.
    loss : Module
        Any loss of this library, or torch's cross entropy; by default `CrossEntropyLoss`.
    rows : int, optional
        How many rows' logits are there at a time.

    Examples
    --------
    >>> import torch, hitrate
    >>> head = hitrate.LinearLoss(torch.nn.Linear(16, 1000), hitrate.MixedLoss(0.25))
    >>> hidden, target = torch.randn(8, 16), torch.randint(1000, (8,))
    >>> head(hidden, target).backward()
    >>> head(hidden).shape
    torch.Size([8, 1000])
    """

    def __init__(
        self,
        linear: nn.Linear,
        loss: nn.CrossEntropyLoss | None = None,
        *,
        rows: int | None = None,
    ) -> None:
        super().__init__()
        if getattr(type(linear), "forward", None) is not nn.Linear.forward:
            raise TypeError(
                f"LinearLoss: takes a torch.nn.Linear, got {type(linear).__name__}, whose own way "
                "to make logits it would pass over"
            )
        self.linear = linear
        self.loss = CrossEntropyLoss() if loss is None else loss
        self.rows = rows

    def forward(self, input: Tensor, target: Tensor | None = None) -> Tensor:
        """The loss of hidden states (..., H); their logits (..., C) without a target."""
        layer = self.linear
        if target is None:
            logits: Tensor = layer(input)
            return logits
        if layer._forward_hooks or layer._forward_pre_hooks:
            raise ValueError("LinearLoss: the layer has hooks, which would not be called")
        return linear_loss(
            input, layer.weight, target, bias=layer.bias, loss=self.loss, rows=self.rows
        )


@dataclass(frozen=True)
class Job:
    """A loss of many rows, some at a time."""

    loss: nn.CrossEntropyLoss
    target: Tensor  # (N,) class indices, or (N, C) probabilities
    rows: int
    parameters: Sequence[Tensor]  # Of the loss itself.

    @property
    def per_row(self) -> bool:
        """Whether each row's loss is wanted."""
        return self.loss.reduction == "none"

    def divisor(self, like: Tensor) -> Tensor:
        """What the mean divides by, as cross entropy does; 1 for a sum."""
        target, weight = self.target, self.loss.weight
        one = torch.ones((), dtype=_wide(like.dtype), device=like.device)
        if self.loss.reduction != "mean":
            return one
        if target.is_floating_point():
            return one * len(target)
        there = target != self.loss.ignore_index
        if weight is None:
            return one * there.sum()
        inside = target.masked_fill(~there | (target < 0) | (target >= len(weight)), 0).long()
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
                tensor.mul_(factor)
        return found


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
    if loss._forward_hooks or loss._forward_pre_hooks:
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
        raise RuntimeError("linear_loss: second derivatives are not available")


def _share(divisor: Tensor) -> Tensor:
    """What a row's loss counts for in the whole; nothing where there is nothing to divide by."""
    return torch.where(divisor == 0, 0.0, 1 / divisor)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What sums of such numbers are kept in."""
    return torch.promote_types(dtype, torch.float32)


def _rows_at_a_time(hidden: Tensor, weight: Tensor, rows: int | None) -> int:
    if rows is not None:
        return rows
    fit = ROOM // (max(len(weight), 1) * hidden.element_size())
    return max(fit // MULTIPLE, 1) * MULTIPLE


def _check(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    loss: object,
    rows: int | None,
) -> None:
    """Complain about what does not fit together."""
    if not isinstance(target, Tensor):
        raise TypeError(f"linear_loss: target must be a tensor, got {type(target).__name__}")
    if any(map(is_sharded, (hidden, weight))):
        raise ValueError(
            "linear_loss: takes whole tensors, not parts of them (DTensor); where a model is "
            "sharded, let the whole head be one unit of it"
        )
    dtypes = {tensor.dtype for tensor in (hidden, weight, bias) if tensor is not None}
    if len(dtypes) > 1 and not torch.is_autocast_enabled(hidden.device.type):
        raise ValueError(f"linear_loss: hidden, weight and bias differ in dtype: {dtypes}")
    if weight.dim() != 2 or hidden.dim() < 1 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"linear_loss: hidden (..., H) and weight (C, H) do not fit together: "
            f"{tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"linear_loss: bias must have one value for each of the {len(weight)} classes, "
            f"got shape {tuple(bias.shape)}"
        )
    layout = hidden.shape[:-1]
    is_soft = target.is_floating_point()
    if target.shape != ((*layout, len(weight)) if is_soft else layout):
        raise ValueError(
            f"linear_loss: target must be class indices of shape {tuple(layout)} or probabilities "
            f"of shape {(*layout, len(weight))}; got {target.dtype} of shape {tuple(target.shape)}"
        )
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise ValueError(f"linear_loss: rows must be a whole number >= 1, got {rows!r}")
    if not isinstance(loss, nn.CrossEntropyLoss):
        raise TypeError(
            f"linear_loss: loss must be a loss of hitrate or torch.nn.CrossEntropyLoss, "
            f"got {type(loss).__name__}"
        )
    weights: Tensor | None = loss.weight
    if target.requires_grad or (weights is not None and weights.requires_grad):
        raise ValueError("linear_loss: neither targets nor class weights get a gradient here")
    if isinstance(loss, ExactLoss) and loss.normalize and loss.training:
        raise ValueError(
            "linear_loss: normalize=True needs all logits at once; use normalize=False"
        )
    if isinstance(loss, LinkLoss) and loss.link.of_batch:
        raise ValueError(
            f"linear_loss: {type(loss.link).__name__} is a mean over the whole batch, whose logits "
            "are never all there"
        )
