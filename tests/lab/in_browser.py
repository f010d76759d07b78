"""Pages in a real browser: fixtures that open them, and what to look for in any of them."""

import shutil

import pytest
from watched import HANGS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
if BROWSER is None:
    pytest.skip(f"no browser: none of {', '.join(BROWSERS)} found", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"], timeout=1000 * HANGS
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser, reports):
    """Opens reports; at the end no page may have complained or asked for anything but itself."""
    contexts, troubles = [], []

    def open_report(name, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * HANGS)
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
      const moved = text.closest('g[transform]')?.transform.baseVal.consolidate().matrix;
      if (moved) [inner.x, inner.y] = [inner.x + moved.e, inner.y + moved.f];
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


def low_contrast(page):
    """Texts that do not stand out from their ground, with the contrast that they have."""
    colors = page.evaluate(COLORS)
    assert len(colors) >= 5
    ratios = [(contrast(front, back), text) for front, back, text in colors]
    return [found for found in ratios if found[0] < 4.5]
