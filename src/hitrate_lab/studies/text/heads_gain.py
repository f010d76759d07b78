"""What gains of heads on texts go with, in a table and drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.pictures import scatter
from hitrate_lab.pictures.standalone import standalone
from hitrate_lab.studies.gain.places import (
    ERROR,
    FEWEST,
    HEADROOM,
    Place,
    goes_with,
    line_of,
    place_of,
    rank_of,
    values_of,
)
from hitrate_lab.studies.networks.differences import Cell

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
# The method whose gain is drawn, as in the map of capacity.
JUDGED = "annealed_softmax"
KINDS = (("other", "with hidden units"), ("better", "linear"))


def places_of(study: Study, runs: Runs) -> list[Place]:
    """A place for each data set and model; those of a data set are drawn together.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    base, found = study.methods[0].name, []
    for spec, result in runs:
        parts = [
            {name: np.array(each[kind]) for name, each in result["methods"].items()}
            for kind in ("test", "train")
        ]
        cell = Cell(spec["data_set"], spec["model"], 0.0, *parts)
        found.append(place_of(cell, base, spec["data_set"], result))
    return found


def table(study: Study, runs: Runs) -> dict[str, Any] | None:
    """Slopes and correlations of the gain of each method that starts as a likelihood, or as EXACT.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    places = places_of(study, runs)
    if len(places) < FEWEST:
        return None
    models = dict.fromkeys(place.cell.model for place in places)
    parts = {"all": places}
    for model in models if len(models) > 1 else ():
        parts[model] = [place for place in places if place.cell.model == model]
    return goes_with(judged_of(study), parts, "data sets")


def judged_of(study: Study) -> list[str]:
    """Methods whose gain is compared with what was known before."""
    begun = "annealed", "mixed", "GCE", "EXACT"
    return [each.name for each in study.methods[1:] if each.name.startswith(begun)]


def pictures(study: Study, runs: Runs) -> dict[str, str]:
    """The gain of the judged method over training error and over headroom.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    places = places_of(study, runs)
    recipes = {each.name: each.settings.get("recipe") for each in study.methods}
    judged = [name for name, recipe in recipes.items() if recipe == JUDGED]
    if len(places) < FEWEST or not judged:
        return {}
    base, name = study.methods[0].name, judged[0]
    drawn = {}
    for predictor, words in (
        (ERROR, f"{ERROR} of tuned {base}, % →"),
        (HEADROOM, f"{HEADROOM}, points →"),
    ):
        values = values_of(places, predictor, name)
        marks = [
            scatter.Point(x, y, place.cell.name, KINDS[place.cell.model == "linear"][0])
            for place, (x, y) in zip(places, values.tolist(), strict=True)
        ]
        axes = words, f"gain of {name} on test rows, points"
        drawn_as = f"{study.name.replace('_', '-')}-{predictor.replace(' ', '-')}"
        said = (
            f"{len(marks)} pairs of a data set and a model. Across: {words.removesuffix(' →')}; "
            f"up: {axes[1]}. Spearman's correlation is {rank_of(values):.2f}."
        )
        line = line_of(values, [place.group for place in places])
        title = f"Gain over {predictor}"
        picture = scatter.scatter(marks, line, KINDS, axes, drawn_as, title, said)
        drawn[drawn_as] = standalone(picture, scatter.STYLE)
    return drawn
