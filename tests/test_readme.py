import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Hosts are not installed everywhere; tests/hosts has their pages.
DOCS = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "hosts"]
PAGES = [ROOT / "README.md", *sorted(DOCS)]
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
NOT_RUN = "<!-- not run -->"


class Block(NamedTuple):
    language: str
    line: int  # of the first line of code, counted from 1
    code: str
    runs: bool


def fenced_blocks(text: str) -> list[Block]:
    lines = text.splitlines()
    blocks, fence, start = [], None, 0
    for number, line in enumerate(lines):
        if fence is None:
            if fence := re.match(r" *(`{3,}) *([^`]*)$", line):
                start = number
        elif line.strip() == fence[1]:
            indent = len(fence[0]) - len(fence[0].lstrip())
            code = "\n".join(each[indent:] for each in lines[start + 1 : number])
            runs = start == 0 or lines[start - 1].strip() != NOT_RUN
            blocks.append(Block(fence[2].strip(), start + 2, code, runs))
            fence = None
    assert fence is None, f"the block opened on line {start + 1} is never closed"
    return blocks


def run_blocks(text: str, name: str) -> None:
    namespace = {"__name__": "__main__"}
    for block in fenced_blocks(text):
        if block.language == "python" and block.runs:
            # Empty lines in front make a traceback name the line of the page.
            source = "\n" * (block.line - 1) + block.code
            exec(compile(source, name, "exec"), namespace)


def named_make_targets(text: str) -> set[str]:
    commands = [block.code for block in fenced_blocks(text) if block.language != "python"]
    in_blocks = re.findall(r"(?:^|[;&$]) *make +([a-z]\w*)", "\n".join(commands), re.MULTILINE)
    return {*in_blocks, *re.findall(r"`make +([a-z]\w*)", text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    run_blocks(page.read_text(encoding="utf-8"), str(page))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_make_targets_that_a_guide_names_exist(guide):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]\w*):", makefile, re.MULTILINE))
    assert named_make_targets(guide.read_text(encoding="utf-8")) <= targets


PAGE = """\
```python
x = 1
```
- an indented block shares the names of the one before:

  ```python
  x += 1
  ```

<!-- not run -->
```python
raise RuntimeError
```
```console
$ make bench
make demo && make test
```
We make sure that `make docs` counts too.
```python
assert x == 3, x
```
"""


def test_blocks_share_names_and_a_failure_names_its_line():
    with pytest.raises(AssertionError, match="2") as failure:
        run_blocks(PAGE, "page.md")
    assert failure.traceback[-1].lineno + 1 == PAGE.splitlines().index("assert x == 3, x") + 1


def test_make_targets_are_read_from_commands_and_not_from_prose():
    assert named_make_targets(PAGE) == {"bench", "demo", "test", "docs"}


def test_the_numbers_on_the_page_of_measurements_are_those_of_the_committed_results():
    import json

    figures = json.loads((ROOT / "benchmarks" / "results" / "cpu.json").read_text())["figures_8_9"]
    page = (ROOT / "docs" / "measured.md").read_text()
    equal = figures["monte_carlo_samples_equal_to_one_genz_sample"]
    assert f"about {round(equal['genz_given_order']['gradient']['interpolated'], -2):,.0f} " in page
    assert 1e7 < equal["genz"]["gradient"]["extrapolated"] < 1e8
    for error in figures["quadrature"].values():
        assert f"{error:.0e}" in page
