"""The probabilities of all classes in one pass: docs/math.md, equations (19) and (20).

With u the winning score and x_i = u - mu_i / sigma,

    p_c = int h(x_c) prod_i F(x_i) du :

one integral serves all classes, since the product does not depend on c.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hitrate.probability import checks
from hitrate.probability.blocks import blocks
from hitrate.probability.noises import Noise
from hitrate.probability.rays import FARTHEST


def class_probabilities(
    logits: Tensor, sigma: float | Tensor = 1.0, *, noise: str = "normal"
) -> Tensor:
    r"""Probability of each class to have the highest noisy score.

    .. math::

        p_c = \int h(u - \mu_c / \sigma) \prod_i F(u - \mu_i / \sigma) \, du

    Parameters
    ----------
    logits : Tensor, shape (N, C)
        Scores :math:`\mu`. Half precision is computed in float32.
    sigma : float or Tensor
        Scale of the noise: a number, or shape () or (N,).
    noise : {"normal", "logistic", "gumbel"}
        Gumbel noise gives the softmax.

    Returns
    -------
    Tensor, shape (N, C)
        Rows sum to 1. Differentiable in `logits` and `sigma`.

    Examples
    --------
    >>> import torch, hitrate
    >>> hitrate.class_probabilities(torch.tensor([[2.0, 1.0, 0.0]]))
    tensor([[0.7288, 0.2241, 0.0472]])
    """
    call = f"class_probabilities(noise={noise!r})"
    scores = checks.logits_of(logits, call)
    scale = checks.sigma_of(sigma, scores, call)
    kind = checks.noise_named(noise, call)
    if scale.shape[1] > 1:
        raise ValueError(f"{call}: takes one sigma per row, got {tuple(scale.shape)}")
    with torch.autocast(scores.device.type, enabled=False):
        scaled = scores / scale
        if kind.name == "gumbel" or not len(scores):
            return torch.softmax(scaled, 1)
        compiling = torch.compiler.is_compiling()
        function = ClassProbabilities if compiling else ForwardModeClassProbabilities
        probabilities: Tensor = function.apply(scaled, kind)  # type: ignore[no-untyped-call]
    return probabilities


class ClassProbabilities(torch.autograd.Function):
    """All p_c of scaled logits (N, C), whose Jacobian is symmetric: one product for both modes."""

    @staticmethod
    def forward(scaled: Tensor, noise: Noise) -> Tensor:
        """Probabilities, normalised over the rule's own rounding."""
        total = torch.empty_like(scaled)
        for part in blocks(scaled, scaled.shape[1]):
            total[part] = _probabilities(scaled[part], noise)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scaled, ctx.noise = inputs
        ctx.save_for_backward(scaled)
        ctx.save_for_forward(scaled)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (scaled,) = ctx.saved_tensors
        return _jacobian_product(scaled, ctx.noise, grad), None


class ForwardModeClassProbabilities(ClassProbabilities):
    """The same with forward mode, whose presence keeps torch.compile from tracing a function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        (scaled,) = ctx.saved_tensors
        return _jacobian_product(scaled, ctx.noise, tangent)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], scaled: Tensor, noise: Noise) -> Any:
        folded = scaled.movedim(in_dims[0], 0)
        flat = ForwardModeClassProbabilities.apply(  # type: ignore[no-untyped-call]
            folded.flatten(0, 1), noise
        )
        return flat.unflatten(0, folded.shape[:2]), 0


def _nodes(scaled: Tensor, noise: Noise) -> tuple[Tensor, float]:
    """Values u - max mu of the winning score, (K,), and their step.

    The winner lies above the top logit's own score, and below what C of them reach.
    """
    drop, finest = (18.0, 0.24) if scaled.dtype == torch.float32 else (34.0, 0.13)
    before, after = noise.reach(drop)
    log_classes = math.log(scaled.shape[1])
    after = math.sqrt(2 * (drop + log_classes)) if noise.name == "normal" else after + log_classes
    # The highest of many normal scores is the narrower the more there are.
    narrow = max(1.0, math.sqrt(2 * log_classes) / 3)
    step = finest / narrow if noise.name == "normal" else 3 * finest
    count = math.ceil((before + after) / step)
    places = torch.arange(count + 1, dtype=scaled.dtype, device=scaled.device)
    return step * places - before, step


def _below_the_top(scaled: Tensor) -> Tensor:
    """Distance (N, C) to the highest, clipped where a class never wins, as one at -inf does."""
    return (scaled.detach().amax(1, keepdim=True) - scaled).clamp(max=FARTHEST)


def _probabilities(scaled: Tensor, noise: Noise) -> Tensor:
    nodes, step = _nodes(scaled, noise)
    below = _below_the_top(scaled)
    total = torch.zeros_like(scaled)
    for u in nodes:
        log_cdf, hazard = noise.log_cdf_and_hazard(below + u)
        total += hazard * (log_cdf.sum(1, keepdim=True).exp() * step)
    return total / total.sum(1, keepdim=True)


def _jacobian_product(scaled: Tensor, noise: Noise, along: Tensor) -> Tensor:
    """J v with J_ci = -int prod F (h_c h_i + [c = i] h'_c) du; out of place, so differentiable."""
    nodes, step = _nodes(scaled, noise)
    below = _below_the_top(scaled)
    total = torch.zeros_like(along)
    for u in nodes:
        x = below + u
        log_cdf, hazard = noise.log_cdf_and_hazard(x)
        weight = log_cdf.sum(1, keepdim=True).exp() * step
        pull = (hazard * along).sum(1, keepdim=True)
        total = total - weight * (hazard * pull + noise.hazard_slope(x) * along)
    return total
