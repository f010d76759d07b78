"""Gradients beside Mixing's equations 20 to 22, and mixtures beside scaled cross entropy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.statistics import paired_effect, signed_rank
from hitrate_lab.statistics.scores import Floats
from hitrate_lab.studies.mixing.escape_summary import median_of
from hitrate_lab.studies.mixing.gradient_norm import factors, mixtures, pairs, variant
from hitrate_lab.studies.mixing.table import MEASURES

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

Runs = list[tuple[dict[str, Any], dict[str, Any]]]


def tables(study: Study, runs: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> list[Any]:
    """For each architecture: gradients, and differences of accuracy.

    Parameters
    ----------
    study : Study
    runs : iterable of pairs
        Specifications and results.
    """
    runs = list(runs)
    found = []
    for model in MEASURES:
        own = [(spec, result) for spec, result in runs if spec["model"] == model]
        if own:
            found += [_gradients(own), _differences(study, own)]
    return found


def _gradients(runs: Runs) -> dict[str, Any]:
    """How large gradients are, over those of cross entropy, beside the paper's factors."""
    spec = runs[0][0]
    base = spec["baseline"]
    rows = []
    for method in spec["methods"]:
        name = method["name"]
        if name not in spec["measured"] or name == base:
            continue
        moving = mixtures(variant(method), spec["epochs"])
        losses = [moving[epoch - 1] for epoch in spec["measured_at"]]
        for k, epoch in enumerate(spec["measured_at"]):
            # The first, the last, and what has another loss than the one before.
            if 0 < k < len(losses) - 1 and losses[k] == losses[k - 1]:
                continue
            by_21, by_22 = factors(losses[k])
            row = [name, str(epoch), f"{by_21:.2f}", f"{by_22:.2f}"]
            for key in ("logit", "weights"):
                here, apart = [], []
                for _, result in runs:
                    for one, ce in zip(result["norms"][name], result["norms"][base], strict=True):
                        here.append(one[k][key] / one[k][f"ce_{key}"])
                        apart.append(one[k][key] / ce[k][key])
                row += [median_of(here), median_of(apart)]
            rows.append(row)
    return {
        "title": f"Size of gradients over that of {base}, {spec['model']}",
        "head": [
            "method",
            "epoch",
            "by (21)",
            "by (22)",
            "at the target's logit, same weights",
            "at the target's logit, own weights",
            "of the weights, same weights",
            "of the weights, own weights",
        ],
        "rows": rows,
        "text": f"Ratios of mean sizes over training rows, after an epoch and with its loss, at "
        f"learning rate {spec['norm_rate']:g}: medians with quartiles of {len(runs)} data sets "
        f"times {len(spec['seeds'])} seeds. 'Same weights' is over {base} at the method's weights, "
        f"'own weights' over {base} at those of training with it.",
    }


def _differences(study: Study, runs: Runs) -> dict[str, Any]:
    """Accuracy of one method less that of another, over data sets."""
    spec = runs[0][0]
    base, rope = spec["baseline"], float(study.settings["rope"])
    names = [method["name"] for method in spec["methods"]]
    first, last = _scores(runs, names), _scores(runs, names, ties="last")
    fixed = [_scores(runs, names, rate=k) for k in range(len(spec["learning_rates"]))]
    rows = []
    for one, other in [(name, base) for name in names if name != base] + pairs(study):
        effect = paired_effect(first[one], first[other])
        test = signed_rank(first[one], first[other], rope=rope)
        mean = effect.mean
        rows.append(
            [
                f"{one} - {other}",
                f"{mean.value:+.2f} [{mean.low:+.2f}, {mean.high:+.2f}]",
                f"{effect.median.value:+.2f}",
                f"{effect.wins} / {effect.ties} / {effect.losses}",
                f"{test.worse:.2f} / {test.equal:.2f} / {test.better:.2f}",
                f"{(last[one] - last[other]).mean():+.2f}",
                *(f"{(each[one] - each[other]).mean():+.2f}" for each in fixed),
            ]
        )
    return {
        "title": f"Differences of test accuracy, {spec['model']}",
        "head": [
            "methods",
            "mean [95 %]",
            "median",
            "wins / ties / losses",
            "worse / equal / better",
            "last of ties",
            *(f"rate {rate:g}" for rate in spec["learning_rates"]),
        ],
        "rows": rows,
        "text": f"Points of test accuracy, means of {len(spec['seeds'])} seeds, over {len(runs)} "
        "data sets, with bootstrap intervals; what validation rows choose of learning rates and "
        "epochs. 'Worse / equal / better' are probabilities of the Bayesian signed-rank test with "
        f"{rope:g} points as equal. 'Last of ties' takes the last of epochs with the same "
        "validation accuracy, not the first; a rate is a learning rate that all have.",
    }


def _scores(
    runs: Runs, names: list[str], *, ties: str = "first", rate: int | None = None
) -> dict[str, Floats]:
    """By method, test accuracy in percent of each data set, the mean over seeds.

    With the learning rate that validation rows choose, or with one of them.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    for spec, result in runs:
        for name in names:
            hits = []
            for seed, chosen in enumerate(result["chosen"][name]):
                place = rate
                if place is None:
                    place = spec["learning_rates"].index(chosen["learning_rate"])
                best = result["best"][name][seed][place]
                hits.append(best["test" if ties == "first" else "last_test"])
            found[name].append(100 * sum(hits) / len(hits) / result["test_rows"])
    # Shares of rows: what differs by less is the rounding of a division.
    return {name: np.round(np.array(each), 9) for name, each in found.items()}
