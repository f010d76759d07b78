"""The map of capacity and wrong labels, and what the gain goes with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.statistics import grouped_interval
from hitrate_lab.studies.gain.places import (
    FEWEST,
    HEADROOM,
    RESAMPLES,
    Place,
    goes_with,
    interval_text,
    place_of,
)
from hitrate_lab.studies.networks.differences import Cell, Difference, headroom_of
from hitrate_lab.wording import points

if TYPE_CHECKING:
    from hitrate_lab.statistics import Interval
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]


@dataclass(frozen=True)
class Mapped(Place):
    """A cell of the map, with the width of its network."""

    hidden: int


def places_of(study: Study, runs: Runs) -> list[Mapped]:
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
        place = place_of(cell, base, f"{spec['data_set']} {hidden}", result)
        found.append(Mapped(place.cell, place.group, place.known, place.gain, hidden))
    return found


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


def _map(study: Study, places: Sequence[Mapped]) -> dict[str, Any]:
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


def _by_noise(study: Study, places: Sequence[Mapped]) -> dict[str, Any]:
    rows = []
    for share in dict.fromkeys(place.cell.noise for place in places):
        some = [place for place in places if place.cell.noise == share]
        row = [f"{round(100 * share)} %", str(len(some))]
        for name in others_of(study):
            gains = [place.gain[name] for place in some]
            mean = _mean(some, name)
            better = sum(each.low > 0 for each in gains)
            worse = sum(each.high < 0 for each in gains)
            row.append(f"{interval_text(mean, 100, '+.1f')}; {better}, {worse}")
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


def _mean(some: Sequence[Mapped], name: str) -> Interval:
    return grouped_interval(
        lambda x: float(x.mean()),
        np.array([[place.gain[name].value] for place in some]),
        [place.group for place in some],
        resamples=RESAMPLES,
    )


def _goes_with(study: Study, places: Sequence[Mapped]) -> dict[str, Any]:
    parts = {
        "all": places,
        "labels as they are": [place for place in places if not place.cell.noise],
        "some wrong": [place for place in places if place.cell.noise],
    }
    return goes_with(others_of(study), parts, "pairs of a data set and a width")
