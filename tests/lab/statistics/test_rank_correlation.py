"""Spearman's correlation is scipy's, and its interval covers what it should."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from hitrate_lab.statistics import grouped_interval, spearman


@pytest.mark.parametrize("ties", [False, True])
def test_it_is_scipys(ties):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 50))
    if ties:
        x, y = np.round(x), np.round(y)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)


def test_what_does_not_vary_has_no_correlation():
    assert spearman([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0


def mean(rows):
    return float(rows.mean())


def test_groups_are_drawn_whole():
    # Ten equal rows know no more than one of them.
    random = np.random.default_rng(1)
    values = np.repeat(random.standard_normal(30), 10)[:, None]
    alone = grouped_interval(mean, values[::10], list(map(str, range(30))))
    grouped = grouped_interval(mean, values, [str(k // 10) for k in range(300)])
    each = grouped_interval(mean, values, list(map(str, range(300))))
    assert astuple(grouped) == pytest.approx(astuple(alone))
    assert each.high - each.low < 0.5 * (grouped.high - grouped.low)


def test_an_interval_of_a_mean_is_that_of_its_standard_error():
    values = np.random.default_rng(2).standard_normal((400, 1))
    found = grouped_interval(mean, values, list(map(str, range(400))), resamples=2000)
    error = values.std(ddof=1) / 20
    assert found.high - found.value == pytest.approx(1.96 * error, rel=0.1)
    assert found.value - found.low == pytest.approx(1.96 * error, rel=0.1)


def test_rows_without_groups_are_refused():
    with pytest.raises(ValueError, match=r"got \(3, 1\) and 2"):
        grouped_interval(mean, np.zeros((3, 1)), ["a", "b"])
