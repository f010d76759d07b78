"""What a family of models says about itself, once: its losses, parameters, estimator and state."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from hitrate_lab.bad_input import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# A noise whose inverse is a number, too.
LEAST = sys.float_info.min
LOSS_WORDS = {
    "cross_entropy": "cross entropy",
    "exact": "EXACT",
    "exact_linear": "EXACT",
    "exact_networks": "EXACT",
}


@dataclass(frozen=True)
class State:
    """All that an estimator needs to predict: arrays, plain JSON, a host's own text. No pickle.

    Parameters
    ----------
    kind : str
        One of its family's `kinds`.
    settings : dict
        Plain JSON.
    arrays : dict of arrays of float64
    files : dict of bytes
        In the host's own format, by the name of the file.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


class Family(ABC):
    """A kind of model that can be compared, fitted and kept.

    A subclass is complete by itself; an instance in `hitrate_lab.models.methods.MODELS` is all that
    the command line, comparisons, advice and models' folders ask. Nothing heavy is imported before
    a method of it is called. Processes import the class by its name.
    """

    # On the command line, and for people.
    name: ClassVar[str]
    words: ClassVar[str]
    # The package that it needs, which is also the extra of hitrate that installs it.
    package: ClassVar[str | None] = None
    # What it is compared under unless one says so: cross entropy, and EXACT in the way that suits.
    default_losses: ClassVar[tuple[str, ...]] = ("cross_entropy", "exact")
    # Of methods that are equally good the advice names a linear one.
    is_linear: ClassVar[bool] = False
    # Kinds of state that it keeps, and files of its host's own that these may have.
    kinds: ClassVar[tuple[str, ...]]
    files: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def losses(self) -> Sequence[str]:
        """Names of all losses that it can be trained under, once its package is there."""

    @abstractmethod
    def grid(self, loss: str, rows: int) -> Sequence[dict[str, Any]]:
        """Parameters to try, the default first: twelve, as for every other, or one.

        One is for an estimator that chooses its parameters by itself.

        Parameters
        ----------
        loss : str
        rows : int
            Rows to train on.
        """

    @abstractmethod
    def build(self, loss: str, parameters: dict[str, Any], seed: int) -> Any:
        """An estimator with fit, predict and predict_proba.

        Parameters
        ----------
        loss : str
        parameters : dict
            One of `grid`.
        seed : int
        """

    def label(self, loss: str) -> str:
        """The name for people of the model under a loss."""
        return f"{self.words}, {LOSS_WORDS.get(loss, loss.replace('_', ' '))}"

    def check_installed(self) -> None:
        """Refuse to go on without the package."""
        if self.package is not None and find_spec(self.package) is None:
            raise BadInput(f"{self.name} is not installed: pip install 'hitrate[{self.package}]'")

    @abstractmethod
    def state_of(self, estimator: Any) -> State | None:
        """The state of an estimator that was fitted to classes 0, 1, ...; None if it is no own one.

        Parameters
        ----------
        estimator : object
        """

    @abstractmethod
    def restore(self, state: State, features: int, classes: int) -> Any:
        """An estimator that predicts what the one behind a state did.

        A state that makes no sense raises `BadInput`, or what Python raises on its own; without
        its package a family raises `BadInput`, too.

        Parameters
        ----------
        state : State
            Of one of `kinds`; its arrays are finite float64.
        features, classes : int
            F and C, that it must agree with.
        """


def arrays_in(state: State, shapes: Mapping[str, tuple[int, ...]]) -> list[Array]:
    """The arrays in this order, if there are these and they have these shapes."""
    if set(state.arrays) != set(shapes) or state.files:
        raise BadInput(f"the model has the arrays {sorted(state.arrays)} and not {sorted(shapes)}")
    for name, shape in shapes.items():
        if state.arrays[name].shape != shape:
            found = state.arrays[name].shape
            raise BadInput(f"the model's array {name!r} has the shape {found} and not {shape}")
    return [state.arrays[name] for name in shapes]


def calibration_in(state: State) -> Any:
    """The calibration, if it is one."""
    from hitrate.calibration import NOISES, Calibration

    found = Calibration(**state.settings["calibration"])
    check_between("temperature", found.temperature, LEAST)
    check_between("lapse", found.lapse, -1.0, 1.0)
    if found.noise not in NOISES or found.lapse < 0:
        raise ValueError(f"noise={found.noise!r:.40}, lapse={found.lapse!r}")
    return found


def check_between(name: str, value: Any, above: float, below: float = float("inf")) -> None:
    """Refuse what is no number between two."""
    # As a float: that of a whole number with hundreds of digits is none.
    if type(value) not in (int, float) or not above < float(value) < below:
        raise ValueError(f"{name}={value!r:.40}")
