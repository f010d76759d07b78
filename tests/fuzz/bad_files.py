"""Files that are no tables, or strange ones, through `hitrate fit` and `hitrate predict`.

Whatever the file: exit 0 with a model and a prediction for every row, or exit 2 with one line; and
nothing half-written in either case.
"""

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fuzz.bad_file_kinds import make_bad_file
from fuzz.fuzzed_csv import TARGET
from fuzz.limits import Limits
from fuzz.target import Target, Wrong

# One case in so many goes through the command itself, which begins by importing everything.
THROUGH_THE_COMMAND = 1000
METHODS = ["linear/cross_entropy"] * 9 + ["linear/exact"]
# Of a table that the model of `prepare` is fitted to: all kinds of columns.
WORDS = "the a very good bad dress shirt colour fits runs large small nice soft returned it".split()


class BadFiles(Target):
    """Each case fits a model to a file, predicts with it, and predicts the file with another."""

    limits = Limits(cpu_seconds=60, mebibytes=2048, wall_seconds=600)
    with_every_change = 150

    def prepare(self, folder: Path) -> None:
        import random

        rng = random.Random(0)
        rows = [["column 0", "column 1", "column 2", "column 3", TARGET]]
        for k in range(300):
            text = " ".join(rng.choice(WORDS) for _ in range(12)) + f" {k}"
            price, share = f"$ {rng.gauss(0, 3000):,.2f}", f"{rng.random():.2f}".replace(".", ",")
            rows.append([price, share, rng.choice("abc"), text, rng.choice(["yes", "no"])])
        with (folder / "t.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        code = _in_process(
            ["fit", str(folder / "t.csv"), "--target", TARGET, "--out", str(folder / "model")]
        )
        assert code == 0 and (folder / "model" / "columns.safetensors").is_file()

    def load(self, folder: Path) -> None:
        import pyarrow.parquet  # noqa: F401
        import sklearn.feature_extraction.text
        import sklearn.linear_model  # noqa: F401

        import hitrate.sklearn  # noqa: F401
        import hitrate_lab.cli.app
        import hitrate_lab.compare.fit
        import hitrate_lab.models.methods  # noqa: F401

        self.other = folder / "model"

    def case(self, seed: int, folder: Path) -> str:
        source, kind = make_bad_file(seed, folder)
        run = _by_command if seed % THROUGH_THE_COMMAND == 0 else _in_process
        method = METHODS[seed % len(METHODS)]
        model, out, other = folder / "model", folder / "p.csv", folder / "other.csv"
        words = ["fit", str(source), "--target", TARGET, "--method", method, "--trials", "1"]
        fitted = self._run(run, [*words, "--out", str(model)], folder)
        self._holds_only(folder, {source.name, *(["model"] if fitted else [])})
        if fitted:
            if not self._run(run, ["predict", str(model), str(source), "--out", str(out)], folder):
                raise Wrong(f"{kind}: fitted to a file that it does not predict")
            self._whole(out)
        predicted = self._run(
            run, ["predict", str(self.other), str(source), "--out", str(other)], folder
        )
        if predicted:
            self._whole(other)
        names = {source.name, *(["model", "p.csv"] if fitted else [])}
        self._holds_only(folder, names | ({"other.csv"} if predicted else set()))
        return f"{kind} {'fitted' if fitted else 'refused'}"

    def _run(self, run: Callable[[list[str]], int], words: list[str], folder: Path) -> bool:
        """Whether a command did what it was asked for; `Wrong` unless it says why not."""
        before = len(self.said(folder))
        code = run(words)
        said = self.said(folder)[before:].splitlines()
        if any("Traceback" in line for line in said) or code not in (0, 2):
            raise Wrong(f"{words[0]}: exit {code}: {said[-3:]}")
        complaints = [line for line in said if not line.startswith("hitrate: note: ")]
        wrong = [line for line in complaints if not line.startswith("hitrate: ")]
        slow = [line for line in complaints if line.startswith("hitrate: reading ")]
        if code == 2 and (wrong or len(complaints) - len(slow) != 1):
            raise Wrong(f"{words[0]}: exit 2 with other than one line: {complaints}")
        if code == 2 and not all(line.isprintable() for line in said):
            raise Wrong(f"{words[0]}: what a terminal would act on: {said!r}")
        return code == 0

    def _holds_only(self, folder: Path, names: set[str]) -> None:
        found = {path.name for path in folder.iterdir()} - {"output.txt", "aside"}
        if found != names:
            raise Wrong(f"the folder has {sorted(found)} and not {sorted(names)}")

    def _whole(self, out: Path) -> None:
        """A table of predictions: a label and numbers that add up to 1, row by row."""
        with out.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        if not rows or any(len(row) != len(header) for row in rows):
            raise Wrong(f"{out.name} is not whole")
        if any(abs(sum(map(float, row[1:])) - 1) > 1e-4 * len(row) for row in rows):
            raise Wrong(f"{out.name}: probabilities do not add up to 1")


def _in_process(words: list[str]) -> int:
    """The command's exit code, run here."""
    from hitrate_lab.cli import main

    before, sys.argv = sys.argv, ["hitrate", *words]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _by_command(words: list[str]) -> int:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "hitrate_lab", *words]
    return subprocess.run(command, env={**os.environ, "COLUMNS": "80"}).returncode
