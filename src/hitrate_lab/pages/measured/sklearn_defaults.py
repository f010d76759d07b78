"""Tables of docs/sklearn.md on the estimators' defaults, before they were changed and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hitrate_lab.pages.made import Made
from hitrate_lab.pages.measured.large_inputs import of_machine, when_there
from hitrate_lab.statistics import paired_effect

RESULTS = Path("benchmarks") / "results"
LINEAR, NETWORK = RESULTS / "sklearn_evaluation.json", RESULTS / "mlp.json"
MANY = RESULTS / "sklearn_many_rows.json"
LOGISTIC, SKLEARN_MLP = "logistic_regression", "scikit-learn"
# Defaults as they were, as they were changed, and as they are.
VERSIONS = ("before", "after", "now")
# Accuracy in percent of each fold, by method, of each data set.
Folds = dict[str, dict[str, list[float]]]


def sklearn_defaults(root: Path) -> Made:
    """What the evaluations of the defaults say."""
    blocks = {
        "sklearn-defaults": when_there(root / LINEAR, linear),
        "mlp-defaults": when_there(root / NETWORK, network),
        "many-rows": when_there(root / MANY, many_rows),
    }
    return Made({"docs/sklearn.md": blocks})


def linear(found: dict[str, Any]) -> str:
    """`AccuracyClassifier` beside a tuned logistic regression."""
    folds = {
        name: {method: row["accuracy"] for method, row in methods.items()}
        for name, methods in found.items()
    }
    return compared(folds, LOGISTIC)


def network(found: dict[str, Any]) -> str:
    """`AccuracyMLPClassifier` beside scikit-learn's MLP."""
    folds = {
        name: {method: part["sets"].get(name, {}).get("test", []) for method, part in found.items()}
        for name in found[SKLEARN_MLP]["sets"]
    }
    return compared(folds, SKLEARN_MLP)


def compared(found: Folds, base: str) -> str:
    """How defaults do beside others, and each data set; a pair has the folds that both have."""
    judged = [m for m in VERSIONS if any(row.get(m) for row in found.values())]
    pairs = [(m, base) for m in judged] + [(m, judged[0]) for m in judged[1:]]
    lines = [
        "| over data sets | sets | mean | 95 % interval | median | won, even, lost |",
        "|---|---|---|---|---|---|",
    ]
    for one, other in pairs:
        both = [each for row in found.values() if (each := means(row, one, other))]
        if not both:
            continue
        effect = paired_effect(*zip(*both, strict=True))
        low, high = effect.mean.low, effect.mean.high
        lines.append(
            f"| {words(one)} less {words(other)} | {len(both)} | {effect.mean.value:+.2f} | "
            f"{low:+.2f} to {high:+.2f} | {effect.median.value:+.2f} | {effect.wins}, "
            f"{effect.ties}, {effect.losses} |"
        )
    heads = " | ".join(f"{words(m)}, less that" for m in judged)
    lines += [
        "",
        f"| data set | folds | {words(base)} | {heads} |",
        "|---" * (3 + len(judged)) + "|",
    ]
    for name, row in found.items():
        counts = [len(row.get(m, [])) for m in judged]
        folds = f"{max(counts)}" if len(set(counts)) == 1 else ", ".join(map(str, counts))
        cells = [
            f"{pair[0] - pair[1]:+.2f}" if (pair := means(row, m, base)) else "" for m in judged
        ]
        level = sum(row[base]) / len(row[base])
        lines.append(f"| {name} | {folds} | {level:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def means(row: dict[str, list[float]], one: str, other: str) -> tuple[float, float] | None:
    """Of two methods on a data set, over the folds that both have; None where there are none."""
    folds = min(len(row.get(one, [])), len(row.get(other, [])))
    if not folds:
        return None
    return sum(row[one][:folds]) / folds, sum(row[other][:folds]) / folds


def words(method: str) -> str:
    """How a method is called in a table."""
    special = {
        LOGISTIC: "logistic regression",
        SKLEARN_MLP: "`MLPClassifier()`",
    }
    return special.get(method, method)


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
