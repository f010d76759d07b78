"""What a target of the fuzzer is."""

from pathlib import Path
from typing import Any

from fuzz.limits import Limits


class Target:
    """Cases of one kind, each a function of its seed.

    `prepare` and then `load` run once: in a process of its own, and in the parent of all workers.
    A worker is a fork of that parent, runs `chunk` cases in turn, and then another takes its place,
    so that what a case leaves in memory is gone soon. What is imported in `load` is there in every
    worker. No threads may be started in it: a fork has only one.

    Standard output and error of a worker, those of C libraries too, go to the file `output.txt` of
    the folder that `case` is given; `said` reads it. The folder is empty before every case.
    """

    # Cases that one process runs.
    chunk = 100
    # CPU time, memory above what the process has when a case begins, and time without any CPU time.
    limits = Limits(cpu_seconds=10, mebibytes=1024, wall_seconds=300)
    # Whether the peak of each case is read from the kernel, which takes a millisecond.
    watches_memory = True
    # Cases that tests run with every change: seconds of work.
    with_every_change = 300
    # Cases of the long form, which takes hours.
    long_form = 10_000
    # Whether even these are left to the thorough tests.
    is_slow = False
    # What `case` has looked at, where that is more than one thing.
    inputs = 1

    def prepare(self, folder: Path) -> None:
        """Write what all cases need, such as fitted models, into a folder."""

    def load(self, folder: Path) -> None:
        """Read what `prepare` wrote, and import what cases need."""

    def case(self, seed: int, folder: Path) -> str | list[str]:
        """Run one case, and say in a word or two, or in several, what came of it; all are counted.

        Raises
        ------
        Wrong
            If it is not what should have come. Every other exception is a finding as well.
        """
        raise NotImplementedError

    def said(self, folder: Path) -> str:
        """What was written to standard output and error since the case began."""
        return (folder / "output.txt").read_text(encoding="utf-8", errors="replace")

    def describe(self) -> dict[str, Any]:
        """What else the summary should have: versions of libraries, say."""
        return {}


class Wrong(Exception):
    """A result that is not right, in a line that says so."""
