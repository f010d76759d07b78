"""The programs on the pages of the hosts run, block after block, as on every other page."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGES = sorted((TESTS.parent / "docs" / "hosts").glob("*.md"))
# A program of its own knows nothing of a torchvision that does not fit.
RUN = """
import sys
sys.path[:0] = [{tests!r}, {hosts!r}]
import host_cases
from pathlib import Path
from test_readme import run_blocks
run_blocks(Path({page!r}).read_text(encoding="utf-8"), {page!r})
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_run_in_order(page, tmp_path):
    if page.stem != "index" and find_spec(page.stem) is None:
        pytest.skip(f"{page.stem} is not installed")
    program = RUN.format(tests=str(TESTS), hosts=str(TESTS / "hosts"), page=str(page))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_host_has_a_page():
    modules = {path.stem for path in (TESTS.parent / "src/hitrate/integrations").glob("*.py")}
    others = {"__init__", "boosting", "lightgbm", "xgboost"}
    assert {page.stem for page in PAGES} - {"index"} == modules - others
