"""The report in a real browser: nothing clipped, all of it usable by keyboard, in any light."""

import re

import in_browser
import pytest
from in_browser import CLIPPED, MISPLACED, low_contrast
from sample_comparison import HOSTILE, comparison, comparisons

from hitrate_lab.report import write_report

pytest.importorskip("jinja2")

browser, opened = in_browser.browser, in_browser.opened
LONG = "a-name-without-any-space-that-is-much-longer-than-a-phone-is-wide-" * 3
DOCUMENTS = {
    "car": comparison(methods=5),
    "hundred": comparison(classes=100, rows=20_000),
    "long": comparison(words=[f"{LONG}{i}" for i in range(9)], complete=False),
    "hostile": comparison(words=HOSTILE),
    "small": comparison(rows=3, methods=2),
    "several": comparisons(),
    "crowded": comparisons(copies=3),
}


class Reports(dict):
    """Files by the names of documents, written when they are asked for."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __missing__(self, name):
        self[name] = write_report(DOCUMENTS[name], self.folder / f"{name}.html")
        return self[name]


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    return Reports(tmp_path_factory.mktemp("reports"))


def often(*names):
    """The first of them is for every change."""
    return [names[0], *(pytest.param(name, marks=pytest.mark.slow) for name in names[1:])]


@pytest.mark.parametrize("width", often(375, 768, 1280))
@pytest.mark.parametrize("name", often(*DOCUMENTS))
def test_nothing_is_clipped_and_labels_keep_clear_of_one_another(opened, name, width):
    page = opened(name, width)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(MISPLACED) == []
    # What is folded away must fit as well.
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate(CLIPPED) == []


def column(page, table, number):
    cells = page.locator(f"{table} tbody tr:visible > :nth-child({number})")
    return [text.strip() for text in cells.all_inner_texts()]


def tab_to(page, words, most=60):
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == words:
            return
    raise AssertionError(f"Tab never reaches {words!r}")


def test_a_header_sorts_by_key_as_numbers_and_says_so(opened):
    page = opened("car")
    times = [method["fit_seconds"] for method in DOCUMENTS["car"]["methods"]]
    tab_to(page, "Fit")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    # 63 ms comes before 3.4 s, which as text it does not.
    assert column(page, ".ranks", 6) == ["63 ms", "0.2 s", "0.8 s", "2.1 s", "3.4 s"]
    head = page.locator(".ranks th:nth-child(6)")
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.locator(".ranks [aria-sort]").count() == 1
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    values = page.locator(".ranks tbody td:nth-child(6)")
    shown = [float(cell.get_attribute("data-value")) for cell in values.all()]
    assert shown == sorted(times, reverse=True)
    assert page.locator("#spoken").inner_text() == "Sorted by Fit, descending."


@pytest.mark.slow
def test_what_is_missing_sorts_last_in_either_direction(opened):
    page = opened("car")
    for _ in range(2):
        page.locator(".ranks th:nth-child(4) button").click()
        assert column(page, ".ranks", 4)[-1] == "–"
    page.locator(".ranks th:nth-child(2) button").click()
    names = [name.split("\n")[0] for name in column(page, ".ranks", 2)]
    assert [name.lower() for name in names] == sorted(name.lower() for name in names)


def test_the_theme_is_switched_by_key_and_remembered(opened):
    page = opened("car", color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    tab_to(page, "☾ Dark")
    page.keyboard.press("Enter")
    dark = page.evaluate(ground)
    assert dark != light
    assert page.locator("#theme").inner_text() == "☀ Light"
    page.reload()
    assert page.evaluate(ground) == dark
    assert opened("small", color_scheme="dark").evaluate(ground) == dark


@pytest.mark.slow
def test_details_open_by_key(opened):
    page = opened("car")
    assert not page.get_by_text("Settings tried per method and fold").is_visible()
    tab_to(page, "Settings, environment and data", 200)
    page.keyboard.press("Enter")
    assert page.get_by_text("Settings tried per method and fold").is_visible()


def test_the_filter_leaves_rows_gained_or_lost(opened):
    page = opened("car")
    changed = DOCUMENTS["car"]["changed"]
    rows = page.locator(".changed tbody tr:visible")
    for words, mark, expected in (
        ("▲ Gained", "▲ gained", changed["gained"]),
        ("▼ Lost", "▼ lost", changed["lost"]),
    ):
        page.get_by_role("button", name=words).press("Enter")
        assert rows.count() == expected > 0
        assert set(column(page, ".changed", 2)) == {mark}
        assert page.locator(".shown").inner_text() == str(expected)
    page.locator(".changed th:nth-child(1) button").click()
    numbers = [int(number) for number in column(page, ".changed", 1)]
    assert numbers == sorted(numbers) and len(numbers) == changed["lost"]
    page.get_by_role("button", name="All").click()
    assert rows.count() == len(changed["rows"])


def test_any_two_methods_can_be_put_side_by_side(opened):
    page = opened("car")
    shown = page.locator("#mistakes figure:visible h3")
    assert shown.all_inner_texts() == ["logistic regression", "network, EXACT"]
    page.locator("select").nth(0).select_option(label="linear, hinge")
    assert shown.all_inner_texts() == ["linear, hinge", "network, EXACT"]
    assert page.locator("#confidence figure:visible h3").all_inner_texts() == [
        "linear, hinge",
        "network, EXACT",
    ]


@pytest.mark.slow
def test_a_large_matrix_scrolls_in_its_own_box_by_key(opened):
    page = opened("hundred", 375)
    box = page.locator("#mistakes .scroll:visible").first
    assert box.evaluate("(one) => one.scrollWidth > 2 * one.clientWidth")
    box.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "() => document.activeElement.scrollLeft > 0 && document.activeElement.tabIndex === 0"
    )


@pytest.mark.slow
def test_a_box_that_scrolls_says_so_and_others_are_no_stop_for_tab(opened):
    page = opened("car", 375)
    ranking = page.locator("#ranking .scroll")
    assert ranking.get_attribute("tabindex") == "0"
    assert page.locator("#ranking .cue").is_visible()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("() => !document.querySelector('#ranking .scroll[tabindex]')")
    assert not page.locator("#ranking .cue").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", often("car", "long", "several"))
def test_every_text_stands_out_from_its_ground(opened, name, scheme):
    page = opened(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert low_contrast(page) == []


@pytest.mark.slow
def test_everything_is_readable_without_scripts(opened):
    page = opened("car", java_script_enabled=False)
    assert page.locator("#mistakes figure:visible").count() == 5
    assert page.locator(".changed tbody tr:visible").count() == len(
        DOCUMENTS["car"]["changed"]["rows"]
    )
    # No control that would do nothing.
    assert page.locator("button:visible, select:visible").count() == 0
    page.locator("#details summary").click()
    assert page.get_by_text("Settings tried per method and fold").is_visible()


@pytest.mark.slow
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_print_is_light_open_and_without_controls(opened, scripts):
    page = opened("car", color_scheme="dark", java_script_enabled=scripts)
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 20
    page.emulate_media(media="print")
    assert page.locator("#theme:visible, .filter:visible, .pick:visible, nav:visible").count() == 0
    background = page.locator("body").evaluate("(one) => getComputedStyle(one).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    inside = page.get_by_text("Settings tried per method and fold")
    assert inside.bounding_box()["height"] > 0


def test_the_page_has_landmarks_a_skip_link_and_no_control_without_a_name(opened):
    page = opened("car")
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for role in ("button", "combobox", "region"):
        named = page.get_by_role(role, name=re.compile("."))
        assert named.count() == page.get_by_role(role).count() > 0
