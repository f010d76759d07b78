"""Which functions of both packages three walks of data call, in the order of their first call.

    python -m hitrate_lab.pages.house.walks --commit $(git rev-parse --short HEAD)

A walk is a program, run in a folder of its own. Every process of it, workers too, writes each
function of the packages to one file when it is first called. Functions are those with a name:
lambdas, comprehensions and bodies of classes and modules are not counted; what is called while a
module is imported is. `--src` and `--key before` walk through another tree, such as one of an
earlier commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from hitrate_lab.pages.house.sizes import sizes_of
from hitrate_lab.whole_file import write_whole

RESULTS = Path("benchmarks") / "results" / "architecture.json"

# Python runs a module of this name first, in every process.
TRACER = """
import inspect, os, sys, threading

def follow():
    source, log = os.environ["WALK_SOURCE"] + os.sep, os.environ["WALK_LOG"]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    seen = {}

    def watch(frame, event, argument):
        code = frame.f_code
        if event != "call" or id(code) in seen:
            return
        seen[id(code)] = code  # kept, so that no other gets its id
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if is_function and code.co_filename.startswith(source):
            line = f"{code.co_filename.removeprefix(source)}:{code.co_qualname}\\n"
            os.write(file, line.encode())

    threading.setprofile(watch)
    sys.setprofile(watch)

if "WALK_LATER" not in os.environ:
    follow()
"""
STEP = """
import torch, hitrate
loss = hitrate.ExactLoss()
logits, target = torch.randn(8, 10, requires_grad=True), torch.arange(8)
import sitecustomize
sitecustomize.follow()
loss(logits, target).backward()
"""
TABLE = """
from pathlib import Path
from sklearn.datasets import load_iris
iris = load_iris(as_frame=True)
iris.frame.to_csv("flowers.csv", index=False)
"""
STUDY = """
name = "small"
title = "What a loss costs"
reproduces = "nothing"
protocol = "exact cost"
seeds = [0]
data_sets = ["C=2, S=16", "C=4, S=16"]

[measures]
time_ratio = "Time, as a multiple of cross entropy's"

[settings]
device = "cpu"
rows = 16
work = 1e6
seconds = 0.01
rounds = [2, 2]
memory_gb = 1

[[methods]]
name = "cross entropy"
loss = "cross_entropy"

[[methods]]
name = "quadrature"
loss = "exact"
method = "quadrature"
backend = "torch"
"""
HITRATE = ("-m", "hitrate_lab")
SHORT = ("--target", "target", "--folds", "3", "--repeats", "1", "--trials", "2", "--jobs", "1")
# For each walk the words that Python is called with.
WALKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "logits to gradient": (("-c", STEP),),
    "CSV to page": ((*HITRATE, "compare", "flowers.csv", *SHORT, "--out", "report"),),
    "TOML to table": (
        (*HITRATE, "study", "run", "small.toml", "--jobs", "1"),
        (*HITRATE, "study", "report", "small.toml", "--out", "small.md"),
    ),
}


def walked(source: Path) -> dict[str, list[list[str]]]:
    """For each program of each walk its functions, "file:name", the first called first."""
    found = {}
    for name, programs in WALKS.items():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "sitecustomize.py").write_text(TRACER)
            (Path(folder) / "small.toml").write_text(STUDY)
            _run(("-c", TABLE), folder, {})
            found[name] = [_called(words, folder, source.resolve()) for words in programs]
    return found


def _called(words: tuple[str, ...], folder: str, source: Path) -> list[str]:
    """The functions of one program and of the processes it starts."""
    log = Path(folder) / "called"
    log.unlink(missing_ok=True)
    places = {
        "PYTHONPATH": os.pathsep.join([folder, str(source)]),
        "WALK_SOURCE": str(source),
        "WALK_LOG": str(log),
    }
    # A program that is given as text follows from where it says itself.
    _run(words, folder, places | ({"WALK_LATER": "1"} if words[0] == "-c" else {}))
    return list(dict.fromkeys(log.read_text(encoding="utf-8").splitlines()))


def _run(words: tuple[str, ...], folder: str, more: dict[str, str]) -> None:
    run = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | more,
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"{words}\n{run.stdout}\n{run.stderr}")


def main() -> None:
    """Command line: walk, count lines, put both among the results."""
    parser = argparse.ArgumentParser(description="Functions on three ways, and lines of code.")
    parser.add_argument("--src", type=Path, default=Path("src"), help="a tree's folder src")
    parser.add_argument("--commit", required=True, help="which commit the tree is of")
    parser.add_argument("--key", default="now", help="what the tree is called in the results")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a .json file; has both trees")
    arguments = parser.parse_args()
    walks = walked(arguments.src)
    for name, programs in walks.items():
        print(name, [len(called) for called in programs])
    found = json.loads(arguments.out.read_text("utf-8")) if arguments.out.is_file() else {}
    found[arguments.key] = {
        "commit": arguments.commit,
        "python": platform.python_version(),
        "sizes": sizes_of(arguments.src),
        "walks": walks,
    }
    write_whole(arguments.out, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
