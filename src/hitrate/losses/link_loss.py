"""A link of log p with cross entropy's options: the function, and the Module that others are.

A named loss is a noise and a link made of its parameters; see `hitrate.losses.named`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import is_
from typing import Any, ClassVar, NamedTuple, Unpack

import torch
from torch import Tensor

from hitrate.links import Link
from hitrate.losses.base import ClassificationLoss, floating, split_options
from hitrate.losses.normalization import Normalization, normalize_logits
from hitrate.losses.ways import fused
from hitrate.losses.ways.asked import Asked, step_by_step
from hitrate.losses.ways.few_operations import ReadyAtOnce, loss_at_once
from hitrate.losses.ways.ready import Ready
from hitrate.losses.ways.reduction import Batch, LossOptions
from hitrate.losses.ways.way import across, way_of
from hitrate.probability import arguments, class_probabilities
from hitrate.probability.arguments import Core, is_moving, is_number, noise_named
from hitrate.probability.autograd import SMALL_SIGMA
from hitrate.probability.dispatch import Choice, is_transformed
from hitrate.probability.execution import is_eager_cpu
from hitrate.probability.noises import GUMBEL

# What a Module keeps of a batch: for kernels, or for few operations on a CPU.
Kept = Ready | ReadyAtOnce


class Hits(NamedTuple):
    """What counts as a hit."""

    k: int = 1


class LinkOptions(LossOptions, total=False):
    """The same, and cross entropy's options, as keywords."""

    k: int


class Call(NamedTuple):
    """What complaints begin with, made into words only when there is one."""

    name: str
    arguments: Any

    def __str__(self) -> str:
        if isinstance(self.arguments, Link):
            shown = repr(self.arguments)
            return f"{self.name}{shown[shown.index('(') :]}"
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


def link_loss(
    asked: Asked,
    normalization: Normalization | None = None,
    keep: Callable[[Kept], None] | None = None,
) -> Tensor:
    """A link of log p; what was found out about the batch goes to `keep`."""
    if asked.options.is_balanced:
        weight, asked = asked.options.weight, _weighted(asked)
        if asked.options.is_balanced or asked.options.weight is not weight:
            # What is kept would have the weights of now.
            keep = None
    options, is_moved = asked.options, isinstance(asked.sigma, Tensor)
    if not _may_fuse(asked):
        asked = _with_a_number(asked)
    normalized, shifted = normalization is not None and normalization.is_on, options.is_balanced
    as_it_lies = None if normalized or shifted else across(asked)
    if as_it_lies is not None and way_of(as_it_lies).way == "fused":
        loss = fused.fused_loss(as_it_lies)
        layout = asked.logits.shape[:1] + asked.logits.shape[2:]
        return loss.reshape(layout) if options.reduction == "none" else loss
    if normalized and not shifted and fused.may_standardize(asked) and way_of(asked).way == "fused":
        return fused.fused_loss(asked, normalization, keep)
    batch, rows = None, asked
    other = normalized or shifted
    if other or not isinstance(asked.logits, Tensor) or asked.logits.dim() != 2:
        batch, rows = _as_rows(asked)
        if normalization is not None and normalized:
            found = normalize_logits(
                batch.logits,
                batch.ignored,
                normalization.process_group,
                is_steep=_is_small(asked.sigma),
            )
            batch, rows = dataclasses.replace(batch, logits=found), rows._replace(logits=found)
        if shifted:
            batch = batch.adjusted()
            rows = rows._replace(logits=batch.logits, options=batch.options)
    choice = way_of(rows)
    if choice.way == "fused" or choice.at_once:
        # These take rows as they were given, and check them.
        keep = keep if batch is None else None
        if choice.at_once:
            loss = loss_at_once(rows, choice.way)
            if keep is not None and not is_moved:
                keep(ReadyAtOnce(rows, choice.way))
        else:
            loss = fused.fused_loss(rows, keep=keep)
        per_row = batch is not None and options.reduction == "none"
        return loss.reshape(batch.layout) if batch is not None and per_row else loss
    if batch is None:
        batch, rows = _as_rows(asked)
    rows = _with_a_number(rows)
    return step_by_step(batch, rows.sigma, rows.link, rows.core, way=choice.way)


def _weighted(asked: Asked) -> Asked:
    """What the classes' frequencies make of the weights; nothing else is asked of kernels."""
    if not asked.options.is_balanced or not isinstance(asked.logits, Tensor):
        return asked
    return asked._replace(options=asked.options.weighted(asked.logits, asked.call))


def _with_a_number(asked: Asked) -> Asked:
    """A sigma that moves and can be read for nothing, on a CPU, as the number that it is now."""
    sigma = asked.sigma
    if type(sigma) is not Tensor or not sigma.is_cpu or not is_moving(sigma):
        return asked
    if torch.compiler.is_compiling() or is_transformed(sigma):
        return asked
    return asked._replace(sigma=float(sigma))


def _is_small(sigma: float | Tensor) -> bool:
    """Whether gradients are near the largest numbers, as far as may be looked at."""
    if not isinstance(sigma, Tensor):
        return is_number(sigma) and sigma < SMALL_SIGMA
    if not is_eager_cpu(sigma) or is_transformed(sigma):
        return False
    return bool((sigma < SMALL_SIGMA).any())


def _may_fuse(asked: Asked) -> bool:
    """Whether kernels are thought of, which read a sigma that moves themselves."""
    return asked.core.backend == "triton" or getattr(asked.logits, "is_cuda", False)


def explain_loss(asked: Asked) -> Choice:
    """The way that `link_loss` takes, without taking it."""
    asked = _weighted(asked)
    asked = asked if _may_fuse(asked) else _with_a_number(asked)
    if asked.options.is_balanced:
        batch, rows = _as_rows(asked)
        batch = batch.adjusted()
        return way_of(rows._replace(logits=batch.logits, options=batch.options))
    as_it_lies = across(asked)
    if as_it_lies is not None and (choice := way_of(as_it_lies)).way == "fused":
        return choice
    return way_of(asked if asked.logits.dim() == 2 else _as_rows(asked)[1])


def _as_rows(asked: Asked) -> tuple[Batch, Asked]:
    """A checked batch of rows (R, C), and the same asked of them."""
    batch = Batch.of(asked.logits, asked.target, asked.options, asked.call)
    sigma = batch.rows_of(asked.sigma, "sigma")
    labels = batch.target if batch.is_soft else asked.target.reshape(-1)
    options = batch.options if asked.options.is_balanced else asked.options
    return batch, asked._replace(logits=batch.logits, target=labels, sigma=sigma, options=options)


class LinkLoss(ClassificationLoss):
    """A noise and a link as a Module; the parameters of the link are its attributes.

    A subclass says how its link is made (`make_link`), and names its arguments.
    """

    # Parameters -> the link.
    make_link: ClassVar[Callable[..., Link]]
    noise: Any = "gumbel"
    k: int = 1
    option_lists = (Hits,)

    def __init__(self, link: Link, *, k: int = 1, **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.link = link
        self.k = arguments.count_of(k, "k", 1, type(self).__name__)

    @classmethod
    def compute(cls, logits: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of logits, from the parameters of the link and cross entropy's options."""
        k = kwargs.pop("k", 1)
        link, options = split_options(cls.make_link, args, kwargs)
        call = Call(cls.function_name, link)
        core = Core(k=k, noise=cls.noise)
        return link_loss(Asked(logits, target, 1.0, link, core, options, call))

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
            self.forget(name)
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
        self.__dict__.pop("_kept", None)
        if name in self.__dict__.get("_link_numbers", ()) and self._buffers.get(name) is None:
            self.link = dataclasses.replace(self._link, **{name: value})
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_kept"}

    @property
    def core(self) -> Core:
        """Which p is meant."""
        return Core(k=self.k, noise=self.noise)

    def asked(self, input: Tensor, target: Tensor) -> Asked:
        """What a call asks for."""
        link = self.link
        call = Call(self.function_name, link)
        return Asked(input, target, 1.0, link, self.core, self.options, call)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        ready = self.ready_for(input, target)
        if ready is not None:
            return ready(input, target)
        return link_loss(self.asked(input, target), keep=self.keep)

    def ready_for(self, input: Tensor, target: Tensor) -> Kept | None:
        """What an earlier call with a batch like this one found out, if it still holds."""
        kept = None if torch.compiler.is_compiling() else self.__dict__.get("_kept")
        if kept is None:
            return None
        ready, tensors = kept
        # Attributes that are set let go of it; tensors may be put in their place by others.
        same = len(there := self._tensors()) == len(tensors) and all(map(is_, there, tensors))
        return ready if same and ready.serves(input, target) else None

    def keep(self, ready: Kept) -> None:
        """Keep what was found out, if nothing but this Module's own tensors is in it."""
        tensors = self._tensors()
        used = [tensor for tensor in (*ready.watched, ready.sigma) if isinstance(tensor, Tensor)]
        if all(any(tensor is own for own in tensors) for tensor in used):
            self.__dict__["_kept"] = ready, tensors

    def _tensors(self) -> tuple[Tensor | None, ...]:
        made = None if self._buffers["class_prior"] is None else self.options.weight
        return *self._buffers.values(), *self._parameters.values(), made

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
