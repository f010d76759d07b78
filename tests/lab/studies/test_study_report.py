"""The report of a study: its rankings against the statistics, and the page against both."""

import base64
import html
import itertools
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from mixing_report import ROOT, SETS, STUDY, committed_runs, renamed, report_of, runs_of
from parsed_page import Page
from small_study import written
from typer.testing import CliRunner

from hitrate_lab.cli.study import study_app
from hitrate_lab.pictures.profile import steps
from hitrate_lab.report import render, write_pictures
from hitrate_lab.report.page import view
from hitrate_lab.runs.store import Store
from hitrate_lab.statistics import conover, friedman, paired_effect, profiles, signed_rank
from hitrate_lab.studies import document, markdown, plan_of, read_study, run_study
from hitrate_lab.studies.mixing import table as mixing_table
from hitrate_lab.studies.rankings import ranking
from hitrate_lab.studies.registry import protocol_named
from hitrate_lab.studies.report import stored_runs
from hitrate_lab.studies.results import load

pytest.importorskip("jinja2")

# Rankings of Mixing's Table 4: by the mean of the seeds, then by each of them.
RANKED = [(model, seed) for seed in (None, 0, 1) for model in ("linear", "one hidden layer")]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a study that has a dozen of the data sets."""
    folder = tmp_path_factory.mktemp("report")
    return report_of(folder, runs_of(SETS, folder / "runs.jsonl"), SETS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The report of all committed runs: ten seconds' work."""
    return report_of(tmp_path_factory.mktemp("whole"))


@pytest.fixture(params=["some data sets", pytest.param("all data sets", marks=pytest.mark.slow)])
def either(request):
    return request.getfixturevalue("whole" if request.param == "all data sets" else "report")


@pytest.fixture(scope="module")
def scores():
    """By model and seed, None for the mean of both: data sets by name, a number for each method."""
    found = {each: {} for each in RANKED}
    for run in committed_runs():
        spec, chosen = run["specification"], run["result"]["chosen"]
        for seed in (None, 0, 1):
            means = [
                100 * np.mean([e["test_accuracy"] for e in each if seed in (None, e["seed"])])
                for each in (chosen[method["name"]] for method in spec["methods"])
            ]
            found[spec["model"], seed][spec["data_set"]] = np.round(means, 9)
    return found


def table_of(scores, ranked):
    return np.array([scores[name] for name in ranked["data_sets"]])


def test_rankings_have_the_numbers_of_the_statistics(either, scores):
    titles = [each["title"] for each in either["rankings"]]
    assert titles[:3] == ["Linear", "One hidden layer", "Linear, seed 0"]
    for each, ranked in zip(RANKED, either["rankings"], strict=True):
        x = table_of(scores[each], ranked)
        assert x.shape == (either["planned"] / 2, 6)
        assert ranked["scores"] == x.tolist()
        test, pairs = friedman(x), conover(x)
        assert ranked["ranks"]["mean"] == list(test.ranks)
        assert ranked["ranks"]["friedman"] == {
            "statistic": test.statistic,
            "p": test.p,
            "f": test.f,
            "f_p": test.f_p,
        }
        assert ranked["ranks"]["adjusted"] == pairs.adjusted.tolist()
        names = ranked["methods"]
        assert ranked["ranks"]["groups"] == [[names[k] for k in each] for each in pairs.groups()]
        for k, found in enumerate(ranked["effects"], 1):
            effect = paired_effect(x[:, k], x[:, 0])
            assert found["method"] == names[k]
            assert found["mean"]["value"] == effect.mean.value
            assert found["median"]["low"] == effect.median.low
            assert (found["wins"], found["ties"]) == (effect.wins, effect.ties)
            bayes = signed_rank(x[:, k], x[:, 0], rope=1.0)
            assert found["bayes"]["equal"] == bayes.equal
        for found, each in zip(ranked["profiles"], profiles(x), strict=True):
            assert found["thresholds"] == each.thresholds.tolist()
            assert found["shares"] == each.shares.tolist()


def test_wins_are_counted_pair_by_pair(report):
    for ranked in report["rankings"]:
        for i in range(6):
            for j in range(6):
                won = sum(row[i] > row[j] for row in ranked["scores"])
                assert ranked["wins"][i][j] == won


def test_the_report_stays_plain_json_and_its_markdown_has_the_rankings(report):
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    text = markdown(report)
    for ranked in report["rankings"]:
        section = text.split(f"## Ranking: {ranked['title']}\n")[1].split("\n## ")[0]
        test = ranked["ranks"]["friedman"]
        assert f"χ² is {test['statistic']:.2f}, p = {test['p']:.2g}" in section
        assert f"F is {test['f']:.2f}, p = {test['f_p']:.2g}" in section
        for group in ranked["ranks"]["groups"]:
            assert ", ".join(group) in section
        for name, rank in zip(ranked["methods"], ranked["ranks"]["mean"], strict=True):
            assert f"| {name} | {rank:.2f} |" in section


def test_a_protocol_without_tables_of_its_own_ranks_by_the_means_of_each_measure(
    report, tmp_path, monkeypatch
):
    # Some data sets lack a model: they are in neither ranking.
    some = [row["data_set"] for row in report["tables"][0]["rows"][:9]]
    results = runs_of(some, tmp_path / "runs.jsonl")
    lines = results.read_text().splitlines()
    specs = [json.loads(line)["specification"] for line in lines]
    lacking = [(spec["data_set"], spec["model"]) == (some[0], "linear") for spec in specs]
    kept = [line for line, lacks in zip(lines, lacking, strict=True) if not lacks]
    assert len(kept) == len(lines) - 1
    results.write_text("\n".join(kept))
    monkeypatch.delattr(mixing_table.MixingTable, "score_tables")
    found = report_of(tmp_path, results)["rankings"]
    titles = list(read_study(STUDY).measures.values())
    assert [each["title"] for each in found] == titles
    assert [each["name"] for each in found] == ["linear-accuracy", "hidden-accuracy"]
    for ranked, whole in zip(found, report["rankings"][:2], strict=True):
        assert ranked["data_sets"] == some[1:]
        places = [whole["data_sets"].index(name) for name in some[1:]]
        assert ranked["scores"] == [pytest.approx(whole["scores"][k]) for k in places]


def test_ranks_need_three_methods_and_rankings_five_data_sets(report, tmp_path):
    whole = report["rankings"][0]
    two = ranking(
        {
            **whole,
            "methods": whole["methods"][:2],
            "scores": [row[:2] for row in whole["scores"]],
        }
    )
    assert two["ranks"] is two["profiles"] is None
    (effect,) = two["effects"]
    assert effect == whole["effects"][0]
    page = render({**report, "rankings": [two]})
    assert "thick bar" not in page and "Conover’s p-values" not in page
    assert f"{effect['wins']} / {effect['ties']} / {effect['losses']}" in page
    shown = f"| F=0 | {effect['mean']['value']:+.2f} ("
    assert shown in markdown({**report, "rankings": [two]})
    four = [row["data_set"] for row in report["tables"][0]["rows"][:4]]
    few = report_of(tmp_path, runs_of(four, tmp_path / "runs.jsonl"))
    assert few["done"] == 8 and few["rankings"] == []
    assert "Ranking" not in render(few)
    assert write_pictures(few, tmp_path / "pictures") == []


def test_where_friedmans_test_finds_nothing_all_methods_are_one_group(report):
    whole = report["rankings"][0]
    # Rounded to tens, three losses hardly differ on few data sets.
    x = np.round(np.array(whole["scores"])[:20, :3], -1)
    assert friedman(x).p >= 0.05
    found = ranking({**whole, "methods": ["a", "b", "c"], "scores": x})["ranks"]
    order = np.argsort(found["mean"], kind="stable")
    assert found["groups"] == [["abc"[i] for i in order]]


def words_of(page):
    return " ".join(" ".join(Page(page).texts).split())


def test_the_page_says_what_the_document_says(either):
    report, words = either, words_of(render(either))
    planned, data_sets = report["planned"], report["planned"] // 2
    assert report["title"] in words and report["reproduces"] in words
    assert f"{planned} of {planned} runs" in words and "AMD EPYC" in words
    for difference in report["differences"]:
        assert difference in words
    for table in report["extra_tables"]:
        assert table["text"] in words
        for row in table["rows"]:
            assert " ".join(row).replace(" -", " −") in words
    for table in report["tables"]:
        for row in table["rows"]:
            cells = [f"{c['mean']:.2f} ± {c['std']:.2f}" for c in row["cells"].values()]
            assert f"{row['data_set'].split('/')[1]} {' '.join(cells)}" in words
    for ranked in report["rankings"]:
        test = ranked["ranks"]["friedman"]
        assert f"χ² = {test['statistic']:.2f} with 5 degrees of freedom, p = " in words
        assert f"F = {test['f']:.2f} with 5 and {5 * (data_sets - 1)}, p = " in words
        order = np.argsort(ranked["ranks"]["mean"], kind="stable")
        for i in order:
            row = [ranked["methods"][i]]
            for j in order[order != i]:
                won, lost = ranked["wins"][i][j], ranked["wins"][j][i]
                row.append(f"{won} / {data_sets - won - lost} / {lost}")
            assert " ".join(row) in words
    # Nobody is better than these on so many data sets.
    for ranked in report["rankings"]:
        scores = np.array(ranked["scores"])
        for name, best in zip(ranked["methods"], scores.T >= scores.max(1), strict=True):
            assert f"{name} {100 * best.mean():.1f} %" in words


def test_a_cell_says_whether_the_papers_number_is_near(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("[95.0, 0.1]", "[50.0, 0.1]"))
    study, store = read_study(path), tmp_path / "runs.sqlite"
    run_study(study, store=store, jobs=1)
    found = document(study, store)
    (table,) = found["tables"]
    iris, wine = (row["cells"]["one"] for row in table["rows"])
    assert (iris["within"], wine["within"]) == (False, True)
    words = words_of(render(found))
    for cell, paper, mark, near in (
        (iris, "50.00 ± 0.10", "✗", "further than two standard deviations"),
        (wine, "71.50", "✓", "within two standard deviations"),
    ):
        ours = f"{cell['mean']:.2f} ± {cell['std']:.2f}"
        assert f"{ours} paper {paper} {mark} {near}" in words
    assert "1 of 2 are within" in words and "(n = 6)" in words
    (best,) = (row["best"] for row in table["rows"][:1])
    cell = table["rows"][0]["cells"][best[0]]
    assert f'class="number top" data-value="{cell["mean"]}"' in render(found)


def test_an_unfinished_study_says_how_to_go_on(report, tmp_path):
    some = [row["data_set"] for row in report["tables"][0]["rows"][:6]]
    found = report_of(tmp_path, runs_of(some, tmp_path / "runs.jsonl"))
    words = words_of(render({**found, "failed": 3}))
    assert "This study is not finished: 12 of 240 runs are done" in words
    assert "hitrate study run mixing_table_4" in words
    assert "3 have failed" in words
    assert "Not complete yet, and not judged: 114 of 120 rows" in words
    assert "6 data sets. A score is the test accuracy" in words
    assert "not finished" not in words_of(render(report))


def test_hostile_words_change_no_element_of_the_page(report):
    drawn = {key: f"picture's {key}" for key in ("name", "title", "text", "svg")}
    report = {**report, "pictures": [drawn], "commits": ["a commit"], "devices": ["a device"]}
    attacks = {
        "picture's title": "</h2><script>alert(3)</script>",
        "picture's text": '" onerror="alert(4)',
        "a commit": "</code><b>",
        "a device": "<i>",
        "CE": "<script>alert(1)</script>",
        "EL": '" onload="alert(1)" x="',
        report["title"]: "</title></svg><script>alert(2)</script>",
        report["differences"][0]: "<img src=x onerror=alert(1)>",
        report["tables"][0]["title"]: "{{ 7 * 7 }}</h2><b>",
        report["rankings"][0]["title"]: "' autofocus onfocus='alert(1)",
        "AMD EPYC": "</li><li onclick=alert(1)>",
    }
    harmless = {
        key: str(i).ljust(len(attack), "x") for i, (key, attack) in enumerate(attacks.items())
    }
    attacked, plain = (Page(render(renamed(report, names))) for names in (attacks, harmless))
    assert attacked.shape == plain.shape
    words = " ".join(attacked.texts)
    for name, attack in attacks.items():
        # What a picture says stands in an attribute.
        assert attack in words or name == "picture's text"


def test_hostile_names_stay_words_in_pictures(report, tmp_path):
    hostile = renamed(report, {"CE": '<script>"</svg>', "EL": "]]>&amp;"})
    for path in write_pictures(hostile, tmp_path):
        texts = [each.text for each in ElementTree.parse(path).iter(f"{SVG}text")]
        assert '<script>"</svg>' in texts and "]]>&amp;" in texts


def test_a_profile_is_drawn_at_the_shares_that_it_has(report):
    shown = view(report)["rankings"][0]["profiles"]
    x = np.array(report["rankings"][0]["scores"])
    for curve, each in zip(shown["curves"], profiles(x), strict=True):
        corners = steps(curve, shown["low"])
        assert corners[0][0] == shown["low"] and corners[-1][0] == 1.0
        assert corners[-1][1] == each.at(1.0)
        for (left, share), (right, _) in itertools.pairwise(corners):
            if right > left:
                assert each.at((left + right) / 2) == share
        below = (x[:, curve["index"]] / x.max(1) < shown["low"]).sum()
        assert corners[0][1] == pytest.approx(1 - below / len(x))


def test_pictures_are_files_that_need_no_style_sheet(report, tmp_path):
    paths = write_pictures(report, tmp_path)
    parts = itertools.product(
        ("", "-seed-0", "-seed-1"), ("linear", "hidden"), ("ranks", "profile")
    )
    names = [f"mixing-{model}{seed}-{kind}.svg" for seed, model, kind in parts]
    assert [path.name for path in paths] == names
    for path, ranked in zip(paths, np.repeat(report["rankings"], 2), strict=True):
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        texts = [each.text for each in root.iter(f"{SVG}text")]
        assert set(ranked["methods"]) <= set(texts)
        for part in root.iter():
            assert "class" not in part.attrib
            assert not re.search(r"var\(|light-dark", " ".join(part.attrib.values()))
            if part.tag in (f"{SVG}line", f"{SVG}polyline"):
                assert re.fullmatch("#[0-9a-f]{6}", part.attrib["stroke"])
            if part.tag == f"{SVG}text":
                assert re.fullmatch("#[0-9a-f]{6}", part.attrib["fill"])


def test_the_command_writes_page_and_pictures(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    some = [row["data_set"] for row in report["tables"][0]["rows"][:8]]
    results = runs_of(some, tmp_path / "some.jsonl")
    words = ["report", STUDY, "--results", results, "--html", "a/r.html", "--pictures", "b"]
    done = CliRunner().invoke(study_app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "Report: a/r.html"
    there = [f"Picture: b/{path.name}" for path in (tmp_path / "b").iterdir()]
    assert len(there) == 12 and sorted(lines[1:]) == sorted(there)
    page = (tmp_path / "a" / "r.html").read_text(encoding="utf-8")
    assert f"hitrate study run {STUDY}" in html.unescape(page)
    few = runs_of(some[:2], tmp_path / "few.jsonl")
    words = ["report", STUDY, "--results", few, "--pictures", "c"]
    done = CliRunner().invoke(study_app, list(map(str, words)))
    assert done.exit_code == 0 and "no pictures; ranks need" in done.stderr


# EXACT's studies


def study_and_report(name, folder):
    study, store = read_study(ROOT / "studies" / f"{name}.toml"), folder / f"{name}.sqlite"
    assert load(ROOT / "studies" / "results" / f"{name}.jsonl.gz", store) == len(plan_of(study))
    return study, document(study, store)


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    return study_and_report("exact_table_1_2", tmp_path_factory.mktemp("exact"))


def test_variants_are_marked_and_stand_out_of_the_competition(exact):
    study, found = exact
    variants = [method.name for method in study.methods if method.variant]
    assert len(variants) >= 2
    page = render(found)
    heads = re.findall(r"<th scope=.col.[^>]*><bdi>(.+?)</bdi>(.*?)</th>", page)
    for table in found["tables"]:
        assert table["variants"] == variants
        shown = [rest for name, rest in heads if html.unescape(name) in variants]
        assert all("variant</span>" in rest for rest in shown)
        assert all(not set(row["best"]) & set(variants) for row in table["rows"])
    assert page.count("variant</span>") == len(found["tables"]) * (len(variants) + 1)
    assert "A variant is not counted for the best and in ranks." in words_of(page)
    named = " and ".join(f'"{name}"' for name in variants)
    section = markdown(found).split("## Test accuracy, %\n")[1].split("\n## ")[0]
    assert f"{named} are variants, not counted for the best and in ranks." in section
    assert not set(variants) & set(found["rankings"][0]["methods"])


def test_methods_with_other_numbers_of_runs_say_their_own(exact):
    _, found = exact
    words = words_of(render(found))
    assert "standard deviation of n runs" in words
    assert "Data set scikit-learn n = 1 cross entropy n = 5 hinge n = 5 EXACT n = 5" in words
    assert "adult 85.33 paper 85.33 ± 0.00 ✓" in words


def test_what_has_computed_is_named_unless_it_is_the_processor_alone(exact, report):
    _, found = exact
    assert found["devices"] == ["NVIDIA H200"] and report["devices"] == []
    assert "NVIDIA H200" in words_of(render(found))
    assert "\nDevice: NVIDIA H200.\n" in markdown(found)
    assert "Device" not in markdown(report)


def test_commits_are_listed_once_and_do_not_multiply_the_versions(tmp_path):
    study, store = read_study(written(tmp_path)), tmp_path / "runs.sqlite"
    same = {"python": "3.11", "torch": "2.13"}
    with Store(store) as runs:
        for number, spec in enumerate(plan_of(study)):
            commit = {"commit": f"c{number % 3}+changes"} if number else {}
            runs.add(spec, {"accuracy": 0.5, "seconds": 1.0}, {**same, **commit})
    found = document(study, store)
    assert found["commits"] == ["c0+changes", "c1+changes", "c2+changes"]
    assert list(map(json.loads, found["made_with"])) == [same]
    line = "Commits: c0+changes, c1+changes, c2+changes"
    assert markdown(found).count(f"\n{line}.\n") == 1
    words = words_of(render(found)).replace(" ,", ",")
    assert words.count(line) == 1 and words.count("Made with") == 1
    assert "\nCommit: c1.\n" in markdown({**found, "commits": ["c1"]})
    assert "Commit" not in markdown({**found, "commits": []})


def test_nobody_is_best_at_what_is_no_accuracy(tmp_path):
    _, found = study_and_report("exact_figure_7", tmp_path)
    for shown in (markdown(found), words_of(render(found))):
        assert not re.search("best or equal|best of", shown, re.IGNORECASE)
    # A study with an accuracy has both.
    study = read_study(written(tmp_path))
    run_study(study, store=tmp_path / "small.sqlite", jobs=1)
    found = document(study, tmp_path / "small.sqlite")
    for shown in (markdown(found), words_of(render(found))):
        assert re.search("best or equal", shown, re.IGNORECASE) and "best of" in shown


@pytest.mark.parametrize("name", ["exact_table_1_2", "exact_figure_7"])
def test_a_protocols_own_pictures_are_files_and_images_of_the_page(name, tmp_path):
    study, found = study_and_report(name, tmp_path)
    drawn = protocol_named(study.protocol).pictures(
        study, stored_runs(study, tmp_path / f"{name}.sqlite")
    )
    assert {each["name"]: each["svg"] for each in found["pictures"]} == drawn
    paths = write_pictures(found, tmp_path / "pictures")
    assert [path.stem for path in paths[: len(drawn)]] == list(drawn)
    page = render(found)
    images = re.findall(
        r'<img class="drawn" src="data:image/svg\+xml;base64,(.+?)" alt="(.+?)">', page
    )
    for path, (code, text), each in zip(paths, images, found["pictures"], strict=False):
        assert path.read_bytes() == base64.b64decode(code) == each["svg"].encode()
        root = ElementTree.parse(path).getroot()
        assert root.findtext(f"{SVG}title") == each["title"]
        assert root.findtext(f"{SVG}desc") == html.unescape(text)
        assert each["title"] in words_of(page)
        kept = ROOT / "docs" / "images" / path.name
        assert kept.read_bytes() == path.read_bytes()


def test_tables_beside_the_papers_numbers_come_first(exact, report):
    def first(found):
        return re.findall(r'<section id="([a-z]+)-1"', render(found))

    assert first(exact[1]) == ["table", "ranking", "picture", "extra"]
    # Mixing's paper has no number by data set, but a table of means.
    assert first(report) == ["extra", "table", "ranking"]


@pytest.mark.slow
def test_a_search_is_reported_without_its_trials(tmp_path):
    study, found = study_and_report("exact_search", tmp_path)
    page = render(found)
    (chosen,) = found["extra_tables"]
    assert len(chosen["rows"]) == len(study.data_sets) * len(study.methods)
    # Both measures, what was chosen, and two rankings.
    assert page.count("<tr") < len(chosen["rows"]) + 60
    # Long tables are folded away, and columns of words begin at the left.
    assert f"<summary>All {len(chosen['rows'])} rows</summary>" in page
    row = chosen["rows"][0]
    assert f'<td class="">{row[3]}</td><td class="number">{row[4]}</td>' in page
