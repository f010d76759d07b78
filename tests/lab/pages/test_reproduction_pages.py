"""The reproduction pages show every committed study, and how to see more of it."""

import re
from pathlib import Path

from hitrate_lab.pages.of_studies.reproduction import SHOWN

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "reproduction").glob("*.md"))


def test_every_page_shows_committed_runs_and_every_committed_run_is_on_one():
    assert {shown.page for shown in SHOWN.values()} == {page.stem for page in PAGES}
    results = (ROOT / "studies" / "results").glob("*.jsonl.gz")
    assert SHOWN.keys() == {path.name.removesuffix(".jsonl.gz") for path in results}


def test_pictures_and_commands_of_the_pages_are_there():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        here = {name: shown for name, shown in SHOWN.items() if shown.page == page.stem}
        pictures = re.findall(r"\]\(\.\./images/(.+?)\.svg\)", text)
        assert sorted(pictures) == sorted(
            name for shown in here.values() for name in shown.pictures
        )
        assert here.keys() <= set(re.findall(r"hitrate study report (\w+) --results", text))
