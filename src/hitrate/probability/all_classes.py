"""The probabilities of all classes in one pass: docs/math.md, equations (19), (20), (24) to (28).

With u the winning score, x_i = u - mu_i / sigma and L(u) = sum_i log F(x_i),

    log p_c = log int exp(log h(x_c) + L(u)) du :

one set of nodes serves all classes, since L does not depend on c.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.probability import arguments
from hitrate.probability.execution import blocks, full_precision, is_eager_cpu
from hitrate.probability.margins import FARTHEST
from hitrate.probability.noises import NORMAL, Noise

# How far the log of an integrand falls before the nodes end.
DROP = {torch.float32: 16.0, torch.float64: 28.0}
# Distance of the nodes: for normal noise in widths of the narrowest integrand.
SPACING = {
    ("normal", torch.float32): 0.65,
    ("normal", torch.float64): 0.4,
    ("logistic", torch.float32): 0.6,
    ("logistic", torch.float64): 0.4,
}
# Down to classes this far below the highest the nodes are evenly spaced.
NEAR = 40.0
# Most nodes for the classes below that.
FAR_NODES = 48
# Evaluations in the search for the lowest peak.
LOOKS = 6
# Elements of one buffer on a GPU, where all rows at once may not fit.
GPU_BLOCK = 2**23


def log_class_probabilities(
    logits: Tensor, sigma: float | Tensor = 1.0, *, noise: str = "normal"
) -> Tensor:
    r"""Log of the probability of each class to have the highest noisy score.

    .. math::

        \log p_c = \log \int h(u - \mu_c / \sigma) \prod_i F(u - \mu_i / \sigma) \, du

    The `log_expected_accuracy` of every class as the target, in one pass: for soft targets.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
        Scores :math:`\mu`. Half precision is computed in float32.
    sigma : float or Tensor
        Scale of the noise: a number, or shape () or (N,). Its gradient flows.
    noise : {"normal", "logistic", "gumbel"}
        Gumbel noise gives the log-softmax.

    Returns
    -------
    Tensor, shape (N, C)
        log p, never positive, in float32 or float64. Twice differentiable in `logits` and `sigma`.

    Notes
    -----
    For classes up to 40 sigma below the highest the error of log p, relative where it is below -1,
    is at most 5e-6 in float32 and 1e-9 in float64; that of its gradient 5e-5 and 1e-7 of the
    largest entry. A certain winner keeps the digits of 1 - p. Classes more than 80 sigma below have
    log p within 0.3 % and its gradient within a tenth, which leaves the others as they are; those
    more than 5000 sigma below count as 5000 below.

    Examples
    --------
    >>> import torch
    >>> from hitrate.probability import log_class_probabilities
    >>> log_class_probabilities(torch.tensor([[2.0, 1.0, -30.0]]))
    tensor([[-2.7411e-01, -1.4282e+00, -3.3810e+02]])
    """
    return _log_probabilities(logits, sigma, noise, f"log_class_probabilities(noise={noise!r})")


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
        Scale of the noise: a number, or shape () or (N,). Its gradient flows.
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
    log_p = _log_probabilities(logits, sigma, noise, f"class_probabilities(noise={noise!r})")
    # The exponential, divided by its sum, which differs from 1 by the error of the rule.
    return torch.softmax(log_p, 1)


def _log_probabilities(logits: Tensor, sigma: float | Tensor, noise: str, call: str) -> Tensor:
    """Check, scale and dispatch."""
    scores = arguments.logits_of(logits, call)
    scale = arguments.sigma_of(sigma, scores, call)
    kind = arguments.noise_named(noise, call)
    if scale.shape[1] > 1:
        raise ValueError(f"{call}: takes one sigma per row, got {tuple(scale.shape)}")
    with full_precision(scores):
        # Only differences count, so the highest may be 0. A class at -inf is out whatever sigma
        # is, and must not give it a NaN gradient; a row with nothing else is undefined.
        top = scores.detach().amax(1, keepdim=True)
        out = torch.isneginf(scores) & ~torch.isneginf(top)
        scaled = ((scores.masked_fill(out, 0.0) - top) / scale).masked_fill(out, -torch.inf)
        if kind.name == "gumbel" or not len(scores):
            return torch.log_softmax(scaled, 1)
        compiling = torch.compiler.is_compiling()
        function = LogClassProbabilities if compiling else ForwardModeLogClassProbabilities
        log_p: Tensor = function.apply(scaled, kind)[0]  # type: ignore[no-untyped-call]
    return log_p


class LogClassProbabilities(torch.autograd.Function):
    """All log p_c of scaled logits (N, C), highest 0; the nodes (N, K) serve the derivatives."""

    @staticmethod
    def forward(scaled: Tensor, noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
        """log p, and the nodes with the logs of their distances, which autograd does not see."""
        below, out = _below(scaled)
        u, log_step = _nodes(below, out, noise)
        sums = []
        for part in _parts(scaled, scaled.shape[1] * u.shape[1]):
            log_terms, _ = _log_terms(below[part], u[part], log_step[part], noise)
            sums.append(_log_sum_exp(log_terms))
        log_p = _complete(torch.cat(sums), scaled)
        return torch.where(out, log_p - torch.inf, log_p), u, log_step

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        scaled, ctx.noise = inputs
        log_p, u, log_step = output
        ctx.mark_non_differentiable(u, log_step)
        ctx.save_for_backward(scaled, log_p, u, log_step)
        ctx.save_for_forward(scaled, log_p, u, log_step)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None]:
        # J^T v of math (26), out of place: it is differentiated for second derivatives.
        scaled, log_p, u, log_step = ctx.saved_tensors
        below, out = _below(scaled)
        top, ratio = _to_the_top(scaled, log_p)
        v = grad.masked_fill(out, 0.0)
        v = (v - ratio * v.gather(1, top)).scatter(1, top, 0.0)
        products = []
        for part in _parts(scaled, scaled.shape[1] * u.shape[1]):
            weights, hazard = _weights(below[part], u[part], log_step[part], ctx.noise)
            pull = (weights * v[part][:, :, None]).sum(1, keepdim=True)  # (rows, 1, K)
            steepness = hazard.sum(1, keepdim=True)
            own = v[part] * (weights * steepness).sum(2)
            products.append(own - (hazard * pull).sum(2))
        return torch.cat(products), None


class ForwardModeLogClassProbabilities(LogClassProbabilities):
    """The same with forward mode, whose presence keeps torch.compile from tracing a function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> tuple[Tensor, None, None]:
        # J v of math (26).
        scaled, log_p, u, log_step = ctx.saved_tensors
        below, out = _below(scaled)
        top, ratio = _to_the_top(scaled, log_p)
        products = []
        for part in _parts(scaled, scaled.shape[1] * u.shape[1]):
            weights, hazard = _weights(below[part], u[part], log_step[part], ctx.noise)
            along = (hazard * tangent[part][:, :, None]).sum(1, keepdim=True)  # (rows, 1, K)
            steepness = hazard.sum(1, keepdim=True)
            own = tangent[part] * (weights * steepness).sum(2)
            products.append(own - (weights * along).sum(2))
        product = torch.cat(products).masked_fill(out, 0.0).scatter(1, top, 0.0)
        of_top = -(ratio * product).sum(1, keepdim=True)
        return product.scatter(1, top, of_top), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], scaled: Tensor, noise: Noise) -> Any:
        folded = scaled.movedim(in_dims[0], 0)
        outputs = ForwardModeLogClassProbabilities.apply(  # type: ignore[no-untyped-call]
            folded.flatten(0, 1), noise
        )
        return tuple(output.unflatten(0, folded.shape[:2]) for output in outputs), (0, 0, 0)


def _below(scaled: Tensor) -> tuple[Tensor, Tensor]:
    """Distances to the highest, clipped where a class never wins, and which are at -inf."""
    return (-scaled).clamp(max=FARTHEST), torch.isneginf(scaled)


def _parts(a: Tensor, width: int) -> list[slice]:
    """Slices of rows whose buffers of `width` per row stay small; one slice for a compiler."""
    if a.device.type == "cpu" or torch.compiler.is_compiling():
        return blocks(a, width)
    size = GPU_BLOCK // width or 1
    return [slice(start, start + size) for start in range(0, a.shape[0], size)]


def _log_terms(below: Tensor, u: Tensor, log_step: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """Logs of the terms that sum to p_c, math (24), and log h; both (N, C, K)."""
    log_cdf, log_hazard = noise.log_cdf_and_log_hazard(below[:, :, None] + u[:, None, :])
    height = log_cdf.sum(1, keepdim=True) + log_step[:, None, :]
    return log_hazard + height, log_hazard


def _log_sum_exp(log_terms: Tensor) -> Tensor:
    """torch.logsumexp over the last axis, without the denormal numbers that slow a CPU down."""
    highest = log_terms.amax(2, keepdim=True)
    return (log_terms - highest).clamp_(min=-80.0).exp_().sum(2).log_() + highest[:, :, 0]


def _weights(below: Tensor, u: Tensor, log_step: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """Probabilities of the nodes given that c wins, math (25), and h; both (N, C, K)."""
    log_terms, log_hazard = _log_terms(below, u, log_step, noise)
    return torch.softmax(log_terms, 2), log_hazard.exp()


def _complete(log_p: Tensor, scaled: Tensor) -> Tensor:
    """The highest class's log p from what the others leave, where that keeps more digits."""
    top = scaled.argmax(1, keepdim=True)
    others = log_p.exp().scatter(1, top, 0.0).sum(1, keepdim=True)
    own = torch.where(others < 0.5, torch.log1p(-others), log_p.gather(1, top))
    return log_p.scatter(1, top, own)


def _to_the_top(scaled: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """The highest class (N, 1), and all p_c in units of its p, math (27)."""
    top = scaled.argmax(1, keepdim=True)
    return top, (log_p - log_p.gather(1, top)).exp()


class Span(NamedTuple):
    """Where the integrands of a row live, for all classes up to `NEAR` below the highest."""

    high: float
    low: Tensor  # (N, 1)
    step: Tensor  # (N, 1), the distance of nodes that they need
    pace: Tensor | float  # a class this much further down moves the lower end by 1 at most
    nodes: int  # enough for all but contrived rows


def _nodes(below: Tensor, out: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """Values of u, measured from the highest logit, and the logs of their distances: (N, K)."""
    deepest = below.masked_fill(out, 0.0).amax(1, keepdim=True)
    depth = deepest.clamp(max=NEAR)
    span = (_normal_span if noise.name == "normal" else _logistic_span)(below, depth)
    rest = (deepest - depth) / span.pace
    near, far = span.nodes, FAR_NODES
    if is_eager_cpu(below):
        near = min(4 * near, _most((span.high - span.low) / span.step))
        far = min(far, _most(rest / span.step))
    step = (span.high - span.low) / near
    # The classes further down share their nodes: a cubic leaves the even spacing smoothly, and
    # only where an even one would not reach, math (28).
    j = torch.arange(near + far + 1, dtype=below.dtype, device=below.device)
    after = (j - near).clamp(min=0.0)
    growth = (rest / step - far).clamp(min=0.0) / max(far, 1) ** 3
    u = span.high - step * (j + growth * after**3)
    return u, (step * (1 + 3 * growth * after**2)).log()


def _most(counts: Tensor) -> int:
    """The largest count, rounded up; NaN does not count."""
    return math.ceil(counts.nan_to_num(0.0).amax())


def _logistic_span(below: Tensor, depth: Tensor) -> Span:
    """From below the lowest class, where all C factors fall, to above the highest."""
    classes, drop = below.shape[1], DROP[below.dtype]
    high = drop + 2 + math.log(classes)
    before = (drop + (classes + 1) * math.log(2)) / classes
    spacing = SPACING["logistic", below.dtype]
    nodes = math.ceil((high + NEAR + before) / spacing)
    return Span(high, -depth - before, torch.full_like(depth, spacing), 1.0, nodes)


def _normal_span(below: Tensor, depth: Tensor) -> Span:
    """From below the peak of a class at `depth`, the lowest and narrowest of all."""
    classes, drop = below.shape[1], DROP[below.dtype]
    high = math.sqrt(2 * (drop + math.log(classes)))
    found = [_peak(below[part], depth[part], high) for part in _parts(below, classes)]
    peak, tilt, curvature = torch.split(torch.cat(found), 1, dim=1)
    # The bound to the left of math (9); the derivatives have one more factor h, hence the 2.
    low = peak - ((tilt * tilt + 2 * curvature * (drop + 2)).sqrt() - tilt) / curvature
    spacing = SPACING["normal", below.dtype]
    nodes = math.ceil((42 + 3.2 * math.log2(classes)) / spacing)
    return Span(high, low, spacing * curvature.rsqrt(), curvature, nodes)


def _peak(below: Tensor, depth: Tensor, high: float) -> Tensor:
    """A place near the peak of a class at `depth`, math (8), slope and curvature there: (N, 3)."""
    # The peak lies above the middle between the class and the highest, since h(x) > -x.
    low = 0.01 - 0.5 * depth
    u = low + 0.5
    # The class itself is no rival of its own: what it adds is taken off again.
    columns = torch.cat([below, depth], 1)
    sign = torch.ones_like(columns[:1])
    sign[:, -1] = -1.0
    for look in range(LOOKS):
        own, x = u + depth, u + columns
        hazard = NORMAL.log_cdf_and_log_hazard(x)[1].exp()
        first = (sign * hazard).sum(1, keepdim=True).clamp_min(1e-30)  # A, 0 without rivals
        second = (sign * hazard * (x + hazard)).sum(1, keepdim=True)  # -A'
        if look < LOOKS - 1:
            # Newton's step for log A = log own. As log A is concave, it comes back from above.
            step = (first / own).log() / (second / first + 1 / own)
            u = (u + step).clamp(max=high).maximum(low)
    return torch.cat([u, first - own, 1 + second], 1)
