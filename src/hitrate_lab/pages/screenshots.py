"""Photograph the top of a report for the README.

python -m hitrate_lab.pages.screenshots report.html out.png
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

WIDTH, HEIGHT = 1280, 880
LIMIT = 300_000


def take(report: Path, picture: Path) -> int:
    """Write the picture, twice as fine as the screen, and return its size in bytes."""
    from playwright.sync_api import sync_playwright

    browsers = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=next(filter(None, browsers), None), args=["--no-sandbox"]
        )
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=2,
            color_scheme="light",
        )
        page.goto(report.resolve().as_uri())
        page.screenshot(path=picture)
        browser.close()
    return picture.stat().st_size


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    size = take(arguments.report, arguments.picture)
    if size > LIMIT:
        raise SystemExit(f"{arguments.picture} has {size} bytes, more than {LIMIT}.")
    print(f"{arguments.picture}: {size} bytes")


if __name__ == "__main__":
    main()
