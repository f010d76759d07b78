"""A target with all that the runner has to find."""

import ctypes
import os
import signal
import sys
from pathlib import Path

from fuzz.limits import MIB, Limits
from fuzz.target import Target, Wrong

# What the runner calls each kind of fault.
FOUND = {
    "wrong": "wrong",
    "exception": "exception",
    "abort": "crash",
    "fault": "crash",
    "exit": "crash",
    "loop": "slow",
    "sleep": "asleep",
    "memory": "memory",
    "peak": "memory",
}
KINDS = ("good", *FOUND)


class Broken(Target):
    """Case k does what `KINDS` has at k modulo its length."""

    chunk = 7
    limits = Limits(cpu_seconds=1, mebibytes=64, wall_seconds=5)

    def prepare(self, folder: Path) -> None:
        (folder / "word").write_text("prepared")

    def load(self, folder: Path) -> None:
        self.word = (folder / "word").read_text()

    def case(self, seed: int, folder: Path) -> str:
        assert self.word == "prepared"
        assert [each.name for each in folder.iterdir()] == ["output.txt"]
        (folder / "left behind").mkdir()
        print(f"seed {seed} was here")
        match KINDS[seed % len(KINDS)]:
            case "good":
                sys.stdout.flush()
                assert f"seed {seed} was here" in self.said(folder)
            case "wrong":
                raise Wrong("2 and not 3")
            case "exception":
                raise KeyError(seed)
            case "abort":
                sys.stdout.flush()
                os.abort()
            case "fault":
                ctypes.string_at(0)
            case "exit":
                os._exit(3)
            case "loop":
                while True:
                    pass
            case "sleep":
                signal.pause()
            case "memory":
                bytearray(200 * MIB)
            case "peak":
                bytearray(70 * MIB)
        return "fine"
