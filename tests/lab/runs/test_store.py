"""The file of runs: nothing lost, nothing twice, nothing overwritten."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hitrate_lab.bad_input import BadInput
from hitrate_lab.runs.environment import commit_of, versions
from hitrate_lab.runs.lock import only_one
from hitrate_lab.runs.store import Store, canonical, key_of

SPEC = {"method": "linear/exact", "fold": 3, "rate": 0.1}

WRITER = """
import sys
from hitrate_lab.runs.store import Store

path, start, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Store(path) as store:
    for number in range(start, start + count):
        added = store.add({"number": number}, {"writer": start, "filling": "x" * 2000})
        print(number, added, flush=True)
"""


def writer(path, start, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(start), str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def acknowledged(process):
    """Numbers that a writer was told are kept; a line cut off by a kill does not count."""
    with process:
        lines = [line.split() for line in process.stdout if line.endswith("\n")]
    return {int(number) for number, added in lines if added == "True"}


def test_what_was_added_is_there_when_the_file_is_opened_again(tmp_path):
    path = tmp_path / "new" / "folder" / "runs.sqlite"
    with Store(path) as store:
        assert store.add(SPEC, {"accuracy": 0.5, "labels": ["ä", None]})
    with Store(path) as store:
        (run,) = store.runs()
    assert run.specification == SPEC
    assert run.result == {"accuracy": 0.5, "labels": ["ä", None]}
    assert {"python", "hitrate", "torch", "numpy", "scikit-learn"} <= run.versions.keys()
    assert time.strptime(run.finished, "%Y-%m-%dT%H:%M:%SZ")


def test_a_key_is_the_hash_of_the_specification_whatever_its_order():
    assert key_of(SPEC) == key_of(dict(reversed(SPEC.items())))
    text = '{"fold":3,"method":"linear/exact","rate":0.1}'
    assert canonical(SPEC) == text
    assert key_of(SPEC) == hashlib.sha256(text.encode()).hexdigest()
    assert key_of(SPEC) != key_of({**SPEC, "fold": 4})


def test_a_second_result_is_refused_and_the_first_stays(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        assert store.add(SPEC, {"accuracy": 0.5}) is True
        before = store.runs()
        assert store.add(SPEC, {"accuracy": 0.9}) is False
        assert store.runs() == before


def test_numbers_that_json_has_not_are_refused_and_nothing_is_kept(tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        with pytest.raises(ValueError, match="JSON"):
            store.add(SPEC, {"accuracy": float("nan")})
        assert store.runs() == []
        assert store.add(SPEC, {"accuracy": 1.0})


def test_it_knows_what_is_missing_from_a_plan_in_the_order_of_the_plan(tmp_path):
    plan = [{"fold": fold} for fold in (3, 1, 2, 0)]
    with Store(tmp_path / "runs.sqlite") as store:
        for fold in (2, 3, 9):
            store.add({"fold": fold}, {"accuracy": fold})
        assert store.missing(plan) == [{"fold": 1}, {"fold": 0}]
        assert [run.result["accuracy"] for run in store.runs(plan)] == [3, 2]
        assert [run.result["accuracy"] for run in store.runs()] == [2, 3, 9]


def test_failures_are_kept_and_missing_only_when_they_are_to_be_retried(tmp_path):
    plan = [{"fold": 0}, {"fold": 1}]
    with Store(tmp_path / "runs.sqlite") as store:
        store.add_failure(plan[0], "ValueError: first", "Traceback ...")
        store.add_failure(plan[0], "ValueError: second", "Traceback ...")
        assert store.missing(plan) == [plan[1]]
        assert store.missing(plan, retry=True) == plan
        (failure,) = store.failures(plan)
        assert (failure.specification, failure.error) == (plan[0], "ValueError: second")
        store.add(plan[0], {"accuracy": 1.0})
        assert store.failures(plan) == []
        assert store.missing(plan, retry=True) == [plan[1]]


def test_several_writers_at_once_lose_nothing_and_write_nothing_twice(tmp_path):
    path = tmp_path / "runs.sqlite"
    # Numbers 20 to 39 are written by both.
    writers = [writer(path, 0, 40), writer(path, 20, 40)]
    added = [acknowledged(each) for each in writers]
    assert all(each.returncode == 0 for each in writers)
    assert added[0] | added[1] == set(range(60))
    assert not added[0] & added[1]
    with Store(path) as store:
        kept = {run.specification["number"]: run.result["writer"] for run in store.runs()}
    assert kept == {n: 0 if n in added[0] else 20 for n in range(60)}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_what_was_acknowledged_survives_a_kill(tmp_path):
    path = tmp_path / "runs.sqlite"
    told = set()
    for start, lines in ((0, 1), (1_000_000, 30)):
        # More than it can write before it is killed, which is while it writes.
        process = writer(path, start, 1_000_000)
        told |= {int(process.stdout.readline().split()[0]) for _ in range(lines)}
        process.kill()
        told |= acknowledged(process)
        with Store(path) as store:
            kept = {run.specification["number"] for run in store.runs()}
        assert told <= kept
    assert len(told) >= 31


def test_a_reader_sees_what_is_committed_while_another_writes(tmp_path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as one, Store(path) as other:
        one.add({"fold": 0}, {})
        assert len(other.runs()) == 1
        one.add({"fold": 1}, {})
        assert len(other.runs()) == 2


def complaint(path):
    with pytest.raises(BadInput) as caught, Store(path) as store:
        store.runs()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path):
    path = tmp_path / "sales.csv"
    path.write_text("buying,maint\nlow,high\n" * 100)
    before = path.read_bytes()
    assert "no file of runs" in complaint(path)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE customers (name TEXT)")
        other.commit()
    before = path.read_bytes()
    assert "another program's" in complaint(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        for number in range(50):
            store.add({"number": number}, {"filling": "x" * 1000})
    content = bytearray(path.read_bytes())
    # Every page but the first, which has the tables' names.
    content[4096:] = bytes(len(content) - 4096)
    path.write_bytes(content)
    assert "damaged" in complaint(path)


def test_a_file_of_a_later_format_is_refused(tmp_path):
    path = tmp_path / "runs.sqlite"
    Store(path).close()
    with contextlib.closing(sqlite3.connect(path)) as later:
        later.execute("PRAGMA user_version = 9")
    assert "format 9" in complaint(path)


def test_a_folder_in_the_place_of_the_file_is_refused_in_one_line(tmp_path):
    assert "cannot be used" in complaint(tmp_path)


def test_a_row_is_plain_json_for_other_tools(tmp_path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        store.add(SPEC, {"accuracy": 0.5})
    with contextlib.closing(sqlite3.connect(path)) as plain:
        ((specification, result),) = plain.execute("SELECT specification, result FROM runs")
    assert json.loads(specification) == SPEC
    assert json.loads(result) == {"accuracy": 0.5}


def git(folder, *words):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", "-C", folder, *who, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_checkout_and_tells_of_changes(tmp_path):
    def commit():
        commit_of.cache_clear()
        return commit_of(tmp_path)

    code = tmp_path / "src" / "code.py"
    code.parent.mkdir()
    code.write_text("1")
    assert commit() is None
    git(tmp_path, "init")
    # A repository without a commit.
    assert commit() is None
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "-m", "First")
    first = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert commit() == first
    # What is not code changes no result.
    (tmp_path / "notes.md").write_text("1")
    assert commit() == first
    code.write_text("2")
    assert commit() == f"{first}+changes"
    git(tmp_path, "commit", "-am", "Second")
    assert commit() == git(tmp_path, "rev-parse", "HEAD")[:12] != first
    (code.parent / "more.py").touch()
    assert commit().endswith("+changes")
    # An installed hitrate in the folder of someone else's repository.
    assert commit_of(code.parent) is None


def test_versions_have_the_commit_of_a_checkout_and_none_elsewhere(tmp_path):
    root = Path(__file__).resolve().parents[3]
    assert versions().get("commit") == commit_of(root)
    package = tmp_path / "site-packages" / "hitrate_lab"
    shutil.copytree(root / "src" / "hitrate_lab", package)
    script = "from hitrate_lab.runs.environment import versions; print(versions())"
    paths = os.pathsep.join([str(package.parent), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
    )
    assert "'hitrate'" in run.stdout
    assert "commit" not in run.stdout


def test_a_store_in_use_is_refused_in_words_that_fit_comparisons_and_studies(tmp_path):
    path = tmp_path / "runs.sqlite"
    with only_one(path), pytest.raises(BadInput) as caught, only_one(path):
        pass
    assert str(caught.value) == (
        f"{path} is in use by another comparison or study (process {os.getpid()}); "
        "wait for its end, or name another file"
    )


def test_all_runs_of_a_file_are_kept_or_none(tmp_path):
    runs = [
        {"specification": {"seed": k}, "result": {}, "versions": {"torch": "1"}} for k in (0, 1)
    ]
    with Store(tmp_path / "runs.sqlite") as store:
        with pytest.raises(KeyError):
            store.add_all([*runs, {"specification": {}}])
        assert store.runs() == []
        assert (store.add_all(runs), store.add_all(runs)) == (2, 0)
        assert [run.versions for run in store.runs()] == [{"torch": "1"}] * 2
