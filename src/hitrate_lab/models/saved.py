"""A fitted model: from a frame to labels, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.tables import Columns
from hitrate_lab.tables.labels import class_numbers

Array = NDArray[Any]


@dataclass(frozen=True)
class About:
    """Where a model comes from.

    Parameters
    ----------
    method : str
        "<model>/<loss>".
    parameters : dict
        What the method was built with.
    seed : int
    table, target : str
        Names.
    classes : tuple
        Labels in their order: str, int or bool.
    rows : int
        That it was fitted to.
    accuracy : float or None
        On rows held out, if that is known.
    hitrate : str
        The version that fitted it.
    """

    method: str
    parameters: dict[str, Any]
    seed: int
    table: str
    target: str
    classes: tuple[Any, ...]
    rows: int
    accuracy: float | None
    hitrate: str


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A model that predicts labels from a frame.

    Parameters
    ----------
    columns : Columns
        Fitted.
    estimator : object
        Fitted to the features that `columns` gives, and to the classes' numbers 0, 1, ...
    about : About
    """

    columns: Columns
    estimator: Any
    about: About

    @property
    def classes(self) -> list[Any]:
        """Labels, in the order of the probabilities."""
        return list(self.about.classes)

    def predict(self, frame: Any) -> Array:
        """Labels (N,).

        Parameters
        ----------
        frame : DataFrame
            With the columns the model was fitted to; others are ignored.
        """
        return self.labels(self.numbers_and_probabilities(frame)[0])

    def predict_proba(self, frame: Any) -> Array:
        """Probabilities (N, C).

        Parameters
        ----------
        frame : DataFrame
        """
        return self.numbers_and_probabilities(frame)[1]

    def labels(self, numbers: Array) -> Array:
        """Labels of classes' numbers (N,)."""
        text = isinstance(self.classes[0], str)
        return np.asarray(np.array(self.classes, object if text else None)[numbers])

    def class_numbers(self, labels: Any) -> Array:
        """Numbers (N,) of the classes that labels name, as `tables.labels` finds them."""
        return class_numbers(list(labels), self.classes)

    def numbers_and_probabilities(self, frame: Any) -> tuple[Array, Array]:
        """Numbers of the predicted classes (N,), and probabilities (N, C)."""
        if not len(frame):
            return np.zeros(0, np.int64), np.zeros((0, len(self.classes)))
        x = self.columns.transform(frame)
        # What overflows is told below.
        with np.errstate(over="ignore", invalid="ignore"):
            number = np.asarray(self.estimator.predict(x), np.int64)
            p = np.asarray(self.estimator.predict_proba(x), np.float64)
        if not np.isfinite(p).all():
            raise BadInput("the model's numbers are too large: its probabilities are not finite")
        return number, p

    def describe(self) -> str:
        """One line about the model."""
        about = self.about
        known = "" if about.accuracy is None else f", accuracy {100 * about.accuracy:.1f} %"
        return (
            f"{about.method} for {quoted(about.target)} of {quoted(about.table)}: "
            f"{listed(about.classes)}; fitted to {about.rows} rows{known}"
        )
