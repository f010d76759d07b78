"""Where the paper's claims on escaping efficiency hold, from the runs of `escape`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.studies.mixing.escape import MEASURES, mixture, scale_free

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = Iterable[tuple[dict[str, Any], dict[str, Any]]]
# For each run one pair of points: where a loss is looked at, and where the baseline is.
Pairs = list[tuple[dict[str, Any], dict[str, Any]]]


def tables(study: Study, runs: Runs) -> list[dict[str, Any]]:
    """For each architecture: losses at the same weights, at their own, and equation 18.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    runs = list(runs)
    found = []
    for model in MEASURES:
        results = [result for spec, result in runs if spec["model"] == model]
        if not results:
            continue
        spec = next(spec for spec, _ in runs if spec["model"] == model)
        found += _same_weights(study, spec, results)
        found.append(_own_weights(spec, results))
        found.append(_equation_18(study, spec, results))
    return found


def _same_weights(
    study: Study, spec: dict[str, Any], results: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """All losses at weights that were trained with the baseline: as they are, and scaled."""
    base = spec["baseline"]
    shown = _shown(study)
    title = f"Same weights, of training with {base}, {spec['model']}"
    head = [*(f"{name} > {base}" for name in shown), *(f"{name} / {base}" for name in shown)]
    plain, scaled = [], []
    for k, epoch in enumerate(_epochs(results, base)):
        points = [result["points"][base][k] for result in results]
        pairs = [(point, point) for point in points]
        drift = np.median([point["noise"][base]["drift"] for point in points])
        p = np.median([point["p"] for point in points])
        plain.append([str(epoch), f"{p:.2f}", f"{drift:.3f}"])
        scaled.append([str(epoch)])
        for row, form in ((plain[-1], _trace), (scaled[-1], _scaled)):
            row += [_counted(pairs, name, base, form) for name in shown]
            row += [_quartiles(pairs, name, base, form) for name in shown]
    return [
        {
            "title": title,
            "head": ["epoch", "p", "drift", *head],
            "rows": plain,
            "text": f"{_cases(results)} Tr(HΣ) is compared, ratios are medians with quartiles. p "
            "is the median of training rows' mean p. Drift is the mean gradient's squared norm "
            f"over the rows' mean squared norm, 0 at a minimum. {_undecided(results, base, shown)}",
        },
        {
            "title": f"{title}, same norm",
            "head": ["epoch", *head],
            "rows": scaled,
            "text": f"{_cases(results)} As above, each loss scaled so that rows' gradients have "
            "the same mean norm.",
        },
    ]


def _own_weights(spec: dict[str, Any], results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each loss at weights that were trained with itself."""
    base = spec["baseline"]
    others = [name for name in spec["trained_with"] if name != base]
    rows = []
    for k, epoch in enumerate(_epochs(results, base)):
        row = [str(epoch)]
        for form in (_trace, _scaled):
            for name in others:
                points = [(r["points"][name][k], r["points"][base][k]) for r in results]
                row += [_counted(points, name, base, form), _quartiles(points, name, base, form)]
        rows.append(row)
    heads = [[f"{name} > {base}", f"{name} / {base}"] for name in others]
    return {
        "title": f"Each loss at its own weights, {spec['model']}",
        "head": [
            "epoch",
            *(each for pair in heads for each in pair),
            *(f"{each}, same norm" for pair in heads for each in pair),
        ],
        "rows": rows,
        "text": _cases(results),
    }


def _equation_18(
    study: Study, spec: dict[str, Any], results: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Both sides of equation 18 at the baseline's weights."""
    from hitrate_lab.training.curvature import Terms

    base = spec["baseline"]
    losses = {method["name"]: mixture(method) for method in spec["methods"]}
    mixed = [name for name in _shown(study) if losses[name].alpha == 1 and losses[name].beta > 0]
    rows = []
    for k, epoch in enumerate(_epochs(results, base)):
        points = [result["points"][base][k] for result in results]
        terms = [Terms(**point["terms"]) for point in points]
        row = [str(epoch), f"{np.median([each.largest for each in terms]):.3f}"]
        row.append(f"{sum(each.hf < 0 for each in terms)} of {len(terms)}")
        for name in mixed:
            beta = float(losses[name].beta)
            left = [p["noise"][name]["trace"] - p["noise"][base]["trace"] for p in points]
            for side in (
                [each.printed(beta) for each in terms],
                [each.of_equal_p(beta) for each in terms],
            ):
                pairs = list(zip(left, side, strict=True))
                row.append(f"{sum(a > b for a, b in pairs)} of {len(pairs)}")
                row.append(median_of([a / b for a, b in pairs if b > 0]))
        rows.append(row)
    heads = [
        (
            f"{name}: left > right",
            "left / right",
            f"{name}: left > right if all p were M",
            "left / right",
        )
        for name in mixed
    ]
    return {
        "title": f"Equation 18, {spec['model']}",
        "head": ["epoch", "M", "Tr(H_p F_p) < 0", *(each for four in heads for each in four)],
        "rows": rows,
        "text": f"{_cases(results)} Left is Tr(HΣ) of the mixture less that of {base}, right the "
        "bound as printed, and then what left would be if all rows had p = M and mean gradients "
        "were 0. Ratios are medians with quartiles, where right is positive.",
    }


def _trace(at: dict[str, Any], name: str, base: dict[str, Any], baseline: str) -> float | None:
    """Tr(H Σ) over the baseline's, where that is positive."""
    below = base["noise"][baseline]["trace"]
    return at["noise"][name]["trace"] / below if below > 0 else None


def _scaled(at: dict[str, Any], name: str, base: dict[str, Any], baseline: str) -> float | None:
    """The same with gradients of the same mean norm."""
    both = {"one": at["noise"][name], "base": base["noise"][baseline]}
    return scale_free(both, "one", "base")


def _ratios(
    pairs: Pairs, name: str, baseline: str, form: Callable[..., float | None]
) -> list[float]:
    found = [form(at, name, base, baseline) for at, base in pairs]
    return [each for each in found if each is not None]


def _counted(pairs: Pairs, name: str, baseline: str, form: Callable[..., float | None]) -> str:
    ratios = _ratios(pairs, name, baseline, form)
    return f"{sum(each > 1 for each in ratios)} of {len(ratios)}"


def _quartiles(pairs: Pairs, name: str, baseline: str, form: Callable[..., float | None]) -> str:
    return median_of(_ratios(pairs, name, baseline, form))


def median_of(values: Sequence[float]) -> str:
    """Median and quartiles."""
    if not values:
        return "-"
    low, middle, high = (f"{each:.2f}" for each in np.quantile(values, [0.25, 0.5, 0.75]))
    return f"{middle} [{low}, {high}]"


def _shown(study: Study) -> list[str]:
    return list(study.settings["shown"])


def _epochs(results: Sequence[dict[str, Any]], base: str) -> list[int | str]:
    return [point["epoch"] for point in results[0]["points"][base]]


def _cases(results: Sequence[dict[str, Any]]) -> str:
    exact = sum(result["exact"] for result in results)
    return f"{len(results)} cases, data sets times seeds; {exact} are exact, the others estimated."


def _undecided(results: Sequence[dict[str, Any]], base: str, shown: Sequence[str]) -> str:
    """How many comparisons of estimates are closer than two of their standard errors."""
    close = total = 0
    for result in results:
        for point in result["points"][base]:
            noise = point["noise"]
            for name in shown if not result["exact"] else ():
                apart = abs(noise[name]["trace"] - noise[base]["trace"])
                total += 1
                close += apart < 2 * math.hypot(noise[name]["error"], noise[base]["error"])
    return f"Of {total} comparisons of estimates, {close} are within two standard errors."
