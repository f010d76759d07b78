"""Batches and needs: what is computed together, what waits for what, and all that can go wrong."""

import contextlib
import json
import os
import sqlite3

import pytest
import small_study
from batched_study import DEPTHS, BatchedStudy, written
from dask_cluster import Cluster
from typer.testing import CliRunner
from watched import HANGS

from hitrate_lab.bad_input import BadInput
from hitrate_lab.cli.study import study_app
from hitrate_lab.runs import executors
from hitrate_lab.runs.store import Store, key_of
from hitrate_lab.runs.time_left import Left
from hitrate_lab.studies import document, plan_of, read_study, run_study, status_of

kills = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")
TRIALS = {(data_set, method) for data_set in ("iris", "wine") for method in ("one", "other")}


def begun(study):
    """Batches in the order in which they began: where, stage, runs, results that they got."""
    lines = (study.path.parent / "log").read_text().splitlines()
    return [tuple(json.loads(line)) for line in lines]


def results(study, store):
    """What came of each run, in the order of the plan; the folder is no part of it."""
    with Store(store) as runs:
        found = {run.key: run.result for run in runs.runs()}
    return [found.get(key_of(spec)) for spec in plan_of(study)]


def rows(store):
    """All that the file has of each run, as it was written."""
    with contextlib.closing(sqlite3.connect(store)) as file:
        return dict((row[0], row) for row in file.execute("SELECT * FROM runs"))


def forget(store, specs):
    """As if it had been killed before these were written."""
    with contextlib.closing(sqlite3.connect(store)) as file, file:
        for spec in specs:
            assert file.execute("DELETE FROM runs WHERE key = ?", [key_of(spec)]).rowcount == 1


def of(study, stage, data_set="wine", method="one"):
    return [
        spec
        for spec in plan_of(study)
        if (spec["stage"], spec["data_set"], spec["method"]) == (stage, data_set, method)
    ]


def command(*words):
    return CliRunner().invoke(study_app, [*map(str, words)])


@pytest.fixture
def study(tmp_path):
    return read_study(written(tmp_path / "study"))


@pytest.fixture
def store(tmp_path):
    return tmp_path / "runs.sqlite"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Results of the same study, run here and at once."""
    folder = tmp_path_factory.mktemp("undisturbed")
    study = read_study(written(folder))
    run_study(study, store=folder / "runs.sqlite", jobs=1)
    return results(study, folder / "runs.sqlite")


def test_what_needs_others_begins_when_they_have_ended_and_gets_their_results(
    study, store, undisturbed
):
    events = []
    status = run_study(study, store=store, jobs=1, observer=events.append)
    assert (status.planned, status.done, status.missing, status.waiting) == (20, 20, 0, 0)
    first, last = begun(study)[:4], begun(study)[4:]
    assert {row[:2] for row in first} == {row[:2] for row in last} == TRIALS
    assert {row[2:] for row in first} == {("trial", 3, 0)}
    assert {row[2:] for row in last} == {("final", 2, 3)}
    assert [event.done for event in events if event.kind != "started"] == list(range(21))
    assert events[-1].left == 0
    assert results(study, store) == undisturbed
    for data_set, method in TRIALS:
        tried = [run for run in runs_of(study, store, "trial", data_set, method)]
        best = max(tried, key=lambda each: each["accuracy"])["depth"]
        ends = runs_of(study, store, "final", data_set, method)
        assert [each["depth"] for each in ends] == [best, best]
    cell = document(study, store)["tables"][0]["rows"][0]["cells"]["one"]
    assert cell["n"] == 2
    # There is nothing to do.
    assert run_study(study, store=store, jobs=1) == status and len(begun(study)) == 8


def runs_of(study, store, *place):
    with Store(store) as runs:
        return [run.result for run in runs.runs(of(study, *place))]


@pytest.mark.parametrize(("trouble", "kept"), [("member", 2), ("nan", 2), ("batch", 0)])
def test_runs_that_need_a_failed_one_wait_and_the_command_says_so(
    trouble, kept, study, store, undisturbed
):
    there = study.path.parent / trouble
    there.touch()
    words = ["run", study.path, "--store", store, "--jobs", "1"]
    failed = 2 * (len(DEPTHS) - kept)
    for _ in range(2):
        # Failures stay until they are asked for, and so do those that wait.
        ended = command(*words)
        assert ended.exit_code == 1 and "Next:" not in ended.stdout
        line = f"{16 - failed} of 20 runs done, {failed} failed, 4 missing, 4 of them wait"
        assert line in ended.stdout
        told = f"{failed} runs have failed; 4 runs wait for others that failed; --retry"
        assert told in ended.stderr
        assert len(begun(study)) == 6
    status = status_of(study, store)
    assert (status.failed, status.missing, status.waiting) == (failed, 4, 4)
    assert json.loads(command("status", study.path, "--store", store, "--json").stdout) == (
        status.to_json()
    )
    assert {"member": "one of them", "nan": "not JSON", "batch": "all of it"}[trouble] in (
        status.failures[0]["error"]
    )
    before = rows(store)
    assert len(before) == 16 - failed
    there.unlink()
    ended = command(*words, "--retry")
    assert ended.exit_code == 0, ended.output
    assert "20 of 20 runs done, 0 failed, 0 missing;" in ended.stdout
    assert before.items() <= rows(store).items()
    assert results(study, store) == undisturbed


def test_a_batch_of_which_a_part_was_kept_is_computed_whole_and_what_was_kept_stays(
    study, store, undisturbed
):
    run_study(study, store=store, jobs=1)
    lost = [of(study, "trial")[1], *of(study, "final", "iris")]
    forget(store, lost)
    before = rows(store)
    events = []
    status = run_study(study, store=store, jobs=1, observer=events.append)
    assert status.done == 20
    assert sorted(begun(study)[8:]) == [
        ("iris", "one", "final", 2, 3),
        ("wine", "one", "trial", 3, 0),
    ]
    # What was there is told of as such, and only then.
    assert len([event for event in events if event.stored]) == len(before)
    told = [
        event.specification for event in events if event.kind == "finished" and not event.stored
    ]
    assert sorted(map(key_of, told)) == sorted(map(key_of, lost))
    # Two batches of five runs, of the length of the others.
    assert events[0].left == pytest.approx(0.05) and events[-1].left == 0
    assert before.items() <= rows(store).items()
    assert results(study, store) == undisturbed


def test_a_batch_that_fails_the_second_time_costs_only_what_was_missing(study, store):
    run_study(study, store=store, jobs=1)
    forget(store, of(study, "trial")[:1])
    (study.path.parent / "batch").touch()
    events = []
    status = run_study(study, store=store, jobs=1, observer=events.append)
    assert (status.done, status.failed, status.missing) == (19, 1, 0)
    assert [event.kind for event in events if not event.stored] == ["planned", "started", "failed"]
    with Store(store) as runs:
        assert len(runs._rows("SELECT * FROM failures")) == 1


@kills
@pytest.mark.slow
def test_processes_find_what_one_finds_though_a_batch_is_killed_twice(study, store, undisturbed):
    # There may be more processes than batches.
    (study.path.parent / "dies").write_text("xx")
    status = run_study(study, store=store, jobs=6)
    assert (status.done, status.failures) == (20, [])
    assert not (study.path.parent / "dies").exists()
    assert begun(study).count(("wine", "one", "trial", 3, 0)) == 3
    assert results(study, store) == undisturbed


@kills
@pytest.mark.slow
def test_a_batch_that_always_kills_its_process_is_lost_whole_and_alone(study, store):
    (study.path.parent / "dies").write_text("x" * 100)
    status = run_study(study, store=store, jobs=2)
    assert (status.done, status.failed, status.lost, status.missing) == (15, 0, 3, 5)
    assert begun(study).count(("wine", "one", "trial", 3, 0)) == 3


@kills
@pytest.mark.slow
def test_batches_and_needs_work_on_a_cluster_until_it_is_lost(
    study, store, undisturbed, tmp_path, monkeypatch
):
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "PATIENCE", HANGS)
    (study.path.parent / "member").touch()
    cluster = Cluster(tmp_path, workers=2)
    with cluster as (address, _):
        status = run_study(study, store=store, cluster=address)
        assert (status.done, status.failed, status.waiting) == (14, 2, 4)
        (study.path.parent / "member").unlink()
        scheduler = cluster.processes[0]

        def observer(event):
            if event.kind == "finished" and not event.stored:
                scheduler.kill()

        with pytest.raises(BadInput, match=f"the Dask cluster at {address} is lost"):
            run_study(study, store=store, cluster=address, retry=True, observer=observer)
    # One batch was done. The other has not failed again.
    with Store(store) as runs:
        assert len(runs.runs()) == 15 and len(runs._rows("SELECT * FROM failures")) == 2
    assert run_study(study, store=store, jobs=1, retry=True).done == 20
    assert results(study, store) == undisturbed


def test_the_time_left_does_not_count_on_more_processes_than_batches():
    specs = [{"data_set": "wine", "stage": "trial", "trial": k} for k in range(6)]
    left = Left(BatchedStudy(), [], [specs[:3], specs[3:5], specs[5:]], jobs=2)

    def ended(specs, *seconds):
        left.ended(specs, [None if each is None else {"seconds": each} for each in seconds])

    assert left.seconds() is None
    ended(specs[:3], 1.0, 1.0, 4.0)
    # Three runs of two seconds in two processes; then one in one of them.
    assert left.seconds() == pytest.approx(3.0)
    ended(specs[3:5], None, 2.0)
    assert left.seconds() == pytest.approx(2.0)
    ended(specs[5:], 2.0)
    assert left.seconds() == 0


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_here_is_refused_before_anything_runs(device, study, store):
    with pytest.raises(BadInput, match=f"^device {device}: "):
        run_study(study, store=store, jobs=1, device=device)
    assert not store.exists()


def test_a_device_is_refused_by_a_study_that_cannot_use_it(tmp_path, store):
    other = read_study(small_study.written(tmp_path))
    with pytest.raises(BadInput, match=r"^device cuda: study small has no use for it"):
        run_study(other, store=store, jobs=1, device="cuda")
