"""`python -m fuzz`, in the folder tests: see fuzz/__init__.py."""

import argparse
import importlib
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fuzz import TARGETS
from fuzz.runner import Summary, run


def main() -> int:
    """Exit 0 if nothing was found, 1 if something was, 130 after Ctrl-C, which loses no count."""
    words = argparse.ArgumentParser("fuzz", description="Run targets of the fuzzer.")
    words.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)}; or MODULE:CLASS"
    )
    words.add_argument("--cases", type=int, help="of each target; without it, as time allows")
    words.add_argument("--long", action="store_true", help="as many cases as each target's own")
    words.add_argument("--minutes", type=float, help="for each target (1, if cases are not said)")
    words.add_argument("--seed", type=int, help="the first case's; the next has one more")
    words.add_argument("--jobs", type=int, default=1, help="processes at one time")
    words.add_argument("--most-findings", type=int, default=100, help="after which it ends")
    words.add_argument("--out", type=Path, help="a folder for a summary of each target, as JSON")
    given = words.parse_args()
    for name in given.targets:
        if name not in TARGETS and ":" not in name:
            words.error(f"there is no target {name!r}: {', '.join(TARGETS)}")
    if not hasattr(os, "fork"):
        words.error("this system has no fork")
    # Workers are forks, which inherit no thread.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    minutes = given.minutes or (None if given.cases or given.long else 1.0)
    first = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    found = 0
    for name in given.targets or TARGETS:
        module, kind = TARGETS.get(name) or name.split(":")
        print(f"{name}: first seed {first}", flush=True)
        target = getattr(importlib.import_module(module), kind)()
        cases = target.long_form if given.long else given.cases
        summary = run(
            target,
            name,
            _seeds(first, cases, minutes),
            first,
            jobs=given.jobs,
            most_findings=given.most_findings,
            told=_tell,
        )
        _tell(summary)
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / f"{name.rpartition(':')[2]}.json").write_text(summary.as_json() + "\n")
        found += len(summary.findings)
        if summary.stopped:
            return 130
    return min(found, 1)


def _seeds(first: int, cases: int | None, minutes: float | None) -> Iterator[int]:
    """Seeds until there are enough, or the time is over, which begins with the first of them."""
    end = None
    for seed in itertools.count(first):
        if end is None and minutes is not None:
            end = time.monotonic() + 60 * minutes
        if (cases is not None and seed >= first + cases) or (
            end is not None and time.monotonic() > end
        ):
            return
        yield seed


def _tell(summary: Summary) -> None:
    for each in summary.findings:
        if not each.shown:
            each.shown = True
            print(f"  seed {each.seed}: {each.kind}: {each.detail}")
            print("".join(f"    | {line}\n" for line in each.output.splitlines()[-5:]), end="")
    outcomes = ", ".join(f"{count:,} {word}" for word, count in sorted(summary.outcomes.items()))
    inputs = f" of {summary.inputs:,} inputs" if summary.inputs > summary.cases else ""
    print(
        f"{summary.target}: {summary.cases:,} cases{inputs} in {summary.wall_seconds:.0f} s; "
        f"{len(summary.findings)} findings; {outcomes or 'nothing else'}; "
        f"at most {summary.peak_mebibytes:.0f} MiB, {summary.slowest_cpu_seconds:.2f} s of CPU",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
