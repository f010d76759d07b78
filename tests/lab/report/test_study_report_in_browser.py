"""The page of a study in a real browser: on a phone and on a desk, by day and by night."""

import itertools

import in_browser
import pytest
from in_browser import CLIPPED, MISPLACED, low_contrast
from mixing_report import ROOT, SETS, renamed, report_of, runs_of
from small_study import written
from watched import HANGS

from hitrate_lab.report import write_pictures, write_report
from hitrate_lab.studies import document, read_study, run_study
from hitrate_lab.studies.results import load

pytest.importorskip("jinja2")

pytestmark = pytest.mark.slow
browser, opened = in_browser.browser, in_browser.opened
NAMES = ("whole", "long", "small", "exact")
LONG = {
    "CE": "cross entropy, which everybody uses",
    "EL": "a-name-without-any-space-that-is-much-longer-than-a-phone-is-wide",
    "F=0": "<script>alert(1)</script>",
    "Linear": "a-title-without-any-space-that-is-much-longer-than-a-phone-is-wide-and-more",
}
WIDTHS = {"phone": 375, "tablet": 768, "desk": 1280}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    study = read_study(written(folder))
    run_study(study, store=folder / "small.sqlite", jobs=1)
    some = runs_of(SETS, folder / "some.jsonl")
    exact = read_study(ROOT / "studies" / "exact_table_1_2.toml")
    load(ROOT / "studies" / "results" / "exact_table_1_2.jsonl.gz", folder / "exact.sqlite")
    return {
        "whole": report_of(folder, some),
        "small": document(study, folder / "small.sqlite"),
        "exact": document(exact, folder / "exact.sqlite"),
    }


@pytest.fixture(scope="module")
def reports(report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    documents = {**report, "long": renamed(report["whole"], LONG)}
    return {name: write_report(found, folder / f"{name}.html") for name, found in documents.items()}


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_clipped_and_labels_keep_clear_of_one_another(opened, name, width):
    page = opened(name, width)
    for is_open in (False, True):
        # What is folded away must fit as well.
        page.evaluate(f"document.querySelectorAll('details').forEach((d) => d.open = {is_open:d})")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate(CLIPPED) == []
        assert page.evaluate(MISPLACED) == []


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_every_ranking_shows_its_pictures_with_all_methods_in_them(opened, report, width):
    page = opened("whole", width)
    for number, ranked in enumerate(report["whole"]["rankings"], 1):
        shown = page.locator(f"#ranking-{number} svg[role=img]:visible")
        titles = [shown.nth(k).locator("title").first.text_content() for k in range(shown.count())]
        assert titles == [
            "Mean ranks: a critical-difference diagram",
            "Difference to the baseline, points",
            "Performance profiles",
        ]
        for k in (0, 2):
            texts = shown.nth(k).locator("text").all_text_contents()
            assert set(ranked["methods"]) <= set(texts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_every_text_stands_out_from_its_ground(opened, name, scheme):
    page = opened(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert low_contrast(page) == []


def test_a_table_sorts_by_the_numbers_of_a_method(opened, report):
    page = opened("whole")
    page.locator("#table-1 summary").click()
    page.locator("#table-1 th", has_text="EL").locator("button").click()
    rows = report["whole"]["tables"][0]["rows"]
    means = {row["data_set"].split("/")[1]: row["cells"]["EL"]["mean"] for row in rows}
    found = page.locator("#table-1 tbody tr th").all_inner_texts()
    best = [name.split("\n")[0] for name in found[:3]]
    known = [name for name, mean in means.items() if mean is not None]
    assert best == sorted(known, key=means.__getitem__, reverse=True)[:3]


def test_names_of_data_sets_stay_in_sight_when_a_table_scrolls(opened):
    page = opened("whole", 375)
    page.locator("#table-1 summary").click()
    box = page.locator("#table-1 .scroll")
    first = box.locator("tbody th").first
    before = first.bounding_box()["x"]
    box.evaluate("(one) => { one.scrollLeft = 200; }")
    assert box.evaluate("(one) => one.scrollLeft") == 200
    assert first.bounding_box()["x"] == pytest.approx(before, abs=1)


def test_landmarks_headings_and_names_are_there_for_those_who_do_not_see(opened):
    page = opened("whole")
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert page.locator("svg[role=img]:not([aria-labelledby])").count() == 0


@pytest.mark.parametrize("name", ["whole", "exact"])
def test_a_picture_alone_has_all_its_words_inside_and_clear_of_one_another(
    browser, report, name, tmp_path
):
    for path in write_pictures(report[name], tmp_path):
        page = browser.new_page(viewport={"width": 1000, "height": 600})
        page.goto(path.as_uri(), timeout=1000 * HANGS)
        size = page.evaluate("document.documentElement.getBoundingClientRect().width")
        assert size == (970 if path.stem == "exact-gradient-norms" else 820)
        assert page.evaluate(MISPLACED) == []
        page.close()


def test_a_protocols_own_picture_is_shown_and_scrolls_where_it_would_be_too_small(opened):
    wide, narrow = opened("exact"), opened("exact", 375)
    for page, least in ((wide, 900), (narrow, 720)):
        image = page.locator("#picture-1 img")
        assert image.evaluate("(one) => one.naturalWidth") == 970
        assert image.bounding_box()["width"] >= least
    assert wide.locator("#picture-1 .cue").is_hidden()
    assert narrow.locator("#picture-1 .cue").is_visible()


def test_seven_methods_fit_on_a_desk_and_names_of_variants_are_on_a_phone_too(opened, report):
    table = report["exact"]["tables"][0]
    page = opened("exact")
    assert page.locator("#table-1 .cue").is_hidden()
    # Nothing of a table of ten data sets hides in a box of its own.
    hidden = "(one) => one.scrollHeight - one.clientHeight"
    for width in (1280, 375):
        page = opened("exact", width)
        assert page.locator("#table-1 .scroll").evaluate(hidden) <= 1
        tags = page.locator("#table-1 thead .tag")
        assert tags.count() == len(table["variants"]) > 0
        # On a phone two methods are in sight beside the names of data sets.
        second = page.locator("#table-1 thead th").nth(2).bounding_box()
        assert second["x"] + second["width"] <= width
