"""Study files, their reports, and the commands that work on them."""

import csv
import gzip
import json
import os
import statistics
import sys
from pathlib import Path

import pytest
from small_study import text, written
from typer.testing import CliRunner

from hitrate_lab.bad_input import BadInput
from hitrate_lab.cli.study import study_app
from hitrate_lab.runs.store import Store
from hitrate_lab.studies import document, markdown, plan_of, read_study, run_study
from hitrate_lab.studies.results import export, load

ROOT = Path(__file__).parents[3]


def complaint(tmp_path, content, name="small.toml"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput) as caught:
        read_study(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ") and "\n" not in line
    return line.removeprefix(f"{path}: ")


def test_a_study_file_says_what_to_run_and_what_the_paper_found(tmp_path):
    study = read_study(written(tmp_path))
    assert (study.name, study.title, study.protocol) == ("small", "Neighbours", "small")
    assert [method.name for method in study.methods] == ["one", "nine"]
    assert study.methods[0].paper == {"accuracy": {"iris": (95.0, 0.1), "wine": (71.5, None)}}
    assert study.methods[0].settings == {"neighbours": 1}
    assert study.methods[1].seeds == (0, 1, 2, 3, 4, 5)


# What is replaced in the file, by what, and what is said about it.
WRONG = {
    "no name": ('name = "small"', "", "name: is missing; needs a text"),
    "name of another file": ('"small"', '"other"', "name: needs to be that of the file, 'small'"),
    "title is a number": ('"Neighbours"', "3", "title: needs a text, not 3"),
    "empty title": ('"Neighbours"', '" "', "title: needs a text, not an empty one"),
    "unknown protocol": ('protocol = "small"', 'protocol = "big"', "protocol: needs one of"),
    "data sets are no list": ('["iris", "wine"]', '"iris"', "data_sets: needs a list of texts"),
    "no data sets": ('["iris", "wine"]', "[]", "data_sets: needs one or more"),
    "a data set twice": ('["iris", "wine"]', '["iris", "iris"]', "data_sets: has 'iris' twice"),
    "seed below 0": ("[0, 1, 2, 3, 4, 5]", "[-1]", "seeds: needs a list of whole numbers, but"),
    "seed is true": ("[0, 1, 2, 3, 4, 5]", "[true]", "seeds: needs a list of whole numbers, but"),
    "seed twice": ("[0, 1, 2, 3, 4, 5]", "[4, 4]", "seeds: has 4 twice"),
    "no measure": ('accuracy = "Accuracy, %"', "", "measures: needs one or more"),
    "measure without a title": ('"Accuracy, %"', "1", "measures.accuracy: needs a text"),
    "misspelt field": ("differences =", "diferences =", "diferences: is no field here"),
    "methods of one name": ('name = "nine"', 'name = "one"', "methods: has 'one' twice"),
    "method without a name": ('name = "nine"', "", "methods[2].name: is missing"),
    "protocol's own field": ("neighbours = 9", "neighbours = 0", "methods[nine].neighbours: needs"),
    "protocol's unknown field": ("neighbours = 9", "neighbours = 9\nk = 1", "methods[nine].k: is"),
    "protocol's settings": (
        "seconds = 0.0",
        "seconds = -1",
        "settings.seconds: needs a number of at",
    ),
    "no end": ("seconds = 0.0", "seconds = inf", "settings.seconds: needs a number of at"),
    "paper's unknown measure": (".accuracy]", ".speed]", "methods[one].paper.speed: is no measure"),
    "paper's unknown data set": ("wine = 71.5", "beer = 1", "paper.accuracy.beer: is no data set"),
    "paper's number is a text": ("71.5", '"many"', "paper.accuracy.wine: needs a number or [mean,"),
    "paper's three numbers": ("[95.0, 0.1]", "[1, 2, 3]", "paper.accuracy.iris: needs a number or"),
    "not TOML": ("title =", "title", "is not TOML: "),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_gets_one_line_with_file_key_and_fault(case, tmp_path):
    old, new, expected = WRONG[case]
    content = text()
    assert old in content
    assert expected in complaint(tmp_path, content.replace(old, new))


def test_files_that_cannot_be_read_get_one_line_too(tmp_path):
    assert complaint(tmp_path, b"\xff\xfe") == "is not UTF-8 text"
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_study(tmp_path / "nothing.toml")


def by_hand(store, data_set, method):
    with Store(store) as runs:
        return [
            100 * run.result["accuracy"]
            for run in runs.runs()
            if (run.specification["data_set"], run.specification["method"]) == (data_set, method)
        ]


def test_a_report_is_what_one_computes_by_hand(tmp_path):
    study, store = read_study(written(tmp_path)), tmp_path / "runs.sqlite"
    run_study(study, store=store, jobs=1)
    page = markdown(document(study, store))
    means = {}
    for data_set, paper in (("iris", "95.00 ± 0.10"), ("wine", "71.50")):
        cells = []
        for method in ("one", "nine"):
            values = by_hand(store, data_set, method)
            assert len(values) == 6
            means[data_set, method] = round(statistics.mean(values), 2)
            cells.append(f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}")
        best = max(means[data_set, "one"], means[data_set, "nine"])
        for k, method in enumerate(("one", "nine")):
            cells[k] = f"**{cells[k]}**" if means[data_set, method] == best else cells[k]
        # The paper has no number of the second method, so there is no column for it.
        line = f"| {data_set} | {cells[0]} (6) | {paper} | {cells[1]} (6) |"
        assert line in page.splitlines()
    close = sum(
        abs(statistics.mean(by_hand(store, name, "one")) - paper)
        <= 2 * statistics.stdev(by_hand(store, name, "one")) + 0.005
        for name, paper in (("iris", 95.0), ("wine", 71.5))
    )
    assert f"in {close} of 2 cells" in page
    assert "24 of 24 runs" in page
    assert "- There is no paper." in page


def test_numbers_far_from_the_paper_are_counted_as_such(tmp_path):
    content = text().replace("[95.0, 0.1]", "[50.0, 0.1]").replace("71.5", "40.0")
    path = tmp_path / "small.toml"
    path.write_text(content)
    study = read_study(path)
    run_study(study, store=tmp_path / "runs.sqlite", jobs=1)
    (table,) = document(study, tmp_path / "runs.sqlite")["tables"]
    assert (table["within"], table["judged"]) == (0, 2)


def test_rows_that_lack_runs_are_shown_and_not_judged(tmp_path):
    study, store = read_study(written(tmp_path)), tmp_path / "runs.sqlite"
    with Store(store) as runs:
        for spec in plan_of(study)[:3]:
            runs.add(spec, {"accuracy": 0.5, "seconds": 1.0})
    found = document(study, store)
    (table,) = found["tables"]
    assert found["done"] == 3 and table["judged"] == 0
    assert [row["best"] for row in table["rows"]] == [[], []]
    page = markdown(found)
    assert "| iris | 50.00 (1) | 95.00 ± 0.10 | 50.00 (1) |" in page.splitlines()
    assert "not complete yet, and not judged: 2" in page


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_runs_are_exported_with_all_that_they_depend_on(kind, tmp_path):
    study, store = read_study(written(tmp_path)), tmp_path / "runs.sqlite"
    run_study(study, store=store, jobs=1)
    file = tmp_path / "out" / f"runs.{kind}"
    assert export(study, store, file) == 24
    if kind == "csv":
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = parquet.read_table(file).to_pylist()
    with Store(store) as runs:
        for row, run in zip(rows, runs.runs(plan_of(study)), strict=True):
            assert row["key"] == run.key
            assert float(row["accuracy"]) == run.result["accuracy"]
            assert row["method"] == run.specification["method"]
            assert row["versions.scikit-learn"] == run.versions["scikit-learn"]


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_a_report_on_exported_runs_is_the_report_on_their_store(ending, tmp_path):
    study, store = read_study(written(tmp_path)), tmp_path / "runs.sqlite"
    with Store(store) as runs:
        # Not in the plan's order, and not with what is installed here.
        for k, spec in enumerate(reversed(plan_of(study))):
            runs.add(spec, {"accuracy": 1 / (k + 1), "seconds": 0.1 * k}, {"torch": "µ"})
    file, again = tmp_path / f"runs{ending}", tmp_path / f"again{ending}"
    assert export(study, store, file) == 24
    assert load(file, tmp_path / "copy.sqlite") == 24
    assert document(study, tmp_path / "copy.sqlite") == document(study, store)
    # The copy has other times, and no name of a file is inside.
    assert export(study, tmp_path / "copy.sqlite", again) == 24
    assert again.read_bytes() == file.read_bytes()


def test_runs_of_other_studies_in_the_store_are_not_exported(tmp_path):
    study, store = read_study(written(tmp_path, seeds=1)), tmp_path / "runs.sqlite"
    other = read_study(written(tmp_path, name="other", seeds=1))
    with Store(store) as runs:
        for spec in [*plan_of(other), *plan_of(study)[:2]]:
            runs.add(spec, {"accuracy": 0.5, "seconds": 1.0})
        runs.add_failure(plan_of(study)[2], "went wrong", "")
    file = tmp_path / "runs.jsonl"
    assert export(study, store, file) == 2
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["specification"] for line in lines] == plan_of(study)[:2]


COMMITTED = sorted((ROOT / "studies" / "results").glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name.partition(".")[0])
def test_committed_results_are_what_an_export_of_the_same_runs_writes(path, tmp_path):
    name = path.name.partition(".")[0]
    study = read_study(ROOT / "studies" / f"{name}.toml")
    count = load(path, tmp_path / "runs.sqlite")
    file = tmp_path / path.name
    assert export(study, tmp_path / "runs.sqlite", file) == count
    # What packs differs between machines, what is packed does not.
    assert gzip.decompress(file.read_bytes()) == gzip.decompress(path.read_bytes())


# The commands


def study_command(*words):
    return CliRunner().invoke(study_app, list(map(str, words)))


def test_run_status_and_report_follow_one_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "studies")
    listed = study_command("list", "--json")
    (found,) = [each for each in json.loads(listed.stdout) if each["name"] == "small"]
    assert (found["planned"], found["done"]) == (24, 0)
    ran = study_command("run", "small", "--jobs", 1)
    assert ran.exit_code == 0, ran.output
    assert "24 of 24 runs done, 0 failed, 0 missing" in ran.stdout
    assert (tmp_path / "build" / "studies" / "small.sqlite").is_file()
    status = study_command("status", "small", "--json")
    assert json.loads(status.stdout)["data_sets"]["wine"] == {
        "planned": 12,
        "done": 12,
        "failed": 0,
    }
    assert "small: Neighbours, 24 of 24 runs done" in study_command("list").stdout
    printed = study_command("report", "small")
    assert printed.stdout.startswith("# Neighbours")
    reported = study_command("report", "small", "--out", "a/r.md", "--json")
    assert json.loads(reported.stdout)["done"] == 24
    assert (tmp_path / "a" / "r.md").read_text() == printed.stdout.removesuffix("\n")
    exported = study_command("export", "small", "--out", "a/r.jsonl.gz")
    assert exported.stdout == "24 of 24 runs: a/r.jsonl.gz\n"
    assert study_command("report", "small", "--results", "a/r.jsonl.gz").stdout == printed.stdout
    exported = study_command("export", "small", "--results", "a/r.jsonl.gz", "--out", "a/r.csv")
    assert exported.stdout == "24 of 24 runs: a/r.csv\n"
    assert len((tmp_path / "a" / "r.csv").read_text().splitlines()) == 25


def test_failures_are_shown_and_end_the_command_with_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "there"
    there.touch()
    path = written(tmp_path, first=f'raises = "{there}"', seeds=1)
    ran = study_command("run", path, "--jobs", 1)
    assert ran.exit_code == 1
    assert "failed: iris, one, seed 0: ArithmeticError: went wrong" in ran.output
    there.unlink()
    assert study_command("run", path, "--jobs", 1, "--retry").exit_code == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "nothing"], "no study 'nothing'"),
        (["status", "nothing.toml"], "nothing.toml: cannot be read: No such file"),
        (["run", "small.toml", "--jobs", "0"], "jobs=0: needs 1 or more"),
        (["run", "small.toml", "--jobs", "1", "--cluster", "x"], "give one of the two"),
        (["export", "small.toml", "--out", "runs.xlsx"], "names end in .jsonl.gz, .jsonl, .csv, "),
        (["export", "small.toml", "--out", "runs.csv"], "small.sqlite: is not there; `hitrate st"),
        (["export", "small.toml", "--out", "a.csv", "--results", os.devnull], "no finished run"),
        (["export", "small.toml", "--out", "a.csv", "--results", "no.jsonl"], "is no file of runs"),
        (["report", "small.toml", "--html", "small.toml/page"], "page: cannot be written: "),
        (["report", "small.toml", "--out", "small.toml/page"], "page: cannot be written: "),
        (["report", "small.toml", "--html", "."], ".: cannot be written: "),
        (["report", "small.toml", "--out", "."], ".: cannot be written: "),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_code_2(words, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    found = study_command(*words)
    assert found.exit_code == 2
    assert line in found.stderr and "Traceback" not in found.output
    assert all(each.startswith("hitrate: ") for each in found.stderr.splitlines())


def test_what_cannot_be_written_leaves_no_file_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    (tmp_path / "there").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for option in ("--html", "--out"):
        found = study_command("report", "small.toml", option, "there")
        assert found.exit_code == 2 and "there: cannot be written" in found.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_studies_that_cannot_be_planned_are_listed_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "studies")
    broken = tmp_path / "studies" / "broken.toml"
    broken.write_text(text(name="broken").replace("title =", "title"))
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "optuna", None)
    listed = study_command("list", "--json")
    assert listed.exit_code == 0, listed.output
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert (rows["small"]["planned"], rows["small"]["problem"]) == (24, None)
    search = rows["exact_search"]
    assert search["problem"].startswith("a search needs Optuna: pip install")
    assert (search["planned"], search["done"]) == (None, None)
    assert search["title"] == read_study(ROOT / "studies" / "exact_search.toml").title
    assert rows["broken"]["problem"].startswith("studies/broken.toml: is not TOML")
    lines = study_command("list").stdout.splitlines()
    assert len(lines) == len(rows)
    assert f"exact_search: {search['title']}, {search['problem']}" in lines
    assert "small: Neighbours, 0 of 24 runs done" in lines


def test_data_that_are_not_there_are_named_with_a_way_to_get_them(tmp_path):
    path = ROOT / "studies" / "exact_table_1_2.toml"
    found = study_command("run", path, "--data-dir", tmp_path, "--store", tmp_path / "r.sqlite")
    assert found.exit_code == 2
    (line,) = found.stderr.splitlines()
    assert f"10 of 10 data sets of study exact_table_1_2 are not in {tmp_path}" in line
    assert "fetch('exact/adult'" in line


def test_a_cluster_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("hitrate_lab.runs.executors.PATIENCE", 1)
    path = written(tmp_path)
    found = study_command("run", path, "--cluster", "tcp://127.0.0.1:1", "--store", tmp_path / "r")
    assert found.exit_code == 2
    assert "no Dask cluster at tcp://127.0.0.1:1" in found.stderr


# The studies of the repository


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.toml")), ids=lambda p: p.stem)
def test_the_studies_of_the_repository_can_be_planned(path):
    study = read_study(path)
    plan = plan_of(study)
    assert {spec["study"] for spec in plan} == {path.stem}
    assert {spec["data_set"] for spec in plan} == set(study.data_sets)
    assert json.loads(json.dumps(plan)) == plan
