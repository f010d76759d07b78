"""The probabilities of all classes in one pass: docs/math.md, equations (19), (20), (24) to (28).

With u the winning score, x_i = u - mu_i / sigma and L(u) = sum_i log F(x_i),

    log p_c = log int exp(log h(x_c) + L(u)) du :

one set of nodes serves all classes, since L does not depend on c.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from hitrate.probability import arguments
from hitrate.probability.dispatch import HAS_TRITON, KERNEL_DTYPES, is_transformed
from hitrate.probability.execution import full_precision, parts, parts_of_row
from hitrate.probability.margins import FARTHEST, FARTHEST_ANYWHERE, scaled_down
from hitrate.probability.methods import class_nodes
from hitrate.probability.noises import Noise
from hitrate.probability.sharded import by_rows, is_sharded

# Logs of hazards that are large, and numbers.
LARGEST = {torch.float32: 80.0, torch.float64: 600.0}


def log_class_probabilities(
    logits: Tensor, sigma: float | Tensor = 1.0, *, noise: str | Noise = "normal"
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
    noise : {"normal", "logistic", "gumbel"} or Noise
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
    call = f"log_class_probabilities(noise={noise!r})"
    return _probabilities(logits, sigma, noise, call, is_log=True)


def class_probabilities(
    logits: Tensor, sigma: float | Tensor = 1.0, *, noise: str | Noise = "normal"
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
    noise : {"normal", "logistic", "gumbel"} or Noise
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
    return _probabilities(logits, sigma, noise, call, is_log=False)


def _probabilities(
    logits: Tensor, sigma: float | Tensor, noise: str | Noise, call: str, *, is_log: bool
) -> Tensor:
    """Check, scale and dispatch: log p, or p."""
    if is_sharded(logits):
        of_rows = functools.partial(_probabilities, noise=noise, call=call, is_log=is_log)
        return by_rows(of_rows, logits, sigma)
    scores = arguments.logits_of(logits, call)
    scale = arguments.sigma_of(sigma, scores, call)
    kind = arguments.noise_named(noise, call)
    if scale.shape[1] > 1:
        raise ValueError(f"{call}: takes one sigma per row, got {tuple(scale.shape)}")
    if kind.classes_kernel is not None and _may_run_kernel(logits, sigma):
        each = scale[:, 0].contiguous() if isinstance(sigma, Tensor) else float(sigma)
        del scores  # A copy where logits are of half precision, which kernels read as they are.
        by_kernel = kernel_log_probabilities if is_log else kernel_probabilities
        return by_kernel(logits, each, kind)
    log_p = _by_torch(scores, scale, kind)
    return log_p if is_log else _normalised(log_p)


def _normalised(log_p: Tensor) -> Tensor:
    """The exponential, divided by its sum, which differs from 1 by the error of the rule."""
    return torch.softmax(log_p, 1)


def _by_torch(scores: Tensor, scale: Tensor, kind: Noise) -> Tensor:
    """All log p_c of float32 or float64, sigma (N, 1), by functions that torch differentiates."""
    with full_precision(scores):
        # Only differences count, so the highest may be 0. A class at -inf is out whatever sigma
        # is, and must not give it a NaN gradient; a row with nothing else is undefined.
        top = scores.detach().amax(1, keepdim=True)
        out = torch.isneginf(scores) & ~torch.isneginf(top)
        learned = scale.requires_grad or is_transformed(scale)
        # A difference may be beyond all numbers too.
        lowest = torch.finfo(scores.dtype).min
        below = (scores.masked_fill(out, 0.0) - top).clamp(min=lowest).masked_fill(out, 0.0)
        scaled = scaled_down(below, scale, learned=learned).masked_fill(out, -torch.inf)
        if kind.closed_form_of_classes is not None:
            closed: Tensor = kind.closed_form_of_classes(scaled)
            return closed
        if not len(scores):
            return scaled
        if kind.class_nodes is None:
            # Whatever its tails are like.
            scaled = scaled.double()
        compiling = torch.compiler.is_compiling()
        function = LogClassProbabilities if compiling else ForwardModeLogClassProbabilities
        log_p: Tensor = function.apply(scaled, kind)[0]  # type: ignore[no-untyped-call]
    return log_p.to(scores.dtype)


def _may_run_kernel(logits: Tensor, sigma: float | Tensor) -> bool:
    """Whether kernels compute what is asked for, rows are there, and torch does not look inside."""
    if type(logits) not in (Tensor, torch.nn.Parameter) or not (logits.is_cuda and len(logits)):
        return False
    if not HAS_TRITON or torch.compiler.is_compiling() or is_transformed(logits):
        return False
    if isinstance(sigma, Tensor) and (sigma.requires_grad or is_transformed(sigma)):
        return False
    return logits.dtype in KERNEL_DTYPES


def kernel_log_probabilities(logits: Tensor, sigma: float | Tensor, noise: Noise) -> Tensor:
    """All log p_c in float32 by kernels, sigma a number or (N,)."""
    found: Tensor = KernelProbabilities.apply(  # type: ignore[no-untyped-call]
        logits.contiguous(), sigma, noise, True
    )
    return found


def kernel_probabilities(logits: Tensor, sigma: float | Tensor, noise: Noise) -> Tensor:
    """All p_c in the same way. Nothing else of their size is kept for the gradient."""
    found: Tensor = KernelProbabilities.apply(  # type: ignore[no-untyped-call]
        logits.contiguous(), sigma, noise, False
    )
    return found


class KernelProbabilities(torch.autograd.Function):
    """See `kernel_log_probabilities`; derivatives of the gradient go the torch way."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, sigma: float | Tensor, noise: Noise, is_log: bool
    ) -> Tensor:
        from hitrate.kernels.launch import all_classes as all_classes_launch

        assert noise.classes_kernel is not None
        by_kernel = (
            all_classes_launch.log_probabilities if is_log else all_classes_launch.probabilities
        )
        found = by_kernel(logits, sigma, noise.classes_kernel)
        is_tensor = isinstance(sigma, Tensor)
        ctx.save_for_backward(logits, sigma if is_tensor else None, None if is_log else found)
        ctx.number, ctx.noise = None if is_tensor else sigma, noise
        return found

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        from hitrate.kernels.launch import all_classes as all_classes_launch

        logits, sigma, p = ctx.saved_tensors
        sigma = ctx.number if sigma is None else sigma
        if torch.is_grad_enabled():
            scores = arguments.scores_of(logits, "log_class_probabilities")
            scale = arguments.sigma_of(sigma, scores, "log_class_probabilities")
            found = _by_torch(scores, scale, ctx.noise)
            found = found if p is None else _normalised(found)
            (gradient,) = torch.autograd.grad(found, logits, upstream, create_graph=True)
        else:
            kernel = ctx.noise.classes_kernel
            gradient = all_classes_launch.product(logits, sigma, upstream, kernel, p)
        return gradient, None, None, None


class LogClassProbabilities(torch.autograd.Function):
    """All log p_c of scaled logits (N, C), highest 0; the nodes (N, K) serve the derivatives."""

    @staticmethod
    def forward(scaled: Tensor, noise: Noise) -> tuple[Tensor, ...]:
        """log p; and the nodes with the logs of their distances, and two parts of the logs of sums.

        Autograd sees the first alone.
        """
        below, out = _below(scaled, noise)
        if noise.class_nodes is None:
            u, log_step = class_nodes.any_noise(below, out, noise)
        else:
            u, log_step = noise.class_nodes(below, out)
        highest, total = torch.empty_like(scaled), torch.empty_like(scaled)
        for part in parts(scaled, scaled.shape[1] * u.shape[1]):
            of_part = (below[part], u[part], log_step[part])
            highest[part], total[part] = _log_sum_exp(*of_part, noise)
        log_p = _complete(total.log() + highest, scaled)
        return torch.where(out, log_p - torch.inf, log_p), u, log_step, highest, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        scaled, ctx.noise = inputs
        log_p, u, log_step, *sums = output
        ctx.mark_non_differentiable(u, log_step, *sums)
        ctx.save_for_backward(scaled, log_p, u, log_step, *sums)
        ctx.save_for_forward(scaled, log_p, u, log_step)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None]:
        # J^T v of math (26), out of place: it is differentiated for second derivatives.
        scaled, log_p, u, log_step, highest, total = ctx.saved_tensors
        below, out = _below(scaled, ctx.noise)
        top, ratio = _to_the_top(scaled, log_p)
        v = grad.masked_fill(out, 0.0)
        v = (v - ratio * v.gather(1, top)).scatter(1, top, 0.0)
        is_last = not torch.is_grad_enabled() and not is_transformed(grad)
        products = []
        for part in parts(scaled, scaled.shape[1] * u.shape[1]):
            if is_last and len(parts_of_row(u.shape[1], scaled.shape[1], scaled[part])) > 1:
                sums = highest[part], total[part]
                of_part = v[part], below[part], u[part], log_step[part]
                products.append(_product(*of_part, *sums, ctx.noise))
                continue
            weights, hazard = _weights(below[part], u[part], log_step[part], ctx.noise)
            pull = (weights * v[part][:, :, None]).sum(1, keepdim=True)  # (rows, 1, K)
            steepness = hazard.sum(1, keepdim=True)
            own = v[part] * (weights * steepness).sum(2)
            products.append(own - (hazard * pull).sum(2))
        return torch.cat(products), None


class ForwardModeLogClassProbabilities(LogClassProbabilities):
    """The same with forward mode, whose presence keeps torch.compile from tracing a function."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        # J v of math (26).
        scaled, log_p, u, log_step, *_ = ctx.saved_tensors
        below, out = _below(scaled, ctx.noise)
        top, ratio = _to_the_top(scaled, log_p)
        products = []
        for part in parts(scaled, scaled.shape[1] * u.shape[1]):
            weights, hazard = _weights(below[part], u[part], log_step[part], ctx.noise)
            along = (hazard * tangent[part][:, :, None]).sum(1, keepdim=True)  # (rows, 1, K)
            steepness = hazard.sum(1, keepdim=True)
            own = tangent[part] * (weights * steepness).sum(2)
            products.append(own - (weights * along).sum(2))
        product = torch.cat(products).masked_fill(out, 0.0).scatter(1, top, 0.0)
        of_top = -(ratio * product).sum(1, keepdim=True)
        return product.scatter(1, top, of_top), *[None] * 4

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], scaled: Tensor, noise: Noise) -> Any:
        folded = scaled.movedim(in_dims[0], 0)
        outputs = ForwardModeLogClassProbabilities.apply(  # type: ignore[no-untyped-call]
            folded.flatten(0, 1), noise
        )
        return tuple(output.unflatten(0, folded.shape[:2]) for output in outputs), (0,) * 5


def _below(scaled: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """Distances to the highest, clipped where a class never wins, and which are at -inf."""
    farthest = FARTHEST_ANYWHERE if noise.class_nodes is None else FARTHEST
    return (-scaled).clamp(max=farthest), torch.isneginf(scaled)


def _log_terms(below: Tensor, u: Tensor, log_step: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """Logs of the terms that sum to p_c, math (24), and log h; both (N, C, K)."""
    log_cdf, log_hazard = noise.log_cdf_and_log_hazard(below[:, :, None] + u[:, None, :])
    height = log_cdf.sum(1, keepdim=True) + log_step[:, None, :]
    return log_hazard + height, log_hazard


def _log_sum_exp(below: Tensor, u: Tensor, log_step: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """The highest log of the terms (n, C), and the sum of all terms in its units, some at a time.

    Without the denormal numbers that slow a CPU down.
    """
    highest = torch.full_like(below, -torch.inf)
    total = torch.zeros_like(below)
    for some in parts_of_row(u.shape[1], below.numel(), below):
        log_terms, _ = _log_terms(below, u[:, some], log_step[:, some], noise)
        higher = torch.maximum(highest, log_terms.amax(2))
        total = total.mul_((highest - higher).exp_())
        total = total.add_((log_terms - higher[:, :, None]).clamp_(min=-80.0).exp_().sum(2))
        highest = higher
    return highest, total


def _product(
    v: Tensor,
    below: Tensor,
    u: Tensor,
    log_step: Tensor,
    highest: Tensor,
    total: Tensor,
    noise: Noise,
) -> Tensor:
    """J^T v of math (26) for some rows, some nodes at a time."""
    found, share = torch.zeros_like(v), v / total
    for some in parts_of_row(u.shape[1], below.numel(), below):
        log_terms, log_hazard = _log_terms(below, u[:, some], log_step[:, some], noise)
        # Times v, and so what each class pulls at each node.
        pull = log_terms.sub_(highest[:, :, None]).exp_().mul_(share[:, :, None])
        # Where a hazard is beyond all numbers the weight is zero.
        hazard = log_hazard.clamp_(max=LARGEST[log_hazard.dtype]).exp_()
        steepness, pulled = (part.sum(1, keepdim=True) for part in (hazard, pull))
        found += pull.mul_(steepness).sum(2) - hazard.mul_(pulled).sum(2)
    return found


def _weights(below: Tensor, u: Tensor, log_step: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """Probabilities of the nodes given that c wins, math (25), and h; both (N, C, K)."""
    log_terms, log_hazard = _log_terms(below, u, log_step, noise)
    # Where a hazard is beyond all numbers the weight is zero.
    return torch.softmax(log_terms, 2), log_hazard.clamp(max=LARGEST[log_hazard.dtype]).exp()


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
