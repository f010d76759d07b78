"""The law: what predicts the gain, found on two thirds of the tables and tested on a third."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.pictures.scatter import STYLE, Point, scatter
from hitrate_lab.pictures.standalone import standalone
from hitrate_lab.statistics import grouped_interval, spearman
from hitrate_lab.studies.gain.pairs import BEYOND, PREDICTORS, Pair, Runs, pairs
from hitrate_lab.wording import points

if TYPE_CHECKING:
    from hitrate_lab.statistics import Interval
    from hitrate_lab.statistics.scores import Floats
    from hitrate_lab.studies.study_file import Study

# Of the chosen predictor, in shares.
EDGES = (0.0, 0.01, 0.02, 0.04)
# Fewer pairs tell nothing.
FEWEST = 8
# With fewer test rows a gain is mostly noise.
MANY = 500
# Of bootstrap intervals.
RESAMPLES = 1000
KINDS = (("other", "chosen by"), ("better", "kept aside"))


def law(study: Study, found: Sequence[Pair]) -> dict[str, Any] | None:
    """The predictor that ranks gains best on tables that are not kept aside, and how it does there.

    Parameters
    ----------
    study : Study
    found : sequence of Pair

    Returns
    -------
    dict or None
        `predictor`; for every one of them under `correlations` that of both parts with its
        interval, and under `line` points (x, y, low, high) of the mean gain over the chosen one.
        None while there are too few pairs.
    """
    judged = study.settings["judged"]
    parts = {aside: [each for each in found if each.kept_aside == aside] for aside in (False, True)}
    if min(map(len, parts.values())) < FEWEST:
        return None
    correlations = {
        name: [_correlation(parts[aside], name, judged) for aside in (False, True)]
        for name in PREDICTORS
    }
    chosen = max(correlations, key=lambda name: correlations[name][0].value)
    return {
        "predictor": chosen,
        "correlations": correlations,
        "pairs": [len(parts[False]), len(parts[True])],
        "line": _line(found, chosen, judged),
    }


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Tables of the report: the law, gains by headroom, and what every method gains.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    found = pairs(study, runs)
    known = law(study, found)
    shown = [] if known is None else [_predictors(study, known), _by_headroom(study, found, known)]
    if known is not None:
        shown.append(_afterwards(study, found))
    return [*shown, *([_methods(study, found), _stops(study, found)] if found else [])]


def pictures(study: Study, runs: Runs) -> dict[str, str]:
    """Gains over the chosen predictor, and of refitted heads over what `headroom` foretold.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    found = pairs(study, runs)
    known = law(study, found)
    if known is None:
        return {}
    judged, chosen = study.settings["judged"], known["predictor"]
    drawn = {
        "gain-law": (
            [(each.predictors[chosen], each.methods[judged][0]) for each in found],
            known["line"],
            (f"{chosen}, points →", f"gain of {judged} on test rows, points"),
            "What could be known before, and what was gained",
        ),
        "gain-refit": (
            [
                (each.predictors["headroom(): gain on held-out rows"], each.refit[0])
                for each in found
            ],
            [],
            (
                "gain that headroom() tells from training rows, points →",
                "gain of its head on test rows, points",
            ),
            "Gain of the last layer alone, foretold and real",
        ),
    }
    texts = {}
    for name, (places, line, axes, title) in drawn.items():
        marks = [
            Point(x, y, f"{each.data_set}, {each.model}", KINDS[each.kept_aside][0])
            for each, (x, y) in zip(found, places, strict=True)
        ]
        rho = spearman(*zip(*places, strict=True))
        words = (
            f"{len(marks)} pairs of a table and a model. Across: {axes[0].removesuffix(' →')}; "
            f"up: {axes[1]}. Spearman's correlation is {rho:.2f}."
        )
        picture = scatter(marks, line, KINDS, axes, name, title, words)
        texts[name] = standalone(picture, STYLE)
    return texts


def _values(found: Sequence[Pair], predictor: str, judged: str) -> tuple[Floats, list[str]]:
    """Predictor and gain (n, 2), and the tables that they are of."""
    rows = [(each.predictors[predictor], each.methods[judged][0]) for each in found]
    return np.array(rows), [each.data_set for each in found]


def _correlation(found: Sequence[Pair], predictor: str, judged: str) -> Interval:
    values, groups = _values(found, predictor, judged)
    return grouped_interval(
        lambda x: spearman(x[:, 0], x[:, 1]), values, groups, resamples=RESAMPLES
    )


def _line(
    found: Sequence[Pair], predictor: str, judged: str
) -> list[tuple[float, float, float, float]]:
    """A straight line by least squares, of all pairs, with the interval of its height."""
    values, groups = _values(found, predictor, judged)
    ends = np.linspace(values[:, 0].min(), values[:, 0].max(), 9)

    def at(x: float) -> Interval:
        def height(rows: Floats) -> float:
            center = rows.mean(0)
            apart = rows - center
            spread = float(apart[:, 0] @ apart[:, 0])
            slope = float(apart[:, 0] @ apart[:, 1]) / spread if spread else 0.0
            return float(center[1] + slope * (x - center[0]))

        return grouped_interval(height, values, groups, resamples=RESAMPLES)

    return [(float(x), (each := at(x)).value, each.low, each.high) for x in ends]


def _predictors(study: Study, known: dict[str, Any]) -> dict[str, Any]:
    chosen, judged = known["predictor"], study.settings["judged"]
    rows = []
    for name, (one, aside) in known["correlations"].items():
        rows.append([f"**{name}**" if name == chosen else name, _interval(one), _interval(aside)])
    test = known["correlations"][chosen][1]
    return {
        "title": "What predicts the gain",
        "head": ["known before", "Spearman, two thirds", "Spearman, kept aside"],
        "rows": rows,
        "text": (
            f"Gain of {judged} over {study.settings['baseline']} on test rows: {known['pairs'][0]} "
            f"pairs to choose by, {known['pairs'][1]} of tables that were kept aside. Chosen by "
            f"the first column: {chosen}; on the pairs kept aside its correlation is "
            f"{_interval(test)}. 95 % intervals by bootstrap over tables."
        ),
    }


def _by_headroom(study: Study, found: Sequence[Pair], known: dict[str, Any]) -> dict[str, Any]:
    chosen, judged = known["predictor"], study.settings["judged"]
    ends = [-np.inf, *EDGES, np.inf]
    rows = []
    for low, high in itertools.pairwise(ends):
        some = [each for each in found if low <= each.predictors[chosen] < high]
        words = f"{100 * low:g} to {100 * high:g}"
        if low == -np.inf:
            words = f"below {100 * high:g}"
        elif high == np.inf:
            words = f"{100 * low:g} and more"
        rows.append([words, str(len(some)), *_told(some, judged)])
    return {
        "title": "Gain by what was known before",
        "head": [f"{chosen}, points", "pairs", *TOLD],
        "rows": rows,
        "text": (
            f"{judged} less {study.settings['baseline']} on test rows, in points; 95 % intervals "
            "by bootstrap over tables. Beyond noise: by more than 1.96 standard errors of the rows "
            "that only one of the two has right, where chance alone gives 2.5 % on either side."
        ),
    }


TOLD = ("mean gain", "median", "better beyond noise", "worse beyond noise")


def _told(some: Sequence[Pair], method: str | None) -> list[str]:
    """Mean, median, and shares beyond noise, of a method or of refitted heads."""
    if not some:
        return ["-"] * len(TOLD)
    each = [pair.refit if method is None else pair.methods[method] for pair in some]
    gains = np.array([[gain] for gain, _ in each])
    groups = [pair.data_set for pair in some]
    mean = grouped_interval(lambda x: float(x.mean()), gains, groups, resamples=RESAMPLES)
    better = sum(distance > BEYOND for _, distance in each)
    worse = sum(distance < -BEYOND for _, distance in each)
    return [
        f"{points(mean.value, 2)} [{points(mean.low, 2)}, {points(mean.high, 2)}]",
        points(float(np.median(gains)), 2),
        *(f"{count} ({100 * count / len(each):.1f} %)" for count in (better, worse)),
    ]


def _afterwards(study: Study, found: Sequence[Pair]) -> dict[str, Any]:
    judged = study.settings["judged"]
    many = [each for each in found if each.test_rows >= MANY]
    rows = []
    for name in PREDICTORS:
        cells = []
        for gain_of in (lambda each: each.methods[judged][0], lambda each: each.refit[0]):
            for some in (found, many):
                cells.append(_ranked(some, name, gain_of))
        rows.append([name, *cells])
    few = f"{MANY} test rows and more"
    return {
        "title": "Looked at afterwards: where test rows are many",
        "head": [
            "known before",
            f"{judged}, all",
            f"{judged}, {few}",
            "last layer, all",
            f"last layer, {few}",
        ],
        "rows": rows,
        "text": (
            f"Spearman's correlation with the gain of {judged}, and with that of the last layer "
            f"that headroom() refits, over all {len(found)} pairs and over the {len(many)} with "
            f"{MANY} test rows or more. This was not planned: it is a hint and not a test."
        ),
    }


def _ranked(some: Sequence[Pair], predictor: str, gain_of: Callable[[Pair], float]) -> str:
    if len(some) < FEWEST:
        return "-"
    values = np.array([(each.predictors[predictor], gain_of(each)) for each in some])
    groups = [each.data_set for each in some]
    return _interval(
        grouped_interval(lambda x: spearman(x[:, 0], x[:, 1]), values, groups, resamples=RESAMPLES)
    )


def _stops(study: Study, found: Sequence[Pair]) -> dict[str, Any]:
    rows = []
    for model in study.settings["models"]:
        for q in (0.0, 0.5, 1.0):
            some = [each for each in found if each.model == model and each.stopped_at == q]
            rows.append([model, f"{q:g}", str(len(some)), *_told(some, None)])
    return {
        "title": "The last layer of headroom(), by where its path ended",
        "head": ["model", "q", "tables", *TOLD],
        "rows": rows,
        "text": (
            "With q = 0 the kept head is trained by likelihood: what it gains is the work of L2, "
            "which is chosen here, and of a better minimum, not of training for accuracy."
        ),
    }


def _methods(study: Study, found: Sequence[Pair]) -> dict[str, Any]:
    rows = []
    for model in study.settings["models"]:
        some = [each for each in found if each.model == model]
        names = [method.name for method in study.methods]
        for name in names:
            having = [each for each in some if name in each.methods]
            if having:
                rows.append([model, name, str(len(having)), *_told(having, name)])
        if some:
            rows.append([model, "last layer of headroom()", str(len(some)), *_told(some, None)])
    return {
        "title": f"What is gained over tuned {study.settings['baseline']}",
        "head": ["model", "method", "tables", *TOLD],
        "rows": rows,
        "text": "Test rows, in points; intervals and noise as above.",
    }


def _interval(of: Interval) -> str:
    return f"{of.value:.2f} [{of.low:.2f}, {of.high:.2f}]"
