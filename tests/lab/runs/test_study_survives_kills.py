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
from watched import (
    HANGS,
    TICKETS,
    Tickets,
    environment,
    wait_for_the_end_of,
    wait_until,
    workers_of,
)

from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.studies import document, plan_of, read_study, run_study
from hitrate_lab.studies.report import stored_runs
from hitrate_lab.studies.results import rows_of

# Three workers are killed, then the command: five times.
ROUNDS, WORKERS = 5, 3
# New rows before the command is killed, in turns. Without any the kills come at random moments,
# while workers start, work or are replaced; with some the study gets further.
ROWS = (0, 3)
# Runs that may begin in each round: enough for its rows, though what is killed takes some along,
# and in all rounds together fewer than the study has.
MAY_BEGIN = max(ROWS) + 2 * WORKERS
COMMAND = "import small_study; from hitrate_lab.cli.study import study_app; study_app()"


def command(path, store, tickets):
    """`hitrate study run` in a process of its own."""
    words = ["run", path, "--jobs", 2, "--store", store]
    with store.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *map(str, words)],
            stdout=log,
            stderr=log,
            env=environment(**{TICKETS: tickets.folder}),
        )


def rows(store):
    """All that the file has, by key."""
    if not store.exists():
        return {}
    with Store(store) as runs:
        return {run.key: run for run in runs.runs()}


def has_rows(store, count):
    return len(rows(store)) >= count


def numbers(study, store):
    """The report and all rows, less when they were made."""
    report = document(study, store)
    # Others may work on the code meanwhile.
    del report["seconds"], report["made_with"], report["commits"]
    flat = rows_of(stored_runs(study, store))
    for row in flat:
        del row["finished"]
        row.pop("versions.commit", None)
    return json.dumps([report, flat], sort_keys=True)


def kill_in_turns(path, store, tickets, processes):
    """Start, kill workers, kill the command, start again; the rows after the last kill."""
    chance = random.Random(0)
    kept = {}
    processes.append(command(path, store, tickets))
    for number in range(ROUNDS):
        tickets.give(MAY_BEGIN)
        process = processes[-1]
        workers = functools.partial(workers_of, process.pid)
        for _ in range(WORKERS):
            # What they are about when they are killed is left to chance.
            wait_until(workers, process)
            time.sleep(chance.uniform(0, 0.6))
            victim = chance.choice(wait_until(workers, process))
            os.kill(victim, signal.SIGKILL)
            wait_for_the_end_of([victim])
        wanted = len(kept) + ROWS[number % len(ROWS)]
        wait_until(functools.partial(has_rows, store, wanted), process)
        orphans = wait_until(workers, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        found = rows(store)
        assert kept.items() <= found.items()
        kept = found
        processes.append(command(path, store, tickets))
        # Whether they had begun a run or not, they end by themselves.
        wait_for_the_end_of(orphans)
    return kept


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")
def test_a_study_killed_twenty_times_ends_as_if_it_had_not_been(tmp_path):
    path, store = written(tmp_path, seeds=30), tmp_path / "runs.sqlite"
    study, tickets = read_study(path), Tickets(tmp_path / "tickets")
    plan = plan_of(study)
    processes = []
    try:
        kept = kill_in_turns(path, store, tickets, processes)
        tickets.no_more_needed()
        assert processes[-1].wait(HANGS) == 0, store.with_suffix(".log").read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    # The kills came neither before all runs nor after them.
    assert 6 <= len(kept) <= ROUNDS * MAY_BEGIN < len(plan)
    ended = rows(store)
    assert kept.items() <= ended.items()
    with Store(store) as runs:
        assert sorted(run.key for run in runs.runs()) == sorted(map(key_of, plan))
        assert not runs.failures(plan)
    calm = tmp_path / "calm.sqlite"
    run_study(study, store=calm, jobs=1)
    assert numbers(study, store) == numbers(study, calm)
