"""One sentence on training errors: what cross entropy leaves, and what was seen where it did so.

A loss can gain no more on the training rows than cross entropy leaves wrong there. Whether it gains
on new rows is another matter, and of that the study `gain_law` has counted what came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hitrate_lab.wording import PERCENT, percent

# Where cross entropy leaves a smaller share wrong, half a point is the most that there is to gain.
FITTED = 0.005


@dataclass(frozen=True)
class Seen:
    """Pairs of a table and a model in the study.

    Parameters
    ----------
    pairs : int
    gained, lost : int
        On how many of them test accuracy changed by more than noise.
    """

    pairs: int
    gained: int
    lost: int


@dataclass(frozen=True)
class Rise(Seen):
    """Those whose training accuracy rose by so much.

    Parameters
    ----------
    above : float
        The smallest rise, a share.
    words : str
    """

    above: float
    words: str


# Of annealed over tuned cross entropy, from studies/results/gain_law.jsonl.gz; a test counts again.
STUDY = (
    Rise(69, 8, 1, 0.01, "rose by a point or more"),
    Rise(80, 1, 0, 0.0, "rose by less than a point"),
    Rise(87, 0, 10, -math.inf, "fell"),
)
# Those on which cross entropy left less than FITTED wrong, whatever training accuracy did then.
FIT = Seen(43, 1, 2)


def what_the_law_says(methods: Sequence[dict[str, Any]], baseline: str) -> str | None:
    """The training error of cross entropy, the least of another loss, and what it meant elsewhere.

    Parameters
    ----------
    methods : sequence of dict
        Of a comparison document.
    baseline : str
        Name of the method that the others are compared with.

    Returns
    -------
    str or None
        None where the baseline is not cross entropy, or its training accuracy is not known.
    """
    base = next(method for method in methods if method["name"] == baseline)
    known = _by_fold(base)
    if base["loss"] != "cross_entropy" or not known:
        return None
    error = 1 - fmean(known.values())
    label = base["label"]
    if error < FITTED:
        wrong = f"{_share(error)} of the training rows wrong" if error else "no training row wrong"
        return (
            f"{label[:1].upper()}{label[1:]} leaves {wrong}, and another loss can gain no more "
            f"than that there: where so little was left in our study ({FIT.pairs} pairs of a table "
            f"and a model), test accuracy rose by more than noise on {FIT.gained} and fell on "
            f"{FIT.lost}."
        )
    # The law compares losses of one model: another model may reach more with any of them.
    rises = [
        (fmean(theirs[fold] - known[fold] for fold in both), method)
        for method in methods
        if method is not base and method["model"] == base["model"]
        for theirs in [_by_fold(method)]
        if (both := known.keys() & theirs.keys())
    ]
    left = f"Of the training rows {label} leaves {_share(error)} wrong"
    if not rises:
        return f"{left}; another loss can gain no more than that there."
    # Rounding is no rise, and no fall.
    rise, best = max(((round(rise, 9), method) for rise, method in rises), key=lambda each: each[0])
    seen = next(each for each in STUDY if rise >= each.above)
    return (
        f"{left} and {best['label']} {_share(error - rise)}: where training accuracy {seen.words} "
        f"in our study ({seen.pairs} pairs of a table and a model), test accuracy rose by more "
        f"than noise on {seen.gained} and fell on {seen.lost}."
    )


def _share(value: float) -> str:
    """A percentage with the blank that any terminal can show."""
    return percent(value).replace(PERCENT, " %")


def _by_fold(method: dict[str, Any]) -> dict[tuple[int, int], float]:
    """Training accuracy of each repeat and fold that has it."""
    return {
        (each["repeat"], each["fold"]): each["train_accuracy"]
        for each in method["folds"]
        if each["train_accuracy"] is not None
    }
