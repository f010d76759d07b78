"""Kill `hitrate compare` and `hitrate study run` at random moments, and see that nothing is lost.

    python tests/fuzz/kills.py --kills 200 --seed 0

A round begins in an empty folder. The command is started again and again, and each time a signal
(SIGKILL, SIGTERM, SIGINT) goes to the command, to one of its workers, or to the whole group, as a
terminal does; how long after its start is a random part of what an undisturbed command takes, so
that some come while Python starts, some while runs are computed and kept, some while the report is
written. Then the same command runs once more, in peace. It has to end well, its numbers have to be
those of an undisturbed one, without `--retry`, and nothing may be left: no process, no failure, no
traceback in what any of them said.

Moments are a matter of luck; what is asked afterwards is not: `test_kills.py` is a test of a few.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "lab"))

import small_study  # noqa: E402
from comparisons import timeless  # noqa: E402
from watched import HANGS, environment, wait_for_the_end_of, workers_of  # noqa: E402

from hitrate_lab.runs.store import Store  # noqa: E402

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
VICTIMS = ("command", "worker", "group")
# Kills of a round: the more, the less of it gets done between them.
KILLS = 5
# The study's protocol is there before a signal can be: it is no part of the command.
STUDY = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
import small_study
from hitrate_lab.cli import main
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
main()
"""


class Compare:
    """A comparison of two methods on iris."""

    name = "compare"

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        asked = ["--models", "linear", "--folds", "4", "--repeats", "2", "--trials", "1"]
        self.words = ["-m", "hitrate_lab", "compare", "iris", *asked, "--jobs", "2", "--out", "out"]

    def numbers(self):
        document = json.loads((self.folder / "out" / "comparison.json").read_text())
        assert document["complete"] and not document["failed"], "a run has failed"
        return timeless(document)

    def store(self):
        return self.folder / "out" / "runs.sqlite"


class Study:
    """A study whose runs take next to no time."""

    name = "study run"

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        path = small_study.written(folder, seeds=8)
        self.words = ["-c", STUDY, "study", "run", str(path), "--jobs", "2", "--store", "s.sqlite"]

    def numbers(self):
        with Store(self.store()) as runs:
            return sorted((run.key, json.dumps(run.result)) for run in runs.runs())

    def store(self):
        return self.folder / "s.sqlite"


class Fault(Exception):
    """What must not be."""


def begin(job):
    """The job's command, in a group of its own; what it says goes to a file."""
    with (job.folder / "said").open("a") as said:
        return subprocess.Popen(
            [sys.executable, *job.words],
            cwd=job.folder,
            env=environment(),
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def kill(process, number, victim, chance):
    """Send a signal; whether there was somebody to get it, and who should end by it."""
    workers = workers_of(process.pid)
    with contextlib.suppress(ProcessLookupError):
        if victim == "worker":
            if not workers:
                return False, False
            os.kill(chance.choice(workers), number)
            return True, False
        if process.poll() is not None:
            return False, False
        (os.killpg if victim == "group" else os.kill)(process.pid, number)
        return True, True
    return False, False


def finish(process):
    """Its exit code, when it and all its workers have ended."""
    workers = workers_of(process.pid)
    code = process.wait(HANGS)
    wait_for_the_end_of(workers)
    return code


def round_of_kills(job, undisturbed, seconds, chance, counts):
    """Some kills, one command in peace; how many kills there were."""
    done = 0
    before = {}
    for _ in range(KILLS):
        process = begin(job)
        number, victim = chance.choice(SIGNALS), chance.choice(VICTIMS)
        time.sleep(chance.uniform(0.0, 1.1 * seconds))
        hit, ends = kill(process, number, victim, chance)
        if hit:
            done += 1
            counts[f"{number.name} to the {victim}"] += 1
        code = finish(process)
        # A worker's end ends nothing; who was told to end may just have ended well.
        allowed = {0, -number, 128 + number} if ends else {0}
        if code not in allowed:
            raise Fault(f"{number.name} to the {victim}: the command ended with {code}")
        found = kept(job)
        if lost := before.keys() - found.keys():
            raise Fault(f"{len(lost)} runs are no longer in the store")
        if any(found[key] != value for key, value in before.items()):
            raise Fault("a run in the store has changed")
        before = found
    if code := finish(begin(job)):
        raise Fault(f"the command in peace ended with {code}")
    if job.numbers() != undisturbed:
        raise Fault("other numbers than undisturbed")
    if "Traceback" in (job.folder / "said").read_text():
        raise Fault("a traceback")
    return done


def kept(job):
    """All that the store has."""
    if not job.store().exists():
        return {}
    with Store(job.store()) as runs:
        return {run.key: (run.finished, json.dumps(run.result)) for run in runs.runs()}


def campaign(kills, seed, tell=print, jobs=(Compare, Study)):
    """So many kills, spread over the jobs; how many faults there were, and what was counted."""
    chance, faults, done, number = random.Random(seed), [], 0, 0
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="hitrate-kills-") as folder:
        calm = []
        for make in jobs:
            job = make(Path(folder) / f"calm-{make.__name__}")
            begun = time.monotonic()
            assert finish(begin(job)) == 0, (job.folder / "said").read_text()
            calm.append((make, job.numbers(), time.monotonic() - begun))
        while done < kills:
            make, undisturbed, seconds = calm[number % len(calm)]
            job = make(Path(folder) / f"round-{number}")
            before = done
            try:
                done += round_of_kills(job, undisturbed, seconds, chance, counts)
            except (Fault, AssertionError) as fault:
                said = (job.folder / "said").read_text()
                faults.append(f"round {number}, {job.name}: {fault}\n{said}")
                done += KILLS
            number += 1
            tell(f"round {number}: {job.name}, {done - before} kills; {done} in all, "
                 f"{len(faults)} faults")  # fmt: skip
    return faults, dict(sorted(counts.items())), number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="printed if it is not given")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    begun = time.monotonic()
    faults, counts, rounds = campaign(options.kills, seed, lambda line: print(line, flush=True))
    for fault in faults:
        print(fault)
    for name, count in counts.items():
        print(f"{count:4} {name}")
    total = sum(counts.values())
    print(f"{total} kills in {rounds} rounds, {time.monotonic() - begun:.0f} s: "
          f"{len(faults)} faults")  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
