"""The pictures of other counts show what the pages say of them."""

import pytest

pytest.importorskip("matplotlib")

from hitrate_lab.pages import count_pictures


@pytest.fixture(scope="module")
def pictures():
    return dict(count_pictures.pictures())


def lowest(line):
    x, y = line.get_data()
    return x[y.argmin()]


def test_the_balanced_boundary_is_in_the_middle_and_the_other_is_not(pictures):
    _, right = pictures["balanced"].axes
    alike, balanced = (line for line in right.lines if len(line.get_xdata()) > 1)
    # The densities cross at 1 + log(9) / 2 = 2.1; noise of 0.3 moves that a little.
    assert lowest(balanced) == pytest.approx(1.0, abs=0.05)
    assert lowest(alike) == pytest.approx(2.2, abs=0.2)


def test_the_lines_of_costs_cross_at_a_tenth(pictures):
    left, _ = pictures["cost"].axes
    never, always = left.lines[:2]
    q = never.get_xdata()
    cheaper = always.get_ydata() < never.get_ydata()
    assert q[cheaper].min() == pytest.approx(0.1, abs=0.01)


def test_the_more_recall_counts_the_lower_is_the_best_threshold(pictures):
    _, right = pictures["f_beta"].axes
    curves = [line for line in right.lines if len(line.get_xdata()) > 1]
    best = [x[y.argmax()] for x, y in (line.get_data() for line in curves)]
    assert best == sorted(best, reverse=True) and best[0] > best[-1] + 0.5
