r"""How sigma or focus moves during training.

A schedule is a pure function from progress, 0 at the first step and 1 at the last, to a value;
`Schedule` drives an attribute of a loss along it. The papers' own settings have names:

- "sigma_10_to_0.01": EXACT, Section 5.4, linear models; geometric.
- "sigma_10_to_1": EXACT, Section 5.4, neural networks; geometric. Of both the paper gives the ends
  only; the way between them is ours.
- "focus_0": F = [0]; Mixing, the first of its three schedules.
- "focus_0_then_0.5": F = [0, 0.5], with 0.5 in the last 5% of the epochs; Mixing, the second.
- "focus_0_to_0.5": F = [0, 0.1, 0.2, 0.3, 0.4, 0.5] in six equal phases; Mixing, the third.

References
----------
Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. 2022.
Battash, Hazan, Wolf. Mixing between the Cross Entropy and the Expectation Loss Terms. 2021.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Above this ratio of largest to smallest value, `Schedule.plot` takes a logarithmic axis.
LOG_AXIS_FROM = 20.0


@dataclasses.dataclass(frozen=True, repr=False)
class Curve:
    """Progress -> value, shown as the call that made it.

    Parameters
    ----------
    call : str
        What it is shown as.
    shape : Callable
        Progress, and `arguments` -> value.
    arguments : tuple
    """

    call: str = dataclasses.field(compare=False)
    shape: Callable[..., float]
    arguments: tuple[Any, ...]

    def __call__(self, progress: float) -> float:
        """The value at `progress`, which is clipped to [0, 1]."""
        return self.shape(min(max(progress, 0.0), 1.0), *self.arguments)

    def __repr__(self) -> str:
        return self.call


def constant(value: float) -> Curve:
    """The same value throughout.

    Examples
    --------
    >>> from hitrate import schedules
    >>> schedules.constant(0.5)(0.3)
    0.5
    """
    call = f"constant({value!r})"
    return Curve(call, _constant, (_number(value, "value", call),))


def linear(start: float, end: float) -> Curve:
    r"""A straight line, :math:`(1 - t) \, start + t \, end` at progress t.

    Examples
    --------
    >>> from hitrate import schedules
    >>> schedules.linear(2.0, 1.0)(0.25)
    1.75
    """
    return _between(_linear, "linear", start, end)


def geometric(start: float, end: float) -> Curve:
    r"""Equal ratios in equal times, :math:`start^{1 - t} \, end^t` at progress t.

    Between the two ends that the EXACT paper gives, we move sigma so. Both ends must be positive.

    Examples
    --------
    >>> from hitrate import schedules
    >>> sigma = schedules.geometric(10.0, 0.1)
    >>> sigma
    geometric(10.0, 0.1)
    >>> sigma(0.0), sigma(0.5), sigma(1.0)
    (10.0, 1.0, 0.1)
    """
    curve = _between(_geometric, "geometric", start, end)
    if not min(curve.arguments) > 0:
        raise ValueError(f"{curve}: start and end must be positive")
    return curve


def cosine(start: float, end: float) -> Curve:
    r"""Half a cosine, flat at both ends.

    .. math::

        end + (start - end) \, (1 + \cos \pi t) / 2

    Examples
    --------
    >>> from hitrate import schedules
    >>> schedules.cosine(1.0, 0.0)(0.5)
    0.5
    """
    return _between(_cosine, "cosine", start, end)


def phases(values: Sequence[float], at: Sequence[float] | None = None) -> Curve:
    """One value after another.

    Parameters
    ----------
    values : sequence of float
        The value of each phase.
    at : sequence of float, optional
        Progress at which the second, third, ... phase begins: increasing, between 0 and 1. By
        default all phases last equally long.

    Examples
    --------
    >>> from hitrate import schedules
    >>> focus = schedules.phases([0.0, 0.5], at=[0.95])
    >>> focus(0.94), focus(0.95)
    (0.0, 0.5)
    """
    call = f"phases({values!r})" if at is None else f"phases({values!r}, at={at!r})"
    levels = tuple(_number(value, "every value", call) for value in values)
    if not levels:
        raise ValueError(f"{call}: needs at least one value")
    if at is None:
        switches = tuple(k / len(levels) for k in range(1, len(levels)))
    else:
        switches = tuple(_number(switch, "every switch point", call) for switch in at)
    if len(switches) != len(levels) - 1:
        raise ValueError(f"{call}: {len(levels)} values need {len(levels) - 1} switch points")
    if any(a >= b for a, b in pairwise((0.0, *switches, 1.0))):
        raise ValueError(f"{call}: switch points must increase and lie between 0 and 1")
    return Curve(call, _phases, (levels, switches))


def named(name: str) -> Curve:
    """The schedule that a paper used, by its name in `NAMED`.

    Examples
    --------
    >>> from hitrate import schedules
    >>> schedules.named("sigma_10_to_1")
    geometric(10.0, 1.0)
    """
    if name in FORMER:
        warnings.warn(
            f"the schedule {name!r} is now {FORMER[name]!r}", DeprecationWarning, stacklevel=3
        )
        name = FORMER[name]
    if name not in NAMED:
        raise ValueError(f"named({name!r}): not one of {', '.join(map(repr, NAMED))}")
    return NAMED[name]


@runtime_checkable
class Movable(Protocol):
    """What a loss has whose numbers move as tensors: every loss of hitrate."""

    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that may move."""

    def move(self, name: str, value: float, step: int | None = None) -> None:
        """Set a number, and say where its schedule is."""

    def steps_of(self, name: str) -> int:
        """How many steps a number has been moved."""

    def is_restored(self, name: str) -> bool:
        """Whether a number comes from a saved state and has not moved since."""


class Schedule:
    """Drives a number of a loss: one call of `step` per training step, or per epoch.

    Step s of n has progress s / (n - 1): the first has the start value, the last exactly the end
    value, and so has whatever follows; a step beyond them warns once. Phases come out exact where
    their lengths are whole numbers of steps.

    The number becomes a buffer of the loss, and so does the count of its steps: both are saved and
    restored with the loss's `state_dict`, and a compiled training step sees the new value without
    being compiled again. A schedule of a loss whose state was restored goes on where that one
    stood. For a step that is captured in a CUDA graph the loss has to be on the device.

    Parameters
    ----------
    loss : object
        Has a number `name`.
    name : str
        What to drive, such as "sigma", "margin", "label_smoothing", "focus" or the q of a link.
    fn : callable or str
        Progress -> value, or the name of one of `NAMED`.
    total_steps : int
        How many steps, or epochs, the training has: with gradient accumulation, steps of the
        optimizer.

    Examples
    --------
    >>> import hitrate
    >>> from hitrate import schedules
    >>> loss = hitrate.ExactLoss()
    >>> schedule = schedules.Schedule(loss, "sigma", schedules.geometric(10.0, 0.1), total_steps=3)
    >>> for _ in range(3):
    ...     print(f"{loss.sigma:.1f}")  # train here
    ...     schedule.step()
    10.0
    1.0
    0.1
    """

    def __init__(
        self, loss: object, name: str, fn: Callable[[float], float] | str, total_steps: int
    ) -> None:
        # A compiled Module stands for the one that it was made of.
        loss = getattr(loss, "_orig_mod", loss)
        call = f"Schedule({type(loss).__name__}, {name!r}, {fn!r}, total_steps={total_steps!r})"
        if isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1:
            raise ValueError(f"{call}: total_steps must be a whole number >= 1")
        if name not in (there := _numbers(loss)):
            listed = ", ".join(there) or "none"
            raise ValueError(f"{call}: the loss has no number {name!r}; those it has: {listed}")
        if not (isinstance(fn, str) or callable(fn)):
            raise ValueError(f"{call}: a schedule is a function of progress, or a name, not {fn!r}")
        self.loss = loss
        self.name = name
        self.fn = named(fn) if isinstance(fn, str) else fn
        self.total_steps = total_steps
        self._steps = 0
        self._has_warned = False
        if self._movable is None or not self._movable.is_restored(name):
            self.goto(0)

    @property
    def loss(self) -> Any:
        """What is moved."""
        return self._loss

    @loss.setter
    def loss(self, loss: Any) -> None:
        # Looked at once: the methods of a protocol take longer to find than a step to make.
        self._loss, self._movable = loss, loss if isinstance(loss, Movable) else None

    @property
    def steps_done(self) -> int:
        """How often `step` was called, in this training and in those that it goes on with."""
        return self._steps if self._movable is None else self._movable.steps_of(self.name)

    @property
    def value(self) -> float:
        """What the schedule says for now."""
        return self._value_at(self.steps_done)

    def step(self) -> None:
        """Move on by one step."""
        self.goto(self.steps_done + 1)

    def goto(self, step: int) -> None:
        """Set the loss to where it is after so many steps, as of a host that counts them itself.

        Parameters
        ----------
        step : int
            From 0 on. Beyond `total_steps` the end value stays, with a warning.
        """
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise ValueError(f"{self}.goto({step!r}): needs a whole number >= 0")
        if step > self.total_steps and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self}: step {step} is beyond the last; {self.name} stays at its end value. With "
                "gradient accumulation, step once per step of the optimizer",
                stacklevel=3,
            )
        value = self._value_at(step)
        loss: Any = self.loss
        self._steps = step
        if self._movable is not None:
            self._movable.move(self.name, value, step)
        elif isinstance(current := getattr(loss, self.name), Tensor):
            with torch.no_grad():
                current.fill_(value)
        else:
            setattr(loss, self.name, value)

    def simulate(self) -> list[float]:
        """The values of all steps; the loss stays as it is."""
        return [self._value_at(step) for step in range(self.total_steps)]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the value over the steps, on a logarithmic axis where it spans a wide range."""
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.subplots()[1]
        values = self.simulate()
        axes.plot(values, drawstyle="steps-post")
        axes.set(xlabel="step", ylabel=self.name)
        if min(values) > 0 and max(values) > LOG_AXIS_FROM * min(values):
            axes.set_yscale("log")
        return axes

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule stands."""
        return {key: getattr(self, key) for key in ("name", "total_steps", "steps_done")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` stood; the loss gets that value at once."""
        for key in ("name", "total_steps"):
            if state_dict[key] != getattr(self, key):
                raise ValueError(
                    f"{self}.load_state_dict: the state is of {key}={state_dict[key]!r}"
                )
        self.goto(state_dict["steps_done"])

    def __repr__(self) -> str:
        loss = type(self.loss).__name__
        return f"Schedule({loss}, {self.name!r}, {self.fn!r}, total_steps={self.total_steps})"

    def _value_at(self, step: int) -> float:
        last = self.total_steps - 1
        return self.fn(step / last if step < last else 1.0)


def _numbers(loss: object) -> list[str]:
    """Names of what a schedule can drive."""
    if isinstance(loss, Movable):
        return list(loss.numbers())
    there = dict(getattr(loss, "__dict__", {}))
    if isinstance(loss, torch.nn.Module):
        there |= loss._parameters | {k: v for k, v in loss._buffers.items() if v is not None}
    return [key for key, value in there.items() if key[0] != "_" and _is_number(value)]


def _is_number(value: object) -> bool:
    """Whether a schedule may replace it; None is a number that is switched off."""
    return value is None or (isinstance(value, Real | Tensor) and not isinstance(value, bool))


def _number(value: float, what: str, call: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{call}: {what} must be a finite number, got {value!r}")
    return float(value)


def _between(shape: Callable[..., float], name: str, start: float, end: float) -> Curve:
    call = f"{name}({start!r}, {end!r})"
    return Curve(call, shape, (_number(start, "start", call), _number(end, "end", call)))


def _constant(progress: float, value: float) -> float:
    return value


# Written so that both ends come out exactly.
def _linear(progress: float, start: float, end: float) -> float:
    return (1 - progress) * start + progress * end


def _geometric(progress: float, start: float, end: float) -> float:
    return float(start ** (1 - progress) * end**progress)


def _cosine(progress: float, start: float, end: float) -> float:
    return _linear(0.5 * (1 - math.cos(math.pi * progress)), start, end)


def _phases(progress: float, levels: tuple[float, ...], switches: tuple[float, ...]) -> float:
    return levels[bisect_right(switches, progress)]


NAMED: dict[str, Curve] = {
    "sigma_10_to_0.01": geometric(10.0, 0.01),
    "sigma_10_to_1": geometric(10.0, 1.0),
    "focus_0": constant(0.0),
    "focus_0_then_0.5": phases([0.0, 0.5], at=[0.95]),
    "focus_0_to_0.5": phases([0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
}
# Names until 0.1; they warn for one release.
FORMER = {
    "exact-linear": "sigma_10_to_0.01",
    "exact-networks": "sigma_10_to_1",
    "focus-0": "focus_0",
    "focus-0-then-0.5": "focus_0_then_0.5",
    "focus-0-to-0.5": "focus_0_to_0.5",
}
