"""Studies that are disturbed in every way end as if they had not been."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_study
from small_study import written

from hitrate_lab.data import BadInput
from hitrate_lab.protocols.lock import only_one
from hitrate_lab.store import Store, key_of
from hitrate_lab.study import document, markdown, plan_of, read_study, run_study, status_of

kills = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")
HERE = Path(__file__).parent

RUNNER = """
import sys
import small_study
from hitrate_lab.study import read_study, run_study

if __name__ == "__main__":
    path, store, jobs, cluster = sys.argv[1:]
    try:
        status = run_study(
            read_study(path),
            store=store,
            jobs=int(jobs) or None,
            cluster=cluster or None,
            observer=lambda event: print(event.kind, event.done, flush=True),
        )
        print("ended", status.done, status.failed, flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


def environment(**more):
    """Variables with which another process imports what this one does."""
    paths = os.pathsep.join(filter(None, [str(HERE), *sys.path]))
    return {**os.environ, "PYTHONPATH": paths, **more}


def runner(path, store, jobs=2, cluster="", log=None, **options):
    """A study in a process of its own."""
    more = {} if log is None else {small_study.LOG: str(log)}
    return subprocess.Popen(
        [sys.executable, "-c", RUNNER, path, store, str(jobs), cluster],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**more),
        **options,
    )


def wait_for(process, kind, count=1):
    """Read what a process says until something has happened so many times."""
    while count:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        count -= line.startswith(kind)


def workers_of(pid):
    """Processes of joblib whose parent this is."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=2) for line in listing.splitlines())
    return [int(row[0]) for row in rows if int(row[1]) == pid and "popen_loky" in row[2]]


def is_running(pid):
    listing = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return bool(listing) and not listing.startswith("Z")


def begun(log):
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def place(specification):
    return tuple(specification[key] for key in ("data_set", "method", "seed"))


def tables(study, store):
    return document(study, store)["tables"]


class Cluster:
    """A Dask scheduler and workers, processes of this machine."""

    def __init__(self, folder, workers):
        self.folder, self.count, self.processes = folder, workers, []

    def start(self, *words):
        with (self.folder / f"dask-{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment(),
            )
        self.processes.append(process)
        return process

    def __enter__(self):
        file = self.folder / "scheduler.json"
        common = ["--no-dashboard"]
        self.start(
            "dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--scheduler-file",
            file,
            *common,
        )
        ends = time.monotonic() + 30
        while not file.exists() and time.monotonic() < ends:
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        # Without a nanny, which would start a killed worker again.
        options = ["--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", *common]
        workers = [self.start("dask_worker", address, *options) for _ in range(self.count)]
        return address, workers

    def __exit__(self, *error):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def study(tmp_path):
    return read_study(written(tmp_path))


@pytest.fixture
def undisturbed(tmp_path):
    """The tables of the same study, run here and at once; pauses change no number."""
    study = read_study(written(tmp_path / "undisturbed"))
    run_study(study, store=tmp_path / "undisturbed.sqlite", jobs=1)
    return tables(study, tmp_path / "undisturbed.sqlite")


def test_a_study_runs_once_and_a_second_call_has_nothing_to_do(study, tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv(small_study.LOG, str(log))
    events = []
    status = run_study(study, store=tmp_path / "runs.sqlite", jobs=1, observer=events.append)
    assert (status.planned, status.done, status.failed, status.missing) == (24, 24, 0, 0)
    assert [event.kind for event in events] == ["planned"] + 24 * ["finished"]
    assert [event.done for event in events] == list(range(25))
    assert events[0].left is None and events[-1].left == 0
    assert sorted(begun(log)) == sorted(map(place, plan_of(study)))
    again = run_study(study, store=tmp_path / "runs.sqlite", jobs=1)
    assert again == status
    assert len(begun(log)) == 24


def test_the_time_left_is_guessed_from_runs_that_are_alike(tmp_path):
    study = read_study(written(tmp_path, pause=0.01))
    events = []
    run_study(study, store=tmp_path / "runs.sqlite", jobs=1, observer=events.append)
    for event in events[1:]:
        assert event.left == pytest.approx(0.01 * (24 - event.done))


def test_two_processes_find_what_one_finds(study, undisturbed, tmp_path):
    run_study(study, store=tmp_path / "runs.sqlite", jobs=2)
    assert tables(study, tmp_path / "runs.sqlite") == undisturbed


@kills
def test_nothing_is_lost_or_doubled_by_killing_runner_and_workers(undisturbed, tmp_path):
    path = written(tmp_path, pause=0.5)
    study, store, log = read_study(path), tmp_path / "runs.sqlite", tmp_path / "log"
    for victim in ("runner", "worker", "runner"):
        kept = rows(store)
        before = len(begun(log)) if log.exists() else 0
        process = runner(path, store, log=log)
        wait_for(process, "finished", 3)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        os.kill(workers[0] if victim == "worker" else process.pid, signal.SIGKILL)
        if victim == "worker":
            # It goes on with new workers.
            wait_for(process, "finished", 3)
            process.kill()
        process.communicate()
        ends = time.monotonic() + 20
        while any(map(is_running, workers)) and time.monotonic() < ends:
            time.sleep(0.05)
        assert not any(map(is_running, workers))
        after = rows(store)
        assert after[: len(kept)] == kept
        assert len(after) >= len(kept) + 3
        # What the store had was not begun again.
        stored = {tuple(json.loads(each)) for _, each, _ in kept}
        assert not stored & set(begun(log)[before:])
    status = run_study(study, store=store, jobs=2)
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
def test_ctrl_c_keeps_what_is_done_and_ends_the_workers(undisturbed, tmp_path):
    path, store = written(tmp_path, pause=0.5), tmp_path / "runs.sqlite"
    process = runner(path, store, start_new_session=True)
    wait_for(process, "finished", 2)
    workers = workers_of(process.pid)
    with pytest.raises(BadInput, match=f"process {process.pid}"), only_one(store):
        pass
    # A terminal sends the signal to all processes of the command.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out.splitlines()[-1] == "stopped" and "Traceback" not in err
    assert not any(map(is_running, workers))
    study = read_study(path)
    assert 2 <= status_of(study, store).done < 24
    run_study(study, store=store, jobs=1)
    assert tables(study, store) == undisturbed


@kills
def test_ctrl_c_ends_the_command_with_130_and_the_same_command_goes_on(tmp_path):
    path, store = written(tmp_path, pause=0.5), tmp_path / "runs.sqlite"
    command = "import small_study; from hitrate_lab.cli.study import study_app; study_app()"
    words = [sys.executable, "-c", command, "run", path, "--jobs", "1", "--store", store]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    study = read_study(path)
    ends = time.monotonic() + 30
    while status_of(study, store).done < 2 and time.monotonic() < ends:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.splitlines()[0].startswith("small: 0 of 24 runs")
    assert err.splitlines()[-1].startswith("hitrate: stopped; what is done is kept")
    assert f"small: {status_of(study, store).done} of 24 runs done" in out
    again = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=60)
    assert again.returncode == 0, again.stderr
    assert "small: 24 of 24 runs done" in again.stdout


@kills
def test_a_run_that_kills_its_process_is_the_only_one_that_fails(tmp_path):
    there = tmp_path / "there"
    there.touch()
    path = written(tmp_path, second=f'dies = "{there}"', seeds=1)
    study, store = read_study(path), tmp_path / "runs.sqlite"
    status = run_study(study, store=store, jobs=2)
    assert (status.done, status.failed, status.missing) == (2, 2, 0)
    assert all("nine" in failure["run"] for failure in status.failures)
    assert all("the process that ran it died" in failure["error"] for failure in status.failures)
    # Failures stay until they are asked for.
    assert run_study(study, store=store, jobs=2).failed == 2
    there.unlink()
    status = run_study(study, store=store, jobs=2, retry=True)
    assert (status.done, status.failed) == (4, 0)
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
def test_a_cluster_finishes_the_study_when_one_of_its_workers_is_killed(undisturbed, tmp_path):
    pytest.importorskip("distributed")
    path, store = written(tmp_path, pause=0.15), tmp_path / "runs.sqlite"
    with Cluster(tmp_path, workers=2) as (address, workers):
        process = runner(path, store, jobs=0, cluster=address)
        wait_for(process, "finished", 4)
        workers[0].kill()
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert out.splitlines()[-1] == "ended 24 0"
    study = read_study(path)
    assert tables(study, store) == undisturbed
    assert len(rows(store)) == 24


@kills
def test_a_run_that_kills_the_workers_of_a_cluster_is_the_only_one_that_fails(
    tmp_path, monkeypatch
):
    pytest.importorskip("distributed")
    # Else each has to kill four workers before Dask gives up.
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    there = tmp_path / "there"
    there.touch()
    path, store = written(tmp_path, second=f'dies = "{there}"', seeds=1), tmp_path / "runs.sqlite"
    with Cluster(tmp_path, workers=3) as (address, _):
        out, err = runner(path, store, jobs=0, cluster=address).communicate(timeout=90)
    assert out.splitlines()[-1] == "ended 2 2", err
    failures = status_of(read_study(path), store).failures
    assert [failure["run"] for failure in failures] == ["iris, nine, seed 0", "wine, nine, seed 0"]
    assert all("the process that ran it died" in failure["error"] for failure in failures)
