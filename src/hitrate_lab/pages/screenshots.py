"""Photograph the top of two reports, for README and documentation: needs a browser.

    make screenshots

The reports are made of committed results. As a browser is not everywhere, tests do not take the
pictures anew: each carries a digest of the results it shows.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hitrate_lab.pages.measured.demo_table import RESULTS
from hitrate_lab.pages.of_studies.reproduction import committed_report
from hitrate_lab.report import write_report
from hitrate_lab.runs.store import canonical
from hitrate_lab.whole_file import write_whole

WIDTH, HEIGHT = 1280, 880
LIMIT = 300_000
# The name of the digest in a picture.
SHOWS = "Shows"


def demo_report(root: Path) -> dict[str, Any]:
    """The comparison of `make demo`."""
    found: dict[str, Any] = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    return found


def study_report(root: Path) -> dict[str, Any]:
    """The study of EXACT's first tables."""
    name = "exact_table_1_2"
    command = f"hitrate study report {name} --results studies/results/{name}.jsonl.gz --html FILE"
    return committed_report(name, root) | {"commands": [f"hitrate study run {name}", command]}


SCREENSHOTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "docs/images/report.png": demo_report,
    "docs/images/study-report.png": study_report,
}


def digest(document: dict[str, Any]) -> str:
    """What a report shows, in a few letters."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()[:32]


def shown_by(picture: Path) -> str | None:
    """The digest that a picture carries."""
    from PIL import Image

    with Image.open(picture) as found:
        return found.info.get(SHOWS)


def marked(png: bytes, document: dict[str, Any]) -> bytes:
    """The same picture with a palette, and with the digest of what it shows."""
    from PIL import Image, PngImagePlugin

    facts = PngImagePlugin.PngInfo()
    facts.add_text(SHOWS, digest(document))
    file = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        packed = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    packed.save(file, "PNG", optimize=True, pnginfo=facts)
    return file.getvalue()


def take(document: dict[str, Any]) -> bytes:
    """A PNG of the report, twice as fine as the screen."""
    from playwright.sync_api import sync_playwright

    browsers = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        report = write_report(document, Path(folder) / "report.html")
        browser = driver.chromium.launch(
            executable_path=next(filter(None, browsers), None), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=2,
            color_scheme="light",
        )
        page.goto(report.as_uri())
        png: bytes = page.screenshot()
        browser.close()
    return png


def main() -> None:
    """Command line."""
    root = Path.cwd()
    for name, report in SCREENSHOTS.items():
        document = report(root)
        png = marked(take(document), document)
        if len(png) > LIMIT:
            raise SystemExit(f"{name} would have {len(png):,} bytes, more than {LIMIT:,}.")
        write_whole(root / name, png)
        print(f"{name}: {len(png):,} bytes")


if __name__ == "__main__":
    main()
