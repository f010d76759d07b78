"""A loss by kernels: log p, link, weights, ignored rows and mean in one or two, on a GPU.

The same numbers come out of `link_loss` step by step; this saves its passes over the logits, its
memory and most of its calls. For a small batch finding out what is asked for takes longer than the
kernels do. So it is found out once, and a Module whose batches are alike keeps it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from hitrate.losses.normalization import Normalization
from hitrate.losses.ways import standardized
from hitrate.losses.ways.asked import Asked, step_by_step
from hitrate.losses.ways.reduction import Batch, Options
from hitrate.losses.ways.standardized import Standard
from hitrate.probability import arguments
from hitrate.probability.dispatch import is_transformed
from hitrate.probability.execution import is_eager_cpu

PLAIN = (Tensor, torch.nn.Parameter)


class Ready:
    """What kernels make of logits (R, C) or (N, C, D) that are like these, which are contiguous.

    Parameters
    ----------
    asked : Asked
        Nothing speaks against kernels.
    normalization : Normalization, optional
        With it, logits are standardised first.
    wanted : bool, optional
        Whether a gradient in logits will be asked for; by default as autograd says.
    """

    def __init__(
        self, asked: Asked, normalization: Normalization | None, *, wanted: bool | None = None
    ) -> None:
        logits, target, sigma, link, core, options, call = asked
        launch = kernels()
        self.link, self.core, self.call = link, core, call
        self.normalization = normalization
        self._device = logits.device
        # Of the GPU, if it is one.
        self._index = logits.device.index if logits.is_cuda else None
        self._shapes, self._types = (logits.shape, target.shape), (logits.dtype, target.dtype)
        self._is_aligned = logits.data_ptr() % 16 == 0
        self._grad_mode, self._requires_grad = torch.is_grad_enabled(), logits.requires_grad
        weight = options.weight
        self.weight = None if weight is None else weight.to(logits.device).contiguous()
        self.sigma = sigma
        is_elsewhere = isinstance(sigma, Tensor) and sigma.is_cpu and logits.is_cuda
        if isinstance(sigma, Tensor) and (sigma.requires_grad or not is_elsewhere):
            # Like any number, a single one may come from anywhere; off the device kernels are
            # told its value at every call.
            self.sigma = sigma.to(logits.device).contiguous()
        noise = arguments.noise_named(core.noise, call)
        of_rows = noise.classes_kernel if is_of_all(target, options) else noise.kernel
        kernel = noise.loss_kernel or of_rows
        assert kernel is not None and link.formula is not None
        formula = launch.compiled(link.formula)
        ending = (options.reduction, options.ignore_index, core.margin, options.label_smoothing)
        standard = normalization is not None
        self.rule = launch.Rule(kernel, formula, *link.numbers, *ending, standard)
        self.learned = isinstance(sigma, Tensor) and sigma.requires_grad and self._grad_mode
        recorded = logits.requires_grad and self._grad_mode
        self.wanted = recorded if wanted is None else wanted
        self._is_recorded = recorded or self.learned
        of = (logits, target, self.sigma, self.weight, self.rule)
        self.kernels = launch.call_of(*of, wanted=self.wanted, learned=self.learned)
        # Whether the gradient is there with the value, but for what comes from above.
        self.is_made = self.wanted and not self.learned and self.kernels.is_at_once
        # Tensors that must not change between the value and its gradient.
        in_link = [number for number in vars(link).values() if isinstance(number, Tensor)]
        others = (self.weight, core.margin, options.label_smoothing)
        self.watched = (*in_link, *(other for other in others if isinstance(other, Tensor)))
        # Whether the link makes new numbers of those that move.
        self._is_derived = not all(any(n is m for m in self.rule) for n in in_link)

    def serves(self, logits: Tensor, target: Tensor) -> bool:
        """Whether others are like those that it was made for."""
        return (
            logits.shape == self._shapes[0]
            and target.shape == self._shapes[1]
            and logits.dtype is self._types[0]
            and target.dtype is self._types[1]
            and type(logits) in PLAIN
            and type(target) is Tensor
            and logits.device == self._device == target.device
            and logits.requires_grad == self._requires_grad
            and torch.is_grad_enabled() == self._grad_mode
            and (logits.data_ptr() % 16 == 0) == self._is_aligned
            and logits.is_contiguous()
            and target.is_contiguous()
            and not is_transformed(logits)
        )

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        if self._index is None:
            self._check(target, logits)
        elif self._index != torch.cuda.current_device():
            with torch.cuda.device(self._device):
                return self(logits, target)
        standard, now = None, self._now()
        if self.normalization is not None:
            of = (logits, target, self.sigma, self.rule)
            standard = standardized.facts_of(*of, self.normalization)
            now = standardized.in_units_of(standard, now)
        loss: Tensor
        if self._is_recorded:
            sigma = self.sigma if isinstance(self.sigma, Tensor) else None
            call = (self, target, standard, now)
            loss = FusedLoss.apply(logits, sigma, call)  # type: ignore[no-untyped-call]
        else:
            loss, _ = self.kernels.value(logits, target, now)
        return loss

    def _now(self) -> Any:
        """The numbers as they are now."""
        if not self._is_derived:
            return self.kernels.numbers.now()
        a, b = self.link.numbers
        return kernels().Numbers(self.sigma, self.rule._replace(a=a, b=b), self._device).now()

    def value_and_gradient(
        self, logits: Tensor, target: Tensor, upstream: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss and its gradient, which may overwrite the logits."""
        self._check(target, logits)
        with kernels().on_device(logits):
            loss, found = self.kernels.value(logits, target, self._now())
            # With a margin all of a row's programs read the target's logit.
            into = None if self.rule.margin is not None else logits
            return loss, self.kernels.gradient(logits, target, found, upstream, into)

    def step_by_step(self, logits: Tensor, target: Tensor, sigma: Any, standard: Any) -> Tensor:
        """The same without the kernels' own ways, which torch differentiates as often as asked."""
        rule, core = self.rule, self.core._replace(backend="auto")
        options = Options(self.weight, rule.ignore_index, rule.reduction, rule.smoothing)
        batch = Batch.of(logits, target, options, "exact_loss")
        if standard is not None:
            batch = standardized.by_torch(standard, batch)
        return step_by_step(batch, sigma, self.link, core)

    def _check(self, target: Tensor, logits: Tensor) -> None:
        """Complain about wrong values where looking is free."""
        if not target.is_cpu:
            return
        if target.is_floating_point():
            arguments.check_probabilities(target, self.call)
        elif is_eager_cpu(target):
            aside = target == self.rule.ignore_index
            arguments.check_range(target.masked_fill(aside, 0), logits.shape[1], self.call)


def is_of_all(target: object, options: Options) -> bool:
    """Whether every class of a row is a target, more or less."""
    is_soft = isinstance(target, Tensor) and target.is_floating_point()
    return is_soft or options.is_smoothed


@functools.cache
def kernels() -> Any:
    """The launchers, imported when a loss first needs them."""
    from hitrate.kernels import launch

    return launch


class FusedLoss(torch.autograd.Function):
    """The loss, with what its gradient is made from; see `Ready`."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        sigma: Tensor | None,
        call: tuple[Ready, Tensor, Standard | None, Any],
    ) -> Tensor:
        """The value."""
        ready, target, standard, now = call
        loss: Tensor
        loss, ctx.found = ready.kernels.value(logits, target, now)
        ctx.save_for_backward(logits, target, sigma, *ready.watched)
        ctx.call = ready, standard, now
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient, by the kernels unless it will be differentiated itself."""
        ready, standard, now = ctx.call
        if torch.is_grad_enabled():
            return *_differentiable(ctx, upstream), None
        made, found = ready.kernels, ctx.found
        ctx.found = None
        if ready.is_made and standard is None and found is not None:
            return made.gradient(None, None, found, upstream), None, None
        logits, target, sigma, *_ = ctx.saved_tensors
        if found is None:
            # Called before, with the graph retained: the gradient was given away.
            _, found = made.value(logits, target, now)
        to_logits = to_sigma = None
        if ready.learned and ctx.needs_input_grad[1]:
            each = made.slope_in_sigma(found, upstream)
            to_sigma = each if sigma.numel() > 1 else each.sum().reshape(sigma.shape)
        if ready.wanted and standard is not None and made.is_at_once:
            to_logits = found.gradient
            standardized.pull_back(standard, to_logits, logits, target, (upstream, found.work))
        elif ready.wanted:
            to_logits = made.gradient(logits, target, found, upstream)
            if standard is not None:
                standardized.pull_back(standard, to_logits, logits, target)
        return to_logits, to_sigma, None


def _differentiable(ctx: Any, upstream: Tensor) -> list[Tensor | None]:
    """Gradients in logits and sigma, step by step, which can be differentiated themselves."""
    ready, standard, _ = ctx.call
    logits, target, sigma, *_ = ctx.saved_tensors
    loss = ready.step_by_step(logits, target, ready.sigma if sigma is None else sigma, standard)
    is_wanted = [ctx.needs_input_grad[0], ready.learned and ctx.needs_input_grad[1]]
    inputs = [x for x, wanted in zip((logits, sigma), is_wanted, strict=True) if wanted]
    found = iter(torch.autograd.grad(loss, inputs, upstream.reshape(loss.shape), create_graph=True))
    return [next(found) if wanted else None for wanted in is_wanted]
