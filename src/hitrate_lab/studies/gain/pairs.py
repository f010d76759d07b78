"""Pairs of a table and a model: what was known before, and what came of it."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
# Pairs are kept aside whose table has a name with a hash that this divides.
ASIDE = 3
# Standard errors of the difference beyond which it is more than noise.
BEYOND = 1.96


@dataclass(frozen=True)
class Pair:
    """One table and model, means over splits.

    `methods` has for each method but the baseline its gain on test rows, and the standard errors
    that this is away from nothing. `refit` is the same of the head that `hitrate.headroom` kept.
    """

    data_set: str
    model: str
    predictors: dict[str, float]
    methods: dict[str, tuple[float, float]]
    refit: tuple[float, float]
    kept_aside: bool
    test_rows: int
    # Where the path to the kept head ended, of the first split.
    stopped_at: float


def is_aside(data_set: str) -> bool:
    """Whether a table is kept aside, by its name alone.

    >>> [is_aside(f"uci121/{name}") for name in ("iris", "wine", "zoo", "letter", "car")]
    [True, False, False, False, True]
    """
    return int(hashlib.sha256(data_set.encode()).hexdigest(), 16) % ASIDE == 0


def noise(parameters: int, rows: int, accuracy: float) -> float:
    """What a fit gains in training where nothing is to be learnt."""
    return 0.5 * math.sqrt(parameters / rows * accuracy * (1 - accuracy))


# Of a result, the baseline's name and the one that is judged.
Predictor = Callable[[dict[str, Any], str, str], float]


def _gained(result: dict[str, Any], base: str, judged: str) -> float:
    methods = result["methods"]
    return float(methods[judged]["train"] - methods[base]["train"])


def _best_gained(result: dict[str, Any], base: str, judged: str) -> float:
    methods = result["methods"]
    return float(max(each["train"] for each in methods.values()) - methods[base]["train"])


def _noise(result: dict[str, Any], base: str) -> float:
    parameters = result["parameters"] * (result["classes"] - 1) / result["classes"]
    return noise(parameters, result["train_rows"], result["methods"][base]["train"])


# What could be known before looking at test rows. Settled before there was a result.
PREDICTORS: dict[str, Predictor] = {
    "training error": lambda r, base, _: 1 - r["methods"][base]["train"],
    "training accuracy gained": _gained,
    "the same less noise": lambda r, base, j: _gained(r, base, j) - _noise(r, base),
    "most gained by any method, less noise": lambda r, base, j: (
        _best_gained(r, base, j) - _noise(r, base)
    ),
    "headroom(): reachable less now": lambda r, *_: (
        r["headroom"]["reachable"] - r["headroom"]["now"]
    ),
    "headroom(): headroom": lambda r, *_: (
        r["headroom"]["reachable"] - r["headroom"]["now"] - r["headroom"]["noise"]
    ),
    "headroom(): gain on held-out rows": lambda r, *_: r["headroom"]["gain"],
}


def pairs(study: Study, runs: Runs) -> list[Pair]:
    """All pairs that are known whole: those of too few rows for a headroom are left out.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    base, judged = study.settings["baseline"], study.settings["judged"]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for specification, result in runs:
        if result["headroom"] is not None:
            found.setdefault((specification["data_set"], specification["model"]), []).append(result)
    return [
        Pair(
            data_set,
            model,
            {
                name: statistics.fmean(of(result, base, judged) for result in results)
                for name, of in PREDICTORS.items()
            },
            {
                name: _gain([(r["methods"][name], r["methods"][base]["test"]) for r in results])
                for name in results[0]["methods"]
                if name != base
            },
            _gain([(r["headroom"], r["methods"][base]["test"]) for r in results]),
            is_aside(data_set),
            results[0]["test_rows"],
            results[0]["headroom"]["q"],
        )
        for (data_set, model), results in found.items()
    ]


def _gain(of_splits: list[tuple[dict[str, Any], float]]) -> tuple[float, float]:
    """Mean gain, and its distance from nothing by the rows that only one of two has right."""
    gain = statistics.fmean(each["test"] - base for each, base in of_splits)
    better = sum(each["better"] for each, _ in of_splits)
    worse = sum(each["worse"] for each, _ in of_splits)
    return gain, (better - worse) / math.sqrt(max(better + worse, 1))
