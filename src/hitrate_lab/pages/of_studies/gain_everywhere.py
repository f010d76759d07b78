"""What the gain goes with, on images and texts together: a table and a picture of two studies."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made
from hitrate_lab.pictures import scatter
from hitrate_lab.pictures.standalone import standalone
from hitrate_lab.studies import Study, read_study
from hitrate_lab.studies.gain.places import HEADROOM, Place, goes_with, line_of, rank_of, values_of
from hitrate_lab.studies.markdown import table_text
from hitrate_lab.studies.networks import capacity_summary
from hitrate_lab.studies.text import heads_gain

PAGE, PICTURE = "docs/when_it_pays.md", "gain-everywhere"
IMAGES, TEXTS = "capacity_map", "text_heads"
# What both studies train with, by its recipe.
COMMON = ("annealed_softmax", "mixed_gradual", "generalized_cross_entropy")
NAMES = ("annealed softmax", "mixed", "GCE")
KINDS = (("better", "images"), ("other", "images, some labels wrong"), ("text", "texts"))


def gain_everywhere(root: Path) -> Made:
    """The cells of the map of capacity, and the pairs of texts, as one."""
    parts = {"all": places(root)}
    for kind, words in KINDS:
        parts[words] = [place for place in parts["all"] if _kind(place) == kind]
    groups = "pairs of a data set and a width, and texts' data sets"
    table = goes_with(NAMES, parts, groups)
    judged = NAMES[0]
    values = values_of(parts["all"], HEADROOM, judged)
    marks = [
        scatter.Point(x, y, place.cell.name, _kind(place))
        for place, (x, y) in zip(parts["all"], values.tolist(), strict=True)
    ]
    axes = f"{HEADROOM}, points →", f"gain of {judged} on test rows, points"
    said = (
        f"{len(marks)} cells of images and texts. Across: {HEADROOM}, the training accuracy of the "
        "method that has the most less that of tuned cross entropy; up: the gain of "
        f"{judged} over it. Spearman's correlation is {rank_of(values):.2f}."
    )
    line = line_of(values, [place.group for place in parts["all"]])
    picture = scatter.scatter(
        marks, line, KINDS, axes, PICTURE, "Gain over headroom, images and texts", said
    )
    return Made(
        {PAGE: {PICTURE: table_text(table)}},
        {f"docs/images/{PICTURE}.svg": standalone(picture, scatter.STYLE)},
    )


def places(root: Path) -> list[Place]:
    """All cells of both studies, with the same name for the same recipe.

    Parameters
    ----------
    root : Path
        The repository.
    """
    found: list[Place] = []
    for name, of in ((IMAGES, capacity_summary.places_of), (TEXTS, heads_gain.places_of)):
        study = read_study(root / "studies" / f"{name}.toml")
        file = root / "studies" / "results" / f"{name}.jsonl.gz"
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            runs = [(run["specification"], run["result"]) for run in map(json.loads, lines)]
        found += [_renamed(place, _names(study)) for place in of(study, runs)]
    return found


def _names(study: Study) -> dict[str, str]:
    """What a study calls a method, by our name for its recipe."""
    own: dict[Any, str] = {}
    for method in study.methods:
        own.setdefault(method.settings["recipe"], method.name)
    return {name: own[recipe] for name, recipe in zip(NAMES, COMMON, strict=True)}


def _renamed(place: Place, names: dict[str, str]) -> Place:
    known = {name: place.known[own] for name, own in names.items()}
    gain = {name: place.gain[own] for name, own in names.items()}
    return replace(place, known=known, gain=gain)


def _kind(place: Place) -> str:
    if place.cell.data_set.startswith("texts/"):
        return "text"
    return "other" if place.cell.noise else "better"
