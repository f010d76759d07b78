"""What methods are judged by: accuracy, or another number of a fold's predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, quoted
from hitrate_lab.wording import MINUS, number, percent, points, significant

Array = NDArray[Any]
# Of classes (n,), predicted classes (n,), probabilities (n, C) and C.
Function = Callable[[Array, Array, Any, int], float]

DEFAULT = "accuracy"
# A probability of zero for what happened costs as much as this one.
SMALLEST = 1e-15
# Of confidence, between 0 and 1.
BINS = 10


@dataclass(frozen=True)
class Description:
    """What a metric is called and how its numbers read: all that a finished document needs.

    Parameters
    ----------
    name : str
        On the command line.
    words : str
        In sentences and above columns.
    is_better_higher : bool
    is_share : bool
        Whether it is shown in percent, and its differences in points.
    bounds : tuple
        The lowest and the highest number that it can be; None where there is none.
    """

    name: str
    words: str
    is_better_higher: bool = True
    is_share: bool = True
    bounds: tuple[float | None, float | None] = (0.0, 1.0)

    @property
    def is_default(self) -> bool:
        """Whether it is accuracy, which documents and stores do not mention."""
        return self.name == DEFAULT

    @property
    def key(self) -> str:
        """Where results and documents have its numbers; accuracy is always there."""
        return DEFAULT if self.is_default else "score"

    @property
    def sign(self) -> float:
        """1, or -1 where lower is better: a number times this is the higher the better."""
        return 1.0 if self.is_better_higher else -1.0

    @property
    def best(self) -> str:
        """What the number of the best method is among all."""
        return "highest" if self.is_better_higher else "lowest"

    @property
    def first(self) -> str:
        """How a column of it is sorted first."""
        return "descending" if self.is_better_higher else "ascending"

    @property
    def title(self) -> str:
        """At the beginning of a line.

        >>> METRICS["macro_f1"].title
        'Macro F1'
        """
        return self.words[:1].upper() + self.words[1:]

    @property
    def unit(self) -> str:
        """What follows a difference.

        >>> METRICS["accuracy"].unit, METRICS["log_loss"].unit
        (' points', '')
        """
        return " points" if self.is_share else ""

    @property
    def within(self) -> str:
        """What sentences add to a difference, nothing for accuracy.

        >>> METRICS["accuracy"].within, METRICS["macro_f1"].within
        ('', ' in macro F1')
        """
        return "" if self.is_default else f" in {self.words}"

    def clipped(self, value: float) -> float:
        """Within the bounds: an interval may be wider than what a metric can be."""
        low, high = self.bounds
        value = value if low is None else max(value, low)
        return value if high is None else min(value, high)

    def text(self, value: float | None, digits: int = 1) -> str:
        """A number of it; digits are those after the point of a percentage.

        >>> METRICS["log_loss"].text(0.20349)
        '0.203'
        """
        return percent(value, digits) if self.is_share else significant(value)

    def difference_text(self, value: float | None, digits: int = 1) -> str:
        """A difference of two, with its sign.

        >>> (
        ...     METRICS["accuracy"].difference_text(0.0123),
        ...     METRICS["log_loss"].difference_text(-0.0123),
        ... )
        ('+1.2', '−0.012')
        """
        if self.is_share or value is None:
            return points(value, digits)
        return f"+{significant(value, 2)}" if value > 0 else significant(value, 2)

    def plain(self, value: float, digits: int) -> str:
        """For a terminal and for sentences: a bare number in percent or in its own unit.

        >>> METRICS["accuracy"].plain(0.9514, 2), METRICS["log_loss"].plain(-0.0123, 2)
        ('95.14', '-0.012')
        """
        if self.is_share:
            return f"{100 * value:.{digits}f}"
        return significant(value, digits).replace(MINUS, "-")

    def described(self) -> dict[str, Any]:
        """Plain JSON, which `described_metric` reads."""
        return {
            "name": self.name,
            "words": self.words,
            "is_better_higher": self.is_better_higher,
            "is_share": self.is_share,
            "bounds": list(self.bounds),
        }


@dataclass(frozen=True, kw_only=True)
class Metric(Description):
    """A number of a fold's predictions that methods are tuned and ranked by.

    Parameters
    ----------
    function : callable
        From classes (n,), predicted classes (n,), probabilities (n, C), and C. Processes import
        it by its name.
    needs_probabilities : bool
        Without it the function may be given None for them.
    fewest_classes : int
        With fewer it says nothing.
    needs_costs : bool
        Whether it is about costs that the user has to say; then the function takes ``costs``, and
        without them each mistake costs 1.
    costs : tuple of tuples, optional
        C rows of C numbers: what it costs when the first index is taken for the second.
    """

    function: Function
    needs_probabilities: bool = False
    fewest_classes: int = 2
    needs_costs: bool = False
    costs: tuple[tuple[float, ...], ...] | None = None

    def __call__(
        self, y_true: Array, y_pred: Array, probabilities: Array | None, classes: int
    ) -> float:
        """The metric of some rows.

        Parameters
        ----------
        y_true, y_pred : array of int, shape (n,)
            Numbers of classes.
        probabilities : array, shape (n, C), or None
        classes : int
            C.
        """
        if probabilities is None and self.needs_probabilities:
            raise ValueError(f"metric {self.name!r} needs probabilities")
        value = float(self.function(y_true, y_pred, probabilities, classes))
        if not math.isfinite(value):
            raise ValueError(f"metric {self.name!r} of {len(y_true)} rows is {value}")
        return value

    @property
    def specification(self) -> dict[str, Any]:
        """What it adds to the specification of a run; nothing for accuracy."""
        found = {} if self.is_default else {"metric": self.name}
        return found if self.costs is None else {**found, "costs": [*map(list, self.costs)]}

    def with_costs(self, costs: Any) -> Metric:
        """The same metric, of these costs.

        Parameters
        ----------
        costs : array, shape (C, C)
        """
        rows = tuple(tuple(map(float, row)) for row in costs)
        numbers = [each for row in rows for each in row]
        return replace(
            self,
            function=partial(self.function, costs=np.array(rows)),
            costs=rows,
            bounds=(min(numbers), max(numbers)),
        )


def accuracy(y_true: Array, y_pred: Array, probabilities: Any, classes: int) -> float:
    """The share of rows that are right."""
    return float(np.mean(y_pred == y_true))


def balanced_accuracy(y_true: Array, y_pred: Array, probabilities: Any, classes: int) -> float:
    """The share of each class's rows that are right, averaged over the classes that are there."""
    rows = np.bincount(y_true, minlength=classes)
    right = np.bincount(y_true[y_pred == y_true], minlength=classes)
    return float(np.mean(right[rows > 0] / rows[rows > 0]))


def top_k(y_true: Array, y_pred: Array, probabilities: Any, classes: int, *, k: int) -> float:
    """The share of rows whose class is among the k most likely; of equals the last goes first."""
    likely = np.argsort(probabilities, 1, kind="stable")[:, ::-1][:, :k]
    return float(np.mean((likely == y_true[:, None]).any(1)))


def macro_f1(y_true: Array, y_pred: Array, probabilities: Any, classes: int) -> float:
    """2 right / (true + predicted) of each class, averaged over those that are or were said."""
    right = np.bincount(y_true[y_pred == y_true], minlength=classes)
    both = np.bincount(y_true, minlength=classes) + np.bincount(y_pred, minlength=classes)
    return float(np.mean(2 * right[both > 0] / both[both > 0]))


def log_loss(y_true: Array, y_pred: Array, probabilities: Any, classes: int) -> float:
    """The mean of -log p of each row's class."""
    own = np.maximum(probabilities[np.arange(len(y_true)), y_true], SMALLEST)
    return float(-np.log(own).mean())


def calibration_error(y_true: Array, y_pred: Array, probabilities: Any, classes: int) -> float:
    """How far confidence is from the share of hits, averaged over bins of rows."""
    sure = probabilities[np.arange(len(y_true)), y_pred]
    excess = np.bincount(bins(sure), sure - (y_pred == y_true), minlength=BINS)
    return float(np.abs(excess).sum() / len(y_true))


def mean_cost(
    y_true: Array, y_pred: Array, probabilities: Any, classes: int, *, costs: Any = None
) -> float:
    """What the decisions cost, averaged over rows: 1 for a mistake, if nothing else is said."""
    return float(np.mean(y_pred != y_true if costs is None else costs[y_true, y_pred]))


def bins(confidence: Array) -> Array:
    """The number of the bin that each confidence is in."""
    at: Array = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return at


def _top(k: int) -> Metric:
    return Metric(
        f"top_{k}",
        f"top-{k} accuracy",
        function=partial(top_k, k=k),
        needs_probabilities=True,
        fewest_classes=k + 1,
    )


METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", function=accuracy),
        Metric("balanced_accuracy", "balanced accuracy", function=balanced_accuracy),
        _top(2),
        _top(3),
        _top(5),
        Metric("macro_f1", "macro F1", function=macro_f1),
        Metric(
            "log_loss",
            "log loss",
            is_better_higher=False,
            is_share=False,
            bounds=(0.0, None),
            function=log_loss,
            needs_probabilities=True,
        ),
        Metric(
            "calibration_error",
            "calibration error",
            is_better_higher=False,
            function=calibration_error,
            needs_probabilities=True,
        ),
        Metric(
            "cost",
            "cost",
            is_better_higher=False,
            is_share=False,
            function=mean_cost,
            needs_costs=True,
        ),
    )
}


def metric_named(name: str, classes: int | None = None, costs: Any = None) -> Metric:
    """A metric of `METRICS`, for as many classes.

    Parameters
    ----------
    name : str
    classes : int, optional
        Of the table; refused if the metric says nothing about so few.
    costs : array, shape (C, C), optional
        For a metric that needs them: what it costs when class y (rows) is taken for k (columns).

    Examples
    --------
    >>> metric_named("top_3").words
    'top-3 accuracy'
    """
    if name not in METRICS:
        raise BadInput(f"metric {quoted(name)} is not one of {', '.join(METRICS)}")
    metric = METRICS[name]
    if classes is not None and classes < metric.fewest_classes:
        raise BadInput(
            f"metric {quoted(name)} needs {metric.fewest_classes} classes or more, "
            f"and the table has {classes}"
        )
    if metric.needs_costs != (costs is not None):
        raise BadInput(
            f"metric {quoted(name)} needs the costs of decisions (--cost FILE)"
            if metric.needs_costs
            else f"metric {quoted(name)} has no use for costs (--cost); --metric cost has"
        )
    if costs is None:
        return metric
    array = np.asarray(costs, np.float64)
    if array.ndim != 2 or array.shape != (classes or len(array),) * 2:
        raise BadInput(f"costs: needs a row and a column for each class, not {array.shape}")
    if not np.isfinite(array).all() or (array == array[:, :1]).all():
        raise BadInput("costs: needs finite numbers, and decisions that differ in cost")
    return metric.with_costs(array)


def described_metric(document: dict[str, Any]) -> Description:
    """What a comparison document is about: accuracy, unless it says otherwise.

    Any metric can be read, whether or not it is in `METRICS`.
    """
    found = document.get("metric")
    if not isinstance(found, dict):
        return METRICS[DEFAULT]
    bounds = found.get("bounds")
    low, high, *_ = [*(bounds if isinstance(bounds, list) else []), None, None]
    name = str(found.get("name") or "score")
    return Description(
        name,
        str(found.get("words") or name),
        is_better_higher=found.get("is_better_higher") is not False,
        is_share=found.get("is_share") is True,
        bounds=(number(low), number(high)),
    )
