"""The tables of docs/sklearn.md, and their picture, from the committed results of its study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitrate_lab.pages.made import Made, png_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path("benchmarks") / "results" / "sklearn.json"


def sklearn(root: Path) -> Made:
    """What the study of the estimators says."""
    results = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    return Made(
        {"docs/sklearn.md": {"sklearn": markdown(results)}},
        {"docs/images/gain_on_40_tables.png": png_of(draw(results["test"]))},
    )


def markdown(results: dict[str, Any]) -> str:
    """Everything the study measured, in the order of the page."""
    parts = (training(results["train"]), optimum(results["optimum"]), testing(results["test"]))
    last = (speed(results["time"], results["growth"]), checks(results["checks"]))
    machine = results["test"]["machine"]
    closing = (
        f"One thread of {machine['cpu']}, Python {machine['python']}, scikit-learn "
        f"{machine['scikit-learn']}, torch {machine['torch']}, numpy {machine['numpy']}. "
        "All of it: `benchmarks/results/sklearn.json`, by `python benchmarks/sklearn_study.py`."
    )
    return "\n\n".join([*parts, *last, closing])


def training(part: dict[str, Any]) -> str:
    """Training accuracy beside the paper's."""
    lines = [
        "**Training accuracy without L2**, percent, mean ± standard deviation of "
        f"{part['n']} splits (adult and annealing: {part['n']} seeds on the published part). The "
        "paper's random splits are not published, nor is which columns it took.",
        "",
        "| data set | `AccuracyClassifier(l2=0)` | paper's EXACT | `LogisticRegression(C=inf)` |",
        "|---|---|---|---|",
    ]
    for name, row in part["sets"].items():
        cells = (of(row["accuracy_classifier"]), f"{row['paper_exact']:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} | {of(row['logistic_regression'])} |")
    return "\n".join(lines)


def optimum(part: dict[str, Any]) -> str:
    """Errors beside the fewest possible."""
    lines = [
        f"**Distance to the optimum**: training errors of {part['n']} seeds, beside the fewest "
        "that any linear classifier makes on these rows, by an exact enumeration "
        "(`benchmarks/sklearn_certificate.py`).",
        "",
        "| data set | rows | errors | fewest possible | logistic regression |",
        "|---|---|---|---|---|",
    ]
    for name, row in part["sets"].items():
        found = ", ".join(map(str, row["errors"]))
        least = row["fewest_errors_of_any_linear_classifier"]
        plain = round(row["logistic_regression_error_percent"] * row["rows"] / 100)
        share = f"{least} ({row['fewest_error_percent']:.2f}%)"
        lines.append(f"| {name} | {row['rows']} | {found} | {share} | {plain} |")
    return "\n".join(lines)


def testing(part: dict[str, Any]) -> str:
    """Test accuracy of the defaults beside a tuned logistic regression."""
    lines = [
        "**Test accuracy with all defaults**, percent, 5 x 2 cross-validation, beside "
        "`LogisticRegressionCV(Cs=20, cv=5)`; difference with its standard deviation over the 10 "
        "splits. *Left*: in how many of the 10 fits the inner split preferred some sigma to the "
        "convex start. The 30 sets below the ten were named before any result was seen, by a rule "
        "in `benchmarks/sklearn_data.py`; the first defaults were made on others, those of today "
        "when results of the first on all forty were known.",
        "",
        "| data set | `AccuracyClassifier()` | logistic regression | difference | left | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in part["sets"].items():
        difference = row["difference"]
        lines.append(
            f"| {name} | {row['accuracy_classifier']['mean']:.2f} | "
            f"{row['logistic_regression']['mean']:.2f} | "
            f"{difference['mean']:+.2f} ± {difference['std']:.2f} | "
            f"{row['fits_that_left_the_convex_start']} | "
            f"{row['seconds_per_fit'][0]:.2f}, {row['seconds_per_fit'][1]:.2f} |"
        )
    lines.append("")
    names = {"exact": "the ten", "uci": "the thirty", "all": "all forty"}
    for key, row in part["mean_difference"].items():
        low, high = row["interval_95"]
        lines.append(
            f"Mean difference over {names[key]}: {row['mean']:+.2f} points, 95% interval over data "
            f"sets [{low:+.2f}, {high:+.2f}]; {row['wins']} won, {row['ties']} even, "
            f"{row['losses']} lost.\n"
        )
    return "\n".join(lines).rstrip()


def speed(time: dict[str, Any], growth: dict[str, Any]) -> str:
    """Fit time on the ten and growth with the rows."""
    called = {
        "logistic_regression": "`LogisticRegression(max_iter=1000)`",
        "logistic_regression, C=inf": "`LogisticRegression(C=inf, max_iter=1000)`",
        "logistic_regression, tuned": "`LogisticRegressionCV(Cs=20, cv=5, max_iter=1000)`",
    }
    seconds = time["total_seconds"]
    lines = [
        f"**Time.** Processor seconds of fits over the {len(time['median_seconds'])} "
        f"training parts, {time['n']} interleaved rounds; the ratio with its standard deviation "
        "over rounds.",
        "",
        "| `AccuracyClassifier` | seconds | beside | seconds | ratio |",
        "|---|---|---|---|---|",
        *(
            f"| {key} | {seconds[key]['mean']:.2f} | {called[base]} | "
            f"{seconds[base]['mean']:.2f} | {of(time['ratio'][key])} |"
            for key, base in time["beside"].items()
        ),
        "",
        "Growth with the rows:",
        "",
        "| rows, 50 features, 10 classes | seconds, fixed | memory | seconds, defaults | memory |",
        "|---|---|---|---|---|",
    ]
    fixed, auto = (growth[key]["rows"] for key in ("l2=1/N, sigma=0.25", "all defaults"))
    for a, b in zip(fixed, auto, strict=True):
        cells = (f"{r['seconds']:.1f} | {r['memory_ratio']:.1f} x data" for r in (a, b))
        lines.append(f"| {a['rows']:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def checks(part: dict[str, Any]) -> str:
    """scikit-learn's checks."""
    counts = "; ".join(
        f"{name}: {row['passed']} passed, {row.get('xfail', 0)} expected failures, "
        f"{row.get('failed', 0)} failed, {row.get('skipped', 0)} skipped"
        for name, row in part["counts"].items()
    )
    reasons = " ".join(dict.fromkeys(part["exceptions"].values()))
    names = " and ".join(f"`{name}`" for name in part["exceptions"])
    return f"**scikit-learn's checks.** {counts}. The expected failures are {names}. {reasons}"


def of(spread: dict[str, float]) -> str:
    """Mean and deviation."""
    return f"{spread['mean']:.2f} ± {spread['std']:.2f}"


def draw(part: dict[str, Any]) -> Figure:
    """The differences in test accuracy, from the smallest to the largest, and their mean."""
    from matplotlib.figure import Figure

    gains = sorted((row["difference"]["mean"], name) for name, row in part["sets"].items())
    spread = [part["sets"][name]["difference"]["std"] for _, name in gains]
    heights, names = zip(*gains, strict=True)
    colours = ["tab:green" if height > 0 else "tab:red" for height in heights]
    figure = Figure(figsize=(11, 4), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.bar(range(len(names)), heights, color=colours, alpha=0.7)
    axes.errorbar(range(len(names)), heights, yerr=spread, fmt="none", ecolor="0.5", linewidth=1)
    mean = part["mean_difference"]["all"]
    low, high = mean["interval_95"]
    axes.axhspan(low, high, color="tab:blue", alpha=0.15)
    axes.axhline(mean["mean"], color="tab:blue", linewidth=1)
    axes.text(0, 2.5, f"mean {mean['mean']:+.2f} [{low:+.2f}, {high:+.2f}]", color="tab:blue")
    axes.axhline(0, color="0.3", linewidth=1)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_xlim(-0.8, len(names) - 0.2)
    axes.set_ylabel("points of test accuracy more\nthan logistic regression")
    axes.grid(axis="y", alpha=0.2)
    return figure
