"""A link of log p with cross entropy's options: the function, and the Module that others are.

A named loss is a noise and a link made of its parameters; see `hitrate.losses.named`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor

from hitrate.links import Link
from hitrate.losses import few_operations, fused
from hitrate.losses.base import ClassificationLoss, floating, split_options
from hitrate.losses.normalization import normalize_logits
from hitrate.losses.reduction import Batch, LossOptions, Options, each_class_as_target
from hitrate.probability import class_probabilities, log_class_probabilities
from hitrate.probability.accuracy import log_p_of_target
from hitrate.probability.arguments import Core, is_moving, is_number, noise_named
from hitrate.probability.dispatch import Choice, Request, choose, is_transformed
from hitrate.probability.noises import GUMBEL

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Call(NamedTuple):
    """What complaints begin with, made into words only when there is one."""

    name: str
    arguments: Any

    def __str__(self) -> str:
        if isinstance(self.arguments, Link):
            shown = repr(self.arguments)
            return f"{self.name}{shown[shown.index('(') :]}"
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


class Normalization(NamedTuple):
    """Whether logits are standardised over the batch first, and with which processes."""

    is_on: bool = False
    process_group: ProcessGroup | None = None


def link_loss(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    link: Link,
    core: Core,
    options: Options,
    call: object,
    normalization: Normalization | None = None,
) -> Tensor:
    """A link of log p; the arguments are those of `exact_loss`, gathered."""
    batch, rows, labels = None, logits, target
    normalized = normalization is not None and normalization.is_on
    if not normalized:
        loss = _on_gpu(logits, target, sigma, link, core, options, call)
        if loss is not None:
            return loss
    if normalized or not isinstance(logits, Tensor) or logits.dim() != 2:
        batch = Batch.of(logits, target, options, call)
        sigma = batch.rows_of(sigma, "sigma")
        if normalization is not None and normalized:
            found = normalize_logits(batch.logits, batch.ignored, normalization.process_group)
            batch = dataclasses.replace(batch, logits=found)
        rows = batch.logits
        labels = batch.target if batch.is_soft else target.reshape(-1)
    choice = _choice(rows, labels, sigma, link, core, options, call)
    if choice.way == "fused":
        loss = fused.fused_loss(rows, labels, sigma, link, core, options, call)
        per_row = batch is not None and options.reduction == "none"
        return loss.reshape(batch.layout) if batch is not None and per_row else loss
    if batch is None:
        batch = Batch.of(logits, target, options, call)
        sigma = batch.rows_of(sigma, "sigma")
    if choice.way == "softmax" and not isinstance(sigma, Tensor):
        return few_operations.softmax_loss(batch, sigma, link, core)
    return step_by_step(batch, sigma, link, core, choice)


def _on_gpu(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    link: Link,
    core: Core,
    options: Options,
    call: object,
) -> Tensor | None:
    """The loss by kernels that read logits as they lie, or None where that takes a closer look."""
    found = _as_they_lie(logits, target, sigma, core)
    if found is None:
        return None
    if _choice(*found, sigma, link, core, options, call).way != "fused":
        return None
    loss = fused.fused_loss(*found, sigma, link, core, options, call)
    if options.reduction == "none" and logits.dim() > 2:
        return loss.reshape(logits.shape[:1] + logits.shape[2:])
    return loss


def explain_loss(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    link: Link,
    core: Core,
    options: Options,
    call: object,
) -> Choice:
    """The way that `link_loss` takes, without taking it."""
    may_lie = _as_they_lie(logits, target, sigma, core)
    if may_lie is not None:
        choice = _choice(*may_lie, sigma, link, core, options, call)
        if choice.way == "fused":
            return choice
    if logits.dim() == 2:
        return _choice(logits, target, sigma, link, core, options, call)
    batch = Batch.of(logits, target, options, call)
    sigma = batch.rows_of(sigma, "sigma")
    labels = batch.target if batch.is_soft else target.reshape(-1)
    return _choice(batch.logits, labels, sigma, link, core, options, call)


def step_by_step(
    batch: Batch, sigma: float | Tensor, link: Link, core: Core, choice: Choice
) -> Tensor:
    """log p, its link, and cross entropy's options, one after the other."""

    def log_p(rows: Tensor, y: Tensor, sigma: float | Tensor = sigma) -> Tensor:
        return log_p_of_target(rows, y, sigma, core)

    def log_p_of_classes(rows: Tensor) -> Tensor:
        if choice.way != "each_class":
            return log_class_probabilities(rows, sigma, noise=core.noise)
        each = sigma
        if isinstance(sigma, Tensor) and sigma.dim() and sigma.shape[0] == rows.shape[0]:
            each = sigma.repeat_interleave(rows.shape[1], 0)
        return each_class_as_target(lambda copies, y: log_p(copies, y, each))(rows)

    if link.of_batch:
        return batch.loss(log_p, log_p_of_classes, link.pool)
    return batch.loss(
        lambda rows, y: link(log_p(rows, y)), lambda rows: link(log_p_of_classes(rows))
    )


def _as_they_lie(
    logits: Any, target: Any, sigma: float | Tensor, core: Core
) -> tuple[Tensor, Tensor] | None:
    """Logits (N, C), or (N, C, d1, ...) as (N, C, D), and their target, for kernels to read.

    None where there are no kernels, or where rows next to each other are better copied.
    """
    if not (isinstance(logits, Tensor) and isinstance(target, Tensor)):
        return None
    if not (logits.is_cuda or core.backend == "triton"):
        return None
    if logits.dim() <= 2:
        return (logits, target) if logits.dim() == 2 else None
    if not logits.is_contiguous() or not logits.numel() or logits.shape[1] > MOST_ACROSS:
        return None
    if logits[0].numel() >= 2**31 or (isinstance(sigma, Tensor) and sigma.numel() > 1):
        return None
    if target.shape == logits.shape:
        return logits.flatten(2), target.flatten(2)
    if target.shape == logits.shape[:1] + logits.shape[2:]:
        return logits.flatten(2), target.flatten(1)
    return None


def _choice(
    rows: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    link: Link,
    core: Core,
    options: Options,
    call: object,
) -> Choice:
    """The way to go, for logits as rows (R, C) or (N, C, D).

    It depends on types, shapes and options, not on values: a training step looks once.
    """
    key = _kind(rows, target, sigma, link, core, options)
    choice = None if key is None else _choices.get(key)
    if choice is None:
        choice = _chosen(rows, target, sigma, link, core, options, call)
        if key is not None:
            if len(_choices) >= MOST_CHOICES:
                _choices.clear()
            _choices[key] = choice
    return choice


_choices: dict[tuple[Any, ...], Choice] = {}
MOST_CHOICES = 4096
# Rows next to each other are read in tiles of so many classes at the most.
MOST_ACROSS = 1024
PLAIN = (Tensor, torch.nn.Parameter)


def _kind(
    rows: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    link: Link,
    core: Core,
    options: Options,
) -> tuple[Any, ...] | None:
    """All that decides on the way of a usual call; None if it takes a closer look.

    Numbers that move are so whatever their values.
    """
    weight = options.weight
    if torch.compiler.is_compiling() or type(rows) not in PLAIN or type(target) is not Tensor:
        return None
    if isinstance(sigma, Tensor):
        # On a CPU it is checked to be positive, whenever it comes.
        if sigma.is_cpu or not is_moving(sigma) or is_transformed(sigma):
            return None
    elif not (is_number(sigma) and 1e-37 < sigma < 1e38):
        return None
    if not target.dim() or not len(target) == len(rows) > 0:
        return None
    if is_transformed(rows) or not (weight is None or type(weight) in PLAIN):
        return None
    smoothing = options.label_smoothing
    if not (isinstance(core.noise, str) and _is_usual(core.margin) and _is_usual(smoothing)):
        return None
    if not all(map(_is_usual, link.numbers)):
        return None
    return (
        (rows.dtype, rows.device, rows.shape[1:]),
        (target.dtype, target.device, target.shape[1:], target.requires_grad),
        None if weight is None else (weight.shape, weight.requires_grad),
        (type(link), link.formula, options.ignore_index, options.reduction),
        (isinstance(sigma, Tensor), _known(core.margin), _known(smoothing)),
        (core.noise, core.method, core.backend, core.nodes),
        os.environ.get("TRITON_INTERPRET"),
    )


def _is_usual(number: object) -> bool:
    """Whether it is none, a number, or a tensor of one that moves."""
    return number is None or type(number) in (float, int) or is_moving(number)


def _known(number: float | Tensor | None) -> Any:
    """A number as far as a way may depend on it: one that moves may be anything."""
    return Tensor if isinstance(number, Tensor) else number


def _chosen(
    rows: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    link: Link,
    core: Core,
    options: Options,
    call: object,
) -> Choice:
    """The way, found by asking all that may speak against it."""
    may_fuse = rows.is_cuda or core.backend == "triton"
    request = Request.of(
        noise_named(core.noise, call),
        rows,
        sigma,
        margin=core.margin,
        nodes=core.nodes,
        method=core.method,
        backend=core.backend,
        all_classes=options.is_smoothed or _is_soft(target),
        not_fused=fused.why_not(rows, target, sigma, link, core, options) if may_fuse else "",
        not_few=few_operations.why_not(rows, sigma, link, options) if rows.is_cpu else "",
    )
    return choose(request, call)


def _is_soft(target: Any) -> bool:
    return isinstance(target, Tensor) and target.is_floating_point()


class LinkLoss(ClassificationLoss):
    """A noise and a link as a Module; the parameters of the link are its attributes.

    A subclass says how its link is made (`make_link`), and names its arguments.
    """

    # Parameters -> the link.
    make_link: ClassVar[Callable[..., Link]]
    noise: Any = "gumbel"

    def __init__(self, link: Link, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.link = link

    @classmethod
    def compute(cls, logits: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of logits, from the parameters of the link and cross entropy's options."""
        link, options = split_options(cls.make_link, args, kwargs)
        call = Call(cls.function_name, link)
        return link_loss(logits, target, 1.0, link, Core(noise=cls.noise), options, call)

    @property
    def link(self) -> Link:
        """The link, with its parameters as they stand now."""
        moving = {
            name: value
            for name in self._link_numbers
            if (value := self._buffers.get(name)) is not None
        }
        return dataclasses.replace(self._link, **moving) if moving else self._link

    @link.setter
    def link(self, link: Link) -> None:
        names = tuple(field.name for field in dataclasses.fields(link))
        for name in getattr(self, "_link_numbers", ()):
            self._buffers.pop(name, None)
        self._link, self._link_numbers = link, names
        for name in names:
            value = getattr(link, name)
            if isinstance(value, Tensor) and value.dim() == 0:
                # What register_buffer does, but for its complaint that there is such an attribute.
                self._buffers[name] = floating(value)

    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that may move, the link's among them."""
        return (*super().numbers(), *self._link_numbers)

    def check_number(self, name: str, value: float) -> None:
        """Complain about a value that a number cannot have; the link knows its own."""
        if name in self._link_numbers:
            dataclasses.replace(self._link.fixed(), **{name: value})
        else:
            super().check_number(name, value)

    def __getattr__(self, name: str) -> Any:
        # Reached for what is neither an attribute nor a buffer: a parameter of the link.
        there = self.__dict__
        if name in there.get("_link_numbers", ()) and there["_buffers"].get(name) is None:
            return getattr(there["_link"], name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_link_numbers", ()) and self._buffers.get(name) is None:
            self.link = dataclasses.replace(self._link, **{name: value})
        else:
            super().__setattr__(name, value)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        link = self.link
        call = Call(self.function_name, link)
        return link_loss(input, target, 1.0, link, Core(noise=self.noise), self.options, call)

    def probabilities(self, input: Tensor) -> Tensor:
        """Probability of each class under the loss's own noise, shaped like the logits `input`."""
        return probabilities_of(input, 1.0, self.noise)


def probabilities_of(input: Tensor, sigma: float | Tensor, noise: Any) -> Tensor:
    """`class_probabilities` of logits (C,), (N, C) or (N, C, d1, ...)."""
    axis = min(1, input.dim() - 1)
    rows = input.movedim(axis, -1)
    if noise_named(noise, "probabilities") == GUMBEL and not isinstance(sigma, Tensor):
        return torch.softmax(input.float() / sigma, axis)
    found = class_probabilities(rows.reshape(-1, rows.shape[-1]), sigma, noise=noise)
    return found.reshape(rows.shape).movedim(-1, axis)
