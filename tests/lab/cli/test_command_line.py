"""The command `hitrate`: in this process where that will do, else as one of its own."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.fuzzed_csv import TARGET, fuzzed_csv
from typer.testing import CliRunner
from watched import TICKETS, Tickets, Watched, environment, wait_until

import hitrate.sklearn.solvers.mlp_training as network
from hitrate_lab.cli.app import app
from hitrate_lab.wording import duration

QUICK = ["--models", "linear", "--folds", "3", "--repeats", "1", "--trials", "1", "--jobs", "1"]


def hitrate(*words, cwd, **more):
    """Run the command as a process and wait for it."""
    command = [sys.executable, "-m", "hitrate_lab", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, **more)


def here(*words):
    """Run the command in this process, and in the folder that it is in."""
    return CliRunner().invoke(app, [*map(str, words)])


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


def test_compare_fit_and_predict_follow_one_another(table, tmp_path, monkeypatch):
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

    monkeypatch.chdir(tmp_path)
    fitted = here("fit", table, "--target", "won", "--out", "model")
    assert fitted.exit_code == 0, fitted.stderr
    predicted = here("predict", "model", table, "--out", "p.csv")
    assert predicted.exit_code == 0, predicted.stderr
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == "prediction,p(no),p(yes)"
    assert len(lines) == 61
    for line in lines[1:]:
        label, *shares = line.split(",")
        assert abs(sum(map(float, shares)) - 1) < 1e-4
        assert label in ("no", "yes")


def test_json_is_all_that_is_printed(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compared = here("compare", table, "--target", "won", *QUICK, "--json")
    document = json.loads(compared.stdout)
    assert document["format"] == "hitrate comparison"
    kept = json.loads((tmp_path / "hitrate-sales" / "comparison.json").read_text())
    assert kept["methods"] == document["methods"]

    run = here("fit", table, "--target", "won", "--out", "m", "--json")
    assert json.loads(run.stdout)["classes"] == ["no", "yes"]
    run = here("predict", "m", table, "--out", "p.tsv", "--json")
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


def test_the_same_command_runs_nothing_twice(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("compare", table, "--target", "won", *QUICK, "--json")
    first = json.loads(here(*words).stdout)
    again = json.loads(here(*words).stdout)
    # Seconds of a run that was done again would differ.
    assert again["methods"] == first["methods"]
    more = json.loads(here(*words, "--repeats", "2").stdout)
    before = {method["name"]: method["folds"] for method in first["methods"]}
    assert {m["name"]: m["folds"][:3] for m in more["methods"]} == before


# The command, with runs that take tickets.
HELD = """
from hitrate_lab.cli import main
from hitrate_lab.compare import comparison as runs
from watched import take_ticket

one_run = runs.one_run


def with_ticket(*arguments):
    with open("begun", "a") as log:
        log.write("x")
    take_ticket()
    return one_run(*arguments)


runs.one_run = with_ticket
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing there")
def test_ctrl_c_keeps_what_is_done(tmp_path):
    tickets, begun = Tickets(tmp_path / "tickets", 2), tmp_path / "begun"
    begun.touch()
    words = [sys.executable, "-c", HELD, "compare", "iris", *QUICK]
    variables = environment(**{TICKETS: tickets.folder})
    with Watched(words, cwd=tmp_path, env=variables) as process:
        # Two are done, the third waits.
        wait_until(lambda: begun.read_text() == "xxx", process)
        process.send_signal(signal.SIGINT)
        out, err = process.rest(), process.complaints()
        assert process.returncode == 130
    assert "the same command goes on from here" in err
    assert "Traceback" not in err
    folder = tmp_path / "hitrate-iris"
    document = json.loads((folder / "comparison.json").read_text())
    assert not document["complete"]
    assert (document["done"], document["planned"]) == (2, 6)
    assert "Report" in out
    assert (folder / "report.html").exists()


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is another thing there")
def test_ctrl_c_during_a_fit_leaves_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    accuracy, epochs = network._accuracy, []

    # Pressed in the third epoch of a network, which would be content to stop there.
    def press(*arguments):
        epochs.append(len(epochs) + 1)
        if len(epochs) == 3:
            signal.raise_signal(signal.SIGINT)
        return accuracy(*arguments)

    monkeypatch.setattr(network, "_accuracy", press)
    run = here("fit", "iris", "--method", "mlp/exact", "--out", "model")
    assert epochs == [1, 2, 3]
    assert run.exit_code == 130, run.stderr
    assert run.stdout == ""
    assert run.stderr.splitlines()[-1] == "hitrate: stopped"
    assert files_in(tmp_path) == []


def test_the_ranking_is_never_cut(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "40")
    run = here("compare", table, "--target", "won", *QUICK)
    assert "…" not in run.stdout
    document = json.loads((tmp_path / "hitrate-sales" / "comparison.json").read_text())
    for method in document["methods"]:
        (line,) = [line for line in run.stdout.splitlines() if f"  {method['label']} " in line]
        assert f"{100 * method['accuracy']['mean']:.2f} %" in line
        assert line.endswith(f"  {duration(method['fit_seconds'])}")


# What every command is wrapped in.
SHORT = "from hitrate_lab.cli.ending import ends_well; ends_well(lambda: print(10**6 * 'x'))()"


@pytest.mark.parametrize(
    "words",
    [
        ["-c", SHORT],
        pytest.param(
            ["-m", "hitrate_lab", "compare", "sales.csv", "--target", "won", *QUICK],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["short", "compare"],
)
def test_a_reader_that_has_gone_is_no_failure(words, table, tmp_path):
    command = shlex.join([sys.executable, *words])
    quiet = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"],
        cwd=tmp_path,
        env=quiet,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "Error" not in run.stderr
    if "compare" in words:
        assert (tmp_path / "hitrate-sales" / "report.html").exists()


@pytest.mark.slow
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
        run = here("compare", name, *QUICK, "--out", "here")
        assert run.exit_code == 0, run.stderr
        assert ("will be replaced" in run.stderr) is said


def test_several_tables_are_ranked_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = here("compare", "iris", "wine", *QUICK, "--out", "both")
    assert run.exit_code == 0, run.stderr
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
    run = here(*words)
    assert run.exit_code == 2, run.output
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert line.startswith("hitrate: ")
    assert named in line
    assert files_in(tmp_path) == ["sales.csv"]


def test_predict_says_which_column_is_missing_and_which_cell_is_wrong(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "sales.csv", "--target", "won", "--method", "linear/cross_entropy"]
    assert here(*words, "--out", "model").exit_code == 0
    before = files_in(tmp_path)
    for text, named in (("region,note\nnorth,a\n", "price"), ("price,region,note\nx,a,b\n", "'x'")):
        Path("new.csv").write_text(text)
        run = here("predict", "model", "new.csv", "--out", "p.csv")
        assert run.exit_code == 2
        (line,) = run.stderr.splitlines()
        assert named in line
    assert files_in(tmp_path) == sorted([*before, "new.csv"])
    # A category that was never seen, and a column too many, are no reason to stop.
    Path("new.csv").write_text("price,region,note,more\n1,moon,b,9\n")
    run = here("predict", "model", "new.csv", "--out", "p.csv")
    assert run.exit_code == 0, run.stderr


def test_free_text_is_left_out_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [f"{k % 7},some words about number {k},{'ab'[k % 2]}" for k in range(60)]
    Path("t.csv").write_text("\n".join(["n,text,y", *lines, ""]))
    words = ["--models", "linear", "--folds", "2", "--trials", "1", "--jobs", "1", "--repeats", "2"]
    run = here("compare", "t.csv", "--target", "y", "--no-text", *words, "--out", "r")
    assert run.exit_code == 0, run.stderr
    assert "not used, free text: 'text'" in run.stderr and " --no-text " in run.stdout
    run = here("fit", "t.csv", "--target", "y", "--no-text", "--out", "m", "--trials", "1")
    assert run.exit_code == 0 and "free text: 'text'" in run.stderr
    Path("new.csv").write_text("n\n3\n")
    assert here("predict", "m", "new.csv", "--out", "p.csv").exit_code == 0


def test_a_changed_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["fit", "iris", "--method", "linear/cross_entropy", "--out", "model"]
    assert here(*words).exit_code == 0
    path = Path("model/model.json")
    path.write_text(path.read_text().replace("iris", "Iris"))
    run = here("predict", "model", "iris", "--out", "p.csv")
    assert run.exit_code == 2
    assert "model.json" in run.stderr
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_fuzzed_files_give_a_model_or_one_line(count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fits = 0
    for seed in range(count):
        data, suffix = fuzzed_csv(seed)
        source = Path(f"fuzz{seed}{suffix}")
        source.write_bytes(data)
        words = ["fit", str(source), "--target", TARGET, "--method", "linear/cross_entropy"]
        run = here(*words, "--trials", "1", "--out", "model")
        said = [line for line in run.stderr.splitlines() if "note: " not in line]
        if run.exit_code == 0:
            fits += 1
            run = here("predict", "model", str(source), "--out", "p.csv")
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
    assert count / 5 < fits < 4 * count / 5


def test_a_fault_of_ours_is_one_line_and_exit_code_1(monkeypatch):
    import hitrate_lab.tables

    def broken(*args, **kwargs):
        raise RuntimeError("what nobody\nthought of")

    monkeypatch.setattr(hitrate_lab.tables, "read_table", broken)
    run = here("compare", "iris")
    assert run.exit_code == 1
    first, second = run.stderr.splitlines()
    assert first == "hitrate: RuntimeError: what nobody thought of"
    assert "HITRATE_TRACEBACK=1" in second


def test_wrong_usage_is_exit_code_2_and_help_is_0(tmp_path):
    assert here("compare", "iris", "--no-such-option").exit_code == 2
    assert here("compare").exit_code == 2
    for words in (["--help"], ["compare", "--help"], ["--version"]):
        run = here(*words)
        assert run.exit_code == 0
        assert run.stdout


@pytest.mark.slow
def test_the_commands_of_the_page_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "command_line.md").read_text()
    # All blocks are run by the test of pages; the first one writes the table.
    python, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(python, "command_line.md", "exec"), {})
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        for line in block.splitlines()
    ]
    *lines, headroom = lines
    # Its file is from a network; tests of it have one.
    assert headroom.split()[1] == "headroom"
    plain, keys, signed = lines[:3], lines[3:5], lines[5:]
    assert [line.split()[1] for line in plain] == ["compare", "fit", "predict"]
    assert [line.split()[1] for line in signed] == ["fit", "predict"]
    for line in plain:
        assert_runs(line, tmp_path)
    assert {"hitrate-sales", "model", "predictions.csv"} <= set(files_in(tmp_path))
    assert all(line.startswith("openssl ") for line in keys)
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    for line in keys:
        subprocess.run(shlex.split(line), cwd=tmp_path, check=True, capture_output=True)
    for line in signed:
        assert_runs(line, tmp_path)
    assert {"signed", "checked.csv"} <= set(files_in(tmp_path))


def assert_runs(line, folder):
    program, *words = shlex.split(line)
    assert program == "hitrate"
    run = hitrate(*words, cwd=folder)
    assert run.returncode == 0, run.stderr
