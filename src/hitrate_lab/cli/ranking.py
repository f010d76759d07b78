"""What a comparison shows at its end."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hitrate_lab.bad_input import printable
from hitrate_lab.wording import duration


def ranking(document: dict[str, Any]) -> Table:
    """The methods, best first, with intervals, tests and times."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "method", "accuracy", "95 % interval", "vs baseline", "p", "fit"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    most = max(method["accuracy"]["n"] for method in document["methods"])
    for rank, method in enumerate(document["methods"], 1):
        accuracy, difference = method["accuracy"], method["difference"]
        label = method["label"]
        if accuracy["mean"] is None:
            table.add_row(str(rank), Text(label), "-", "-", "-", "-", "-")
            continue
        if accuracy["n"] < most:
            label += f" ({accuracy['n']} of {most} folds)"
        gain, p = "baseline" if method["name"] == document["baseline"] else "-", "-"
        if difference is not None:
            gain = f"{100 * difference['mean']:+.1f}"
            if difference["low"] is not None:
                gain += f" [{100 * difference['low']:.1f}, {100 * difference['high']:.1f}]"
            if difference["p_holm"] is not None:
                p = f"{difference['p_holm']:.3f}" if difference["p_holm"] >= 0.001 else "<0.001"
        interval = "-"
        if accuracy["low"] is not None:
            interval = f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f}"
        table.add_row(
            str(rank),
            Text(label),
            f"{100 * accuracy['mean']:.2f} %",
            interval,
            Text(gain),
            p,
            duration(method["fit_seconds"]),
        )
    return table


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
