"""Studies that are disturbed in every way end as if they had not been."""

import json
import os
import signal
import sys

import pytest
import small_study
from dask_cluster import Cluster
from small_study import written
from typer.testing import CliRunner
from watched import (
    HANGS,
    TICKETS,
    Tickets,
    Watched,
    environment,
    is_running,
    wait_for_the_end_of,
    wait_until,
    workers_of,
)

from hitrate_lab.bad_input import BadInput
from hitrate_lab.cli.study import study_app
from hitrate_lab.runs.lock import only_one
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.studies import document, markdown, plan_of, read_study, run_study, status_of

kills = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")

RUNNER = f"""
import sys
import small_study
from hitrate_lab.runs import executors
from hitrate_lab.studies import read_study, run_study

executors.PATIENCE = {HANGS}

if __name__ == "__main__":
    path, store, jobs, cluster = sys.argv[1:]
    try:
        status = run_study(
            read_study(path),
            store=store,
            jobs=int(jobs) or None,
            cluster=cluster or None,
            observer=lambda event: event.stored or print(event.kind, event.done, flush=True),
        )
        print("ended", status.done, status.failed, flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


def runner(path, store, jobs=2, cluster="", variables=None, **options):
    """A study in a process of its own."""
    words = [sys.executable, "-c", RUNNER, path, store, jobs, cluster]
    return Watched(words, env=environment(**(variables or {})), **options)


def begun(log):
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def place(specification):
    return tuple(specification[key] for key in ("data_set", "method", "seed"))


def tables(study, store):
    return document(study, store)["tables"]


@pytest.fixture
def study(tmp_path):
    return read_study(written(tmp_path))


@pytest.fixture
def undisturbed(tmp_path):
    """The tables of the same study, run here and at once."""
    study = read_study(written(tmp_path / "undisturbed"))
    run_study(study, store=tmp_path / "undisturbed.sqlite", jobs=1)
    return tables(study, tmp_path / "undisturbed.sqlite")


def test_a_study_runs_once_and_a_second_call_has_nothing_to_do(study, tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv(small_study.LOG, str(log))
    events = []
    status = run_study(study, store=tmp_path / "runs.sqlite", jobs=1, observer=events.append)
    assert (status.planned, status.done, status.failed, status.missing) == (24, 24, 0, 0)
    assert [event.kind for event in events] == ["planned"] + 24 * ["started", "finished"]
    assert [event.done for event in events if event.kind != "started"] == list(range(25))
    assert events[0].left is None and events[-1].left == 0
    assert sorted(begun(log)) == sorted(map(place, plan_of(study)))
    again = run_study(study, store=tmp_path / "runs.sqlite", jobs=1)
    assert again == status
    assert len(begun(log)) == 24


def test_the_time_left_is_guessed_from_runs_that_are_alike(tmp_path):
    study = read_study(written(tmp_path, seconds=0.01))
    events = []
    run_study(study, store=tmp_path / "runs.sqlite", jobs=1, observer=events.append)
    for event in events[2:]:
        assert event.left == pytest.approx(0.01 * (24 - event.done))


def test_two_processes_find_what_one_finds(study, undisturbed, tmp_path):
    run_study(study, store=tmp_path / "runs.sqlite", jobs=2)
    assert tables(study, tmp_path / "runs.sqlite") == undisturbed


@kills
@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(["worker"], id="both"),
        pytest.param(["runner", "worker", "runner"], id="in turns", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_or_doubled_by_killing_runner_and_workers(victims, undisturbed, tmp_path):
    path, store, log = written(tmp_path), tmp_path / "runs.sqlite", tmp_path / "log"
    study, tickets = read_study(path), Tickets(tmp_path / "tickets")
    log.touch()
    for victim in victims:
        kept, before, done = rows(store), len(begun(log)), 3
        tickets.give(3)
        variables = {small_study.LOG: log, TICKETS: tickets.folder}
        with runner(path, store, variables=variables) as process:
            process.lines("finished", 3)
            # Two more have begun, and wait.
            wait_until(lambda start=before: len(begun(log)) == start + 5, process)
            workers = workers_of(process.pid)
            assert len(workers) == 2
            if victim == "worker":
                os.kill(workers[0], signal.SIGKILL)
                # It goes on with new workers; three runs have begun, and one of them again later.
                wait_until(lambda start=before: len(begun(log)) == start + 6, process)
                tickets.give(3)
                process.lines("finished", 3)
                done += 3
                workers += workers_of(process.pid)
            process.kill()
        wait_for_the_end_of(workers)
        after = rows(store)
        assert after[: len(kept)] == kept
        assert len(after) == len(kept) + done
        # What the store had was not begun again.
        stored = {tuple(json.loads(each)) for _, each, _ in kept}
        assert not stored & set(begun(log)[before:])
    status = run_study(study, store=store, jobs=1)
    assert status.failures == [] and status.done == 24
    assert tables(study, store) == undisturbed
    keys = [key for key, *_ in rows(store)]
    assert sorted(keys) == sorted(map(key_of, plan_of(study)))


def rows(store):
    if not store.exists():
        return []
    with Store(store) as runs:
        return [
            (run.key, json.dumps(place(run.specification)), json.dumps(run.result))
            for run in runs.runs()
        ]


@kills
@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_ends_the_workers(undisturbed, tmp_path):
    path, store = written(tmp_path), tmp_path / "runs.sqlite"
    tickets = Tickets(tmp_path / "tickets", 2)
    variables = {TICKETS: tickets.folder}
    with runner(path, store, variables=variables, start_new_session=True) as process:
        process.lines("finished", 2)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        with pytest.raises(BadInput, match=f"process {process.pid}"), only_one(store):
            pass
        # A terminal sends the signal to all processes of the command.
        os.killpg(process.pid, signal.SIGINT)
        assert process.rest().splitlines()[-1] == "stopped"
        assert "Traceback" not in process.complaints()
    assert not any(map(is_running, workers))
    study = read_study(path)
    assert status_of(study, store).done == 2
    run_study(study, store=store, jobs=1)
    assert tables(study, store) == undisturbed


@kills
def test_ctrl_c_ends_the_command_with_130_and_the_same_command_goes_on(tmp_path, monkeypatch):
    path, store, log = written(tmp_path), tmp_path / "runs.sqlite", tmp_path / "log"
    command = "import small_study; from hitrate_lab.cli.study import study_app; study_app()"
    words = ["run", path, "--jobs", 1, "--store", store]
    tickets = Tickets(tmp_path / "tickets", 2)
    log.touch()
    monkeypatch.setenv(small_study.LOG, str(log))
    monkeypatch.setenv(TICKETS, str(tickets.folder))
    with Watched([sys.executable, "-c", command, *words], env=environment()) as process:
        # Two are done, the third waits.
        wait_until(lambda: len(begun(log)) == 3, process)
        process.send_signal(signal.SIGINT)
        out, err = process.rest(), process.complaints()
        assert process.returncode == 130
    assert err.splitlines()[0].startswith("small: 0 of 24 runs")
    assert err.splitlines()[-1].startswith("hitrate: stopped; what is done is kept")
    assert "small: 2 of 24 runs done" in out
    tickets.no_more_needed()
    again = CliRunner().invoke(study_app, [*map(str, words)])
    assert again.exit_code == 0, again.stderr
    assert "small: 24 of 24 runs done" in again.stdout
    assert len(begun(log)) == 3 + 22


@kills
@pytest.mark.slow
def test_a_run_that_kills_its_process_is_lost_alone_and_the_next_call_begins_it_again(tmp_path):
    there = tmp_path / "there"
    there.touch()
    path = written(tmp_path, second=f'dies = "{there}"', seeds=1)
    study, store = read_study(path), tmp_path / "runs.sqlite"
    events = []
    status = run_study(study, store=store, jobs=2, observer=events.append)
    assert (status.done, status.failed, status.missing, status.lost) == (2, 0, 2, 2)
    told = [event for event in events if event.kind == "failed"]
    assert [event.specification["method"] for event in told] == ["nine", "nine"]
    assert all("the process that ran it died" in event.error for event in told)
    ended = CliRunner().invoke(study_app, ["run", str(path), "--store", str(store)])
    assert ended.exit_code == 1 and "2 runs were lost with the process" in ended.stderr
    there.unlink()
    status = run_study(study, store=store, jobs=2)
    assert (status.done, status.failed, status.lost) == (4, 0, 0)
    one, nine = (tables(study, store)[0]["rows"][0]["cells"][name] for name in ("one", "nine"))
    assert one["n"] == nine["n"] == 1


def test_a_run_that_raises_is_kept_with_its_traceback_and_retried_on_request(tmp_path):
    there = tmp_path / "there"
    there.touch()
    path = written(tmp_path, first=f'raises = "{there}"', seeds=2)
    study, store = read_study(path), tmp_path / "runs.sqlite"
    events = []
    status = run_study(study, store=store, jobs=1, observer=events.append)
    assert (status.planned, status.done, status.failed, status.missing) == (8, 4, 4, 0)
    assert status.data_sets["iris"] == {"planned": 4, "done": 2, "failed": 2}
    assert {event.error for event in events if event.kind == "failed"} == {
        "ArithmeticError: went wrong"
    }
    failure = status.failures[0]
    assert failure["run"] == "iris, one, seed 0"
    assert "small_study.py" in failure["traceback"]
    there.unlink()
    assert run_study(study, store=store, jobs=1).done == 4
    assert run_study(study, store=store, jobs=1, retry=True).done == 8


def test_status_of_a_study_that_has_not_begun_makes_no_file(study, tmp_path):
    status = status_of(study, tmp_path / "nothing.sqlite")
    assert (status.planned, status.done, status.missing) == (24, 0, 24)
    assert not (tmp_path / "nothing.sqlite").exists()
    assert "0 of 24 runs" in markdown(document(study, tmp_path / "nothing.sqlite"))
    assert not (tmp_path / "nothing.sqlite").exists()


def test_jobs_and_clusters_that_make_no_sense_are_refused(study, tmp_path):
    store = tmp_path / "runs.sqlite"
    with pytest.raises(BadInput, match="jobs=0: needs 1 or more"):
        run_study(study, store=store, jobs=0)
    with pytest.raises(BadInput, match="give one of the two"):
        run_study(study, store=store, jobs=2, cluster="tcp://127.0.0.1:1")


@kills
@pytest.mark.slow
def test_a_cluster_finishes_the_study_when_one_of_its_workers_is_killed(undisturbed, tmp_path):
    pytest.importorskip("distributed")
    path, store = written(tmp_path), tmp_path / "runs.sqlite"
    tickets = Tickets(tmp_path / "tickets", 4)
    cluster = Cluster(tmp_path, workers=2, **{TICKETS: tickets.folder})
    with cluster as (address, workers), runner(path, store, 0, address) as process:
        process.lines("finished", 4)
        workers[0].kill()
        tickets.no_more_needed()
        out = process.rest()
        assert process.returncode == 0, process.complaints()
    assert out.splitlines()[-1] == "ended 24 0"
    study = read_study(path)
    assert tables(study, store) == undisturbed
    assert len(rows(store)) == 24


@kills
@pytest.mark.slow
def test_a_run_that_kills_the_workers_of_a_cluster_is_the_only_one_that_is_lost(tmp_path):
    pytest.importorskip("distributed")
    there, go = tmp_path / "there", tmp_path / "go"
    there.touch()
    # Dask blames all that a worker has: the others are done when these die.
    second = f'dies = "{there}"\nafter = "{go}"'
    path, store = written(tmp_path, second=second, seeds=1), tmp_path / "runs.sqlite"
    # Else each has to kill four workers before Dask gives up.
    variables = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": 0}
    cluster = Cluster(tmp_path, workers=3, **variables)
    with cluster as (address, _), runner(path, store, 0, address) as process:
        process.lines("finished", 2)
        go.touch()
        out = process.rest()
        assert process.returncode == 0, process.complaints()
    assert out.splitlines()[-1] == "ended 2 0"
    assert sum(line.startswith("failed") for line in out.splitlines()) == 2
    status = status_of(read_study(path), store)
    assert (status.missing, status.failures) == (2, [])
