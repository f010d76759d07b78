"""Write the README's table of `hitrate compare car` from a committed comparison.

    python -m hitrate_lab.pages.demo_table

The comparison is that of one `make demo`: copy ``build/demo/comparison.json`` to
``benchmarks/results/compare_car.json``, and make ``docs/images/report.png`` from its report with
``hitrate_lab/pages/screenshots.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "compare_car.json"
START, END = "<!-- demo:start -->", "<!-- demo:end -->"


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
            "method; corrected resampled t-test, Holm. The candidates were settled with a look at "
            f"this data set, among others. {machine['seconds']:.0f} s on {machine['cores']} cores "
            f"({machine['processor']}), scikit-learn {machine['scikit-learn']}, torch "
            f"{machine['torch']}.",
        ]
    )


def main() -> None:
    """Replace what stands between the two marks."""
    page = ROOT / "README.md"
    head, rest = page.read_text().split(START)
    _, tail = rest.split(END)
    table = markdown(json.loads(RESULTS.read_text()))
    page.write_text(f"{head}{START}\n{table}\n{END}{tail}")


if __name__ == "__main__":
    main()
