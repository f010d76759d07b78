"""The reproduction pages say what the committed runs say."""

import re
from pathlib import Path

import pytest

from hitrate_lab.pages import reproduction as maker

DOCS = Path(__file__).resolve().parents[3] / "docs"


def pages():
    return sorted(f"reproduction/{path.name}" for path in (DOCS / "reproduction").glob("*.md"))


# The others have many runs.
OFTEN = "reproduction/exact_cost.md"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page == OFTEN else [pytest.mark.slow]) for page in pages()],
)
def test_writing_a_page_anew_changes_nothing(page):
    assert maker.written(page) == (DOCS / page).read_text(encoding="utf-8")


def test_every_page_is_written_and_every_committed_run_is_on_one():
    assert sorted(maker.PAGES) == pages()
    shown = {study for blocks in maker.PAGES.values() for study, _ in blocks.values()}
    results = maker.STUDIES / "results"
    assert shown == {path.name.removesuffix(".jsonl.gz") for path in results.glob("*.jsonl.gz")}


def test_pictures_and_commands_of_the_pages_are_there():
    for page in pages():
        text = (DOCS / page).read_text(encoding="utf-8")
        for picture in re.findall(r"\]\(\.\./images/(.+?)\)", text):
            assert (DOCS / "images" / picture).is_file()
        studies = {study for study, _ in maker.PAGES[page].values()}
        assert studies <= set(re.findall(r"hitrate study report (\w+) --results", text))
