"""The README's table of `hitrate compare car`, from a committed comparison.

The comparison is that of one `make demo`: copy ``build/demo/comparison.json`` to
``benchmarks/results/compare_car.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made

RESULTS = Path("benchmarks") / "results" / "compare_car.json"


def demo(root: Path) -> Made:
    """The ranking of the README."""
    document = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    return Made({"README.md": {"demo": markdown(document)}})


def markdown(document: dict[str, Any]) -> str:
    """The ranking, how it was found, and the advice."""
    lines = [
        "| method | accuracy, % | 95 % interval | more than logistic regression | p | fit |",
        "|---|---|---|---|---|---|",
    ]
    for method in document["methods"]:
        accuracy, gain = method["accuracy"], method["difference"]
        cells = [
            method["label"],
            f"{100 * accuracy['mean']:.2f}",
            f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}",
        ]
        if gain is None:
            cells += ["", ""]
        else:
            bounds = f"[{100 * gain['low']:.1f}, {100 * gain['high']:.1f}]"
            p = "< 0.001" if gain["p_holm"] < 0.001 else f"{gain['p_holm']:.3f}"
            cells += [f"{100 * gain['mean']:+.2f} {bounds}", p]
        cells.append(f"{method['fit_seconds']:.2g} s")
        lines.append(f"| {' | '.join(cells)} |")
    settings, machine = document["settings"], document["environment"]
    return "\n".join(
        [
            *lines,
            "",
            f"*{document['advice']}* {settings['repeats']} x {settings['folds']}-fold "
            f"cross-validation of {document['table']['rows']:,} rows, n = "
            f"{document['methods'][0]['accuracy']['n']} folds, {settings['trials']} candidates per "
            "method, but for linear, EXACT, which chooses by itself; corrected resampled t-test, "
            "Holm. The candidates were settled with a look at this data set, among others. "
            f"{machine['seconds']:.0f} s on {machine['cores']} cores "
            f"({machine['processor']}), scikit-learn {machine['scikit-learn']}, torch "
            f"{machine['torch']}.",
        ]
    )
