"""Next words: all that is measured side by side, and what a step takes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hitrate_lab.studies.networks.differences import Floats, welch
from hitrate_lab.wording import points

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study


def tables(study: Study, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tables of the report.

    Parameters
    ----------
    study : Study
    results : sequence of dict
        One of each seed.
    """
    return [_measured(study, results), _times(study, results)] if results else []


def _values(results: Sequence[dict[str, Any]], name: str, key: str) -> Floats:
    return np.array([result["methods"][name][key] for result in results])


def _measured(study: Study, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    base = study.methods[0].name
    before = [result["base"] for result in results]
    rows = [["before"]]
    for key in ("top_1", "top_3"):
        rows[0] += [f"{100 * statistics.fmean(each[key] for each in before):.2f}", ""]
    rows[0].append(f"{statistics.fmean(each['perplexity'] for each in before):.1f}")
    rows[0].append(f"{100 * statistics.fmean(each['calibration_error'] for each in before):.1f}")
    for method in study.methods:
        row = [method.name]
        for key in ("top_1", "top_3"):
            values = 100 * _values(results, method.name, key)
            spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
            row.append(f"{values.mean():.2f}{spread}")
            found = welch(values / 100, _values(results, base, key))
            if method.name == base or found is None:
                row.append("")
            else:
                interval = f"{points(found.low, 2)} to {points(found.high, 2)}"
                row.append(f"{points(found.value, 2)} ({interval})")
        row.append(f"{_values(results, method.name, 'perplexity').mean():.1f}")
        row.append(f"{100 * _values(results, method.name, 'calibration_error').mean():.1f}")
        rows.append(row)
    words = results[0]["methods"][base]["test_words"]
    return {
        "title": "Next words",
        "head": [
            "",
            "top-1, %",
            f"over {base}",
            "top-3, %",
            f"over {base}",
            "perplexity",
            "calibration error, %",
        ],
        "rows": rows,
        "text": (
            f"Means over n = {len(results)} seeds, on the same {words:,} words; differences in "
            "points with Welch's interval of 95 % over seeds. Before: where all methods begin."
        ),
    }


def _times(study: Study, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = []
    for method in study.methods:
        plain, linear, step = (
            statistics.median(_values(results, method.name, key).tolist())
            for key in ("seconds_plain", "seconds_linear_loss", "processor_seconds_of_a_step")
        )
        rows.append([method.name, f"{1 / plain:.1f}", f"{1 / linear:.1f}", f"{1 / step:.1f}"])
    return {
        "title": "Steps a second",
        "head": ["", "loss, all logits", "loss, linear_loss", "training, linear_loss"],
        "rows": rows,
        "text": (
            "Of a second of one core's own time, however busy the machine: last layer, loss and "
            "their gradients; then whole steps of training. Medians over seeds."
        ),
    }
