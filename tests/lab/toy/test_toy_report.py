"""What the toy study prints, writes into its page and draws."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from toy_formulas import FIRST, SECOND

from hitrate.losses import LOSSES
from hitrate_lab.toy import figures, studies, tables
from hitrate_lab.toy.__main__ import main
from hitrate_lab.toy.losses import CASES

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(params=["the paper's losses", pytest.param("all losses", marks=pytest.mark.slow)])
def told(request):
    """What is printed and drawn."""
    name = "results" if request.param == "all losses" else "paper_results"
    return request.getfixturevalue(name)


@pytest.mark.slow
def test_every_loss_of_the_library_takes_part_with_the_minima_that_are_tested(results):
    # With the costs of two classes whose errors cost the same, the expected cost is EXACT's error.
    assert set(LOSSES) - {"expected_cost"} <= set(CASES)
    names = [case.name for case in CASES.values()]
    for rows in (results.first, results.second, results.temperatures):
        assert [row.loss for row in rows] == names
    first, second = results.first, results.second
    assert [row.lowest for row in first] == list(map(studies.lowest_at_weight_one, CASES.values()))
    assert [row.lowest for row in second] == list(map(studies.lowest_of_all, CASES.values()))


@pytest.mark.parametrize(
    ("example", "accuracies"),
    [(FIRST, (2 / 3, 2 / 3, 1.0)), (SECOND, (0.6, 0.6, 0.8))],
    ids=["first", "second"],
)
def test_accuracies_are_those_of_the_paper(told, example, accuracies):
    rows = told.first if example is FIRST else told.second
    for loss, accuracy in zip(("cross entropy", "hinge", "EXACT"), accuracies, strict=True):
        assert example.paper[loss][1] == accuracy
        (row,) = (row for row in rows if row.loss == loss)
        fit = row.annealed if loss == "EXACT" else row.lowest
        assert fit.accuracies(example) == pytest.approx((accuracy, accuracy))


@pytest.mark.slow
def test_tables_show_our_numbers_beside_those_of_the_paper(results):
    first = {line[0]: line for line in tables.first_table(results)}
    assert first["cross entropy"][1:3] == ["0.700", "66.7%"]
    assert first["cross entropy"][-1] == "0.7 (66.7%)"
    assert first["hinge"][1] == "[0.75, 1]"
    assert first["expectation"][1] == "→ ∞"
    second = {line[0]: line for line in tables.second_table(results)}
    assert second["hinge"][2] == "none (always +1)"
    assert second["MPCE"][2] == "none (f = 0)"
    assert second["EXACT"][1:4] == ["→ ∞", "(-6, -5)", "80.0%"]
    assert second["EXACT"][-1] == "-5.35 (80.0%)"


def test_text_and_markdown_hold_the_same_cells(told):
    for _, table in tables.TABLES.values():
        cells = table(told)
        text = [re.split(r"\s{2,}", line) for line in tables.as_text(cells).splitlines()]
        markdown = [line[2:-2].split(" | ") for line in tables.as_markdown(cells).splitlines()]
        assert len(text) == len(markdown) == len(cells) + 1
        for shown, line in zip([text[0], *text[2:]], [markdown[0], *markdown[2:]], strict=True):
            assert shown == [cell for cell in line if cell]


def test_optima_name_both_thresholds_that_differ_from_the_paper(told):
    text = "\n".join(tables.optima(told.second))
    assert "3.3366" in text and "-7.75" in text
    assert "4.0000" in text and "-11" in text


@pytest.mark.parametrize("name", figures.FIGURES)
def test_the_page_or_the_readme_shows_a_picture_that_is_committed_and_small(name):
    page = DOCS / "toy.md" if name != "toy" else DOCS.parent / "README.md"
    assert f"images/{name}.png" in page.read_text(encoding="utf-8")
    assert 10_000 < (DOCS / "images" / f"{name}.png").stat().st_size < 150_000


@pytest.mark.slow
def test_command_prints_the_tables_and_draws_the_same_pictures_twice(
    results, tmp_path, capsys, monkeypatch
):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(studies, "run", lambda: results)
    main(["--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert tables.report(results) in printed
    main(["--out", str(tmp_path / "again")])
    for name in figures.FIGURES:
        assert str(tmp_path / "out" / f"{name}.png") in printed
        folders = (tmp_path / "out", tmp_path / "again")
        first, again = ((folder / f"{name}.png").read_bytes() for folder in folders)
        assert first.startswith(b"\x89PNG")
        assert first == again


def test_the_picture_of_the_readme_shows_both_examples(told):
    backend = pytest.importorskip("matplotlib.backends.backend_agg")
    figure = figures.draw_summary(told)
    left, right = figure.axes
    assert len(left.get_legend().get_texts()) == 5
    words = " ".join(text.get_text() for axes in (left, right) for text in axes.texts)
    for text in ("0.700", "[0.75, 1]", "0.12", "-8.326", "(always +1)", "-5.49"):
        assert text in words
    labels = [label.get_text() for label in right.get_yticklabels()]
    assert labels == ["EXACT\n80%", "hinge\n60%", "cross entropy\n60%"]
    canvas = backend.FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 100


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_picture_cuts_nothing_off_and_no_two_texts_overlap(told, name):
    backend = pytest.importorskip("matplotlib.backends.backend_agg")
    figure = figures.FIGURES[name](told)
    renderer = backend.FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    box, frame = figure.get_tightbbox(renderer), figure.bbox_inches.padded(0.01)
    assert frame.x0 <= box.x0 and box.x1 <= frame.x1
    assert frame.y0 <= box.y0 and box.y1 <= frame.y1
    for axes in figure.axes:
        boxes = [text.get_window_extent(renderer) for text in axes.texts]
        if axes.get_legend():
            boxes.append(axes.get_legend().get_window_extent(renderer))
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
