"""The statistics of Mixing's Table 4 and Figure 3, from the runs of `table`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.statistics import conover, friedman
from hitrate_lab.statistics.scores import Floats
from hitrate_lab.studies.mixing.table import MEASURES, printed

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
LEVEL = 0.05


def summary(study: Study, runs: Runs, *, ties: str = "first") -> dict[str, dict[str, Any]]:
    """Table 4: the methods that the paper has, over all data sets that are done.

    Each statistic is one of a seed and split, averaged over these. `wins` counts the data sets on
    which nobody is better, `gain` is the mean difference to the baseline in percent, and `rank` the
    mean place, where methods that tie all have the best of their places: the paper's ranks add up
    to 15.8 and 16.6, and mean places would add up to 21. Tests take mean places for ties.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    ties : {"first", "last"}
        Which of the epochs that validation rows cannot tell apart.

    Returns
    -------
    dict
        By model: "data_sets", how many; "methods", each with our numbers and the `paper`'s; for
        each seed and split "friedman", p of Friedman's test, and "apart", the methods that differ
        from the baseline at 5 % by Conover's test, adjusted by Benjamini and Hochberg.
    """
    shown = [method for method in study.methods if printed(study, method)]
    names = [method.name for method in shown]
    base = names.index(study.settings["baseline"])
    tables = {}
    for model, groups in _scores(names, runs, ties).items():
        found = []
        for x in groups:
            places = 1 + (x[:, None, :] > x[:, :, None]).sum(2)
            gain = x - x[:, [base]]
            found.append([(places == 1).sum(0), gain.mean(0), places.mean(0)])
        wins, gain, rank = np.mean(found, 0)
        tables[model] = {
            "data_sets": len(groups[0]),
            "friedman": [friedman(x).p for x in groups],
            "apart": [_apart(x, names, base) for x in groups],
            "methods": {
                method.name: {
                    "wins": float(wins[k]),
                    "gain": float(gain[k]),
                    "rank": float(rank[k]),
                    "paper": printed(study, method).get(model),
                }
                for k, method in enumerate(shown)
            },
        }
    return tables


def _scores(names: list[str], runs: Runs, ties: str) -> dict[str, list[Floats]]:
    """By model, for each split and seed: test accuracy in percent (data sets, methods)."""
    rows: dict[str, dict[tuple[int, int], list[list[float]]]] = {}
    for spec, result in runs:
        for place, seed in enumerate(spec["seeds"]):
            row = [100 * _accuracy(spec, result, name, place, ties) for name in names]
            rows.setdefault(spec["model"], {}).setdefault((spec["split"], seed), []).append(row)
    # Shares of rows: what differs by less is the rounding of a division.
    return {
        model: [np.round(np.array(group), 9) for group in groups.values()]
        for model, groups in rows.items()
    }


def _accuracy(
    spec: dict[str, Any], result: dict[str, Any], name: str, place: int, ties: str
) -> float:
    chosen = result["chosen"][name][place]
    if ties == "first":
        return float(chosen["test_accuracy"])
    rate = spec["learning_rates"].index(chosen["learning_rate"])
    return float(result["best"][name][place][rate]["last_test"] / result["test_rows"])


def _apart(x: Floats, names: list[str], base: int) -> dict[str, str]:
    """Methods that differ from the baseline, and whether they are better or worse."""
    pairs = conover(x)
    return {
        name: "better" if pairs.ranks[k] < pairs.ranks[base] else "worse"
        for k, name in enumerate(names)
        if pairs.adjusted[base, k] < LEVEL
    }


def score_tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Test accuracy in percent for the report's rankings, of data sets that have all runs.

    For each model a table of means over seeds, then one for each seed, as in the paper's Figure 3.
    They have all methods; Table 4 only those that the paper has.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    names = [method.name for method in study.methods]
    seeds, splits = study.methods[0].seeds, len(study.settings["splits"])
    # By model and data set, scores (splits, seeds, methods).
    found: dict[str, dict[str, list[list[list[float]]]]] = {}
    for spec, result in runs:
        found.setdefault(spec["model"], {}).setdefault(spec["data_set"], []).append(
            [
                [100 * _accuracy(spec, result, name, place, "first") for name in names]
                for place in range(len(seeds))
            ]
        )
    over = f", averaged over {splits} splits" if splits > 1 else ""
    parts = [("", slice(None), f", averaged over {len(seeds)} seeds{over and ' and splits'}")]
    parts += [(f", seed {seed}", slice(k, k + 1), over) for k, seed in enumerate(seeds)]
    listed = []
    for part, places, how in parts:
        for model, measure in MEASURES.items():
            whole = {
                name: np.mean(np.array(scores)[:, places], (0, 1)).tolist()
                for name, scores in found.get(model, {}).items()
                if len(scores) == splits
            }
            short = measure.removesuffix("_accuracy") + part.replace(", seed ", "-seed-")
            listed.append(
                {
                    "title": model.capitalize() + part,
                    "name": f"mixing-{short}",
                    "text": f"A score is the test accuracy in percent{how}.",
                    "methods": names,
                    "data_sets": list(whole),
                    "scores": list(whole.values()),
                }
            )
    return listed


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Table 4 for the report, one table for each model.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    runs = list(runs)
    first, last = summary(study, runs), summary(study, runs, ties="last")
    baseline = study.settings["baseline"]
    head = ["method", "wins", "paper", f"gain over {baseline}, %", "paper", "mean rank", "paper"]
    found = []
    for model in MEASURES:
        if model not in first:
            continue
        rows = []
        for name, each in first[model]["methods"].items():
            paper = each["paper"] or {}
            row = [name]
            for key, form in (("wins", "{:g}"), ("gain", "{:+.2f}"), ("rank", "{:.2f}")):
                number = paper.get(key)
                row += [form.format(each[key]), "-" if number is None else form.format(number)]
            rows.append(row)
        found.append(
            {
                "title": f"Table 4, {model}",
                "head": head,
                "rows": rows,
                "text": _text(first[model], last[model], baseline),
            }
        )
    return found


def _text(first: dict[str, Any], last: dict[str, Any], baseline: str) -> str:
    """What stands below a table."""
    p = ", ".join(f"{each:.2g}" for each in first["friedman"])
    lines = [
        f"{first['data_sets']} data sets; each number is the mean over {len(first['friedman'])} "
        f"seeds. Friedman's test has p = {p} by seed."
    ]
    for number, apart in enumerate(first["apart"], 1):
        told = []
        for how in ("better", "worse"):
            if names := [name for name, each in apart.items() if each == how]:
                told.append(f"{', '.join(names)} {how}")
        what = " and ".join(told) or "none better or worse"
        lines.append(f"By Conover's test at 5 %, in run {number}: {what} than {baseline}.")
    gains = ", ".join(f"{name} {each['gain']:+.2f}" for name, each in last["methods"].items())
    lines.append(f"Had the last of epochs that tie been taken, gains would be {gains}.")
    return " ".join(lines)
