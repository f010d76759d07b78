"""Which images are still learnt: tables and a picture of groups by p_y."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.studies.networks.differences import LEVEL
from hitrate_lab.studies.networks.learnt import EDGES

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
# Rows of a group and those right in the end, of each seed, by data set, network and method.
Found = dict[tuple[str, str], dict[str, list[dict[str, list[list[int]]]]]]
# Where the paper divides what is wrong.
DIVIDE = 0.2


def groups_of(study: Study, runs: Runs) -> Found:
    """Groups of all runs.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    found: Found = {}
    for spec, result in runs:
        place = found.setdefault((spec["data_set"], spec["model"]), {})
        place.setdefault(spec["method"], []).append(result["groups"])
    order = [method.name for method in study.methods]
    return {
        place: {name: methods[name] for name in order if name in methods}
        for place, methods in found.items()
    }


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Tables of the report: the paper's three groups, and gains and losses of all.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    found = groups_of(study, runs)
    divide = EDGES.index(DIVIDE)
    rows = []
    for (data_set, model), methods in found.items():
        for name, seeds in methods.items():
            parts = [
                [_sum(each["right"]) for each in seeds],
                [_sum(each["wrong"][divide:]) for each in seeds],
                [_sum(each["wrong"][:divide]) for each in seeds],
            ]
            where = f"{data_set.split('/')[-1]}, {model}"
            rows.append([where, name, str(len(seeds)), *map(_shown, parts)])
    if not rows:
        return []
    kept = "right after {0} epochs: still right"
    learnt = "wrong, p_y {1} 0.2: right in the end"
    heads = [kept, learnt.replace("{1}", "≥"), learnt.replace("{1}", "<")]
    return [
        {
            "title": "What is still learnt",
            "head": [
                "",
                "method",
                "n",
                *(each.format(study.settings["looked_at"]) for each in heads),
            ],
            "rows": rows,
            "text": (
                "Test images by what they were after "
                f"{study.settings['looked_at']} epochs: means over n seeds of how many there were, "
                "and the share that is right at the end, ± standard deviation over seeds."
            ),
        }
    ]


def _sum(pairs: Sequence[Sequence[int]]) -> tuple[int, int]:
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _shown(pairs: Sequence[tuple[int, int]]) -> str:
    rows = np.mean([count for count, _ in pairs])
    shares = 100 * np.array([hits / count for count, hits in pairs if count])
    if not len(shares):
        return "-"
    spread = f" ± {shares.std(ddof=1):.1f}" if len(shares) > 1 else ""
    return f"{rows:,.0f}: {shares.mean():.1f}{spread} %"


def pictures(study: Study, runs: Runs) -> dict[str, str]:
    """Shares of each group that are right at the end, by p_y.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    from hitrate_lab.pictures import panels
    from hitrate_lab.pictures.standalone import standalone

    found = groups_of(study, runs)
    if not found:
        return {}
    steps = [f"{low:g}–{high:g}" for low, high in pairwise(EDGES)]
    shown = {
        f"{data_set.split('/')[-1]}, {model}": {
            name: [_place([each["wrong"][k] for each in seeds]) for k in range(len(steps))]
            for name, seeds in methods.items()
        }
        for (data_set, model), methods in found.items()
    }
    drawn = panels.panels(
        shown,
        steps,
        ("p_y of images that were wrong", "right in the end, %"),
        study.name,
        "Which misclassified images are still learnt",
        f"Of the test images that were wrong after {study.settings['looked_at']} epochs, by the "
        "softmax p_y of their class then, the share that is right in the end, with 95 % intervals "
        "over seeds.",
        columns=2,
        sign=False,
    )
    return {study.name.replace("_", "-"): standalone(drawn, panels.STYLE)}


def _place(pairs: Sequence[Sequence[int]]) -> tuple[float, float, float] | None:
    """Mean share over seeds, and its interval; a single seed has none."""
    from scipy import stats

    shares = np.array([hits / count for count, hits in pairs if count])
    if not len(shares):
        return None
    mean = float(shares.mean())
    if len(shares) < 2:
        return mean, mean, mean
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(shares) - 1)) * float(shares.std(ddof=1))
    reach /= math.sqrt(len(shares))
    return mean, mean - reach, mean + reach
