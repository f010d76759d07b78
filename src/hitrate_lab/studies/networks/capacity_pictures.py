"""Pictures of the map of capacity and wrong labels, and of what the gain goes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hitrate_lab.pictures import panels, scatter
from hitrate_lab.pictures.standalone import standalone
from hitrate_lab.studies.gain.places import ERROR, FEWEST, HEADROOM, line_of, rank_of, values_of
from hitrate_lab.studies.networks.capacity_summary import Mapped, Runs, others_of, places_of

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study


def pictures(study: Study, runs: Runs) -> dict[str, str]:
    """The map, and the gain of the judged method over training error and over headroom.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    places = places_of(study, runs)
    if len(places) < FEWEST:
        return {}
    base, judged = study.settings["baseline"], study.settings["judged"]
    drawn = {
        "capacity-map": standalone(
            panels.panels(
                _panels(study, places),
                [str(each) if each else "linear" for each in study.settings["hidden"]],
                ("hidden units", f"gain over tuned {base} on test rows, points"),
                "capacity-map",
                "Gain by width and share of wrong labels",
                f"Gains over tuned {base} on test rows, with 95 % intervals, by the width of the "
                "network: a panel for each data set and share of wrong labels.",
            ),
            panels.STYLE,
        )
    }
    kinds = (("other", "labels as they are"), ("better", "some labels wrong"))
    for predictor, words in (
        (ERROR, f"{ERROR} of tuned {base}, % →"),
        (HEADROOM, f"{HEADROOM}, points →"),
    ):
        values = values_of(places, predictor, judged)
        marks = [
            scatter.Point(x, y, place.cell.name, kinds[bool(place.cell.noise)][0])
            for place, (x, y) in zip(places, values.tolist(), strict=True)
        ]
        axes = words, f"gain of {judged} on test rows, points"
        name = f"capacity-{predictor.replace(' ', '-')}"
        said = (
            f"{len(marks)} cells of a data set, a width and a share of wrong labels. Across: "
            f"{words.removesuffix(' →')}; up: {axes[1]}. Spearman's correlation is "
            f"{rank_of(values):.2f}."
        )
        title = f"Gain over {predictor}"
        drawn[name] = standalone(
            scatter.scatter(
                marks,
                line_of(values, [place.group for place in places]),
                kinds,
                axes,
                name,
                title,
                said,
            ),
            scatter.STYLE,
        )
    return drawn


def _panels(study: Study, places: Sequence[Mapped]) -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = {}
    by_place = {(each.cell.data_set, each.cell.noise, each.hidden): each for each in places}
    for data_set in study.data_sets:
        for share in study.settings["noise"]:
            some = [by_place.get((data_set, share, hidden)) for hidden in study.settings["hidden"]]
            heading = data_set.split("/")[-1]
            heading += f", {round(100 * share)} % wrong labels" if share else ""
            found[heading] = {
                name: [_ends(each, name) for each in some] for name in others_of(study)
            }
    return found


def _ends(place: Mapped | None, name: str) -> tuple[float, float, float] | None:
    gain = None if place is None else place.gain.get(name)
    return None if gain is None else (gain.value, gain.low, gain.high)
