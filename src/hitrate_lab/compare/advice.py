"""One sentence that says what to do with a comparison.

In order, the first rule that holds:

1. Nothing has finished, or only one method, or the baseline has not: say so.
2. Fewer than `FEWEST_FOLDS` folds have both methods of a pair: differences cannot be told.
3. A method wins if it is more accurate than the baseline with an adjusted p below `ALPHA`, on
   `FEWEST_FOLDS` folds or more. Without a winner the baseline stays; with fewer than `FEW_ROWS`
   rows the table is said to be too small.
4. Of the winners, the most accurate and all that a paired test cannot tell from it are equally
   good; of these a linear one is named rather than another, and else the fastest.

While a comparison is incomplete the sentence begins with the folds that it stands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hitrate_lab.statistics import Estimate, corrected_estimate

ALPHA = 0.05
FEWEST_FOLDS = 4
# One row of a test fold of a fifth is then worth five points or more.
FEW_ROWS = 100


@dataclass(frozen=True)
class Advice:
    """The sentence, and the name of the method that it recommends."""

    sentence: str
    method: str | None


def paired(first: dict[str, Any], second: dict[str, Any], folds: int) -> Estimate | None:
    """How much more accurate the second method is than the first, on the folds that both have.

    Parameters
    ----------
    first, second : dict
        Methods of a comparison document.
    folds : int
        Of one repeat.
    """
    had = {(each["repeat"], each["fold"]): each["accuracy"] for each in first["folds"]}
    gains = [
        each["accuracy"] - had[each["repeat"], each["fold"]]
        for each in second["folds"]
        if (each["repeat"], each["fold"]) in had
    ]
    return corrected_estimate(gains, 1 / (folds - 1)) if gains else None


def advise(
    methods: Sequence[dict[str, Any]],
    baseline: str,
    *,
    rows: int,
    folds: int,
    repeats: int,
    ended: bool = False,
) -> Advice:
    """What to do, from the methods of a comparison document.

    Parameters
    ----------
    methods : sequence of dict
        Ranked, the most accurate first.
    baseline : str
        Name of the method that the others are compared with.
    rows : int
        Of the table.
    folds, repeats : int
        As planned.
    ended : bool
        Whether there is nothing left to run, though something may have failed.
    """
    ran = [method for method in methods if method["folds"]]
    if not ran:
        return Advice("No run has finished, so there is nothing to compare yet.", None)
    base = next((method for method in ran if method["name"] == baseline), None)
    if base is None:
        return Advice(
            f"No fold of {baseline}, which the others are compared with, has finished.", None
        )
    others = [method for method in ran if method is not base]
    if not others:
        return Advice(
            f"Only {base['label']} has finished; there is nothing to compare it with.", None
        )
    pairs = {method["name"]: paired(base, method, folds) for method in others}
    most = max((pair.n for pair in pairs.values() if pair is not None), default=0)
    sentence, chosen = _chosen(base, others, pairs, most, rows, folds)
    if most < folds * repeats and not ended:
        counted = "1 fold" if most == 1 else f"{most} folds"
        sentence = f"So far, on {counted} of {folds * repeats}: {sentence[0].lower()}{sentence[1:]}"
    return Advice(sentence, chosen["name"] if chosen else None)


def _chosen(
    base: dict[str, Any],
    others: list[dict[str, Any]],
    pairs: dict[str, Estimate | None],
    most: int,
    rows: int,
    folds: int,
) -> tuple[str, dict[str, Any] | None]:
    """Rules 2 to 4."""
    if most < FEWEST_FOLDS:
        return f"Differences cannot be told on fewer than {FEWEST_FOLDS} folds; run more.", None
    winners = [method for method in others if _wins(method, pairs[method["name"]])]
    if not winners:
        if rows < FEW_ROWS:
            return f"With {rows} rows differences cannot be told; keep {base['label']}.", base
        return f"No method beats {base['label']} here; keep it.", base
    best = winners[0]
    equal = [best, *(method for method in winners[1:] if not _tells(method, best, folds))]
    chosen = min(equal, key=_effort)
    gain = pairs[chosen["name"]]
    assert gain is not None
    within = f"the same in all {gain.n} folds"
    if gain.low is not None and gain.high is not None:
        within = f"95 % interval {100 * gain.low:.1f} to {100 * gain.high:.1f}"
    sentence = (
        f"Use {chosen['label']}: {100 * gain.mean:.1f} points more accurate than {base['label']} "
        f"({within})"
    )
    beside = [method for method in equal if method is not chosen]
    if beside:
        # Labels have commas; three of them would be hard to tell apart.
        names = " and ".join(method["label"] for method in beside)
        names = names if len(beside) < 3 else f"{len(beside)} others"
        verb = "is" if len(beside) == 1 else "are"
        harder = {_effort(method)[0] > _effort(chosen)[0] for method in beside}
        why = " or ".join([*["less simple"] * (True in harder), *["slower"] * (False in harder)])
        sentence += f"; {names} {verb} within noise of it, but {why}"
    return f"{sentence}.", chosen


def _wins(method: dict[str, Any], pair: Estimate | None) -> bool:
    difference = method["difference"]
    if difference is None or difference["p_holm"] is None:
        return False
    if pair is None or pair.n < FEWEST_FOLDS:
        return False
    return bool(difference["mean"] > 0 and difference["p_holm"] < ALPHA)


def _tells(method: dict[str, Any], best: dict[str, Any], folds: int) -> bool:
    """Whether the best one is better by more than noise."""
    gain = paired(method, best, folds)
    return gain is not None and gain.p is not None and gain.p < ALPHA


def _effort(method: dict[str, Any]) -> tuple[bool, float]:
    """A linear model before any other, fast before slow."""
    return method["model"] != "linear", method["fit_seconds"]
