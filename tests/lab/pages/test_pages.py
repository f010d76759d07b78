"""Generated tables and pictures are what `make pages` writes."""

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from hitrate_lab.bad_input import BadInput
from hitrate_lab.pages.__main__ import main
from hitrate_lab.pages.made import Made, filled, png_of, same_picture, stale, write
from hitrate_lab.pages.registry import GENERATORS
from hitrate_lab.pages.screenshots import SCREENSHOTS, digest, marked, shown_by
from hitrate_lab.toy import studies

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A second's work each; the others take up to half a minute.
OFTEN = (
    *("architecture", "cpu", "demo", "gpu", "large_inputs", "sklearn", "sklearn_defaults"),
    "exact_figure_7",
)
# Tables that other tests hold against the code, or against what was measured.
BY_HAND = {"imbalanced", "printed", "properties", "recipes", "versions"}


@pytest.mark.parametrize("name", OFTEN)
def test_tables_and_pictures_are_those_of_the_committed_results(name):
    found = stale(GENERATORS[name](ROOT), ROOT)
    assert not found, f"{', '.join(found)}: stale; `make pages` writes them anew"


@pytest.mark.slow
def test_every_generated_table_and_picture_is_as_it_should_be(results, monkeypatch):
    monkeypatch.setattr(studies, "run", lambda: results)
    made = [make(ROOT) for make in GENERATORS.values()]
    found = [name for each in made for name in stale(each, ROOT)]
    assert not found, f"{', '.join(found)}: stale; `make pages` writes them anew"

    # Every block and picture that is there comes from a generator.
    told = {(page, mark) for each in made for page in each.blocks for mark in each.blocks[page]}
    there = set()
    for path in DOCUMENTS:
        page = path.relative_to(ROOT).as_posix()
        marks = re.findall(r"<!-- ([\w-]+):start -->", path.read_text(encoding="utf-8"))
        there |= {(page, mark) for mark in marks if mark not in BY_HAND}
    assert told == there
    files = (path for path in (ROOT / "docs" / "images").rglob("*") if path.is_file())
    drawn = {name for each in made for name in each.pictures} | SCREENSHOTS.keys()
    assert {path.relative_to(ROOT).as_posix() for path in files} == drawn


@pytest.fixture
def small(tmp_path):
    """A page with two blocks, and what should be in them."""
    blocks = (
        f"<!-- {name}:start -->\n{k}\n<!-- {name}:end -->\n" for name, k in (("a", 1), ("b", 2))
    )
    (tmp_path / "page.md").write_text("words\n".join(["# A page\n", *blocks]))
    return tmp_path, Made({"page.md": {"a": "1", "b": "2"}}, {"images/x.svg": "<svg/>"})


def test_a_stale_table_is_named_and_written(small):
    root, made = small
    assert stale(made, root) == ["images/x.svg"] == write(made, root)
    assert stale(made, root) == []
    page = (root / "page.md").read_text()
    (root / "page.md").write_text(page.replace("\n2\n", "\n3\n"))
    assert stale(made, root) == ["page.md"] == write(made, root)
    assert (root / "page.md").read_text() == page


def test_computed_numbers_may_differ_by_a_unit_of_their_last_digit(small):
    root, _ = small
    assert stale(Made({"page.md": {"a": "2"}}, is_computed=True), root) == []
    assert stale(Made({"page.md": {"a": "3"}}, is_computed=True), root) == ["page.md"]
    assert stale(Made({"page.md": {"a": "one"}}, is_computed=True), root) == ["page.md"]


@pytest.mark.parametrize(
    "page", ["", "<!-- n:start -->\n", 2 * "<!-- n:start -->\n1\n<!-- n:end -->\n"]
)
def test_marks_that_a_page_lacks_or_has_twice_are_an_error(page):
    with pytest.raises(BadInput, match="<!-- n:start -->"):
        filled(page, {"n": "1"})


def drawn(words):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2), layout="constrained")
    figure.subplots().plot([0, 1], [0, 1], label=words)
    figure.legend()
    return figure


def test_a_picture_with_another_digit_in_its_legend_is_stale(tmp_path):
    (tmp_path / "x.png").write_bytes(png_of(drawn("0.41")))
    assert stale(Made(pictures={"x.png": png_of(drawn("0.41"))}), tmp_path) == []
    made = Made(pictures={"x.png": png_of(drawn("0.47"))})
    assert stale(made, tmp_path) == ["x.png"] == write(made, tmp_path)
    assert stale(Made(pictures={"x.png": png_of(drawn("0.47"))}), tmp_path) == []


def test_the_command_says_what_is_stale_and_mends_it(tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "README.md", tmp_path)
    for folder in ("benchmarks/results", "studies/results"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks/results/compare_car.json", tmp_path / "benchmarks/results")
    page = (tmp_path / "README.md").read_text("utf-8")
    (tmp_path / "README.md").write_text(page.replace("| p | fit |", "| q | fit |"), "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="`make pages` mends them"):
        main(["--check", "demo"])
    assert capsys.readouterr().out == "README.md: stale, demo\n"
    main(["demo"])
    assert (tmp_path / "README.md").read_text("utf-8") == page
    main(["--check", "demo"])
    assert capsys.readouterr().out.endswith("All are as they should be.\n")


@pytest.mark.parametrize(
    ("words", "line"), [(["demos"], "no generator demos"), ([], "root of the re")]
)
def test_what_the_command_cannot_do_is_said(words, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(words)
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("name", SCREENSHOTS)
def test_a_screenshot_shows_the_committed_results(name):
    shown, now = shown_by(ROOT / name), digest(SCREENSHOTS[name](ROOT))
    assert shown == now, f"{name}: stale; `make screenshots` takes it anew, which needs a browser"


def test_a_screenshot_carries_what_it_shows_and_the_same_pixels(tmp_path):
    png, document = png_of(drawn("0.41")), {"accuracy": 0.41}
    (tmp_path / "x.png").write_bytes(marked(png, document))
    assert shown_by(tmp_path / "x.png") == digest(document) != digest({"accuracy": 0.42})
    assert same_picture(png, tmp_path / "x.png")
