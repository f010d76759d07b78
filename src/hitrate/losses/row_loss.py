"""A loss by a rule for rows, with cross entropy's options: the Module that baselines are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Unpack

from torch import Tensor

from hitrate.losses.base import ClassificationLoss, split_options
from hitrate.losses.ways.reduction import Batch, LossOptions, OfClasses, OfTarget


class Rule(NamedTuple):
    """Losses of rows with their targets, and of rows with every class as the target."""

    of_target: OfTarget
    of_classes: OfClasses
    # A rule of integrals takes more memory than others.
    is_heavy: bool = False


class RowLoss(ClassificationLoss):
    """A rule for rows as a Module; the arguments of the rule are its attributes.

    A subclass says how its rule is made of its arguments (`make_rule`), and names them.
    """

    make_rule: ClassVar[Callable[..., Rule]]

    def __init__(self, arguments: dict[str, Any], **options: Unpack[LossOptions]) -> None:
        super().__init__(**options)
        self.make_rule(**arguments)
        self._arguments = tuple(arguments)
        for name, value in arguments.items():
            if name in self.moving:
                self.set_number(name, value)
            else:
                setattr(self, name, value)

    def check_number(self, name: str, value: float) -> None:
        """Complain about a value that a number cannot have; the rule knows its own."""
        if name in self._arguments:
            given = {key: getattr(self, key) for key in self._arguments}
            self.make_rule(**{**given, name: value})
        else:
            super().check_number(name, value)

    @classmethod
    def compute(cls, logits: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of logits, from the arguments of the rule and cross entropy's options."""
        rule, options = split_options(cls.make_rule, args, kwargs)
        shown = inspect.signature(cls.make_rule).bind_partial(*args).arguments
        call = RowCall(cls.function_name, {**shown, **kwargs})
        return _loss(Batch.of(logits, target, options, call), rule, (*args, *kwargs.values()))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        arguments = {name: getattr(self, name) for name in self._arguments}
        call = RowCall(self.function_name, arguments)
        batch = Batch.of(input, target, self.options, call)
        return _loss(batch, self.make_rule(**arguments), arguments.values())


def _loss(batch: Batch, rule: Rule, given: Iterable[Any]) -> Tensor:
    """The batch's loss; a rule that keeps what wants a gradient gets all rows at once."""
    wants = any(isinstance(each, Tensor) and each.requires_grad for each in given)
    return batch.loss(
        rule.of_target, rule.of_classes, is_heavy=rule.is_heavy, keeps_gradients=wants
    )


class RowCall(NamedTuple):
    """What complaints begin with, made into words only when there is one."""

    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        shown = (f"{k}={v!r}" for k, v in self.arguments.items() if not isinstance(v, Tensor))
        return f"{self.name}({', '.join(shown)})"
