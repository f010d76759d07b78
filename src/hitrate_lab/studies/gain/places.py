"""What gains on test rows go with: training error, headroom, and what is gained in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.statistics import grouped_interval, spearman
from hitrate_lab.studies.gain.pairs import noise as noise_of_a_fit
from hitrate_lab.studies.networks.differences import Cell, Difference, headroom_of, welch

if TYPE_CHECKING:
    from hitrate_lab.statistics import Interval
    from hitrate_lab.statistics.scores import Floats

# Of bootstrap intervals.
RESAMPLES = 1000
# Fewer cells tell nothing.
FEWEST = 8
ERROR, GAINED, LESS_NOISE, HEADROOM = (
    "training error",
    "training accuracy gained",
    "the same less noise",
    "headroom",
)
# Points of a line at which its interval is drawn.
ENDS = 9


@dataclass(frozen=True)
class Place:
    """A cell: a data set, a model and, for some, a share of wrong labels.

    `known` has by method what could be known without test rows, and `gain` what came of it. Cells
    that share `group` are drawn together by the bootstrap.
    """

    cell: Cell
    group: str
    known: dict[str, dict[str, float]]
    gain: dict[str, Difference]


def place_of(cell: Cell, base: str, group: str, result: Mapping[str, Any]) -> Place:
    """What was known of a cell, and what came of it.

    Parameters
    ----------
    cell : Cell
    base : str
        The method that gains are over.
    group : str
    result : mapping
        "parameters", "classes" and "train_rows".
    """
    gains = {
        name: welch(accuracy, cell.test[base])
        for name, accuracy in cell.test.items()
        if name != base
    }
    known = {name: _known(cell, name, base, result) for name in gains}
    whole = {name: gain for name, gain in gains.items() if gain is not None}
    return Place(cell, group, known, whole)


def _known(cell: Cell, name: str, base: str, result: Mapping[str, Any]) -> dict[str, float]:
    accuracy = float(cell.train[base].mean())
    gained = float(cell.train[name].mean()) - accuracy
    free = result["parameters"] * (result["classes"] - 1) / result["classes"]
    return {
        ERROR: 1 - accuracy,
        GAINED: gained,
        LESS_NOISE: gained - noise_of_a_fit(free, result["train_rows"], accuracy),
        HEADROOM: headroom_of(cell, base),
    }


def goes_with(
    names: Sequence[str], parts: Mapping[str, Sequence[Place]], groups: str
) -> dict[str, Any]:
    """A table for the report: slopes over the first part, correlations over each.

    Parameters
    ----------
    names : sequence of str
        Methods whose gains are looked at.
    parts : mapping
        Cells by the words for them, all of them first.
    groups : str
        What the bootstrap is over, in words.
    """
    every = next(iter(parts.values()))
    rows = []
    for name in names:
        for predictor in (ERROR, HEADROOM, GAINED, LESS_NOISE):
            row = [name, predictor, interval_text(_of(every, predictor, name, slope), 1, "+.2f")]
            for some in parts.values():
                enough = len(some) >= FEWEST
                rank = _of(some, predictor, name, rank_of) if enough else None
                row.append("-" if rank is None else interval_text(rank, 1, ".2f"))
            rows.append(row)
    counts = [f"{words}, {len(some)} cells" for words, some in parts.items()]
    return {
        "title": "What the gain goes with",
        "head": [
            "gain of",
            "known without test rows",
            "points gained per point",
            f"Spearman, {counts[0]}",
            *counts[1:],
        ],
        "rows": rows,
        "text": (
            "A straight line by least squares, and Spearman's rank correlation, of the gain on "
            f"test rows; 95 % intervals by bootstrap over {groups}. Training "
            "accuracy gained is that of the method itself, headroom that of the method that gains "
            "most; less noise: less 0.5 sqrt(parameters / rows x error (1 - error))."
        ),
    }


def values_of(some: Sequence[Place], predictor: str, name: str) -> Floats:
    """Predictor and gain (n, 2)."""
    return np.array([(each.known[name][predictor], each.gain[name].value) for each in some])


def _of(some: Sequence[Place], predictor: str, name: str, statistic: Any) -> Interval:
    groups = [place.group for place in some]
    return grouped_interval(
        statistic, values_of(some, predictor, name), groups, resamples=RESAMPLES
    )


def rank_of(values: Floats) -> float:
    """Spearman's correlation of rows (x, y)."""
    return spearman(values[:, 0], values[:, 1])


def slope(values: Floats) -> float:
    """Of the line by least squares through rows (x, y); 0 where x does not vary."""
    apart = values - values.mean(0)
    spread = float(apart[:, 0] @ apart[:, 0])
    return float(apart[:, 0] @ apart[:, 1]) / spread if spread else 0.0


def line_of(values: Floats, groups: Sequence[str]) -> list[tuple[float, float, float, float]]:
    """The line by least squares through rows (x, y), with the interval of its height.

    Parameters
    ----------
    values : array, shape (n, 2)
    groups : sequence of str
        Of each row.
    """

    def at(x: float) -> Interval:
        return grouped_interval(
            lambda rows: float(rows[:, 1].mean() + slope(rows) * (x - rows[:, 0].mean())),
            values,
            groups,
            resamples=RESAMPLES,
        )

    ends = np.linspace(values[:, 0].min(), values[:, 0].max(), ENDS)
    return [(float(x), (each := at(x)).value, each.low, each.high) for x in ends]


def interval_text(of: Interval, unit: float, form: str) -> str:
    """A value and its interval in brackets."""
    value, low, high = (
        f"{unit * each:{form}}".replace("-", "−") for each in (of.value, of.low, of.high)
    )
    return f"{value} [{low}, {high}]"
