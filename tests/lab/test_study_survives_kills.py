"""Twenty times kill -9, of the command and of its workers in turns: the study ends as if never."""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from small_study import written
from test_study_engine import environment, is_running, workers_of

from hitrate_lab.store import Store, key_of
from hitrate_lab.study import document, plan_of, read_study, run_study
from hitrate_lab.study.report import rows_of

# Three workers are killed, then the command: five times.
ROUNDS, WORKERS = 5, 3
# New rows before the command is killed, in turns. Without any the kills come at random moments,
# while workers start, work or are replaced; with some the study gets further on any machine.
ROWS = (0, 3)
COMMAND = "import small_study; from hitrate_lab.cli.study import study_app; study_app()"


def command(path, store, jobs):
    """`hitrate study run` in a process of its own."""
    words = ["run", path, "--jobs", jobs, "--store", store]
    with store.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *map(str, words)],
            stdout=log,
            stderr=log,
            env=environment(),
        )


def wait_for(found, process):
    """What is found, as soon as it is there."""
    ends = time.monotonic() + 60
    while not (there := found()):
        assert process.poll() is None and time.monotonic() < ends
        time.sleep(0.1)
    return there


def rows(store):
    """All that the file has, by key."""
    if not store.exists():
        return {}
    with Store(store) as runs:
        return {run.key: run for run in runs.runs()}


def has_rows(store, count):
    return len(rows(store)) >= count


def numbers(study, store):
    """The report and all rows, less when, how fast, and how long a run paused."""
    report = document(study, store)
    del report["seconds"], report["made_with"]
    flat = rows_of(study, store)
    for row in flat:
        for key in ("key", "finished", "seconds", "pause"):
            del row[key]
        # Others may work on the code meanwhile.
        row.pop("versions.commit", None)
    return json.dumps([report, flat], sort_keys=True)


def kill_in_turns(path, store, processes):
    """Start, kill workers, kill the command, start again; the rows after the last kill."""
    chance = random.Random(0)
    kept = {}
    processes.append(command(path, store, jobs=2))
    for number in range(ROUNDS):
        process = processes[-1]
        workers = functools.partial(workers_of, process.pid)
        for _ in range(WORKERS):
            victims = wait_for(workers, process)
            time.sleep(chance.uniform(0, 0.6))
            os.kill(chance.choice(victims), signal.SIGKILL)
        wanted = len(kept) + ROWS[number % len(ROWS)]
        wait_for(functools.partial(has_rows, store, wanted), process)
        orphans = wait_for(workers, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        found = rows(store)
        assert kept.items() <= found.items()
        kept = found
        processes.append(command(path, store, jobs=2))
        # Whether they had begun a run or not, they end by themselves.
        ends = time.monotonic() + 20
        while any(map(is_running, orphans)):
            assert time.monotonic() < ends, "workers outlive their command"
            time.sleep(0.1)
    return kept


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")
def test_a_study_killed_twenty_times_ends_as_if_it_had_not_been(tmp_path):
    path = written(tmp_path, pause=0.15, seeds=30)
    study, store = read_study(path), tmp_path / "runs.sqlite"
    plan = plan_of(study)
    processes = []
    try:
        kept = kill_in_turns(path, store, processes)
        assert processes[-1].wait(timeout=90) == 0, store.with_suffix(".log").read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    # The kills came neither before all runs nor after them.
    assert 6 <= len(kept) < len(plan)
    ended = rows(store)
    assert kept.items() <= ended.items()
    with Store(store) as runs:
        assert sorted(run.key for run in runs.runs()) == sorted(map(key_of, plan))
        assert not runs.failures(plan)
    calm = read_study(written(tmp_path / "calm", seeds=30))
    run_study(calm, store=tmp_path / "calm.sqlite", jobs=1)
    assert numbers(study, store) == numbers(calm, tmp_path / "calm.sqlite")
