"""The command `hitrate`, as a process of its own."""

import contextlib
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fuzzed_csv import TARGET, fuzzed_csv
from typer.testing import CliRunner

from hitrate_lab.cli.app import app
from hitrate_lab.protocols import one_run

QUICK = ["--models", "linear", "--folds", "3", "--repeats", "1", "--trials", "1", "--jobs", "1"]


def hitrate(*words, cwd, **more):
    """Run the command and wait for it."""
    command = [sys.executable, "-m", "hitrate_lab", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=180, **more)


def stored_runs(path):
    """How many runs a store has, also one that is being written to."""
    if not path.exists():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(path)) as store:
            return store.execute("SELECT count(*) FROM runs").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.fixture
def table(tmp_path):
    """A small table with numbers, categories and gaps, and some noise."""
    path = tmp_path / "sales.csv"
    rows = ["won,price,region,note"]
    for k in range(60):
        price = "" if k % 17 == 0 else str(k % 13)
        won = "yes" if (k % 13 > 6) != (k % 11 == 0) else "no"
        rows.append(f"{won},{price},{'north' if k % 3 else 'south'},text {k % 5}")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_compare_fit_and_predict_follow_one_another(table, tmp_path):
    compared = hitrate("compare", table, "--target", "won", *QUICK, cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert "logistic regression" in compared.stdout
    assert "linear, EXACT" in compared.stdout
    assert f"Report: {Path('hitrate-sales') / 'report.html'}" in compared.stdout
    document = json.loads((tmp_path / "hitrate-sales" / "comparison.json").read_text())
    assert document["complete"] and document["done"] == 6
    assert document["advice"] in compared.stdout.replace("\n", " ")
    page = (tmp_path / "hitrate-sales" / "report.html").read_text()
    assert document["advice"] in page

    fitted = hitrate("fit", table, "--target", "won", "--out", "model", cwd=tmp_path)
    assert fitted.returncode == 0, fitted.stderr
    predicted = hitrate("predict", "model", table, "--out", "p.csv", cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "prediction,p(no),p(yes)"
    assert len(lines) == 61
    for line in lines[1:]:
        label, *shares = line.split(",")
        assert abs(sum(map(float, shares)) - 1) < 1e-4
        assert label in ("no", "yes")


def test_json_is_all_that_is_printed(table, tmp_path):
    compared = hitrate("compare", table, "--target", "won", *QUICK, "--json", cwd=tmp_path)
    document = json.loads(compared.stdout)
    assert document["format"] == "hitrate comparison"
    kept = json.loads((tmp_path / "hitrate-sales" / "comparison.json").read_text())
    assert kept["methods"] == document["methods"]

    run = CliRunner().invoke(
        app, ["fit", str(table), "--target", "won", "--out", str(tmp_path / "m"), "--json"]
    )
    assert json.loads(run.stdout)["classes"] == ["no", "yes"]
    words = ["predict", tmp_path / "m", table, "--out", tmp_path / "p.tsv", "--json"]
    run = CliRunner().invoke(app, [str(word) for word in words])
    found = json.loads(run.stdout)
    assert found["rows"] == 60 == sum(found["counts"].values())
    right = sum(
        line.split("\t")[0] == row.split(",")[0]
        for line, row in zip(
            (tmp_path / "p.tsv").read_text().splitlines()[1:],
            table.read_text().splitlines()[1:],
            strict=True,
        )
    )
    assert found["accuracy"] == pytest.approx(right / 60)


def test_the_same_command_runs_nothing_twice(table, tmp_path):
    words = ("compare", table, "--target", "won", *QUICK, "--json")
    first = json.loads(hitrate(*words, cwd=tmp_path).stdout)
    again = json.loads(hitrate(*words, cwd=tmp_path).stdout)
    # Seconds of a run that was done again would differ.
    assert again["methods"] == first["methods"]
    more = json.loads(hitrate(*words, "--repeats", "2", cwd=tmp_path).stdout)
    before = {method["name"]: method["folds"] for method in first["methods"]}
    assert {m["name"]: m["folds"][:3] for m in more["methods"]} == before


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing there")
def test_ctrl_c_keeps_what_is_done(tmp_path):
    command = [sys.executable, "-m", "hitrate_lab", "compare", "car", "--jobs", "1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    folder = tmp_path / "hitrate-car"
    while not stored_runs(folder / "runs.sqlite"):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from here" in err
    assert "Traceback" not in err
    document = json.loads((folder / "comparison.json").read_text())
    assert not document["complete"]
    assert 0 < document["done"] < document["planned"] == 40
    assert "Report" in out
    assert (folder / "report.html").exists()


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing there")
def test_ctrl_c_during_a_fit_leaves_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pressed = []

    def press():
        pressed.append(os.kill(os.getpid(), signal.SIGINT))

    # Pressed while a network trains, which would be content to stop there.
    original = one_run.best_candidate

    def choose(*args):
        threading.Timer(1.0, press).start()
        return original(*args)

    monkeypatch.setattr("hitrate_lab.protocols.one_run.best_candidate", choose)
    run = CliRunner().invoke(app, ["fit", "digits", "--method", "mlp/exact", "--out", "model"])
    assert pressed == [None]
    assert run.exit_code == 130, run.stderr
    assert run.stdout == ""
    assert run.stderr.splitlines()[-1] == "hitrate: stopped"
    assert files_in(tmp_path) == []


def test_the_ranking_is_never_cut(table, tmp_path):
    narrow = {**os.environ, "COLUMNS": "40"}
    run = hitrate("compare", table, "--target", "won", *QUICK, cwd=tmp_path, env=narrow)
    assert "…" not in run.stdout
    document = json.loads((tmp_path / "hitrate-sales" / "comparison.json").read_text())
    for method in document["methods"]:
        (line,) = [line for line in run.stdout.splitlines() if f"  {method['label']} " in line]
        assert f"{100 * method['accuracy']['mean']:.2f} %" in line
        assert line.endswith(" s")


def test_a_reader_that_has_gone_is_no_failure(table, tmp_path):
    words = f"{sys.executable} -m hitrate_lab compare {table} --target won {' '.join(QUICK)}"
    quiet = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | true"],
        cwd=tmp_path,
        env=quiet,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "Error" not in run.stderr
    assert (tmp_path / "hitrate-sales" / "report.html").exists()


def test_labels_that_a_terminal_would_act_on_are_spelt_out(tmp_path):
    path = tmp_path / "[final] sales.csv"
    rows = [f"{k % 7},{chr(27)}[31mred" if k % 2 else f"{k % 7 + 9},blau\u00e4" for k in range(40)]
    path.write_text("\n".join(["x,y", *rows]) + "\n", encoding="utf-8")
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = (path.name, "--target", "y", "--method", "linear/cross_entropy", "--out", "m")
    fitted = hitrate("fit", *words, cwd=tmp_path, env=plain)
    assert fitted.returncode == 0, fitted.stderr
    assert "[final] sales" in fitted.stdout
    run = hitrate("predict", "m", path.name, "--out", "p.csv", cwd=tmp_path, env=plain)
    assert run.returncode == 0, run.stderr
    assert "\x1b" not in run.stdout
    assert r"\x1b[31mred 20" in run.stdout
    assert r"blau\xe4 20" in run.stdout


def test_a_report_of_another_table_is_not_replaced_silently(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, said in (("iris", False), ("iris", False), ("wine", True)):
        run = CliRunner().invoke(app, ["compare", name, *QUICK, "--out", "here"])
        assert run.exit_code == 0, run.stderr
        assert ("will be replaced" in run.stderr) is said


def test_several_tables_are_ranked_together(tmp_path):
    words = ("compare", "iris", "wine", *QUICK)
    run = hitrate(*words, "--out", "both", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    document = json.loads((tmp_path / "both" / "comparison.json").read_text())
    assert [each["table"]["name"] for each in document["comparisons"]] == ["iris", "wine"]
    assert "critical" in (tmp_path / "both" / "report.html").read_text().lower()


BAD = {
    "a missing file": (["compare", "nowhere.csv", "--target", "y"], "nowhere.csv"),
    "a name that is not known": (["compare", "nothing"], "nothing"),
    "no target": (["compare", "sales.csv"], "won"),
    "a misspelt target": (["compare", "sales.csv", "--target", "wom"], "won"),
    "an unknown model": (["compare", "sales.csv", "--target", "won", "--models", "oak"], "oak"),
    "an unknown loss": (["compare", "sales.csv", "--target", "won", "--losses", "x"], "'x'"),
    "no model": (["compare", "sales.csv", "--target", "won", "--models", ","], "--models"),
    "too few folds": (["compare", "sales.csv", "--target", "won", "--folds", "1"], "folds"),
    "no trials": (["compare", "sales.csv", "--target", "won", "--trials", "0"], "trials"),
    "no jobs": (["compare", "sales.csv", "--target", "won", "--jobs", "0"], "jobs"),
    "an endless budget": (["compare", "iris", "--time-budget", "inf"], "inf"),
    "a negative seed": (["fit", "iris", "--seed", "-1", "--out", "m"], "seed"),
    "the same table twice": (["compare", "iris", "iris"], "iris"),
    "a folder that is a file": (["compare", "iris", "--out", "sales.csv"], "sales.csv"),
    "a model from nowhere": (["predict", "none", "sales.csv", "--out", "p.csv"], "none"),
    "a foreign model folder": (["predict", ".", "sales.csv", "--out", "p.csv"], "manifest"),
    "an unknown method": (["fit", "iris", "--method", "iris", "--out", "m"], "iris"),
    "a folder in use": (["fit", "iris", "--out", "."], "not be written over"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(case, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HITRATE_DATA", str(tmp_path))
    words, named = BAD[case]
    run = CliRunner().invoke(app, words)
    assert run.exit_code == 2, run.output
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert line.startswith("hitrate: ")
    assert named in line
    assert files_in(tmp_path) == ["sales.csv"]


def test_predict_says_which_column_is_missing_and_which_cell_is_wrong(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "sales.csv", "--target", "won", "--method", "linear/cross_entropy"]
    assert CliRunner().invoke(app, [*words, "--out", "model"]).exit_code == 0
    before = files_in(tmp_path)
    for text, named in (("region,note\nnorth,a\n", "price"), ("price,region,note\nx,a,b\n", "'x'")):
        Path("new.csv").write_text(text)
        run = CliRunner().invoke(app, ["predict", "model", "new.csv", "--out", "p.csv"])
        assert run.exit_code == 2
        (line,) = run.stderr.splitlines()
        assert named in line
    assert files_in(tmp_path) == sorted([*before, "new.csv"])
    # A category that was never seen, and a column too many, are no reason to stop.
    Path("new.csv").write_text("price,region,note,more\n1,moon,b,9\n")
    run = CliRunner().invoke(app, ["predict", "model", "new.csv", "--out", "p.csv"])
    assert run.exit_code == 0, run.stderr


def test_a_changed_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "iris", "--method", "linear/cross_entropy", "--out", "model"]
    assert CliRunner().invoke(app, words).exit_code == 0
    path = Path("model/model.json")
    path.write_text(path.read_text().replace("iris", "Iris"))
    run = CliRunner().invoke(app, ["predict", "model", "iris", "--out", "p.csv"])
    assert run.exit_code == 2
    assert "model.json" in run.stderr
    assert not Path("p.csv").exists()


def test_300_fuzzed_files_give_a_model_or_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fits = 0
    for seed in range(300):
        data, suffix = fuzzed_csv(seed)
        source = Path(f"fuzz{seed}{suffix}")
        source.write_bytes(data)
        words = ["fit", str(source), "--target", TARGET, "--method", "linear/cross_entropy"]
        run = CliRunner().invoke(app, [*words, "--trials", "1", "--out", "model"])
        said = [line for line in run.stderr.splitlines() if "note: " not in line]
        if run.exit_code == 0:
            fits += 1
            run = CliRunner().invoke(app, ["predict", "model", str(source), "--out", "p.csv"])
            assert run.exit_code == 0, (seed, run.stderr)
            for path in sorted(Path("model").iterdir()):
                path.unlink()
            Path("model").rmdir()
            Path("p.csv").unlink()
        else:
            assert run.exit_code == 2, (seed, run.stderr, run.exception)
            assert len(said) == 1, (seed, said)
            assert said[0].startswith("hitrate: ")
        assert files_in(tmp_path) == [source.name], seed
        source.unlink()
    # Both happen often: neither half of this test is empty.
    assert 60 < fits < 240


def test_a_fault_of_ours_is_one_line_and_exit_code_1(monkeypatch):
    import hitrate_lab.data

    def broken(*args, **kwargs):
        raise RuntimeError("what nobody\nthought of")

    monkeypatch.setattr(hitrate_lab.data, "read_table", broken)
    run = CliRunner().invoke(app, ["compare", "iris"])
    assert run.exit_code == 1
    first, second = run.stderr.splitlines()
    assert first == "hitrate: RuntimeError: what nobody thought of"
    assert "HITRATE_TRACEBACK=1" in second


def test_wrong_usage_is_exit_code_2_and_help_is_0(tmp_path):
    assert CliRunner().invoke(app, ["compare", "iris", "--no-such-option"]).exit_code == 2
    assert CliRunner().invoke(app, ["compare"]).exit_code == 2
    for words in (["--help"], ["compare", "--help"], ["--version"]):
        run = CliRunner().invoke(app, words)
        assert run.exit_code == 0
        assert run.stdout


def test_the_commands_of_the_page_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    # All blocks are run by the test of pages; the first one writes the table.
    python, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(python, "command_line.md", "exec"), {})
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in block.splitlines()
    ]
    assert [line.split()[1] for line in lines] == ["compare", "fit", "predict"]
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "hitrate"
        run = hitrate(*words, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    assert {"hitrate-sales", "model", "predictions.csv"} <= set(files_in(tmp_path))
