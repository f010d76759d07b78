"""What a comparison shows while it runs, and at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from hitrate_lab.bad_input import printable

if TYPE_CHECKING:
    from types import TracebackType

    from hitrate_lab.compare.comparison import Event


class Watch:
    """An observer of `compare`: a live table on a terminal, now and then a line elsewhere."""

    def __init__(self, title: str, labels: dict[str, str], console: Console) -> None:
        self._title, self._labels, self._console = printable(title), labels, console
        self._accuracies: dict[str, list[float]] = {name: [] for name in labels}
        self._failed: dict[str, int] = {name: 0 for name in labels}
        self._running: dict[tuple[str | None, int | None, int | None], None] = {}
        self._told = 0
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs, time left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(self._title, total=None)
        self._live = Live(
            self, console=console, refresh_per_second=4, transient=True, auto_refresh=True
        )

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("method", "folds", "accuracy so far", ""):
            table.add_column(name, justify="left" if name == "method" else "right")
        running = {name for name, _, _ in self._running}
        for name, label in self._labels.items():
            seen = self._accuracies[name]
            mean = f"{100 * sum(seen) / len(seen):.2f} %" if seen else "-"
            state = "running" if name in running else ""
            if self._failed[name]:
                state = f"{self._failed[name]} failed {state}"
            table.add_row(Text(label), str(len(seen)), mean, state)
        return Group(table, self._progress)

    def __enter__(self) -> Watch:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take notice of what has happened."""
        run = (event.method, event.repeat, event.fold)
        if event.kind == "started":
            self._running[run] = None
        elif event.kind in ("finished", "failed"):
            self._running.pop(run, None)
        if event.kind == "finished" and event.method is not None and event.result is not None:
            self._accuracies[event.method].append(event.result["accuracy"])
        elif event.kind == "failed" and event.method is not None:
            self._failed[event.method] += 1
        if event.stored:
            # What was there before says nothing about the time that is left.
            self._progress.reset(self._task, total=event.planned, completed=event.done)
        self._progress.update(self._task, total=event.planned, completed=event.done)
        if not self._console.is_terminal and event.planned:
            tenth = 10 * event.done // event.planned
            if event.kind == "planned" or event.stored:
                self._told = tenth
            elif tenth > self._told:
                self._told = tenth
                line = f"{self._title}: {event.done} of {event.planned} runs"
                self._console.print(line, markup=False)


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
            _seconds(method["fit_seconds"]),
        )
    return table


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


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
