"""The map of capacity and wrong labels, and what the gain goes with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.statistics import grouped_interval, spearman
from hitrate_lab.studies.gain.pairs import noise as noise_of_a_fit
from hitrate_lab.studies.networks.differences import Cell, Difference, headroom_of, welch
from hitrate_lab.wording import points

if TYPE_CHECKING:
    from hitrate_lab.statistics import Interval
    from hitrate_lab.statistics.scores import Floats
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
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


@dataclass(frozen=True)
class Place:
    """A cell of the map: a data set, a width and a share of wrong labels.

    `known` has by method what could be known without test rows, and `gain` what came of it.
    """

    cell: Cell
    hidden: int
    known: dict[str, dict[str, float]]
    gain: dict[str, Difference]

    @property
    def group(self) -> str:
        """Cells that share it are of the same images and the same network."""
        return f"{self.cell.data_set} {self.hidden}"


def places_of(study: Study, runs: Runs) -> list[Place]:
    """All cells of the map that are known.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    base = study.settings["baseline"]
    found = []
    for spec, result in runs:
        hidden = spec["hidden"]
        parts = [
            {name: np.array(each[kind]) for name, each in result["methods"].items()}
            for kind in ("test", "train")
        ]
        model = f"{hidden} hidden units" if hidden else "linear"
        cell = Cell(spec["data_set"], model, spec["noise"], *parts)
        gains = {
            name: welch(accuracy, cell.test[base])
            for name, accuracy in cell.test.items()
            if name != base
        }
        known = {name: _known(cell, name, base, result) for name in gains}
        whole = {name: gain for name, gain in gains.items() if gain is not None}
        found.append(Place(cell, hidden, known, whole))
    return found


def _known(cell: Cell, name: str, base: str, result: dict[str, Any]) -> dict[str, float]:
    accuracy = float(cell.train[base].mean())
    gained = float(cell.train[name].mean()) - accuracy
    free = result["parameters"] * (result["classes"] - 1) / result["classes"]
    return {
        ERROR: 1 - accuracy,
        GAINED: gained,
        LESS_NOISE: gained - noise_of_a_fit(free, result["train_rows"], accuracy),
        HEADROOM: headroom_of(cell, base),
    }


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Tables of the report.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    places = places_of(study, runs)
    if not places:
        return []
    shown = [_by_noise(study, places), _map(study, places)]
    if len(places) >= FEWEST:
        shown.append(_goes_with(study, places))
    return shown


def others_of(study: Study) -> list[str]:
    """Methods beside the baseline."""
    return [each.name for each in study.methods if each.name != study.settings["baseline"]]


def _map(study: Study, places: Sequence[Place]) -> dict[str, Any]:
    base, names = study.settings["baseline"], others_of(study)
    rows = []
    for place in places:
        cell = place.cell
        accuracy = cell.test[base]
        spread = f" ± {100 * accuracy.std(ddof=1):.2f}" if len(accuracy) > 1 else ""
        rows.append(
            [
                cell.name,
                f"{100 * accuracy.mean():.2f}{spread}",
                f"{100 * (1 - cell.train[base].mean()):.1f}",
                points(headroom_of(cell, base), 1),
                *(_difference(place.gain.get(name)) for name in names),
            ]
        )
    counts = sorted({len(each) for place in places for each in place.cell.test.values()})
    head = ["", f"{base}: test accuracy, %", "training error, %", HEADROOM, *names]
    return {
        "title": "The map",
        "head": head,
        "rows": rows,
        "text": (
            f"Means of {' or '.join(map(str, counts))} seeds. {names[0]} and the columns behind it "
            f"have the gain over {base} on test rows in points, with Welch's 95 % interval; bold "
            "where that is on one side of zero. Headroom is the training accuracy of the method "
            f"that has the most, less that of {base}. Nothing is corrected for the number of "
            "comparisons."
        ),
    }


def _difference(found: Difference | None) -> str:
    if found is None:
        return "-"
    words = f"{points(found.value)} [{points(found.low)}, {points(found.high)}]"
    return f"**{words}**" if found.low > 0 or found.high < 0 else words


def _by_noise(study: Study, places: Sequence[Place]) -> dict[str, Any]:
    rows = []
    for share in dict.fromkeys(place.cell.noise for place in places):
        some = [place for place in places if place.cell.noise == share]
        row = [f"{round(100 * share)} %", str(len(some))]
        for name in others_of(study):
            gains = [place.gain[name] for place in some]
            mean = _mean(some, name)
            better = sum(each.low > 0 for each in gains)
            worse = sum(each.high < 0 for each in gains)
            row.append(f"{_interval(mean, 100, '+.1f')}; {better}, {worse}")
        rows.append(row)
    base = study.settings["baseline"]
    return {
        "title": "Gain by the share of wrong labels",
        "head": ["wrong labels", "cells", *others_of(study)],
        "rows": rows,
        "text": (
            f"Mean gain over tuned {base} on test rows in points, with 95 % intervals by bootstrap "
            "over pairs of a data set and a width; in how many cells it is better and worse beyond "
            "Welch's interval."
        ),
    }


def _mean(some: Sequence[Place], name: str) -> Interval:
    return grouped_interval(
        lambda x: float(x.mean()),
        np.array([[place.gain[name].value] for place in some]),
        [place.group for place in some],
        resamples=RESAMPLES,
    )


def _goes_with(study: Study, places: Sequence[Place]) -> dict[str, Any]:
    right = [place for place in places if not place.cell.noise]
    wrong = [place for place in places if place.cell.noise]
    rows = []
    for name in others_of(study):
        for predictor in (ERROR, HEADROOM, GAINED, LESS_NOISE):
            row = [name, predictor, _interval(_of(places, predictor, name, slope), 1, "+.2f")]
            for some in (places, right, wrong):
                enough = len(some) >= FEWEST
                rank = _of(some, predictor, name, rank_of) if enough else None
                row.append("-" if rank is None else _interval(rank, 1, ".2f"))
            rows.append(row)
    counts = [f"{len(each)} cells" for each in (places, right, wrong)]
    return {
        "title": "What the gain goes with",
        "head": [
            "gain of",
            "known without test rows",
            "points gained per point",
            f"Spearman, all {counts[0]}",
            f"labels as they are, {counts[1]}",
            f"some wrong, {counts[2]}",
        ],
        "rows": rows,
        "text": (
            "A straight line by least squares, and Spearman's rank correlation, of the gain on "
            "test rows; 95 % intervals by bootstrap over pairs of a data set and a width. Training "
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


def _interval(of: Interval, unit: float, form: str) -> str:
    value, low, high = (
        f"{unit * each:{form}}".replace("-", "−") for each in (of.value, of.low, of.high)
    )
    return f"{value} [{low}, {high}]"
