"""One sentence that says what to do with a comparison.

In order, the first rule that holds:

1. Nothing has finished, or only one method, or the baseline has not: say so.
2. Fewer than `FEWEST_FOLDS` folds have both methods of a pair: differences cannot be told.
3. A method wins if it is better than the baseline with an adjusted p below `ALPHA`, on
   `FEWEST_FOLDS` folds or more. Without a winner the baseline stays; with fewer than `FEW_ROWS`
   rows the table is said to be too small.
4. Of the winners, the best and all that a paired test cannot tell from it are equally
   good; of these a linear one is named rather than another, and else the fastest.

Better is what the metric says: more accurate, unless another one was asked for.

While a comparison is incomplete the sentence begins with the folds that it stands on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hitrate_lab.metrics import DEFAULT, METRICS, Description
from hitrate_lab.models.methods import MODELS
from hitrate_lab.statistics import Estimate, corrected_estimate

ALPHA = 0.05
FEWEST_FOLDS = 4
# One row of a test fold of a fifth is then worth five points or more.
FEW_ROWS = 100
ACCURACY = METRICS[DEFAULT]


@dataclass(frozen=True)
class Advice:
    """The sentence, and the name of the method that it recommends."""

    sentence: str
    method: str | None


def paired(
    first: dict[str, Any], second: dict[str, Any], folds: int, metric: Description = ACCURACY
) -> Estimate | None:
    """How much higher the second method's metric is than the first's, on the folds of both.

    Parameters
    ----------
    first, second : dict
        Methods of a comparison document.
    folds : int
        Of one repeat.
    metric : Description
    """
    had = {(each["repeat"], each["fold"]): each[metric.key] for each in first["folds"]}
    gains = [
        each[metric.key] - had[each["repeat"], each["fold"]]
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
    metric: Description = ACCURACY,
) -> Advice:
    """What to do, from the methods of a comparison document.

    Parameters
    ----------
    methods : sequence of dict
        Ranked, the best first.
    baseline : str
        Name of the method that the others are compared with.
    rows : int
        Of the table.
    folds, repeats : int
        As planned.
    ended : bool
        Whether there is nothing left to run, though something may have failed.
    metric : Description
        What methods are judged by.
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
    pairs = {method["name"]: paired(base, method, folds, metric) for method in others}
    most = max((pair.n for pair in pairs.values() if pair is not None), default=0)
    sentence, chosen = _chosen(base, others, pairs, most, rows, folds, metric)
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
    metric: Description,
) -> tuple[str, dict[str, Any] | None]:
    """Rules 2 to 4."""
    if most < FEWEST_FOLDS:
        told = f"Differences{metric.within} cannot be told"
        return f"{told} on fewer than {FEWEST_FOLDS} folds; run more.", None
    winners = [method for method in others if _wins(method, pairs[method["name"]], metric)]
    if not winners:
        if rows < FEW_ROWS:
            told = f"With {rows} rows differences{metric.within} cannot be told"
            return f"{told}; keep {base['label']}.", base
        return f"No method beats {base['label']}{metric.within} here; keep it.", base
    best = winners[0]
    equal = [best, *(method for method in winners[1:] if not _tells(method, best, folds, metric))]
    chosen = min(equal, key=_effort)
    gain = pairs[chosen["name"]]
    assert gain is not None
    sentence = f"Use {chosen['label']}: {_gain(gain, base['label'], metric)}"
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


def _gain(gain: Estimate, base: str, metric: Description) -> str:
    """How much better than the baseline; a lower metric is lower by a positive number."""
    digits = 1 if metric.is_share else 2
    mean = f"{metric.plain(metric.sign * gain.mean, digits)}{metric.unit}"
    within = f"the same in all {gain.n} folds"
    if gain.low is not None and gain.high is not None:
        low, high = sorted((metric.sign * gain.low, metric.sign * gain.high))
        within = f"95 % interval {metric.plain(low, digits)} to {metric.plain(high, digits)}"
    if metric.is_default:
        return f"{mean} more accurate than {base} ({within})"
    way = "higher" if metric.is_better_higher else "lower"
    return f"{metric.words} {mean} {way} than with {base} ({within})"


def _wins(method: dict[str, Any], pair: Estimate | None, metric: Description) -> bool:
    difference = method["difference"]
    if difference is None or difference["p_holm"] is None:
        return False
    if pair is None or pair.n < FEWEST_FOLDS:
        return False
    return bool(metric.sign * difference["mean"] > 0 and difference["p_holm"] < ALPHA)


def _tells(method: dict[str, Any], best: dict[str, Any], folds: int, metric: Description) -> bool:
    """Whether the best one is better by more than noise."""
    gain = paired(method, best, folds, metric)
    return gain is not None and gain.p is not None and gain.p < ALPHA


def _effort(method: dict[str, Any]) -> tuple[bool, float]:
    """A linear model before any other, fast before slow."""
    return not MODELS[method["model"]].is_linear, method["fit_seconds"]
