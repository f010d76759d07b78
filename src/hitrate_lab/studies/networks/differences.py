"""How much better or worse methods are than the first one, and what that goes with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.wording import points

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study

Floats = NDArray[np.float64]
# Two-sided level of intervals; and the power of the smallest difference that can be seen.
LEVEL, POWER = 0.95, 0.8
# Cells from which correlations over them are worth a table.
LEAST_CELLS = 6


@dataclass(frozen=True)
class Cell:
    """A data set, a network and a share of wrong labels: accuracies of each method, by seed."""

    data_set: str
    model: str
    noise: float
    test: dict[str, Floats]
    train: dict[str, Floats]

    @property
    def name(self) -> str:
        """For people."""
        return place_of(self.data_set, self.model, self.noise)


@dataclass(frozen=True)
class Difference:
    """Of two means, with Welch's interval, and the least that so many runs would find."""

    value: float
    low: float
    high: float
    smallest: float


def place_of(data_set: str, model: str, noise: float) -> str:
    """A data set, a network and a share of wrong labels, for people.

    >>> place_of("images/mnist", "mlp_8", 0.4)
    'mnist, mlp_8, 40 % wrong labels'
    """
    wrong = f", {round(100 * noise)} % wrong labels" if noise else ""
    return f"{data_set.split('/')[-1]}, {model}{wrong}"


def in_points(found: Difference) -> str:
    """With its interval.

    >>> in_points(Difference(0.012, -0.001, 0.025, 0.0))
    '+1.20 (−0.10 to +2.50)'
    """
    return f"{points(found.value, 2)} ({points(found.low, 2)} to {points(found.high, 2)})"


def cells_of(study: Study, runs: Sequence[Run]) -> list[Cell]:
    """All cells with results, in the order of the plan."""
    found: dict[tuple[str, str, float], dict[str, dict[int, tuple[float, float]]]] = {}
    for run in runs:
        spec, result = run.specification, run.result
        place = spec["data_set"], spec["model"], spec["noise"]
        of_method = found.setdefault(place, {}).setdefault(spec["method"], {})
        of_method[spec["seed"]] = result["test_accuracy"], result["train_accuracy"]
    order = [method.name for method in study.methods]
    cells = []
    for place, methods in found.items():
        sorted_ = {name: methods[name] for name in order if name in methods}
        parts = [
            {
                name: np.array([by_seed[seed][part] for seed in sorted(by_seed)])
                for name, by_seed in sorted_.items()
            }
            for part in (0, 1)
        ]
        cells.append(Cell(*place, *parts))
    return cells


def welch(a: Floats, b: Floats) -> Difference | None:
    """Mean of a less that of b, of independent runs; None with less than two of either.

    Parameters
    ----------
    a, b : array, shape (n,)
    """
    from scipy import stats

    if min(len(a), len(b)) < 2:
        return None
    parts = [each.var(ddof=1) / len(each) for each in (a, b)]
    error = math.sqrt(sum(parts))
    value = float(a.mean() - b.mean())
    if not error:
        return Difference(value, value, value, 0.0)
    free = error**4 / sum(
        part**2 / (len(each) - 1) for part, each in zip(parts, (a, b), strict=True)
    )
    reach = float(stats.t.ppf((1 + LEVEL) / 2, free))
    seen = (reach + float(stats.t.ppf(POWER, free))) * error
    return Difference(value, value - reach * error, value + reach * error, seen)


def table_of_differences(study: Study, cells: Sequence[Cell]) -> dict[str, Any]:
    """Each method beside the first one of the study's file."""
    first = study.methods[0].name
    rows = []
    for cell in cells:
        for name, accuracy in cell.test.items():
            mean = f"{100 * accuracy.mean():.2f}"
            spread = f" ± {100 * accuracy.std(ddof=1):.2f}" if len(accuracy) > 1 else ""
            row = [cell.name, name, str(len(accuracy)), mean + spread]
            found = None
            if name != first and first in cell.test:
                found = welch(accuracy, cell.test[first])
            rows.append([*row, *_shown(found)])
    return {
        "title": f"Differences from {first}",
        "head": ["", "method", "n", "test accuracy, %", "difference", "95 %", "could be seen"],
        "rows": rows,
        "text": (
            "Differences of means over seeds in points, with Welch's interval; the last column is "
            f"what {100 * POWER:.0f} of 100 such studies would have found. Nothing is corrected "
            "for the number of comparisons."
        ),
    }


def _shown(found: Difference | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    interval = f"{points(found.low, 2)} to {points(found.high, 2)}"
    return [points(found.value, 2), interval, f"{100 * found.smallest:.2f}"]


def table_of_headroom(study: Study, cells: Sequence[Cell]) -> dict[str, Any] | None:
    """Gain of each method against what the first one leaves; None with few cells."""
    first = study.methods[0].name
    having = [cell for cell in cells if first in cell.test and len(cell.test) > 1]
    if len(having) < LEAST_CELLS:
        return None
    left = [1 - float(cell.train[first].mean()) for cell in having]
    headroom = [headroom_of(cell, first) for cell in having]
    rows, names = [], [method.name for method in study.methods[1:]]
    for cell, error, room in zip(having, left, headroom, strict=True):
        gains = [gain_of(cell, name, first) for name in names]
        shown = ["" if gain is None else points(gain, 2) for gain in gains]
        rows.append([cell.name, f"{100 * error:.1f}", points(room, 2), *shown])
    lines = [f"{name}: {_correlations(having, name, first, left, headroom)}" for name in names]
    return {
        "title": "Gain, training error and headroom",
        "head": ["", f"training error, {first}, %", "headroom", *names],
        "rows": rows,
        "text": (
            "Headroom: training accuracy of the method that has the most, less that of "
            f"{first}; gains are of test accuracy, in points. Spearman's correlation of the gain "
            f"over {len(having)} rows with training error and with headroom: " + "; ".join(lines)
        ),
    }


def headroom_of(cell: Cell, first: str) -> float:
    """Training accuracy that another method reaches, less that of the first."""
    best = max(float(each.mean()) for each in cell.train.values())
    return best - float(cell.train[first].mean())


def gain_of(cell: Cell, name: str, first: str) -> float | None:
    """Of test accuracy, over the first method."""
    if name not in cell.test:
        return None
    return float(cell.test[name].mean() - cell.test[first].mean())


def _correlations(
    cells: Sequence[Cell], name: str, first: str, left: Sequence[float], room: Sequence[float]
) -> str:
    from scipy import stats

    every = [(gain_of(cell, name, first), k) for k, cell in enumerate(cells)]
    known = [(gain, k) for gain, k in every if gain is not None]
    if len(known) < LEAST_CELLS:
        return "too few"
    gains, places = [gain for gain, _ in known], [k for _, k in known]
    found = []
    for values in (left, room):
        some = [values[k] for k in places]
        if len(set(some)) < 2 or len(set(gains)) < 2:
            return "nothing varies"
        found.append(float(stats.spearmanr(gains, some).statistic))
    return f"{found[0]:.2f} and {found[1]:.2f}"


def summary_of(study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """All tables beside those of measures."""
    cells = cells_of(study, runs)
    if not cells:
        return []
    tables = [table_of_differences(study, cells)]
    more = table_of_headroom(study, cells)
    return tables if more is None else [*tables, more]
