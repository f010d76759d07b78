"""The commands that are killed: what they write, and how far they are, seen from outside."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fuzz.limits import cpu_seconds_of

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

import small_study
from comparisons import timeless
from watched import environment

from hitrate_lab.runs.store import Store

# The study's protocol is there before a signal can be: it is no part of the command.
STUDY = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
import small_study
from hitrate_lab.cli import main
try:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
except KeyboardInterrupt:
    sys.exit(130)
main()
"""


class Command:
    """A command in a folder of its own."""

    name: str
    words: list[str]
    store: Path

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def begin(self) -> subprocess.Popen:
        """Start it, in a group of its own; what it says goes to a file."""
        with (self.folder / "said").open("a") as said:
            return subprocess.Popen(
                [sys.executable, *self.words],
                cwd=self.folder,
                env=environment(),
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def said(self) -> str:
        """All that its processes said."""
        return (self.folder / "said").read_text(errors="replace")

    def numbers(self) -> str:
        """What it is for, without times."""
        raise NotImplementedError

    def kept(self) -> dict[str, tuple[str, str]]:
        """All runs that the store has; for when no process has it."""
        if not self.store.exists():
            return {}
        with Store(self.store) as runs:
            return {run.key: (run.finished, json.dumps(run.result)) for run in runs.runs()}

    def count(self, table: str = "runs") -> int:
        """How many rows a table of the store has, asked from outside."""
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as file,
        ):
            return int(file.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        return 0


class Compare(Command):
    """A comparison of two methods on iris."""

    name = "compare"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        asked = ["--models", "linear", "--folds", "4", "--repeats", "2", "--trials", "1"]
        self.words = ["-m", "hitrate_lab", "compare", "iris", *asked, "--jobs", "2", "--out", "out"]
        self.store = folder / "out" / "runs.sqlite"

    def numbers(self) -> str:
        """The document of the comparison."""
        document = json.loads((self.folder / "out" / "comparison.json").read_text())
        assert document["complete"] and not document["failed"], "a run has failed"
        return json.dumps(timeless(document), sort_keys=True)


class Study(Command):
    """A study whose runs take next to no time."""

    name = "study"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        path = small_study.written(folder, seeds=8)
        self.words = ["-c", STUDY, "study", "run", str(path), "--jobs", "2", "--store", "s.sqlite"]
        self.store = folder / "s.sqlite"

    def numbers(self) -> str:
        """All runs and their results."""
        with Store(self.store) as runs:
            return json.dumps(sorted((run.key, json.dumps(run.result)) for run in runs.runs()))


@dataclass(frozen=True)
class Calm:
    """What an undisturbed command has to show, and what it took."""

    numbers: str
    runs: int
    # CPU seconds of the command itself: until the store was there, until all runs were, to its end.
    store: float
    runs_done: float
    end: float
    # The most that a worker took.
    worker: float


def workers_of(pid: int) -> list[int]:
    """Processes that the command has for its runs."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    found = []
    for child in children:
        with contextlib.suppress(OSError):
            if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def cpu(pid: int) -> float:
    """CPU seconds of a process; 0 if it is gone."""
    return cpu_seconds_of(pid) or 0.0
