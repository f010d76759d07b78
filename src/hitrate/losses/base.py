"""The shell of all losses: stores arguments, calls a function, shows itself."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

from hitrate.losses.class_balance import Balance, check_balance, per_class
from hitrate.losses.moving import MovingNumbers
from hitrate.losses.ways.reduction import Options
from hitrate.probability.signatures import spelled_out

P = ParamSpec("P")
T = TypeVar("T")


class ClassificationLoss(MovingNumbers, nn.CrossEntropyLoss):
    r"""A loss with the options of `nn.CrossEntropyLoss`, and one in the eyes of other libraries.

    Being a subclass tells them that it takes logits: skorch, for one, applies the softmax in
    `predict_proba` when it sees one. `probabilities` has the loss's own.

    Parameters
    ----------
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior : Tensor, shape (C,), optional
        Shares or counts of the classes in training, as from `hitrate.class_prior`: a row of class y
        weighs :math:`(C \pi_y)^{-s}` with s = `reweighting`, on top of `weight`.
    reweighting : float, optional
        s, which a `Schedule` may move; by default 1 less `logit_adjustment`.
    logit_adjustment : float
        Tau of :math:`\mu + \tau \log \pi`, the logits that are trained. Not in evaluation mode.
    class_margin : Tensor, shape (C,), optional
        What a target's logit is lowered by in training, as from `hitrate.class_margin`.
    """

    # The function twin's, with which complaints begin.
    function_name: ClassVar[str]
    # NamedTuples of options that it takes beside cross entropy's.
    option_lists: ClassVar[tuple[Any, ...]] = ()
    # Arguments that are numbers and may move, beside label smoothing.
    moving: tuple[str, ...] = ()
    reweighting: float | Tensor | None
    logit_adjustment: float | Tensor

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.function_name = function_name(cls)
        if "__init__" in vars(cls) and _takes_options(cls.__init__):
            spelled_out(Options, *cls.option_lists)(cls.__init__)

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float | Tensor = 0.0,
        class_prior: Tensor | None = None,
        reweighting: float | Tensor | None = None,
        logit_adjustment: float | Tensor = 0.0,
        class_margin: Tensor | None = None,
    ) -> None:
        if weight is not None and not isinstance(weight, Tensor):
            raise TypeError(
                f"{type(self).__name__}: weight must be a tensor with a value for each class, got "
                f"{type(weight).__name__}; say torch.tensor({weight!r})"
            )
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.set_number("label_smoothing", label_smoothing)
        name = type(self).__name__
        for key, given in (("class_prior", class_prior), ("class_margin", class_margin)):
            if given is not None:
                given = per_class(given, key, name, positive=key == "class_prior")
            self.register_buffer(key, given)
        self.set_number("reweighting", reweighting, optional=True)
        self.set_number("logit_adjustment", logit_adjustment)
        prior = self._buffers["class_prior"]
        check_balance(Balance(prior, reweighting, logit_adjustment, class_margin), name)

    @classmethod
    def compute(cls, logits: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The loss, without a Module being made: what its function twin does."""
        raise NotImplementedError

    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that may move."""
        of_prior = ("reweighting", "logit_adjustment")
        there = self._buffers.get("class_prior") is not None
        return (*self.moving, "label_smoothing", *(of_prior if there else ()))

    def check_number(self, name: str, value: float) -> None:
        """Complain about a value that a number cannot have."""
        if name in ("reweighting", "logit_adjustment") and not math.isfinite(value):
            raise ValueError(
                f"{type(self).__name__}: {name} must be a finite number, got {value!r}"
            )
        if name == "label_smoothing" and not 0 <= value <= 1:
            raise ValueError(
                f"{type(self).__name__}: label_smoothing must lie between 0 and 1, got {value!r}"
            )

    def set_number(self, name: str, value: Any, *, optional: bool = False) -> None:
        """Store a number: a float, or a tensor with one value, as a buffer."""
        if isinstance(value, nn.Parameter) or (optional and value is None):
            setattr(self, name, value)
        elif isinstance(value, Tensor):
            if value.numel() != 1 or value.requires_grad:
                raise ValueError(
                    f"{type(self).__name__}({name}=tensor of shape {tuple(value.shape)}): {name} "
                    "is one number, without gradient; class weights go to weight="
                )
            self.__dict__.pop(name, None)
            self.register_buffer(name, floating(value))
        elif isinstance(value, bool) or not isinstance(value, Real):
            raise ValueError(f"{type(self).__name__}: {name} must be a number, got {value!r}")
        else:
            setattr(self, name, value)

    @property
    def options(self) -> Options:
        """Cross entropy's options as they stand now."""
        usual = self._buffers["weight"], self.ignore_index, self.reduction, self.label_smoothing
        prior, margin = self._buffers["class_prior"], self._buffers["class_margin"]
        if prior is None and margin is None:
            # Numbers that need a prior say so.
            return Options(*usual, None, self.reweighting, self.logit_adjustment)
        strength, tau = self.reweighting, self.logit_adjustment if self.training else 0.0
        margin = margin if self.training else None
        if prior is not None and not torch.compiler.is_compiling():
            strength = 1 - tau if strength is None else strength
            if not isinstance(strength, Tensor):
                return Options(self._weights(strength), *usual[1:], prior, 0.0, tau, margin)
        return Options(*usual, prior, strength, tau, margin)

    def _weights(self, strength: float) -> Tensor | None:
        """Class weights by the prior, made anew only where something has changed."""
        weight, prior = self._buffers["weight"], self._buffers["class_prior"]
        assert prior is not None
        there = [prior] if weight is None else [prior, weight]
        key = (strength, *((id(each), each._version) for each in there))
        kept = self.__dict__.get("_weights_kept")
        if kept is None or kept[0] != key:
            found = Balance(prior, strength).weights(weight, prior, type(self).__name__)
            # Those that were looked at are held, or another tensor could get their place.
            kept = self.__dict__["_weights_kept"] = key, found, there
        return kept[1]

    def probabilities(self, input: Tensor) -> Tensor:
        """What the loss takes as the probability of each class, shaped like the logits `input`."""
        return torch.softmax(input, min(1, input.dim() - 1))

    def extra_repr(self) -> str:
        """Positional arguments, and those that differ from their default."""
        shown = []
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            if name == "self" or not hasattr(self, name):
                continue
            value = getattr(self, name)
            always = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
                value = float(value)
            if isinstance(value, Tensor):
                shown.append(f"{name}=Tensor{tuple(value.shape)}")
            elif always or value != parameter.default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)


def floating(number: Tensor) -> Tensor:
    """A copy that can take any value."""
    return number.detach().clone() if number.is_floating_point() else number.detach().double()


def _takes_options(function: Callable[..., Any]) -> bool:
    """Whether it takes cross entropy's options as ``**options: Unpack[LossOptions]``."""
    last = [*inspect.signature(function).parameters.values()][-1]
    return last.kind is last.VAR_KEYWORD and "Options" in str(last.annotation)


def function_of(
    module: Callable[P, ClassificationLoss],
) -> Callable[Concatenate[Tensor, Tensor, P], Tensor]:
    """The function twin of a loss: logits and target, then the Module's arguments.

    Name, signature and documentation are made of the Module's; its `compute` does the work.
    """
    assert isinstance(module, type) and issubclass(module, ClassificationLoss)
    compute = module.compute

    def function(logits: Tensor, target: Tensor, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        return compute(logits, target, *args, **kwargs)

    own = inspect.signature(module.__init__)
    _, *arguments = own.parameters.values()
    first = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Tensor)
        for name in ("logits", "target")
    ]
    function.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*first, *arguments], return_annotation=Tensor
    )
    function.__name__ = function.__qualname__ = function_name(module)
    function.__module__ = module.__module__
    function.__doc__ = _documentation(inspect.getdoc(module) or "", module.__name__)
    return cast(Callable[Concatenate[Tensor, Tensor, P], Tensor], function)


def split_options(
    make: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[T, Options]:
    """What a loss's own arguments make, and cross entropy's options."""
    options = Options(**{key: kwargs[key] for key in Options._fields if key in kwargs})
    own = {key: value for key, value in kwargs.items() if key not in Options._fields}
    return make(*args, **own), options


def function_name(module: type) -> str:
    """GeneralizedCrossEntropyLoss -> generalized_cross_entropy_loss."""
    name = module.__name__
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return words.lstrip("_")


def _documentation(text: str, module: str) -> str:
    """The Module's, with the two arguments that come first and what is returned."""
    head, mark, rest = text.partition("Parameters\n----------\n")
    if not mark:
        return f"{text}\n\nThe function of `{module}`."
    parameters, gap, tail = rest.partition("\n\n")
    return f"{head}{mark}{ARGUMENTS}{parameters}\n\n{RETURNS}{gap}{tail}"


ARGUMENTS = """\
logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
    Half precision is computed, and the loss returned, in float32.
target : Tensor
    Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
"""
RETURNS = """\
Returns
-------
Tensor
    A number, or with ``reduction="none"`` one per target."""
