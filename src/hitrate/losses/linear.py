"""The last layer and its loss together: logits in pieces, never all there.

For a large vocabulary the logits and their gradient outweigh everything else in memory. Here a few
rows' logits are made at a time, and turned into the loss, and, in their own place, into their
gradient, which at once goes into those of the layer: three matrix products, as with all logits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hitrate.losses.exact import ExactLoss
from hitrate.losses.link_loss import LinkLoss
from hitrate.losses.named import CrossEntropyLoss
from hitrate.losses.ways.piecewise import Job, PiecewiseLoss
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
    job = Job(loss, labels, _rows_at_a_time(flat, weight, rows), parameters, len(weight))
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
