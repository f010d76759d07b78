"""The toy problems: optima against independent solvers, EXACT against its limits, the outputs."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, linprog, minimize
from scipy.special import ndtr

from hitrate_lab import toy

FIRST, SECOND = toy.EXAMPLES


def data(example):
    return example.points, example.labels, example.learn_weight


def arrays(example):
    return np.array(example.points), np.array(example.labels)


@pytest.fixture(scope="module")
def rows():
    return toy.compute_rows()


def models(rows, example, loss):
    (row,) = (row for row in rows if row.example is example and row.loss == loss)
    return row.models


def test_cross_entropy_threshold_is_the_root_of_the_loss_slope():
    x, y = arrays(FIRST)

    def slope(b):  # d/db of sum log(1 + exp(-y (x - b))), Eq. 52 before simplification
        return np.sum(y / (1 + np.exp(y * (x - b))))

    assert toy.fit_cross_entropy(*data(FIRST)).threshold == pytest.approx(
        brentq(slope, 0, 2), abs=1e-9
    )


def test_cross_entropy_threshold_rounds_to_the_one_printed_in_the_paper():
    assert toy.fit_cross_entropy(*data(FIRST)).threshold == pytest.approx(0.7, abs=1e-3)


def test_hinge_minimisers_of_the_first_example_are_the_interval_of_the_paper():
    ends = sorted(model.threshold for model in toy.fit_hinge(*data(FIRST)))
    assert ends == [0.75, 1.0]


def test_hinge_is_flat_on_its_interval_and_higher_on_both_sides():
    x, y = arrays(FIRST)

    def loss(b):
        return np.maximum(0, 1 - y * (x - b)).sum()

    assert loss(0.75) == loss(0.9) == loss(1.0) < min(loss(0.74), loss(1.01))


def test_cross_entropy_with_a_learned_weight_agrees_with_a_general_minimiser():
    x, y = arrays(SECOND)
    found = minimize(
        lambda theta: np.logaddexp(0, -y * (theta[0] * x + theta[1])).sum(), [0.0, 0.0], tol=1e-10
    )
    model = toy.fit_cross_entropy(*data(SECOND))
    assert [model.weight, model.bias] == pytest.approx(found.x, abs=1e-5)


def test_hinge_with_a_learned_weight_agrees_with_linear_programming():
    x, y = arrays(SECOND)
    n = len(x)
    # Variables w, c and slacks s >= 0 with s >= 1 - y (w x + c); minimise the sum of the slacks.
    program = linprog(
        np.r_[0, 0, np.ones(n)],
        A_ub=np.c_[-y * x, -y, -np.eye(n)],
        b_ub=-np.ones(n),
        bounds=[(None, None)] * 2 + [(0, None)] * n,
    )
    value, corners = toy.minimize_hinge(*toy.design(SECOND.points, learn_weight=True), y)
    assert value == pytest.approx(program.fun, abs=1e-9)
    assert corners.tolist() == [[0.0, 1.0]]


def test_the_hinge_minimiser_of_the_second_example_is_unique_and_constant():
    x, y = arrays(SECOND)
    (model,) = toy.fit_hinge(*data(SECOND))
    assert (model.weight, model.bias, model.threshold) == (0.0, 1.0, -math.inf)
    angles = np.linspace(0, 2 * np.pi, 1000)
    w, c = 1e-3 * np.cos(angles), 1 + 1e-3 * np.sin(angles)
    around = np.maximum(0, 1 - y * (np.outer(w, x) + c[:, None])).sum(1)
    assert around.min() > 4  # convex: larger all around means larger everywhere


@pytest.mark.parametrize(
    ("solve", "threshold"),
    [(toy.minimize_cross_entropy, -7.75), (toy.minimize_hinge, -11.0)],
    ids=["cross entropy", "hinge"],
)
def test_the_thresholds_printed_in_the_paper_are_near_optimal_but_not_optimal(solve, threshold):
    x, y = arrays(SECOND)
    best, _ = solve(*toy.design(x, learn_weight=True), y)
    pinned, _ = solve(0 * x, (x - threshold)[:, None], y)
    assert best + 1e-4 < pinned < 1.06 * best


def test_exact_reaches_the_middle_of_the_gap_in_the_first_example():
    assert toy.fit_exact(*data(FIRST)).threshold == pytest.approx(0.125, abs=0.01)


def test_exact_reaches_the_middle_of_the_best_interval_in_the_second_example():
    model = toy.fit_exact(*data(SECOND))
    assert model.weight > 0
    assert model.threshold == pytest.approx(-5.5, abs=0.01)


@pytest.mark.parametrize(
    ("example", "start"),
    [(FIRST, (-2.0,)), (FIRST, (2.0,))]
    + [(SECOND, start) for start in [(-1.0, 0.0), (0.0, -1.0), (0.1, -3.0)]],
)
def test_exact_does_not_depend_on_the_start(example, start):
    default, other = toy.fit_exact(*data(example)), toy.fit_exact(*data(example), start=start)
    assert other.threshold == pytest.approx(default.threshold, abs=1e-3)


@pytest.mark.parametrize("sigma", [10.0, 1.0])
def test_the_normalised_objective_has_one_maximum_while_sigma_is_large(sigma):
    def maxima(scores, labels, cyclic):
        logits = np.stack([0 * scores, scores], -1)
        scale = logits.std(axis=(1, 2))[:, None]
        p = ndtr(labels * scores / (scale * sigma * math.sqrt(2))).mean(1)
        inside = (p > np.roll(p, 1)) & (p > np.roll(p, -1))
        return inside.sum() if cyclic else inside[1:-1].sum()

    x, y = arrays(FIRST)
    assert maxima(x - np.linspace(-5, 5, 4001)[:, None], y, cyclic=False) == 1
    x, y = arrays(SECOND)
    angle = np.linspace(-np.pi, np.pi, 4001)[:-1, None]  # all (w, c) up to their scale
    assert maxima(np.cos(angle) * x / 4 + np.sin(angle), y, cyclic=True) == 1


def test_sigma_is_the_noise_of_each_score():
    import torch

    import hitrate

    p = hitrate.expected_accuracy(torch.tensor([[0.0, 0.3]]), torch.tensor([1]), 0.2)
    assert p.item() == pytest.approx(ndtr(0.3 / (0.2 * math.sqrt(2))), rel=1e-5)


@pytest.mark.parametrize(
    ("example", "accuracies"),
    [(FIRST, (2 / 3, 2 / 3, 1.0)), (SECOND, (0.6, 0.6, 0.8))],
    ids=["first", "second"],
)
def test_accuracies_are_those_of_the_paper(rows, example, accuracies):
    for loss, accuracy in zip(("cross entropy", "hinge", "EXACT"), accuracies, strict=True):
        assert example.paper[loss][1] == accuracy
        for model in models(rows, example, loss):
            assert model.accuracy(example.points, example.labels) == pytest.approx(accuracy)


def test_only_the_point_at_zero_is_missed_by_exact_in_the_second_example(rows):
    (model,) = models(rows, SECOND, "EXACT")
    hits = [model.accuracy([x], [y]) for x, y in zip(SECOND.points, SECOND.labels, strict=True)]
    assert hits == [1, 1, 1, 0, 1]


def test_table_shows_our_numbers_beside_those_of_the_paper(rows):
    lines = toy.table(rows).splitlines()[2:]
    assert len(lines) == 6
    for line, row in zip(lines, rows, strict=True):
        theirs, accuracy = row.example.paper[row.loss]
        tail = [row.threshold, f"{row.accuracy:.1%}", theirs, f"{accuracy:.1%}"]
        assert line.split() == f"{row.example.name} {row.loss} {' '.join(tail)}".split()
    assert "[0.75, 1]" in lines[1]
    assert "none (always +1)" in lines[4]


def test_notes_name_both_thresholds_that_differ_from_the_paper(rows):
    text = toy.notes(rows)
    assert "3.3366" in text and "-7.75" in text
    assert "4.0000" in text and "-11" in text


def test_command_prints_the_table_and_writes_the_same_picture_twice(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    seen = []
    for name in ("first", "second"):
        toy.main(["--out", str(tmp_path / name)])
        path = tmp_path / name / "toy.png"
        printed = capsys.readouterr().out
        assert printed.rstrip().endswith(str(path))
        seen.append((printed.replace(str(path), ""), path.read_bytes()))
    assert seen[0] == seen[1]
    assert seen[0][1].startswith(b"\x89PNG")


def test_picture_shows_both_examples(rows):
    backend = pytest.importorskip("matplotlib.backends.backend_agg")
    figure = toy.draw(rows)
    left, right = figure.axes
    assert len(left.get_legend().get_texts()) == 5
    words = " ".join(text.get_text() for axes in (left, right) for text in axes.texts)
    for row in rows:
        assert row.threshold.removeprefix("none ") in words
    labels = [label.get_text() for label in right.get_yticklabels()]
    assert labels == ["EXACT\n80%", "hinge\n60%", "cross entropy\n60%"]
    canvas = backend.FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    assert len(np.unique(pixels.reshape(-1, 4), axis=0)) > 100
