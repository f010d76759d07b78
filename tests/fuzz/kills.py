"""`hitrate compare` and `hitrate study run`, killed at random moments: nothing is lost.

A case is some rounds, each of which begins in an empty folder. The command is started again and
again, and each time a signal goes to the command, to one of its workers, or to the whole group, as
a terminal sends it. Then the same command runs once more, in peace. It has to end well, its numbers
have to be those of an undisturbed one, without `--retry`, and nothing may be left: no process, no
run that is lost or has changed, no failure, no traceback in what any of them said.

Moments are counted in CPU time of the command or its workers, and in runs that the store has: never
by a clock, so that a busy machine has the same ones.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from fuzz.killed_commands import Calm, Command, Compare, Study, cpu, workers_of
from fuzz.limits import Limits
from fuzz.target import Target, Wrong

COMMANDS: tuple[type[Command], ...] = (Compare, Study)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
VICTIMS = ("command", "worker", "group")
# Kills of a case.
KILLS = 8


class Kills(Target):
    """Rounds of kills of a new command, once more in peace at the end of each."""

    chunk = 1
    limits = Limits(cpu_seconds=600, mebibytes=8192, wall_seconds=1800)
    watches_memory = False
    with_every_change = 2
    long_form = 25
    is_slow = True

    def prepare(self, folder: Path) -> None:
        calm = {each.name: asdict(_undisturbed(each(folder / each.name))) for each in COMMANDS}
        (folder / "calm.json").write_text(json.dumps(calm))

    def load(self, folder: Path) -> None:
        self.calm = {
            name: Calm(**given)
            for name, given in json.loads((folder / "calm.json").read_text()).items()
        }

    def case(self, seed: int, folder: Path) -> list[str]:
        # A worker of the fuzzer ignores it, which processes inherit.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        rng = random.Random(seed)
        kind = COMMANDS[seed % len(COMMANDS)]
        done: list[str] = []
        self.inputs = 0
        while self.inputs < KILLS:
            done += self._round(rng, kind(folder / f"round {len(done)}"))
        return done

    def _round(self, rng: random.Random, command: Command) -> list[str]:
        """Kill a command until it has its runs, or has been killed enough; then let it end."""
        calm = self.calm[command.name]
        done: list[str] = []
        before: dict[str, tuple[str, str]] = {}
        while self.inputs < KILLS and not (done and len(before) == calm.runs):
            number, victim = rng.choice(SIGNALS), rng.choice(VICTIMS)
            phase = rng.choice(_phases(len(before), calm))
            process = command.begin()
            came = _moment(rng, phase, process, command, calm, len(before))
            told = f"{number.name} to the {victim}"
            ends = victim != "worker"
            if came and _kill(rng, process, number, victim):
                self.inputs += 1
                done += [f"{told}, {command.name}", f"at {phase}"]
            code, ended = _finish(process), f"{told} at {phase}: the command ended with"
            # A worker's end ends nothing; who was told to end may just have ended well.
            if code not in ({0, -number, 128 + number} if ends else {0}):
                raise Wrong(f"{ended} {code}")
            before = _nothing_lost(before, command.kept(), told)
        if code := _finish(command.begin()):
            raise Wrong(f"the command in peace ended with {code}")
        if command.numbers() != calm.numbers:
            raise Wrong("other numbers than undisturbed")
        if command.count("failures"):
            raise Wrong("a failure is kept")
        print(command.said())
        if "Traceback" in command.said():
            raise Wrong("a traceback")
        return done


def _phases(kept: int, calm: Calm) -> list[str]:
    """Moments that there will be."""
    return ["start", "report"] if kept == calm.runs else ["start", "run", "store", "report"]


def _moment(
    rng: random.Random,
    phase: str,
    process: subprocess.Popen,
    command: Command,
    calm: Calm,
    kept: int,
) -> bool:
    """Wait for a random moment of a part of the command; whether it came before the end."""
    pid, share = process.pid, rng.random()
    if phase == "start":
        return _until(process, lambda: cpu(pid) >= share * calm.store)
    if phase == "run":
        return _until(process, lambda: bool(workers_of(pid))) and _until(
            process,
            lambda: (
                max(map(cpu, workers_of(pid)), default=0.0) >= share * calm.worker
                or command.count() == calm.runs
            ),
        )
    if phase == "store":
        enough = rng.randint(kept + 1, calm.runs)
        journal = command.store.with_name(f"{command.store.name}-journal")
        return _until(
            process,
            lambda: (
                command.count() >= enough or (command.count() >= enough - 1 and journal.exists())
            ),
        )
    if not _until(process, lambda: command.count() == calm.runs):
        return False
    reached = cpu(pid) + share * (calm.end - calm.runs_done)
    return _until(process, lambda: cpu(pid) >= reached)


def _until(process: subprocess.Popen, happened: Callable[[], bool]) -> bool:
    """Wait for something; whether the process was still there."""
    while process.poll() is None:
        if happened():
            return True
        time.sleep(0.002)
    return False


def _kill(
    rng: random.Random, process: subprocess.Popen, number: signal.Signals, victim: str
) -> bool:
    """Send a signal; whether there was somebody to get it."""
    if victim == "worker":
        # While the command starts, that is the first that it has.
        _until(process, lambda: bool(workers_of(process.pid)))
    try:
        if victim == "worker":
            if not (workers := workers_of(process.pid)):
                return False
            os.kill(rng.choice(workers), number)
        elif process.poll() is not None:
            return False
        else:
            (os.killpg if victim == "group" else os.kill)(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _finish(process: subprocess.Popen) -> int:
    """Its exit code, when it and all of its group have ended."""
    code = process.wait()
    while _is_there(process.pid):
        time.sleep(0.002)
    return code


def _is_there(group: int) -> bool:
    """Whether a group still has processes."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _nothing_lost(
    before: dict[str, tuple[str, str]], found: dict[str, tuple[str, str]], told: str
) -> dict[str, tuple[str, str]]:
    if lost := before.keys() - found.keys():
        raise Wrong(f"{told}: {len(lost)} runs are no longer in the store")
    if any(found[key] != value for key, value in before.items()):
        raise Wrong(f"{told}: a run in the store has changed")
    return found


def _undisturbed(command: Command) -> Calm:
    """What it gives and takes when nobody disturbs it."""
    process = command.begin()
    pid, store, runs_done, end, worker, runs = process.pid, 0.0, 0.0, 0.0, 0.0, 0
    while process.poll() is None:
        end = max(end, cpu(pid))
        worker = max(worker, *map(cpu, workers_of(pid)), 0.0)
        if not store and command.store.exists():
            store = end
        if (count := command.count()) > runs:
            runs, runs_done = count, end
        time.sleep(0.002)
    assert process.returncode == 0, command.said()
    _finish(process)
    return Calm(command.numbers(), runs, store or end, runs_done, end, worker)
