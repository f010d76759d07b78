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

from hitrate.probability.execution import double, is_eager_cpu, row_parts
from hitrate.probability.margins import Margins
from hitrate.probability.methods import general_quadrature, top_k
from hitrate.probability.noises import Noise

# Above, gradients are numbers unless the target is hopelessly behind.
SMALL_SIGMA = 1e-20

# Logits of a method that holds few tensors of their size, up to which those are no matter.
FEW = 2**14
# Up to here nodes in float64 are closer to each other than noises are wide.
FARTHEST_BEHIND = 1e12


class Margined(NamedTuple):
    """A method: margins' a, and b where there is one sigma per class, to log p and its slopes.

    One that knows no b returns two values. With `anywhere` margins are as any noise needs them.
    p is the probability to be among the k highest. `is_linear` if the noise has linear tails;
    `is_light` if a method holds few tensors of the margins' size.
    """

    run: Any
    anywhere: bool = False
    k: int = 1
    is_linear: bool | None = False
    is_light: bool = False


class Kernel(NamedTuple):
    """A method that goes all the way: logits, target, sigma, margin -> log p and its gradients."""

    run: Callable[..., tuple[Tensor, Tensor, Tensor]]
    k: int = 1


Steps = Margined | Kernel


def log_probability(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: float | Tensor | None,
    noise: Noise,
    steps: Steps,
    *,
    learned: bool,
) -> Tensor:
    """Differentiable log p (N,) of logits (N, C), target (N,), sigma (N, 1) or (N, C).

    `learned` says whether sigma may want a gradient.
    """
    function = LogProbability if torch.compiler.is_compiling() else ForwardModeLogProbability
    outputs = function.apply(  # type: ignore[no-untyped-call]
        logits, target, sigma, margin, learned, noise, steps
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
        margin: float | Tensor | None,
        learned: bool,
        noise: Noise,
        steps: Steps,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The value, and its gradient in logits and sigma, which autograd does not see."""
        if isinstance(steps, Kernel):
            return steps.run(logits, target, sigma, margin)
        if not steps.anywhere:
            return _some(logits, target, sigma, margin, learned, steps)
        # In float64, and with more of what is of the logits' size: some rows at a time.
        width = logits.shape[1]
        pieces = (
            row_parts(logits, width // 2, FEW) if steps.is_light else row_parts(logits, 2 * width)
        )
        found = [
            _some(logits[rows], target[rows], sigma[rows], margin, learned, steps)
            for rows in pieces
        ]
        if len(found) == 1:
            return found[0]
        log_p, to_logits, to_sigma = map(torch.cat, zip(*found, strict=True))
        return log_p, to_logits, to_sigma

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, target, sigma, margin, _, ctx.noise, steps = inputs
        ctx.k = steps.k
        _, to_logits, to_sigma = output
        ctx.mark_non_differentiable(to_logits, to_sigma)
        _keep(ctx, (logits, target, sigma, to_logits, to_sigma), margin)

    @staticmethod
    def _gradient(ctx: Any) -> tuple[Tensor, Tensor]:
        (logits, target, sigma, to_logits, to_sigma), margin = _kept(ctx)
        if not torch.is_grad_enabled():
            return to_logits, to_sigma
        gradient: tuple[Tensor, Tensor] = Slope.apply(  # type: ignore[no-untyped-call]
            logits, target, sigma, to_logits, to_sigma, margin, ctx.noise, ctx.k
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


def _some(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    margin: float | Tensor | None,
    learned: bool,
    steps: Margined,
) -> tuple[Tensor, Tensor, Tensor]:
    """log p of some rows, and its gradient in logits and sigma."""
    near, times = _in_reach(logits, target, sigma) if steps.is_linear else (logits, None)
    margins = Margins.of(near, target, sigma, margin, anywhere=steps.anywhere)
    if steps.anywhere:
        log_p, slope, slope_b = steps.run(margins.a, margins.b)
    else:
        log_p, slope = steps.run(margins.a)
        slope_b = None
    if learned:
        to_logits, to_sigma = margins.pull(slope, slope_b)
    else:
        to_logits, to_sigma = margins.pull_logits_(slope), torch.zeros_like(sigma)
    if times is not None:
        # Slopes are those of the smaller margins. What is beyond all numbers is the largest one.
        limit = torch.finfo(logits.dtype).max
        log_p, to_sigma = (log_p * times[:, 0]).clamp_min(-limit), to_sigma * times
        to_sigma = to_sigma.clamp(-limit, limit)
    if steps.anywhere:
        log_p, to_logits, to_sigma = (a.to(logits) for a in (log_p, to_logits, to_sigma))
    return _mend(logits, target, sigma, log_p, to_logits, to_sigma, steps.k)


def _in_reach(logits: Tensor, target: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Logits as far apart as quadrature can follow, and how many times (N, 1) smaller they are."""
    logits = double(logits)
    behind = (logits - logits.gather(1, target[:, None])) / double(sigma)
    times = (behind.amax(1, keepdim=True) / FARTHEST_BEHIND).clamp_min(1.0)
    times = times.where(times.isfinite(), 1.0)
    return logits / times, times


class Slope(torch.autograd.Function):
    """The gradient of log p, already computed, as a function that can be differentiated once."""

    @staticmethod
    def forward(
        logits: Tensor,
        target: Tensor,
        sigma: Tensor,
        to_logits: Tensor,
        to_sigma: Tensor,
        margin: float | Tensor | None,
        noise: Noise,
        k: int,
    ) -> tuple[Tensor, Tensor]:
        """Hand through what `LogProbability` found."""
        return to_logits.clone(), to_sigma.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, target, sigma, _, _, margin, ctx.noise, ctx.k = inputs
        _keep(ctx, (logits, target, sigma), margin)

    @staticmethod
    def _hessian(ctx: Any, logits: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """The Hessian of log p in (logits, sigma) times a direction, docs/math.md (18)."""
        (own_logits, target, own_sigma), margin = _kept(ctx)
        # Rare enough to be done for any noise, and in float64.
        margins = Margins.of(own_logits, target, own_sigma, margin, anywhere=True)
        logits, sigma = double(logits), double(sigma)
        along = margins.push(logits, sigma)
        if ctx.k == 1:
            found = general_quadrature.hessian_product(margins.a, margins.b, ctx.noise, *along)
        else:
            found = top_k.hessian_product(margins.a, margins.b, ctx.noise, ctx.k, *along)
        slope, slope_b, product, product_b = found
        to_logits, to_sigma = margins.pull(product, product_b)
        bent_logits, bent_sigma = margins.curve(slope, slope_b, logits, sigma)
        return (to_logits + bent_logits).to(own_logits), (to_sigma + bent_sigma).to(own_sigma)

    @staticmethod
    def backward(ctx: Any, logits: Tensor, sigma: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            to_logits, to_sigma = Slope._hessian(ctx, logits, sigma)
        if torch.is_grad_enabled():
            (own_logits, _, own_sigma), _ = _kept(ctx)
            to_logits, to_sigma = NoThirdOrder.apply(  # type: ignore[no-untyped-call]
                to_logits, to_sigma, own_logits, own_sigma
            )
        return to_logits, None, to_sigma, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, logits: Tensor | None, _: Any, sigma: Tensor | None, *__: Any) -> Any:
        (own_logits, _, own_sigma), _ = _kept(ctx)
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


def _keep(ctx: Any, tensors: tuple[Tensor, ...], margin: float | Tensor | None) -> None:
    """Save what derivatives need; a margin that moves is a tensor too."""
    ctx.margin = None if isinstance(margin, Tensor) else margin
    saved = (*tensors, margin) if isinstance(margin, Tensor) else tensors
    ctx.count = len(tensors)
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)


def _kept(ctx: Any) -> tuple[tuple[Tensor, ...], float | Tensor | None]:
    """The tensors and the margin that `_keep` saved."""
    saved = ctx.saved_tensors
    return saved[: ctx.count], saved[ctx.count] if len(saved) > ctx.count else ctx.margin


def _mend(
    logits: Tensor,
    target: Tensor,
    sigma: Tensor,
    log_p: Tensor,
    to_logits: Tensor,
    to_sigma: Tensor,
    k: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Infinite logits as in cross entropy.

    A logit of +inf, or none above -inf, leaves log p undefined; a target at -inf cannot win, and
    nothing finite changes that.
    """
    own = logits.gather(1, target[:, None])[:, 0]
    if not (is_eager_cpu(sigma) and bool((sigma > SMALL_SIGMA).all())):
        # What is beyond all numbers, times nothing, would not be a number.
        limit = torch.finfo(to_logits.dtype).max / 4
        to_logits, to_sigma = (a.clamp(-limit, limit) for a in (to_logits, to_sigma))
    # Every case below shows in the target's logit or in log p, margins being clipped at -1e15; but
    # of k > 1 rivals one may be at +inf and log p a usual number.
    if is_eager_cpu(logits) and bool((torch.isfinite(own) & (log_p > -1e14)).all()):
        if k == 1 or bool((logits < torch.inf).all()):
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
