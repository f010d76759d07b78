"""The report of a comparison: what it says, what it draws, and what a stranger's file cannot do."""

import copy
import html
import itertools
import json
import re

import numpy as np
import pytest
from parsed_page import Page
from sample_comparison import (
    DEMSAR,
    DEMSAR_METHODS,
    DEMSAR_RANKS,
    HOSTILE,
    comparison,
    comparisons,
)

from hitrate_lab.pictures import PICTURES
from hitrate_lab.report import render, write_report
from hitrate_lab.report.page import view
from hitrate_lab.report.ranks import diagram
from hitrate_lab.statistics import conover

pytest.importorskip("jinja2")

DOCUMENTS = {
    "car": comparison(),
    "five methods": comparison(methods=5),
    "ten classes": comparison(classes=10),
    "a hundred classes": comparison(classes=100, rows=20_000),
    "incomplete": comparison(complete=False),
    "one method": comparison(methods=1),
    "three rows": comparison(rows=3, methods=2),
    "hostile": comparison(words=HOSTILE),
    "several": comparisons(),
    "nothing": {"format": "hitrate comparison", "version": 1},
    "no data set": {"format": "hitrate comparisons", "version": 1},
}

every_document = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


def test_the_view_says_the_documents_numbers_in_words():
    document = comparison()
    document["methods"][0]["accuracy"] |= {"mean": 0.97861, "low": 0.9693, "high": 1.02}
    document["methods"][0]["difference"] = {
        "mean": 0.0646,
        "low": 0.0435,
        "high": 0.0857,
        "p": 1e-5,
        "p_holm": 3e-5,
    }
    shown = view(document)
    assert shown["headline"] == document["advice"]
    first = shown["methods"][0]
    assert (first["rank"], first["label"], first["is_best"]) == (1, "network, EXACT", True)
    assert (first["accuracy_text"], first["accuracy_interval"]) == (
        "97.9\u00a0%",
        "96.9 to 100.0\u00a0%",
    )
    assert (first["difference_text"], first["difference_interval"]) == ("+6.5", "+4.3 to +8.6")
    assert (first["p_text"], first["verdict"]) == ("<0.001", "better")
    assert (first["fit_text"], first["tune_text"]) == ("3.4 s", "14 s")
    last = shown["methods"][-1]
    assert (last["is_baseline"], last["verdict"], last["difference"]) == (True, "baseline", None)
    assert shown["facts"] == [
        "1,728 rows",
        "6 columns",
        "4 classes",
        "4 methods",
        "5-fold cross-validation, 2 times",
    ]
    assert shown["incomplete"] is None
    assert ("Duration", "1 min 1 s") in shown["environment"]


def test_what_has_failed_is_not_said_to_be_on_its_way():
    document = {**comparison(complete=False), "done": 39, "failed": 1, "planned": 40}
    page = render(document)
    assert "--retry" in page
    assert "may still change" not in page
    page = render({**document, "done": 20})
    assert "--retry" not in page
    assert "may still change" in page


def test_a_difference_counts_by_its_corrected_p_value():
    document = comparison()
    verdicts = {}
    for mean, p in ((0.02, 0.04), (-0.02, 0.04), (0.02, 0.06), (0.02, None)):
        document["methods"][0]["difference"] |= {"mean": mean, "p": 0.001, "p_holm": p}
        verdicts[mean, p] = view(document)["methods"][0]["verdict"]
    assert list(verdicts.values()) == ["better", "worse", "unclear", "unclear"]


def test_two_digits_need_ten_thousand_rows():
    few, many = comparison(), comparison(rows=10_000)
    assert re.fullmatch(r"\d\d\.\d\s%", view(few)["methods"][0]["accuracy_text"])
    assert re.fullmatch(r"\d\d\.\d\d\s%", view(many)["methods"][0]["accuracy_text"])


def test_equal_means_share_a_rank():
    document = comparison()
    document["methods"][1]["accuracy"]["mean"] = document["methods"][0]["accuracy"]["mean"]
    assert [method["rank"] for method in view(document)["methods"]] == [1, 1, 3, 4]


def test_folds_are_paired_by_their_numbers_not_by_their_order():
    document = comparison()
    shuffled = copy.deepcopy(document)
    shuffled["methods"][0]["folds"].reverse()
    plain, other = (view(one)["folds"]["panels"][0] for one in (document, shuffled))
    assert sorted(plain["pairs"]) == sorted(other["pairs"])
    better = sum(after > before for before, after in plain["pairs"])
    assert plain["summary"] == f"better on {better} of 10 folds"


def test_the_expected_calibration_error_is_the_mean_gap():
    document = comparison()
    bins = [
        {"low": 0.5, "high": 0.75, "count": 30, "confidence": 0.6, "accuracy": 0.5},
        {"low": 0.75, "high": 1.0, "count": 70, "confidence": 0.9, "accuracy": 0.92},
    ]
    document["methods"][0]["reliability"] = bins
    shown = view(document)["reliability"][0]
    # 0.3 * 0.1 + 0.7 * 0.02, and 0.03 over against 0.014 under.
    assert "4.4\u00a0% off the diagonal" in shown["summary"]
    assert shown["summary"].endswith("mostly too sure.")


def test_the_commonest_mistakes_come_first():
    document = comparison()
    document["methods"][0]["confusion"] = [[9, 0, 4, 0], [1, 9, 0, 0], [7, 0, 9, 0], [0, 0, 0, 9]]
    shown = view(document)["confusions"][0]["mistakes"]
    named = [(one["truth"], one["predicted"], one["count"]) for one in shown]
    assert named == [("unacc", "acc", "7"), ("acc", "unacc", "4"), ("good", "acc", "1")]


def test_an_unfinished_run_says_how_far_it_got_and_how_to_resume():
    page = Page(render(comparison(complete=False)))
    words = " ".join(page.texts)
    assert "This run is not finished: 24 of 40 fits are done" in words
    assert "Run the same command again to resume" in words
    assert page.texts.count("hitrate compare car") == 2
    assert "not finished" not in render(comparison())


def test_wide_and_long_tables_of_changed_rows_are_cut_and_the_page_says_so():
    document = comparison()
    row = {"row": 1, "truth": "a", "from": "b", "to": "a"}
    row["features"] = {f"column {i}": "x" * 500 for i in range(40)}
    document["changed"] |= {"gained": 900, "lost": 0, "rows": [row] * 300}
    shown = view(document)["changed"]
    assert (len(shown["rows"]), len(shown["columns"]), shown["hidden_columns"]) == (200, 12, 28)
    assert all(len(cell["text"]) <= 60 for cell in shown["rows"][0]["cells"])
    words = " ".join(Page(render(document)).texts)
    assert "of 900 changed rows; 28 more columns are in the JSON document" in words


@every_document
def test_a_page_loads_nothing(document):
    page = render(document)
    assert "url(" not in page and "@import" not in page
    for tag, attributes in Page(page).elements:
        assert tag not in ("img", "iframe", "object", "embed", "base", "audio", "video")
        for name, value in attributes.items():
            assert name not in ("src", "srcset", "action", "style", "xlink:href")
            if name == "href":
                assert value.startswith("#") or (tag == "link" and value.startswith("data:"))


@every_document
def test_ids_are_unique_and_every_reference_has_its_target(document):
    elements = Page(render(document)).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, ids[0]) in ids
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids


@every_document
def test_every_picture_has_a_title_and_a_description(document):
    for tag, attributes in Page(render(document)).elements:
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert attributes["aria-labelledby"] and attributes["aria-describedby"]


@pytest.mark.parametrize("name", ["car", "five methods", "ten classes", "a hundred classes"])
def test_a_page_is_light(name):
    assert 20_000 < len(render(DOCUMENTS[name]).encode("utf-8")) < 300_000


def test_hostile_words_change_no_element_and_no_attribute():
    # Words as long as the attacks: what depends on the length of a label is the same.
    harmless = [f"{i}".ljust(len(attack), "x") for i, attack in enumerate(HOSTILE)]
    attacked, plain = (Page(render(comparison(words=words))) for words in (HOSTILE, harmless))
    assert attacked.shape == plain.shape
    assert not any(name.startswith("on") for _, names in attacked.shape for name in names)
    words = " ".join(attacked.texts)
    for attack in HOSTILE:
        shown = attack.replace("\ud800", "?").replace("\0", "")
        assert shown.strip() in words.replace("\0", "")


def test_the_browser_may_run_only_the_pages_own_script():
    page = render(comparison())
    (policy,) = (
        attributes["content"]
        for tag, attributes in Page(page).elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert len(re.findall("'sha256-[^']{44}'", policy)) == 2


def paths(value, path=()):
    """Every key of the document, one element of each list standing for all."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield (*path, key)
            yield from paths(one, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from paths(value[0], (*path, 0))


OPTIONAL = [path for path in paths(comparison()) if path not in (("format",), ("version",))]


# Fields of all depths, a dozen of them.
@pytest.mark.parametrize(
    "paths", [OPTIONAL[::8], pytest.param(OPTIONAL, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_any_field_may_be_missing_or_null(paths):
    for path, remove in itertools.product(paths, (True, False)):
        document = json.loads(json.dumps(comparison()))
        *parents, key = path
        inner = document
        for parent in parents:
            inner = inner[parent]
        if remove:
            del inner[key]
        else:
            inner[key] = None
        page = render(document)
        assert "None" not in page, path
        assert "nan" not in " ".join(Page(page).texts), path


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"format": "something", "version": 1}, "its format is 'something'"),
        ({}, "its format is None"),
        ([], "its format is None"),
        ({"format": ["hitrate comparison"]}, "hitrate compare --json"),
        ({"format": "hitrate comparison", "version": 2}, "has version 2; this hitrate reads"),
        ({"format": "hitrate comparison"}, "has version None"),
        (
            {"format": "hitrate comparisons", "version": 1, "comparisons": [{"version": 3}]},
            "has version 3",
        ),
    ],
)
def test_another_document_is_refused_in_one_line(document, complaint):
    with pytest.raises(ValueError) as error:
        render(document)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_report_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new folder" / "report.html"
    assert write_report(comparison(), path) == path
    assert path.read_text(encoding="utf-8") == render(comparison())
    with pytest.raises(ValueError):
        write_report({}, path)
    assert path.read_text(encoding="utf-8") == render(comparison())
    write_report(comparison(complete=False), str(path))
    assert "not finished" in path.read_text(encoding="utf-8")
    assert list(path.parent.iterdir()) == [path]


def test_the_same_document_gives_the_same_page():
    assert render(comparison()) == render(json.loads(json.dumps(comparison())))


def attributes_of(picture, tag, class_):
    elements = Page(picture.__html__()).elements
    return [a for t, a in elements if t == tag and class_ in a.get("class", "").split()]


def test_marks_of_the_ranking_stand_in_proportion_to_the_means():
    methods = view(comparison(methods=5))["methods"]
    picture = PICTURES["ranking"](methods, "name", "score")
    lines = attributes_of(picture, "line", "interval")
    # The bar, then its two ends, for each method.
    bars = [(float(line["x1"]), float(line["x2"])) for line in lines[::3]]
    x = [end for bar in bars for end in bar]
    values = [end for method in methods for end in (method["low"], method["high"])]
    slope = (x[-1] - x[0]) / (values[-1] - values[0])
    for at, value in zip(x, values, strict=True):
        assert at == pytest.approx(x[0] + slope * (value - values[0]), abs=0.02)


def test_tiles_of_the_mosaic_have_areas_in_proportion_to_the_rows():
    document = comparison()
    counts = {"both_right": 700, "gained": 150, "lost": 100, "both_wrong": 50}
    document["changed"] |= counts
    picture = PICTURES["mosaic"](view(document)["changed"], "name")
    areas = {}
    for kind in counts:
        (tile,) = attributes_of(picture, "rect", kind)
        areas[kind] = float(tile["width"]) * float(tile["height"])
    for kind, rows in counts.items():
        assert areas[kind] / sum(areas.values()) == pytest.approx(rows / 1000, rel=0.05)


def test_a_confusion_matrix_shows_every_count_of_few_classes_and_shades_of_many():
    few = view(comparison(classes=10))["confusions"][0]
    picture = PICTURES["confusion"](few, "name").__html__()
    counts = [int(one) for one in re.findall(r'class="count[^>]*>(\d+)<', picture)]
    assert counts == [value for row in few["counts"] for value in row]
    many = view(comparison(classes=100, rows=20_000))["confusions"][0]
    picture = PICTURES["confusion"](many, "name")
    cells = sum(path["d"].count("M") for path in attributes_of(picture, "path", "cell"))
    assert cells == sum(value > 0 for row in many["counts"] for value in row)
    assert 'class="count' not in picture.__html__()


def test_text_in_a_picture_is_escaped():
    training = {"label": HOSTILE[0], "summary": HOSTILE[2], "steps": [{"sigma": 1.0}]}
    training["steps"][0] |= {"expected": 0.5, "actual": 0.6}
    picture = PICTURES["curve"](training, '"><script>').__html__()
    assert "<script" not in picture and "<img" not in picture
    assert html.escape(HOSTILE[0]) in picture


def test_mean_ranks_are_those_of_the_published_example():
    shown = view(comparisons())["ranks"]
    ranks = {method["label"]: method["rank"] for method in shown["methods"]}
    assert ranks == pytest.approx(dict(zip(DEMSAR_METHODS, DEMSAR_RANKS, strict=True)), abs=5e-4)
    # Degrees of freedom as printed there.
    assert "with 3 and 39, p = " in shown["tests"]


def test_the_page_has_the_tests_of_scipy_and_scikit_posthocs():
    from scipy.stats import friedmanchisquare

    posthocs = pytest.importorskip("scikit_posthocs")
    table = np.array(list(DEMSAR.values()))
    shown = view(comparisons())["ranks"]
    assert f"χ² = {friedmanchisquare(*table.T).statistic:.2f} with 3" in shown["tests"]
    p = posthocs.posthoc_conover_friedman(-table, p_adjust="fdr_bh").to_numpy()
    order = [DEMSAR_METHODS.index(method["label"]) for method in shown["methods"]]
    together = p[np.ix_(order, order)] >= 0.05
    assert shown["groups"] == runs_of(together)
    best, *others = order
    behind = [DEMSAR_METHODS[i] for i in others if p[best, i] < 0.05]
    assert shown["behind"] == behind == ["C4.5"]
    assert view(comparisons())["headline"].endswith("clearly ahead of C4.5.")


def runs_of(together):
    """First and last of all cliques that are in no larger one, by trying every set of methods."""
    methods = range(len(together))
    cliques = [
        set(chosen)
        for size in methods
        for chosen in itertools.combinations(methods, size + 1)
        if all(together[i][j] for i, j in itertools.combinations(chosen, 2))
    ]
    largest = [each for each in cliques if not any(each < other for other in cliques)]
    assert all(max(each) - min(each) + 1 == len(each) for each in largest)
    return sorted((min(each), max(each)) for each in largest if len(each) > 1)


def test_bars_join_the_largest_groups_of_methods_that_are_not_told_apart():
    for seed in range(40):
        check_bars(np.random.default_rng(seed))


def check_bars(random):
    data_sets, methods = random.integers(5, 40), random.integers(2, 9)
    # Few values, so that methods tie, and some have the same mean rank.
    spread = random.choice([0.0, 0.5, 2.0]) * np.arange(methods)
    scores = np.round(random.normal(size=(data_sets, methods)) + spread)
    pairs = conover(scores)
    shown = diagram([f"m{i}" for i in range(methods)], pairs.ranks, pairs.groups())
    order = [method["index"] for method in shown["methods"]]
    expected = runs_of(pairs.adjusted[np.ix_(order, order)] >= 0.05)
    assert shown["groups"] == expected
    picture = PICTURES["ranks"](shown, "name", wide=True)
    elbows = attributes_of(picture, "polyline", "elbow")
    marks = [float(each["points"].split(",")[0]) for each in elbows]
    bars = attributes_of(picture, "line", "group")
    # From the first mark to the last, and a little over both.
    found = [(float(bar["x1"]) + 5, float(bar["x2"]) - 5) for bar in bars]
    assert found == [pytest.approx((marks[i], marks[j]), abs=0.02) for i, j in expected]
    # Bars at the same height have a gap between them.
    for one, other in itertools.combinations(bars, 2):
        if one["y1"] == other["y1"]:
            assert float(one["x2"]) + 9 < float(other["x1"])


def test_if_friedmans_test_finds_nothing_one_bar_joins_all_methods():
    # Two data sets that agree: Conover's test has no error to compare with, and p is 0.
    document = comparisons()
    document["comparisons"] = document["comparisons"][:2]
    for part in document["comparisons"]:
        for method in part["methods"]:
            method["accuracy"]["mean"] = 0.5 + 0.1 * DEMSAR_METHODS.index(method["label"])
    shown = view(document)
    assert shown["ranks"]["groups"] == [(0, 3)] and shown["ranks"]["behind"] == []
    assert "one bar joins them all" in shown["ranks"]["tests"]
    assert "F = infinite" in shown["ranks"]["tests"]
    assert "not clearly ahead" in shown["headline"]
    assert "joins them all" not in view(comparisons())["ranks"]["tests"]


def test_methods_that_were_not_run_everywhere_are_left_out_of_the_ranks_and_named():
    document = comparisons()
    document["comparisons"][3]["methods"].pop()
    shown = view(document)
    assert len(shown["ranks"]["methods"]) == 3
    assert len(shown["columns"]) == 4
    assert f"not run on every data set: {shown['left_out'][0]}" in " ".join(
        Page(render(document)).texts
    )


def test_one_data_set_has_no_ranks():
    document = comparisons()
    assert "thick bar" in render(document)
    document["comparisons"] = document["comparisons"][:1]
    assert view(document)["ranks"] is None
    assert "thick bar" not in render(document)
    assert "thick bar" not in render(comparison())
