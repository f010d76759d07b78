"""Which losses the kernels make, and those that they make.

What they do not know goes the long way, as `why_not` tells the dispatch. So do derivatives of the
gradient, and transforms of `torch.func`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hitrate.losses.normalization import Normalization
from hitrate.losses.ways.asked import Asked
from hitrate.losses.ways.ready import Ready, is_of_all
from hitrate.losses.ways.reduction import REDUCTIONS
from hitrate.probability import arguments
from hitrate.probability.arguments import is_number
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
    of_all = is_of_all(target, options)
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
        if (any_layout or of_all) and sigma.requires_grad:
            return "sigma wants a gradient"
        if sigma.numel() != 1 and (sigma.shape != (rows,) or sigma.device != logits.device):
            return "sigma is neither one nor one per row"
        if is_eager_cpu(sigma) and not bool((sigma > 0).all()):
            return "sigma is not positive"
    elif not (arguments.is_number(sigma) and arguments.fits_float32(sigma)):
        return "sigma is no positive number of float32"
    # A tensor inside a transform, or with a tangent, has more to it than its values.
    if is_transformed(logits) or (isinstance(sigma, Tensor) and is_transformed(sigma)):
        return "inside a transform of torch.func a loss goes step by step"
    return ""


def may_standardize(asked: Asked) -> bool:
    """Whether the kernels may standardise logits on their way, if they may make the loss."""
    sigma = asked.sigma
    is_plain = type(asked.logits) in (Tensor, torch.nn.Parameter) and asked.logits.dim() == 2
    return is_plain and not (isinstance(sigma, Tensor) and sigma.requires_grad)


def fused_loss(
    asked: Asked,
    normalization: Normalization | None = None,
    keep: Callable[[Ready], None] | None = None,
) -> Tensor:
    """The loss of rows (R, C), or (N, C, D), for which nothing speaks against it.

    With a normalization, of standardised logits. To `keep` it gives what it found out.
    """
    logits, target = asked.logits.contiguous(), asked.target.contiguous()
    ready = Ready(asked._replace(logits=logits, target=target), normalization)
    if keep is not None:
        keep(ready)
    return ready(logits, target)


def value_and_gradient(asked: Asked, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of rows, and its gradient, which may overwrite the logits.

    Upstream is one number, or one per row.
    """
    logits, target = asked.logits.contiguous(), asked.target.contiguous()
    ready = Ready(asked._replace(logits=logits, target=target), None, wanted=True)
    return ready.value_and_gradient(logits, target, upstream)
