"""One autograd function: the method returns value and gradient, this saves and multiplies.

`LogProbability` is the value; `Slope` is its gradient seen as a function of its own, so that a
second derivative exists (double backward, Hessians, forward over reverse). Rows are independent,
so `vmap` folds its axis into the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.probability.execution import is_eager_cpu
from hitrate.probability.margins import Margins
from hitrate.probability.methods.general_quadrature import hessian_product
from hitrate.probability.noises import Noise

# A method: rays' (a, b) -> log p, its slope in a, and its slope in b where b is given.
Method = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor | None]]


class Kernel(NamedTuple):
    """A method that goes all the way: logits, target, sigma, margin -> log p and its gradients."""

    run: Callable[[Tensor, Tensor, Tensor, float | None], tuple[Tensor, Tensor, Tensor]]


def log_probability(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: float | None,
    noise: Noise,
    method: Method | Kernel,
    *,
    learned: bool,
) -> Tensor:
    """Differentiable log p (N,) of logits (N, C), target (N,), sigma (N, 1) or (N, C).

    `learned` says whether sigma may want a gradient.
    """
    function = LogProbability if torch.compiler.is_compiling() else ForwardModeLogProbability
    outputs = function.apply(  # type: ignore[no-untyped-call]
        logits, target, sigma, margin, learned, noise, method
    )
    log_p: Tensor = outputs[0]
    return log_p


class LogProbability(torch.autograd.Function):
    """log p, its gradient saved on the way; see `log_probability`."""

    @staticmethod
    def forward(
        logits: Tensor,
        target: Tensor,
        sigma: Tensor,
        margin: float | None,
        learned: bool,
        noise: Noise,
        method: Method | Kernel,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The value, and its gradient in logits and sigma, which autograd does not see."""
        if isinstance(method, Kernel):
            return method.run(logits, target, sigma, margin)
        margins = Margins.of(logits, target, sigma, margin)
        log_p, slope, slope_b = method(margins.a, margins.b)
        if learned:
            to_logits, to_sigma = margins.pull(slope, slope_b)
        else:
            to_logits, to_sigma = margins.pull_logits_(slope), torch.zeros_like(sigma)
        return _mend(logits, target, log_p, to_logits, to_sigma)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, target, sigma, ctx.margin, _, ctx.noise, _ = inputs
        _, to_logits, to_sigma = output
        ctx.mark_non_differentiable(to_logits, to_sigma)
        ctx.save_for_backward(logits, target, sigma, to_logits, to_sigma)
        ctx.save_for_forward(logits, target, sigma, to_logits, to_sigma)

    @staticmethod
    def _gradient(ctx: Any) -> tuple[Tensor, Tensor]:
        logits, target, sigma, to_logits, to_sigma = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return to_logits, to_sigma
        gradient: tuple[Tensor, Tensor] = Slope.apply(  # type: ignore[no-untyped-call]
            logits, target, sigma, to_logits, to_sigma, ctx.margin, ctx.noise
        )
        return gradient

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        to_logits, to_sigma = LogProbability._gradient(ctx)
        grad = grad[:, None]
        return (
            grad * to_logits if ctx.needs_input_grad[0] else None,
            None,
            grad * to_sigma if ctx.needs_input_grad[2] else None,
            *[None] * 4,
        )


class ForwardModeLogProbability(LogProbability):
    """The same with forward mode, whose presence keeps torch.compile from tracing a function."""

    @staticmethod
    def jvp(ctx: Any, logits: Tensor | None, _: Any, sigma: Tensor | None, *__: Any) -> Any:
        to_logits, to_sigma = LogProbability._gradient(ctx)
        tangent = torch.zeros_like(to_logits[:, 0])
        if logits is not None:
            tangent = tangent + (to_logits * logits).sum(1)
        if sigma is not None:
            tangent = tangent + (to_sigma * sigma).sum(1)
        return tangent, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        return _fold(ForwardModeLogProbability, info.batch_size, in_dims, inputs, tensors=3)


class Slope(torch.autograd.Function):
    """The gradient of log p, already computed, as a function that can be differentiated once."""

    @staticmethod
    def forward(
        logits: Tensor,
        target: Tensor,
        sigma: Tensor,
        to_logits: Tensor,
        to_sigma: Tensor,
        margin: float | None,
        noise: Noise,
    ) -> tuple[Tensor, Tensor]:
        """Hand through what `LogProbability` found."""
        return to_logits.clone(), to_sigma.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, target, sigma, _, _, ctx.margin, ctx.noise = inputs
        ctx.save_for_backward(logits, target, sigma)
        ctx.save_for_forward(logits, target, sigma)

    @staticmethod
    def _hessian(ctx: Any, logits: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """The Hessian of log p in (logits, sigma) times a direction, docs/math.md (18)."""
        own_logits, target, own_sigma = ctx.saved_tensors
        margins = Margins.of(own_logits, target, own_sigma, ctx.margin)
        along = margins.push(logits, sigma)
        slope, slope_b, product, product_b = hessian_product(
            margins.a, margins.b, ctx.noise, *along
        )
        to_logits, to_sigma = margins.pull(product, product_b)
        bent_logits, bent_sigma = margins.curve(slope, slope_b, logits, sigma)
        return to_logits + bent_logits, to_sigma + bent_sigma

    @staticmethod
    def backward(ctx: Any, logits: Tensor, sigma: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            to_logits, to_sigma = Slope._hessian(ctx, logits, sigma)
        if torch.is_grad_enabled():
            own_logits, _, own_sigma = ctx.saved_tensors
            to_logits, to_sigma = NoThirdOrder.apply(  # type: ignore[no-untyped-call]
                to_logits, to_sigma, own_logits, own_sigma
            )
        return to_logits, None, to_sigma, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, logits: Tensor | None, _: Any, sigma: Tensor | None, *__: Any) -> Any:
        own_logits, _, own_sigma = ctx.saved_tensors
        return Slope._hessian(
            ctx,
            torch.zeros_like(own_logits) if logits is None else logits,
            torch.zeros_like(own_sigma) if sigma is None else sigma,
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        return _fold(Slope, info.batch_size, in_dims, inputs, tensors=5)


class NoThirdOrder(torch.autograd.Function):
    """Second derivatives that refuse to be differentiated, rather than pass for constants."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        to_logits: Tensor, to_sigma: Tensor, logits: Tensor, sigma: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Hand through."""
        return to_logits.clone(), to_sigma.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        raise RuntimeError("log_expected_accuracy: third derivatives are not available")


def _mend(
    logits: Tensor, target: Tensor, log_p: Tensor, to_logits: Tensor, to_sigma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Infinite logits as in cross entropy.

    A logit of +inf, or none above -inf, leaves log p undefined; a target at -inf cannot win, and
    nothing finite changes that.
    """
    own = logits.gather(1, target[:, None])[:, 0]
    # Every case below shows in the target's logit or in log p, margins being clipped at -1e15.
    if is_eager_cpu(logits) and bool((torch.isfinite(own) & (log_p > -1e14)).all()):
        return log_p, to_logits, to_sigma
    top = logits.amax(1)
    undefined = ~torch.isfinite(top)
    lost = torch.isneginf(own) & ~undefined
    log_p = log_p.masked_fill(lost, -torch.inf).masked_fill(undefined, torch.nan)
    undefined, lost = undefined[:, None], lost[:, None]
    to_logits = to_logits.masked_fill(lost, 0.0).masked_fill(undefined, torch.nan)
    to_sigma = to_sigma.masked_fill(lost, 0.0).masked_fill(undefined, torch.nan)
    return log_p, to_logits, to_sigma


def _fold(
    function: Any, size: int, in_dims: tuple[Any, ...], inputs: tuple[Any, ...], *, tensors: int
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Run a row-wise function with the mapped axis folded into the rows."""
    folded = []
    for tensor, dim in zip(inputs[:tensors], in_dims, strict=False):
        whole = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        folded.append(whole.flatten(0, 1))
    outputs = function.apply(*folded, *inputs[tensors:])
    outputs = tuple(output.unflatten(0, (size, -1)) for output in outputs)
    return outputs, (0,) * len(outputs)
