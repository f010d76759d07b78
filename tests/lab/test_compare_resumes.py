"""Comparisons that are killed go on where they stopped: nothing lost, nothing run twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from comparisons import timeless

from hitrate_lab.data import BadInput, read_table
from hitrate_lab.protocols.compare import compare, plan_of
from hitrate_lab.protocols.document import Settings
from hitrate_lab.protocols.lock import only_one
from hitrate_lab.store import Store, key_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")

ASKED = {"repeats": 2, "trials": 2}
LINEAR = {**ASKED, "models": ["linear"]}
KILLS = 20

# Each attempt is a process of its own, which the driver kills; it is forked from one that has done
# a fold, so that it need not import everything anew. It writes down what it begins and finishes.
KILLED = """
import json, os, signal, sys, time
from hitrate_lab.data import read_table
from hitrate_lab.protocols import compare as protocol
from hitrate_lab.store import Store, key_of

path, log, asked = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
moments = json.loads(sys.argv[4])
table = read_table("wine")


def attempt(number):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(event):
        if event.kind in ("started", "finished") and not event.stored:
            line = [number, event.kind, event.method, event.repeat, event.fold]
            os.write(file, (json.dumps(line) + "\\n").encode())

    protocol.compare(table, store=path, jobs=1, observer=note, **asked)


def rows():
    with Store(path) as store:
        return [(run.key, run.finished, json.dumps(run.result)) for run in store.runs()]


# A fold of each of four methods: once to have all imported, once to know how long a run takes here.
for number in range(2):
    begun = time.perf_counter()
    protocol.compare(table, store=f"{path}.{number}", jobs=1, time_budget=0, **asked)
one_run = (time.perf_counter() - begun) / 4
for number, moment in enumerate(moments):
    before = rows()
    child = os.fork()
    if not child:
        attempt(number)
        os._exit(0)
    time.sleep(moment * one_run)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    after = rows()
    unchanged = before == after[: len(before)]
    print(json.dumps([os.WIFSIGNALED(status), unchanged, len(after)]), flush=True)
"""

# One that has workers.
WORKERS = """
import json, sys
from hitrate_lab.data import read_table
from hitrate_lab.protocols.compare import Interrupted, compare

if __name__ == "__main__":
    try:
        document = compare(
            read_table("wine"),
            store=sys.argv[1],
            jobs=2,
            observer=lambda event: print(event.kind, event.done, flush=True),
            **json.loads(sys.argv[2]),
        )
        failures = [each for method in document["methods"] for each in method["failures"]]
        print(json.dumps([document["done"], failures]))
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


def test_after_twenty_kills_every_run_is_there_once_and_was_finished_once(wine, tmp_path):
    path, log = tmp_path / "runs.sqlite", tmp_path / "log"
    chance = random.Random(0)
    # In runs: of forty, each attempt gets a few.
    moments = [chance.uniform(0.3, 3.0) for _ in range(KILLS)]
    driver = subprocess.run(
        [sys.executable, "-c", KILLED, path, log, json.dumps(ASKED), json.dumps(moments)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert driver.returncode == 0, driver.stderr
    attempts = [json.loads(line) for line in driver.stdout.splitlines()]
    assert len(attempts) == KILLS
    # What was there before an attempt is there after it, unchanged and in the same order.
    assert all(unchanged for _, unchanged, _ in attempts)
    counts = [count for *_, count in attempts]
    assert sum(killed for killed, *_ in attempts) >= 8
    assert len(set(counts)) >= 4

    document = compare(wine, store=path, jobs=1, **ASKED)
    assert document["complete"]
    undisturbed = compare(wine, store=tmp_path / "other.sqlite", jobs=1, **ASKED)
    assert timeless(document) == timeless(undisturbed)
    settings = Settings(("linear", "mlp"), ("cross_entropy", "exact"), 5, 2, 2, 0)
    plan = plan_of(wine, settings)
    with Store(path) as store:
        keys = [run.key for run in store.runs()]
    assert sorted(keys) == sorted(map(key_of, plan))

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    finished = [tuple(line[2:]) for line in lines if line[1] == "finished"]
    assert len(finished) == len(set(finished))
    # No attempt begins what the store had when the one before was killed.
    order = {key: number for number, key in enumerate(keys)}
    position = {tuple(place(spec)): order[key_of(spec)] for spec in plan}
    for number, kind, *where in lines:
        if kind == "started" and number:
            assert position[tuple(where)] >= counts[number - 1]


def begun(path, **options):
    """A comparison in two workers, whose first run has just finished."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKERS, path, json.dumps(LINEAR)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    while not (line := process.stdout.readline()).startswith("finished"):
        assert line, process.stderr.read()
    return process


def children(pid):
    """Processes whose parent this is."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = (map(int, line.split()) for line in listing.splitlines())
    return [child for child, parent in pairs if parent == pid]


def is_running(pid):
    listing = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return bool(listing) and not listing.startswith("Z")


def test_a_killed_comparison_leaves_no_workers_behind_and_goes_on(wine, linear, tmp_path):
    path = tmp_path / "runs.sqlite"
    process = begun(path)
    workers = children(process.pid)
    assert len(workers) >= 2
    with pytest.raises(BadInput, match=f"process {process.pid}"), only_one(path):
        pass
    process.kill()
    process.communicate()
    end = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_running, workers))
    with Store(path) as store:
        assert store.runs()
    assert timeless(compare(wine, store=path, jobs=1, **LINEAR)) == timeless(linear)


def test_a_worker_that_dies_costs_the_runs_under_way_and_no_others(wine, linear, tmp_path):
    path = tmp_path / "runs.sqlite"
    process = begun(path)
    listing = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "-p", ",".join(map(str, children(process.pid)))],
        capture_output=True,
        text=True,
    ).stdout
    workers = [int(line.split()[0]) for line in listing.splitlines() if "popen_loky" in line]
    os.kill(workers[0], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    done, failures = json.loads(out.splitlines()[-1])
    assert done + len(failures) == 20
    assert 1 <= len(failures) <= 2
    assert all("the process that ran it died" in each for each in failures)
    again = compare(wine, store=path, jobs=1, retry=True, **LINEAR)
    assert timeless(again) == timeless(linear)


def test_ctrl_c_at_a_terminal_ends_the_workers_and_keeps_what_is_done(wine, linear, tmp_path):
    path = tmp_path / "runs.sqlite"
    process = begun(path, start_new_session=True)
    workers = children(process.pid)
    # A terminal sends the signal to all processes of the command.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    told = int(out.split()[-1])
    assert out.split()[-2] == "stopped"
    assert not any(map(is_running, workers))
    assert "Traceback" not in err
    with Store(path) as store:
        assert len(store.runs()) == told
    assert timeless(compare(wine, store=path, jobs=1, **LINEAR)) == timeless(linear)
