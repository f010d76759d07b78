"""Which methods of a study are better over all its data sets: tests, effects and profiles.

Methods are compared by a table of scores, one row per data set. A protocol may say which, with
``score_tables(study, runs)``: dicts of

- "title", the heading;
- "methods" and "data_sets", names;
- "scores", a list for each data set with a number for each method: percent, higher is better;
- if wanted, "text", what a score is, and "name", how the files of its pictures begin.

Otherwise there is one table for each measure whose name ends in "accuracy", as of others the
highest need not be best: means over the runs, of the data sets that are complete. Variants are not
in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hitrate_lab.runs.store import Run
from hitrate_lab.statistics import conover, friedman, paired_effect, profiles, signed_rank
from hitrate_lab.statistics.scores import Floats, rounded
from hitrate_lab.studies.registry import protocol_named
from hitrate_lab.studies.study_file import Study

# Two methods are told apart below this p-value.
LEVEL = 0.05
# Differences of at most this many points are none in practice.
ROPE = 1.0
# Fewer data sets say nothing about others; of two methods, ranks say less than differences.
DATA_SETS, RANKED = 5, 3
# Shares of rows in percent: what differs by less is the rounding of a division.
DECIMALS = 9


def rankings(
    study: Study, runs: Sequence[Run], tables: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A ranking for each table of scores that has two methods and five data sets.

    Parameters
    ----------
    study : Study
    runs : sequence of Run
        All that are finished.
    tables : sequence of dict
        Of the report, one for each measure.

    Returns
    -------
    list of dict
        As from `ranking`, each with another "name".
    """
    own = protocol_named(study.protocol).score_tables(study, runs)
    found: list[dict[str, Any]] = []
    for table in _by_measure(tables) if own is None else own:
        if len(table["methods"]) > 1 and len(table["data_sets"]) >= DATA_SETS:
            taken = {each["name"] for each in found}
            found.append(ranking({**table, "name": _file_name(table, taken)}))
    return found


def ranking(table: dict[str, Any]) -> dict[str, Any]:
    """All that is said of a table of scores, as plain JSON.

    Parameters
    ----------
    table : dict
        As a protocol's ``score_tables`` has them.

    Returns
    -------
    dict
        The table, with

        - "wins": how often the method of a row is better than that of a column;
        - "effects": for each method but the first, its differences to the first in points, with
          the ends of 95 % intervals, wins, ties and losses, and "bayes", the probabilities that it
          is worse, equal and better in practice; "rope" is what counts as equal there;
        - "ranks": mean ranks, Friedman's test with Iman and Davenport's form ("f" is None where it
          is infinite), "adjusted" p-values of Conover's test of all pairs, and "groups", the
          largest sets of methods of which no two are told apart, best first: all of them, where
          Friedman's p is 0.05 or more. None for two methods;
        - "profiles": thresholds and shares of Dolan and Moré's. None for two methods.
    """
    names: list[str] = list(table["methods"])
    x = rounded(table["scores"], DECIMALS)
    wins = (x[:, :, None] > x[:, None, :]).sum(0)
    return {
        "title": table["title"],
        "name": table["name"],
        "text": table.get("text", ""),
        "methods": names,
        "data_sets": list(table["data_sets"]),
        "scores": x.tolist(),
        "wins": wins.tolist(),
        "rope": ROPE,
        "effects": [_effect(names[k], x[:, k], x[:, 0]) for k in range(1, len(names))],
        "ranks": _ranks(names, x) if len(names) >= RANKED else None,
        "profiles": _profiles(x) if len(names) >= RANKED and (x >= 0).all() else None,
    }


def _effect(name: str, scores: Floats, first: Floats) -> dict[str, Any]:
    test = signed_rank(scores, first, rope=ROPE)
    return {
        "method": name,
        **asdict(paired_effect(scores, first)),
        "bayes": {"worse": test.worse, "equal": test.equal, "better": test.better},
    }


def _ranks(names: list[str], x: Floats) -> dict[str, Any]:
    test, pairs = friedman(x), conover(x)
    groups = pairs.groups(LEVEL) if test.p < LEVEL else [pairs.order]
    return {
        "mean": list(pairs.ranks),
        "friedman": {
            "statistic": test.statistic,
            "p": test.p,
            "f": test.f if math.isfinite(test.f) else None,
            "f_p": test.f_p,
        },
        "adjusted": pairs.adjusted.tolist(),
        "groups": [[names[k] for k in group] for group in groups],
    }


def _profiles(x: Floats) -> list[dict[str, Any]]:
    return [
        {"thresholds": each.thresholds.tolist(), "shares": each.shares.tolist()}
        for each in profiles(x)
    ]


def is_accuracy(measure: str) -> bool:
    """Whether the highest of a measure is the best, as its name says.

    Examples
    --------
    >>> is_accuracy("test_accuracy"), is_accuracy("time_ratio")
    (True, False)
    """
    return measure.endswith("accuracy")


def _by_measure(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means of each accuracy, of the data sets that have them all."""
    found = []
    for table in tables:
        if not is_accuracy(table["measure"]):
            continue
        names = [name for name in table["methods"] if name not in table["variants"]]
        whole = [
            row
            for row in table["rows"]
            if row["complete"] and all(row["cells"][name]["mean"] is not None for name in names)
        ]
        found.append(
            {
                "title": table["title"],
                "name": table["measure"],
                "text": "A score is the mean over all runs of a data set.",
                "methods": names,
                "data_sets": [row["data_set"] for row in whole],
                "scores": [[row["cells"][name]["mean"] for name in names] for row in whole],
            }
        )
    return found


def _file_name(table: dict[str, Any], taken: set[str]) -> str:
    """Small letters, digits and hyphens, as no other table has them."""
    name = table.get("name") or table["title"]
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "table"
    number, unique = 1, plain
    while unique in taken:
        number += 1
        unique = f"{plain}-{number}"
    return unique
