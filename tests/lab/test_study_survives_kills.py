"""Twenty times kill -9, of the command and of its workers in turns: the study ends as if never."""

import contextlib
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
from hitrate_lab.study import document, plan_of, read_study
from hitrate_lab.study.report import rows_of

KILLS = 20
# New rows before a kill, in turns: the study gets further on a machine of any speed. Without any
# the kill comes at a random moment, while workers start, work or are replaced.
ROWS = (0, 3, 0, 0)
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
        time.sleep(0.2)
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
    """The report and all rows, less when and how fast."""
    report = document(study, store)
    del report["seconds"], report["made_with"]
    flat = rows_of(study, store)
    for row in flat:
        del row["finished"], row["seconds"]
        # Others may work on the code meanwhile.
        row.pop("versions.commit", None)
    return json.dumps([report, flat], sort_keys=True)


def kill_in_turns(path, store, processes):
    """Start, kill a worker, kill the command, start again; the rows after the last kill."""
    chance = random.Random(0)
    kept, seen = {}, set()
    for number in range(KILLS):
        if number % 2 == 0:
            processes.append(command(path, store, jobs=2))
        process = processes[-1]
        workers = functools.partial(workers_of, process.pid)
        seen.update(wait_for(workers, process))
        time.sleep(chance.uniform(0, 1))
        wanted = len(kept) + ROWS[number % len(ROWS)]
        wait_for(functools.partial(has_rows, store, wanted), process)
        victims = wait_for(workers, process)
        assert process.poll() is None
        os.kill(process.pid if number % 2 else chance.choice(victims), signal.SIGKILL)
        if number % 2:
            assert process.wait() == -signal.SIGKILL
        seen.update(victims)
        found = rows(store)
        assert kept.items() <= found.items()
        kept = found
    # Those that had not begun a run wait in vain for some minutes.
    for pid in filter(is_running, seen):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return kept


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")
def test_a_study_killed_twenty_times_ends_as_if_it_had_not_been(tmp_path):
    path = written(tmp_path, pause=0.2, seeds=25)
    study, store, calm = read_study(path), tmp_path / "runs.sqlite", tmp_path / "calm.sqlite"
    plan = plan_of(study)
    assert len(plan) == 100
    processes = [command(path, calm, jobs=1)]
    try:
        kept = kill_in_turns(path, store, processes)
        processes.append(command(path, store, jobs=2))
        for process in (processes[0], processes[-1]):
            assert process.wait(timeout=90) == 0, store.with_suffix(".log").read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    # The kills came neither before all runs nor after them.
    assert 15 <= len(kept) < len(plan)
    ended = rows(store)
    assert kept.items() <= ended.items()
    with Store(store) as runs:
        assert sorted(run.key for run in runs.runs()) == sorted(map(key_of, plan))
        assert not runs.failures(plan)
    assert numbers(study, store) == numbers(study, calm)
