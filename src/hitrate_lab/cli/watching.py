"""What a comparison or a study shows while it runs: live on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from hitrate_lab.bad_input import printable
from hitrate_lab.cli.ending import complain
from hitrate_lab.cli.ranking import value_text
from hitrate_lab.metrics import METRICS, Description
from hitrate_lab.runs.events import run_name
from hitrate_lab.wording import duration

if TYPE_CHECKING:
    from types import TracebackType

    from rich.status import Status

    from hitrate_lab.runs.events import Event


class Watcher:
    """An observer whose picture moves on a terminal, while it is entered.

    Parameters
    ----------
    title : str
        What is run.
    console : Console
    picture : Live or Status
    """

    def __init__(self, title: str, console: Console, picture: Live | Status) -> None:
        self._title, self._console, self._picture = printable(title), console, picture

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._picture.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._picture.stop()

    def __call__(self, event: Event) -> None:
        """Take notice of what has happened."""
        raise NotImplementedError

    def _count(self, event: Event) -> str:
        return f"{self._title}: {event.done} of {event.planned} runs"

    def _say(self, line: str) -> None:
        """A line where there is no terminal."""
        self._console.print(Text(line), soft_wrap=True)


class ComparisonWatcher(Watcher):
    """Of `compare`: a live table of methods, or a line for each tenth of the runs."""

    def __init__(
        self,
        title: str,
        labels: dict[str, str],
        console: Console,
        metric: Description = METRICS["accuracy"],
    ) -> None:
        live = Live(self, console=console, refresh_per_second=4, transient=True)
        super().__init__(title, console, live)
        self._labels, self._metric = labels, metric
        self._scores: dict[str, list[float]] = {name: [] for name in labels}
        self._failed: dict[str, int] = {name: 0 for name in labels}
        self._running: dict[tuple[str, int, int], None] = {}
        self._told = 0
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs{task.fields[left]}"),
            console=console,
        )
        self._task = self._progress.add_task(self._title, total=None, left="")

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("method", "folds", f"{self._metric.words} so far", ""):
            table.add_column(name, justify="left" if name == "method" else "right")
        running = {name for name, _, _ in self._running}
        for name, label in self._labels.items():
            seen = self._scores[name]
            mean = value_text(self._metric, sum(seen) / len(seen)) if seen else "-"
            state = "running" if name in running else ""
            if self._failed[name]:
                state = f"{self._failed[name]} failed {state}"
            table.add_row(Text(label), str(len(seen)), mean, state)
        return Group(table, self._progress)

    def __call__(self, event: Event) -> None:
        """Take notice of what has happened."""
        if event.specification is not None:
            self._note(event, event.specification)
        left = "" if event.left is None else f", {duration(event.left)} left"
        self._progress.update(self._task, total=event.planned, completed=event.done, left=left)
        if not self._console.is_terminal and event.planned:
            tenth = 10 * event.done // event.planned
            if event.kind == "planned":
                self._told = tenth
            elif tenth > self._told:
                self._told = tenth
                self._say(self._count(event))

    def _note(self, event: Event, spec: dict[str, Any]) -> None:
        """What has become of a run, for the table."""
        run = spec["method"], spec["repeat"], spec["fold"]
        if event.kind == "started":
            self._running[run] = None
        else:
            self._running.pop(run, None)
        if event.kind == "finished" and event.result is not None:
            self._scores[spec["method"]].append(event.result[self._metric.key])
        elif event.kind == "failed":
            self._failed[spec["method"]] += 1


class StudyWatcher(Watcher):
    """Of `run_study`: a line that moves, or a line now and then; a complaint for each failure."""

    # Seconds between lines where there is no terminal.
    EVERY = 30.0

    def __init__(self, title: str, console: Console) -> None:
        self._line = console.status(f"{title}: planning")
        super().__init__(title, console, self._line)
        self._told = 0.0

    def __call__(self, event: Event) -> None:
        """Take notice of what has happened."""
        if event.kind == "started" or event.stored:
            return
        if event.kind == "failed" and event.specification is not None:
            complain(f"failed: {run_name(event.specification)}: {event.error}")
        line = self._count(event)
        if event.failed:
            line += f", {event.failed} failed"
        if event.left is not None:
            line += f", {duration(event.left)} left"
        if event.specification is not None and event.result is not None:
            took = duration(event.result.get("seconds"))
            line += f" (last: {run_name(event.specification)}, {took})"
        if self._console.is_terminal:
            self._line.update(Text(line))
        elif event.kind == "planned" or time.monotonic() - self._told >= self.EVERY:
            self._told = time.monotonic()
            self._say(line)
