"""Mean ranks over data sets, and which of them differ: what the diagram of both pages shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hitrate_lab.report.closer import View
from hitrate_lab.report.view import ALPHA
from hitrate_lab.wording import MINUS, significant


def diagram(
    labels: Sequence[str],
    means: Sequence[float],
    groups: Sequence[Sequence[int]],
    baselines: Collection[int] = (),
) -> View:
    """A critical-difference diagram: methods by mean rank, and the bars that join them.

    A bar stands for a largest group of methods of which no two are told apart. By Conover's test
    a pair's p-value is the smaller the further its mean ranks are apart, so a group has no gaps,
    and a bar from its best to its worst method joins these and no others.

    Parameters
    ----------
    labels : what each method is called
    means : its mean rank
    groups : methods by their places in `labels`, best first, as from `Conover.groups`; or all
        methods, where Friedman's test does not tell them apart
    baselines : methods to be marked as such

    Returns
    -------
    dict
        "methods", best first; "groups", the first and the last of each in that order; "summary".
    """
    order = sorted(range(len(labels)), key=means.__getitem__)
    place = {method: at for at, method in enumerate(order)}
    methods = [
        {"index": i, "label": labels[i], "rank": means[i], "is_baseline": i in baselines}
        for i in order
    ]
    words = "; ".join(f"{method['label']} {method['rank']:.2f}" for method in methods)
    joined = "; ".join(" and ".join(labels[i] for i in group) for group in groups)
    return {
        "methods": methods,
        "groups": [(place[group[0]], place[group[-1]]) for group in groups],
        "summary": f"Mean ranks: {words}. Not told apart: {joined or 'none'}.",
    }


def friedman_words(test: Mapping[str, Any], methods: int, data_sets: int) -> str:
    """Friedman's test and Iman and Davenport's form of it, in a sentence or two.

    Parameters
    ----------
    test : "statistic" and "p" of χ², "f" (None where it is infinite) and "f_p"
    methods : how many
    data_sets : how many
    """
    freedom = methods - 1
    f = "infinite" if test["f"] is None else f"{test['f']:.2f}"
    words = (
        f"Friedman’s test that all methods rank the same: χ² = {test['statistic']:.2f} with "
        f"{freedom} degrees of freedom, {_p(test['p'])}. Iman and Davenport’s form of it: F = {f} "
        f"with {freedom} and {freedom * (data_sets - 1)}, {_p(test['f_p'])}."
    )
    if test["p"] >= ALPHA:
        words += " At 5\u00a0% it does not tell them apart, so one bar joins them all."
    return words


def _p(p: float) -> str:
    """An exact p-value; what is smaller than any number of the computer says so."""
    return f"p = {significant(p, 2)}" if p > 0 else f"p < 1e{MINUS}300"
