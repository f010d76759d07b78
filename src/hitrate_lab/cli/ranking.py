"""What a comparison shows at its end."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hitrate_lab.bad_input import printable
from hitrate_lab.metrics import METRICS, Description, described_metric
from hitrate_lab.wording import duration


def value_text(metric: Description, value: float) -> str:
    """A mean with four digits that count."""
    return f"{metric.plain(value, 2)} %" if metric.is_share else metric.plain(value, 4)


def ranking(document: dict[str, Any]) -> Table:
    """The methods, best first, with intervals, tests and times."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    metric = described_metric(document)
    # What is asked for has its interval; accuracy is told in any case.
    told = [] if metric.is_default else ["accuracy"]
    # Runs of older versions have no training accuracy.
    trained = ["in training"] if any(map(_training, document["methods"])) else []
    heads = ["", "method", metric.words, "95 % interval", *trained, "vs baseline", "p", *told]
    heads.append("fit")
    for name in heads:
        table.add_column(Text(name), justify="left" if name == "method" else "right", no_wrap=True)
    most = max(method[metric.key]["n"] for method in document["methods"])
    for rank, method in enumerate(document["methods"], 1):
        score, difference = method[metric.key], method["difference"]
        label = method["label"]
        if score["mean"] is None:
            table.add_row(str(rank), Text(label), *["-"] * (len(heads) - 2))
            continue
        if score["n"] < most:
            label += f" ({score['n']} of {most} folds)"
        gain, p = "baseline" if method["name"] == document["baseline"] else "-", "-"
        if difference is not None:
            gain = _gain(metric, difference)
            if difference["p_holm"] is not None:
                p = f"{difference['p_holm']:.3f}" if difference["p_holm"] >= 0.001 else "<0.001"
        interval = "-"
        if score["low"] is not None:
            digits = 1 if metric.is_share else 3
            interval = " to ".join(metric.plain(score[end], digits) for end in ("low", "high"))
        table.add_row(
            str(rank),
            Text(label),
            value_text(metric, score["mean"]),
            interval,
            *([_training(method) or "-"] if trained else []),
            Text(gain),
            p,
            *(value_text(METRICS[name], method[name]["mean"]) for name in told),
            duration(method["fit_seconds"]),
        )
    return table


def _training(method: dict[str, Any]) -> str | None:
    """Accuracy on the rows that were trained on, where it is known."""
    found = method.get("train_accuracy")
    return None if found is None else value_text(METRICS["accuracy"], found)


def _gain(metric: Description, difference: dict[str, Any]) -> str:
    """The difference to the baseline, and its interval."""
    digits = 1 if metric.is_share else 2
    text = metric.plain(difference["mean"], digits)
    text = text if text.startswith("-") else f"+{text}"
    if difference["low"] is None:
        return text
    low, high = (metric.plain(difference[end], digits) for end in ("low", "high"))
    return f"{text} [{low}, {high}]"


class _Console(Console):
    """A console that leaves it to the command what to do when its reader has gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(document: dict[str, Any]) -> None:
    """The end of a comparison, on standard output."""
    console = _Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=True)
    table = ranking(document)
    # All of it: a line that a terminal breaks is better than a number that is cut.
    wide = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    _Console(file=sys.stdout, highlight=False, width=max(console.width, wide)).print(table)
    settings = document["settings"]
    console.print(
        f"{printable(document['table']['name'])}: {document['table']['rows']:,} rows, "
        f"{len(document['table']['classes'])} classes; {settings['repeats']} x "
        f"{settings['folds']}-fold cross-validation, {settings['trials']} candidates per method; "
        "intervals and p by the corrected resampled t-test, p adjusted by Holm.",
        style="dim",
    )
    for method in document["methods"]:
        for failure in method["failures"][:3]:
            console.print(Text(f"{method['label']}, {printable(failure)}"), style="yellow")
    if document["failed"]:
        console.print(f"{document['failed']} runs have failed; --retry runs them again.")
    console.print()
    console.print(Text(document["advice"]), style="bold")
    if document.get("training"):
        console.print(Text(document["training"]))
