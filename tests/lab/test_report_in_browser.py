"""The report in a real browser: nothing clipped, all of it usable by keyboard, in any light."""

import re
import shutil

import pytest
from sample_comparison import HOSTILE, comparison, comparisons

from hitrate_lab.report import write_report

pytest.importorskip("jinja2")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
if BROWSER is None:
    pytest.skip(f"no browser: none of {', '.join(BROWSERS)} found", allow_module_level=True)

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


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    return {
        name: write_report(document, folder / f"{name}.html")
        for name, document in DOCUMENTS.items()
    }


@pytest.fixture
def opened(browser, reports):
    """Opens reports; at the end no page may have complained or asked for anything but itself."""
    contexts, troubles = [], []

    def open_report(name, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5_000)
        address = reports[name].as_uri()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))

        def asked(request):
            is_own = request.url.split("#")[0] == address or request.url.startswith("data:")
            troubles.extend([] if is_own else [request.url])

        page.on("request", asked)
        page.goto(address)
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert troubles == []


# What sticks out: of the window, or as text of its own box, unless a box around it scrolls.
CLIPPED = """() => {
  const scrolls = (one) => one.closest('.scroll, pre, .unseen, .skip, select');
  const name = (one) => one.tagName + '.' + one.className + ': ' + one.textContent.slice(0, 40);
  const wide = [...document.querySelectorAll('body *')].filter((one) => {
    const box = one.getBoundingClientRect();
    if (!box.width || scrolls(one) || one.closest('svg svg, svg *')) return false;
    if (box.right > innerWidth + 0.5 || box.left < -0.5) return true;
    const isBox = !['inline', 'contents'].includes(getComputedStyle(one).display);
    return isBox && one.clientWidth && one.scrollWidth > one.clientWidth + 1;
  });
  return wide.map(name);
}"""

# Texts of each picture: outside of it, or over one another.
MISPLACED = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const view = svg.viewBox.baseVal;
    const boxes = [];
    for (const text of svg.querySelectorAll('text')) {
      const inner = text.getBBox();
      const turned = text.hasAttribute('transform');
      const box = text.getBoundingClientRect();
      const label = svg.getAttribute('aria-labelledby') + ': ' + text.lastChild.textContent;
      const outside = turned
        ? box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
        : inner.x < view.x - 1 || inner.x + inner.width > view.x + view.width + 1
          || inner.y < view.y - 1 || inner.y + inner.height > view.y + view.height + 1;
      if (outside) found.push('outside ' + label);
      // Line boxes are taller than letters.
      const trim = 0.2 * inner.height;
      const [x1, x2] = [inner.x, inner.x + inner.width];
      const [y1, y2] = [inner.y + trim, inner.y + inner.height - trim];
      if (turned) continue;
      for (const [a1, a2, b1, b2, other] of boxes)
        if (x1 < a2 && a1 < x2 && y1 < b2 && b1 < y2) found.push(label + ' over ' + other);
      boxes.push([x1, x2, y1, y2, label]);
    }
  }
  return found;
}"""


@pytest.mark.parametrize("width", [375, 768, 1280])
@pytest.mark.parametrize("name", DOCUMENTS)
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


def test_a_large_matrix_scrolls_in_its_own_box_by_key(opened):
    page = opened("hundred", 375)
    box = page.locator("#mistakes .scroll:visible").first
    assert box.evaluate("(one) => one.scrollWidth > 2 * one.clientWidth")
    box.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "() => document.activeElement.scrollLeft > 0 && document.activeElement.tabIndex === 0"
    )


def test_a_box_that_scrolls_says_so_and_others_are_no_stop_for_tab(opened):
    page = opened("car", 375)
    ranking = page.locator("#ranking .scroll")
    assert ranking.get_attribute("tabindex") == "0"
    assert page.locator("#ranking .cue").is_visible()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("() => !document.querySelector('#ranking .scroll[tabindex]')")
    assert not page.locator("#ranking .cue").is_visible()


def luminance(color):
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (v / 255 for v in color)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# Colour of every text and of what lies behind it, a picture's cells included.
COLORS = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(one).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = new Map();
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !one.getBoundingClientRect().width || one.matches('title, desc, option')) continue;
    const style = getComputedStyle(one);
    let behind = ground(one.closest('svg') || one);
    const cell = one.previousElementSibling;
    if (one.matches('svg .count') && cell) {
      const fill = getComputedStyle(cell);
      const share = Number(fill.fillOpacity);
      behind = numbers(fill.fill).map((v, i) => share * v + (1 - share) * behind[i]);
    }
    const color = numbers(one.closest('svg') ? style.fill : style.color);
    found.set(JSON.stringify([color, behind]), one.textContent.trim().slice(0, 30));
  }
  return [...found].map(([colors, text]) => [...JSON.parse(colors), text]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["car", "long", "several"])
def test_every_text_stands_out_from_its_ground(opened, name, scheme):
    page = opened(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    colors = page.evaluate(COLORS)
    assert len(colors) >= 5
    ratios = [(contrast(front, back), text) for front, back, text in colors]
    assert [found for found in ratios if found[0] < 4.5] == []


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
