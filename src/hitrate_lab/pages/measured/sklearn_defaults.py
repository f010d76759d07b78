"""Tables of docs/sklearn.md on the estimators' defaults, before they were changed and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made
from hitrate_lab.pages.measured.large_inputs import of_machine
from hitrate_lab.statistics import paired_effect

RESULTS = Path("benchmarks") / "results"
LINEAR, NETWORK = RESULTS / "sklearn_evaluation.json", RESULTS / "mlp.json"
MANY = RESULTS / "sklearn_many_rows.json"
LOGISTIC, SKLEARN_MLP = "logistic_regression", "scikit-learn"
# Accuracy in percent of each fold, by method, of each data set.
Folds = dict[str, dict[str, list[float]]]


def sklearn_defaults(root: Path) -> Made:
    """What the evaluations of the defaults say."""
    linear = {
        name: {method: row["accuracy"] for method, row in methods.items()}
        for name, methods in _read(root / LINEAR).items()
    }
    network = _read(root / NETWORK)
    by_set = {
        name: {
            method: part["sets"].get(name, {}).get("test", []) for method, part in network.items()
        }
        for name in network[SKLEARN_MLP]["sets"]
    }
    blocks = {
        "sklearn-defaults": compared(linear, LOGISTIC),
        "mlp-defaults": compared(by_set, SKLEARN_MLP),
        "many-rows": many_rows(_read(root / MANY)),
    }
    return Made({"docs/sklearn.md": blocks})


def compared(found: Folds, base: str) -> str:
    """How defaults do beside others, and each data set."""
    methods = (base, "before", "after")
    means, folds = {}, {}
    for name, row in found.items():
        folds[name] = min(len(row.get(method, [])) for method in methods)
        if folds[name]:
            first = slice(folds[name])
            means[name] = {m: sum(row[m][first]) / folds[name] for m in methods}
    lines = [
        "| over data sets | mean | 95 % interval | median | won, even, lost |",
        "|---|---|---|---|---|",
    ]
    pairs = (("before", base), ("after", base), ("after", "before"))
    for one, other in pairs:
        effect = paired_effect(*([row[m] for row in means.values()] for m in (one, other)))
        low, high = effect.mean.low, effect.mean.high
        lines.append(
            f"| {words(one)} less {words(other)} | {effect.mean.value:+.2f} | {low:+.2f} to "
            f"{high:+.2f} | {effect.median.value:+.2f} | {effect.wins}, {effect.ties}, "
            f"{effect.losses} |"
        )
    lines += [
        "",
        f"| data set, {len(means)} of them | folds | {' | '.join(map(words, methods))} | "
        "after less before |",
        "|---|---|---|---|---|---|",
    ]
    for name, mean in means.items():
        cells = " | ".join(f"{mean[method]:.2f}" for method in methods)
        gain = mean["after"] - mean["before"]
        lines.append(f"| {name} | {folds[name]} | {cells} | {gain:+.2f} |")
    return "\n".join(lines)


def words(method: str) -> str:
    """How a method is called in a table."""
    return {LOGISTIC: "logistic regression", SKLEARN_MLP: "`MLPClassifier()`"}.get(method, method)


def many_rows(found: dict[str, Any]) -> str:
    """Large tables: every method's accuracy, and what it is away from logistic regression."""
    lines = [
        "| table | method | test | less logistic regression | training | processor |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in found["sets"].items():
        for method, row in part.items():
            if isinstance(row, dict):
                lines.append(
                    f"| {name} | {method} | {row['test']:.2f} | {row['difference']:+.2f} ± "
                    f"{row['standard_error']:.2f} | {row['train']:.2f} | "
                    f"{row['processor_seconds']:.0f} s |"
                )
    return "\n".join([*lines, "", of_machine(found["machine"])])


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
