"""Figure 5 of "EXACT: How to Train Your Accuracy" on tables: norms of gradients during training.

The paper's figure is of one training; here are ten tables, from the runs of `tables`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitrate_lab.runs.store import Run
    from hitrate_lab.studies.study_file import Study

NAME = "exact-gradient-norms"
TITLE = "Figure 5 on tables: norm of the gradient during training"
# Growth that is more than noise, and a fall to as good as nothing.
GROWN, VANISHED = 2.0, 1e-3
# Lines end where it falls below: what is left of a gradient in float32 is mostly rounding.
FLOOR = -7
PAPER = (
    "The paper, section 4.5.4 and Figure 5: norms of cross entropy and hinge reach a plateau, "
    "EXACT's grows exponentially. EXACT's logits are normalised, so that its gradients are the "
    "larger the smaller the weights are, and these begin near 0."
)


class Norms:
    """Medians over seeds of each part of the training, by data set and method; variants left out.

    Parameters
    ----------
    study : Study
    runs : sequence of Run
        Those that are done; what has no "gradient_norms" is not looked at.
    """

    def __init__(self, study: Study, runs: Sequence[Run]) -> None:
        methods = [method.name for method in study.methods if not method.variant]
        self.runs = [
            run
            for run in runs
            if run.result.get("gradient_norms") and run.specification["method"] in methods
        ]
        by_cell: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            cell = run.specification["data_set"], run.specification["method"]
            by_cell.setdefault(cell, []).append(run)
        self.methods = [name for name in methods if any(name == of for _, of in by_cell)]
        self.data_sets = [name for name in study.data_sets if any(name == of for of, _ in by_cell)]
        self.parts = {
            cell: [
                statistics.median(part)
                for part in zip(*(run.result["gradient_norms"] for run in found), strict=True)
            ]
            for cell, found in by_cell.items()
        }
        self._separated = {
            cell
            for cell, found in by_cell.items()
            if all(run.result["train_accuracy"] == 1 for run in found)
        }

    def grown(self, method: str, since: int, factor: float) -> int:
        """On how many data sets the last part is above another, by more than a factor."""
        found = (self.parts.get((name, method)) for name in self.data_sets)
        return sum(parts[-1] > factor * parts[since] for parts in found if parts)

    def vanished(self, method: str) -> tuple[list[str], int]:
        """Data sets on which hardly anything is left of it, and on how many all rows are right."""
        names = [
            name
            for name in self.data_sets
            if (parts := self.parts.get((name, method))) and parts[-1] <= VANISHED * parts[0]
        ]
        return names, sum((name, method) in self._separated for name in names)

    @property
    def middle(self) -> int:
        """The part in the middle, 20th of 40."""
        return (len(next(iter(self.parts.values()))) - 1) // 2


def tables(study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Norms at the start, in the middle and at the end, for the report.

    Parameters
    ----------
    study : Study
    runs : sequence of Run
        Those that are done.
    """
    norms = Norms(study, runs)
    if not norms.parts:
        return []
    rows = []
    for data_set in norms.data_sets:
        for method in norms.methods:
            if parts := norms.parts.get((data_set, method)):
                shown = [parts[0], parts[norms.middle], parts[-1]]
                ratio = _three(parts[-1] / parts[0]) if parts[0] else "-"
                rows.append([_short(data_set), method, *map(_three, shown), ratio])
    return [
        {
            "title": "Norm of the gradient at the start, in the middle and at the end",
            "head": ["data set", "loss", "start", "middle", "end", "end / start"],
            "rows": rows,
            "text": f"{_what(norms)} {_counts(norms)} {PAPER}",
        }
    ]


def figures(study: Study, runs: Sequence[Run]) -> dict[str, str]:
    """A panel for each data set as the text of an SVG file, by its name; none without norms.

    Parameters
    ----------
    study : Study
    runs : sequence of Run
        Those that are done.
    """
    from hitrate_lab.pictures.multiples import STYLE, Axes, multiples
    from hitrate_lab.pictures.standalone import standalone

    norms = Norms(study, runs)
    if not norms.parts:
        return {}
    steps = norms.runs[0].specification["training"]["steps"]
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for data_set in norms.data_sets:
        panel = panels[_short(data_set)] = {}
        for method in norms.methods:
            parts = norms.parts.get((data_set, method), [])
            panel[method] = [(steps * (k + 0.5) / len(parts), y) for k, y in enumerate(parts)]
    highest = max(max(parts) for parts in norms.parts.values())
    powers = FLOOR, max(math.ceil(math.log10(highest)) if highest else 0, FLOOR + 1)
    axes = Axes("step", "norm of the gradient", steps, powers)
    drawn = multiples(panels, axes, NAME, TITLE, _counts(norms))
    return {NAME: standalone(drawn, STYLE)}


def _what(norms: Norms) -> str:
    """What a number is."""
    spec = norms.runs[0].specification
    seeds = len({run.specification["seed"] for run in norms.runs})
    count = len(next(iter(norms.parts.values())))
    return (
        "Of a batch's gradient, before it is clipped or normalised: the mean over each of "
        f"{count} equal parts of {spec['training']['steps']:,} steps, and the median of that over "
        f"{seeds} seeds. Start, middle and end are parts 1, {norms.middle + 1} and {count}."
    )


def _counts(norms: Norms) -> str:
    """On how many data sets norms grow, and on how many they vanish."""
    grown, doubled = (
        _listed([f"{name}'s on {norms.grown(name, since, by)}" for name in norms.methods])
        for since, by in ((0, 1.0), (norms.middle, GROWN))
    )
    lines = [
        f"Of {len(norms.data_sets)} data sets, the norm ends above its start: {grown}.",
        f"From the middle to the end it more than doubles: {doubled}.",
    ]
    gone = []
    for name in norms.methods:
        found, separated = norms.vanished(name)
        if found:
            places = _listed([_short(each) for each in found])
            right = f"on {separated} of which every training row is right"
            gone.append(f"{name}'s on {len(found)} ({places}), {right}")
    if gone:
        lines.append(f"It ends below a thousandth of its start: {'; '.join(gone)}.")
    return " ".join(lines)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _three(value: float) -> str:
    """Three digits.

    >>> _three(0.2322), _three(1.7753e-08), _three(0.0)
    ('0.232', '1.78e-8', '0')
    """
    return f"{value:.3g}".replace("e-0", "e-")


def _short(data_set: str) -> str:
    return data_set.split("/")[-1]
