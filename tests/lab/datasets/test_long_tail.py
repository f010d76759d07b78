"""A long tail has the rows that the published sets have."""

import numpy as np
import pytest

from hitrate_lab.datasets.long_tail import counts_of, long_tailed


@pytest.mark.parametrize(
    ("rows", "classes", "imbalance", "total"),
    # CIFAR-100-LT and CIFAR-10-LT, as those who publish on them count their training rows.
    [(50_000, 100, 100, 10_847), (50_000, 10, 100, 12_406), (50_000, 100, 10, 19_573)],
)
def test_sizes_are_the_published_ones(rows, classes, imbalance, total):
    counts = counts_of(rows, classes, imbalance)
    assert sum(counts) == total and len(counts) == classes
    assert counts[0] / counts[-1] == pytest.approx(imbalance, rel=0.02)
    assert counts == sorted(counts, reverse=True)


def test_the_first_rows_of_each_class_stay_in_their_order():
    labels = np.random.default_rng(0).integers(0, 5, 1000)
    kept = long_tailed(labels, 5, 10.0)
    assert (np.diff(kept) > 0).all()
    for c, count in enumerate(counts_of(1000, 5, 10.0)):
        every = np.flatnonzero(labels == c)
        assert kept[labels[kept] == c].tolist() == every[:count].tolist()


def test_no_class_is_left_without_rows_that_it_has():
    labels = np.array([0] * 50 + [1] * 3 + [2] * 2)
    kept = long_tailed(labels, 4, 1000.0)
    # 55 rows of four classes: 13 of the first; the last has none to keep.
    assert np.bincount(labels[kept], minlength=4).tolist() == [13, 1, 1, 0]
