"""Comparisons that are killed go on where they stopped: nothing lost, nothing run twice."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys

import pytest
from comparisons import timeless
from watched import (
    HANGS,
    TICKETS,
    Tickets,
    Watched,
    environment,
    is_running,
    wait_for_the_end_of,
    workers_of,
)

from hitrate_lab.bad_input import BadInput
from hitrate_lab.compare.comparison import compare, plan_of
from hitrate_lab.compare.document import Settings
from hitrate_lab.runs.lock import only_one
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.tables import read_table

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")

ASKED = {"repeats": 2, "trials": 2}
LINEAR = {"repeats": 1, "trials": 1, "models": ["linear"]}

# Each attempt is a process of its own, which the driver kills; it is forked from one that has done
# a fold, so that it need not import everything anew. It writes down what it begins and finishes.
# It is killed after so many lines; two lines later it waits for that.
KILLED = """
import json, os, random, signal, sys, time
from hitrate_lab.tables import read_table
from hitrate_lab.compare import comparison as protocol
from hitrate_lab.runs.store import Store

path, log, asked = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
chance = random.Random(0)
table = read_table("wine")


def attempt(number, most, told, held):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    written = 0

    def note(event):
        nonlocal written
        if event.kind in ("started", "finished") and not event.stored:
            spec = event.specification
            line = [number, event.kind, spec["method"], spec["repeat"], spec["fold"]]
            os.write(file, (json.dumps(line) + "\\n").encode())
            os.write(told, b".")
            written += 1
            if written == most:
                # Nothing comes but the driver's end.
                os.read(held, 1)
                os._exit(1)

    protocol.compare(table, store=path, jobs=1, observer=note, **asked)


def rows():
    with Store(path) as store:
        return [(run.key, run.finished, json.dumps(run.result)) for run in store.runs()]


protocol.compare(table, store=f"{path}.warm", jobs=1, time_budget=0, **asked)
for number, lines in enumerate(json.loads(sys.argv[4])):
    before = rows()
    heard, told = os.pipe()
    held, holds = os.pipe()
    child = os.fork()
    if not child:
        os.close(heard)
        os.close(holds)
        attempt(number, lines + 2, told, held)
        os._exit(0)
    os.close(told)
    for _ in range(lines):
        assert os.read(heard, 1), "it ended too early"
    # Where in its work it is killed is left to chance.
    time.sleep(chance.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    for end in (heard, held, holds):
        os.close(end)
    after = rows()
    unchanged = before == after[: len(before)]
    print(json.dumps([os.WIFSIGNALED(status), unchanged, len(after)]), flush=True)
"""

# One that has workers.
WORKERS = """
import json, sys
from hitrate_lab.tables import read_table
from hitrate_lab.compare import comparison
from hitrate_lab.compare.comparison import Interrupted, compare
from watched import take_ticket

# Of this program's own, so that workers get it as it is here.
class WithTickets(comparison.Comparison):
    def run_batch(self, specifications, context):
        take_ticket()
        return super().run_batch(specifications, context)


comparison.Comparison = WithTickets

if __name__ == "__main__":
    try:
        document = compare(
            read_table("wine"),
            store=sys.argv[1],
            jobs=2,
            observer=lambda event: print(event.kind, event.done, flush=True),
            **json.loads(sys.argv[2]),
        )
        print(json.dumps([document["done"], document["failed"], document.get("lost", 0)]))
    except Interrupted as stopped:
        print("stopped", stopped.document["done"], flush=True)
"""


@pytest.fixture(scope="module")
def wine():
    return read_table("wine")


@pytest.fixture(scope="module")
def linear(wine, tmp_path_factory):
    """Linear methods, undisturbed."""
    return compare(wine, store=tmp_path_factory.mktemp("whole") / "runs.sqlite", jobs=1, **LINEAR)


def place(specification):
    return [specification[name] for name in ("method", "repeat", "fold")]


# Of lines: a run that is finished has two. None are those that are killed as they begin.
LINES = random.Random(0).choices(range(4), k=20)


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        pytest.param(LINEAR, [0, 1, 2, 3], id="four kills"),
        pytest.param(ASKED, LINES, id="twenty kills", marks=pytest.mark.slow),
    ],
)
def test_after_kills_every_run_is_there_once_and_was_finished_once(wine, tmp_path, asked, lines):
    path, log = tmp_path / "runs.sqlite", tmp_path / "log"
    driver = subprocess.run(
        [sys.executable, "-c", KILLED, path, log, json.dumps(asked), json.dumps(lines)],
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    assert driver.returncode == 0, driver.stderr
    attempts = [json.loads(line) for line in driver.stdout.splitlines()]
    assert len(attempts) == len(lines)
    assert all(killed for killed, *_ in attempts)
    # What was there before an attempt is there after it, unchanged and in the same order.
    assert all(unchanged for _, unchanged, _ in attempts)
    counts = [count for *_, count in attempts]
    settings = Settings(
        tuple(asked.get("models", ("linear", "mlp"))),
        None,
        folds=5,
        repeats=asked["repeats"],
        trials=asked["trials"],
        seed=0,
    )
    plan = plan_of(wine, settings)
    # An attempt has at most so many runs, all of them together fewer than there are.
    assert counts[-1] <= sum((number + 2) // 2 for number in lines) < len(plan)

    document = compare(wine, store=path, jobs=1, **asked)
    assert document["complete"]
    undisturbed = compare(wine, store=tmp_path / "other.sqlite", jobs=1, **asked)
    assert timeless(document) == timeless(undisturbed)
    with Store(path) as store:
        keys = [run.key for run in store.runs()]
    assert sorted(keys) == sorted(map(key_of, plan))

    events = [json.loads(line) for line in log.read_text().splitlines()]
    finished = [tuple(where) for _, kind, *where in events if kind == "finished"]
    assert len(finished) == len(set(finished)) >= sum(number // 2 for number in lines)
    order = {key: number for number, key in enumerate(keys)}
    position = {tuple(place(spec)): order[key_of(spec)] for spec in plan}
    for number, kind, *where in events:
        # What was told to be finished is in the store when the attempt has been killed,
        if kind == "finished":
            assert position[tuple(where)] < counts[number]
        # and no attempt begins what the store had when the one before was killed.
        elif number:
            assert position[tuple(where)] >= counts[number - 1]


@contextlib.contextmanager
def begun(folder, **options):
    """A comparison in two workers, its store and its tickets: one run has finished, others wait."""
    path, tickets = folder / "runs.sqlite", Tickets(folder / "tickets", 1)
    words = [sys.executable, "-c", WORKERS, path, json.dumps(LINEAR)]
    with Watched(words, env=environment(**{TICKETS: tickets.folder}), **options) as process:
        process.lines("finished")
        yield process, path, tickets


@pytest.mark.slow
def test_a_killed_comparison_leaves_no_workers_behind_and_goes_on(wine, linear, tmp_path):
    with begun(tmp_path) as (process, path, _):
        workers = workers_of(process.pid)
        assert len(workers) == 2
        with pytest.raises(BadInput, match=f"process {process.pid}"), only_one(path):
            pass
        process.kill()
    wait_for_the_end_of(workers)
    with Store(path) as store:
        assert len(store.runs()) == 1
    assert timeless(compare(wine, store=path, jobs=1, **LINEAR)) == timeless(linear)


@pytest.mark.slow
def test_a_worker_that_dies_costs_nothing(wine, linear, tmp_path):
    with begun(tmp_path) as (process, path, tickets):
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        tickets.no_more_needed()
        out = process.rest()
        assert process.returncode == 0, process.complaints()
    assert json.loads(out.splitlines()[-1]) == [10, 0, 0]
    assert not [line for line in out.splitlines() if line.startswith("failed")]
    assert timeless(compare(wine, store=path, jobs=1, **LINEAR)) == timeless(linear)


@pytest.mark.slow
def test_ctrl_c_at_a_terminal_ends_the_workers_and_keeps_what_is_done(wine, linear, tmp_path):
    with begun(tmp_path, start_new_session=True) as (process, path, _):
        workers = workers_of(process.pid)
        assert len(workers) == 2
        # A terminal sends the signal to all processes of the command.
        os.killpg(process.pid, signal.SIGINT)
        out = process.rest()
        assert process.returncode == 0, process.complaints()
        assert "Traceback" not in process.complaints()
    assert out.splitlines()[-1] == "stopped 1"
    assert not any(map(is_running, workers))
    with Store(path) as store:
        assert len(store.runs()) == 1
    assert timeless(compare(wine, store=path, jobs=1, **LINEAR)) == timeless(linear)
