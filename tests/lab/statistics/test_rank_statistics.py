"""Friedman's and Conover's tests against scipy, scikit-posthocs, formulas and printed examples."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from hitrate_lab.statistics import benjamini_hochberg, conover, friedman, mid_ranks

# Demšar (2006), Table 6: AUC of C4.5 and of three tuned forms of it on 14 data sets. In the last
# row but one the third and the fourth are both printed as 0.975, and ranked 2 and 3.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)

# Conover (1999), section 5.8, example 1: how twelve homeowners ranked four kinds of grass.
GRASS = np.array(
    [
        [4, 3, 2, 1],
        [4, 2, 3, 1],
        [3, 1.5, 1.5, 4],
        [3, 1, 2, 4],
        [4, 2, 1, 3],
        [2, 2, 2, 4],
        [1, 3, 2, 4],
        [2, 4, 1, 3],
        [3.5, 1, 2, 3.5],
        [4, 1, 3, 2],
        [4, 2, 3, 1],
        [3.5, 1, 2, 3.5],
    ]
)

RANDOM = np.random.default_rng(0)
TABLES = {
    "no ties": RANDOM.random((20, 6)),
    "few ties": RANDOM.integers(12, size=(30, 5)) / 12,
    "many ties": RANDOM.integers(3, size=(15, 4)) / 3,
    "two methods": RANDOM.random((9, 2)),
    "two data sets": RANDOM.random((2, 4)),
    "one is best": RANDOM.random((121, 6)) + np.array([0.3, 0, 0, 0.1, 0, 0]),
    "Demšar": DEMSAR,
}
tables = pytest.mark.parametrize("scores", TABLES.values(), ids=TABLES)


def naive_ranks(row):
    return [sum(b > a for b in row) + (sum(b == a for b in row) + 1) / 2 for a in row]


@tables
def test_ranks_are_those_of_scipy_and_of_counting(scores):
    ranks = mid_ranks(scores)
    assert (ranks == stats.rankdata(-scores, axis=1)).all()
    assert (ranks == [naive_ranks(row) for row in scores.tolist()]).all()


@pytest.mark.parametrize("name", [name for name in TABLES if name != "two methods"])
def test_friedman_is_that_of_scipy(name):
    ours, theirs = friedman(TABLES[name]), stats.friedmanchisquare(*TABLES[name].T)
    assert ours.statistic == pytest.approx(theirs.statistic, abs=1e-10)
    assert ours.p == pytest.approx(theirs.pvalue, abs=1e-10)


def naive_f(scores):
    """The F of a two-way analysis of variance of the ranks, which Iman and Davenport's is."""
    ranks = np.array([naive_ranks(row) for row in scores.tolist()])
    n, k = ranks.shape
    between = n * ((ranks.mean(0) - ranks.mean()) ** 2).sum()
    within = ((ranks - ranks.mean(0) - ranks.mean(1, keepdims=True) + ranks.mean()) ** 2).sum()
    return (between / (k - 1)) / (within / ((n - 1) * (k - 1)))


@tables
def test_iman_and_davenport_is_the_analysis_of_variance_of_ranks(scores):
    n, k = scores.shape
    f = naive_f(scores)
    ours = friedman(scores)
    assert ours.f == pytest.approx(f, rel=1e-10)
    assert ours.f_p == pytest.approx(stats.f.sf(f, k - 1, (k - 1) * (n - 1)), abs=1e-10)
    chi = ours.statistic
    assert ours.f == pytest.approx((n - 1) * chi / (n * (k - 1) - chi), rel=1e-10)


def test_the_example_of_demsar_comes_out_as_printed():
    ours = friedman(DEMSAR)
    assert [round(rank, 3) for rank in ours.ranks] == [3.143, 2.000, 2.893, 1.964]
    # The paper leaves ties uncorrected; of its mean ranks the formula makes 9.28 and 3.69.
    n, k = DEMSAR.shape
    plain = 12 * n / (k * (k + 1)) * (np.square(ours.ranks).sum() - k * (k + 1) ** 2 / 4)
    assert round(plain, 2) == 9.28
    assert round((n - 1) * plain / (n * (k - 1) - plain), 2) == 3.69
    ties = sum(
        sum(count**3 - count for count in np.unique(row, return_counts=True)[1]) for row in DEMSAR
    )
    assert ours.statistic == pytest.approx(plain / (1 - ties / (n * (k**3 - k))), abs=1e-10)


def test_the_example_of_conover_comes_out_as_printed():
    ours = friedman(-GRASS)
    assert [12 * rank for rank in ours.ranks] == pytest.approx([38, 23.5, 24.5, 34], abs=1e-12)
    assert round(ours.statistic, 4) == 8.0973
    assert round(ours.f, 2) == 3.19
    # Rank sums that are more than 11.49 apart differ at 5 %: the first from the second and third.
    p = conover(-GRASS).p
    told = {(i, j) for i, j in itertools.combinations(range(4), 2) if p[i, j] < 0.05}
    assert told == {(0, 1), (0, 2)}
    sums = GRASS.sum(0)
    scale = stats.t.isf(p[0, 1] / 2, 33) / abs(sums[0] - sums[1])
    assert stats.t.isf(0.025, 33) / scale == pytest.approx(11.49, abs=0.01)


@tables
def test_conover_is_its_formula_written_out(scores):
    n, k = scores.shape
    ranks = [naive_ranks(row) for row in scores.tolist()]
    sums = [sum(row[j] for row in ranks) for j in range(k)]
    squares = sum(rank**2 for row in ranks for rank in row)
    ours = conover(scores)
    for i, j in itertools.permutations(range(k), 2):
        error = math.sqrt(2 * n * (squares - sum(r**2 for r in sums) / n) / ((n - 1) * (k - 1)))
        t = abs(sums[i] - sums[j]) / error
        p = 2 * stats.t.sf(t, (n - 1) * (k - 1))
        assert ours.p[i, j] == pytest.approx(p, abs=1e-10)
    upper = np.triu_indices(k, 1)
    adjusted = stats.false_discovery_control(np.minimum(ours.p[upper], 1), method="bh")
    assert ours.adjusted[upper] == pytest.approx(adjusted, abs=1e-10)
    assert (ours.adjusted == ours.adjusted.T).all()
    assert (np.diag(ours.adjusted) == 1).all()


@tables
@pytest.mark.parametrize("adjust", [None, "fdr_bh"])
def test_conover_is_that_of_scikit_posthocs(scores, adjust):
    posthocs = pytest.importorskip("scikit_posthocs")
    theirs = posthocs.posthoc_conover_friedman(-scores, p_adjust=adjust).to_numpy()
    ours = conover(scores)
    assert (ours.adjusted if adjust else ours.p) == pytest.approx(theirs, abs=1e-10)


def test_two_methods_are_told_apart_as_by_the_f_of_their_ranks():
    scores = TABLES["two methods"]
    assert conover(scores).p[0, 1] == pytest.approx(friedman(scores).f_p, abs=1e-10)


def test_over_all_orders_of_three_methods_the_statistic_has_its_exact_mean():
    # Under the hypothesis all (3!)^3 outcomes are equally likely; the mean of χ² is k - 1.
    orders = list(itertools.permutations((3.0, 2.0, 1.0)))
    found = [friedman(rows).statistic for rows in itertools.product(orders, repeat=3)]
    assert len(found) == 216
    assert np.mean(found) == pytest.approx(2, abs=1e-10)
    # Printed tables of the exact distribution: P(χ² >= 6) = 0.028 and P(χ² >= 4.667) = 0.194.
    assert round(np.mean(np.array(found) > 5.99), 3) == 0.028
    assert round(np.mean(np.array(found) > 4.66), 3) == 0.194


@tables
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3, 0.9])
def test_groups_are_all_maximal_cliques_of_pairs_that_are_not_told_apart(scores, alpha):
    ours = conover(scores)
    k = scores.shape[1]
    cliques = [
        set(some)
        for size in range(2, k + 1)
        for some in itertools.combinations(range(k), size)
        if all(ours.adjusted[i, j] >= alpha for i, j in itertools.combinations(some, 2))
    ]
    largest = [some for some in cliques if not any(some < other for other in cliques)]
    groups = ours.groups(alpha)
    assert sorted(map(sorted, groups)) == sorted(map(sorted, largest))
    for group in groups:
        ranks = [ours.ranks[each] for each in group]
        assert ranks == sorted(ranks)


def test_the_adjustment_is_that_of_scipy_and_keeps_the_order_given():
    for m in (1, 2, 15, 100):
        p = np.random.default_rng(m).random(m) ** 3
        theirs = stats.false_discovery_control(p, method="bh")
        assert benjamini_hochberg(p.tolist()) == pytest.approx(theirs.tolist(), abs=1e-14)
    assert benjamini_hochberg([]) == []


# What is degenerate has an answer.


def test_one_method_differs_from_nothing():
    ours = friedman([[0.5], [0.7]])
    assert (ours.ranks, ours.statistic, ours.p, ours.f, ours.f_p) == ((1.0,), 0, 1, 0, 1)
    assert conover([[0.5], [0.7]]).p.tolist() == [[1.0]]
    assert conover([[0.5], [0.7]]).groups() == []


def test_one_data_set_tells_nothing_apart():
    ours = friedman([[0.5, 0.7, 0.6]])
    assert (ours.ranks, ours.p, ours.f_p) == ((3.0, 1.0, 2.0), 1.0, 1.0)
    assert (conover([[0.5, 0.7, 0.6]]).p == 1).all()
    assert conover([[0.5, 0.7, 0.6]]).groups() == [(1, 2, 0)]


def test_equal_scores_are_not_told_apart():
    scores = np.full((5, 3), 0.9)
    ours = friedman(scores)
    assert (ours.ranks, ours.statistic, ours.p, ours.f, ours.f_p) == ((2.0,) * 3, 0, 1, 0, 1)
    assert (conover(scores).p == 1).all()
    assert conover(scores).groups() == [(0, 1, 2)]


def test_data_sets_that_all_agree_leave_no_doubt():
    scores = np.tile([0.9, 0.7, 0.8, 0.8], (6, 1))
    ours = friedman(scores)
    assert (ours.f, ours.f_p) == (math.inf, 0)
    pairs = conover(scores)
    assert pairs.p[2, 3] == 1 and pairs.p[0, 1] == 0
    assert pairs.groups() == [(2, 3)]


@pytest.mark.parametrize("function", [friedman, conover, mid_ranks])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_the_place_of_it(function, bad):
    scores = np.ones((3, 2))
    scores[2, 1] = bad
    with pytest.raises(ValueError, match=rf"{function.__name__}\(.*\(3, 2\)\).*\(2, 1\) is {bad}"):
        function(scores)


@pytest.mark.parametrize("bad", [[], [1.0, 2.0], [[]], [[[1.0]]]], ids=str)
def test_what_is_no_table_is_refused(bad):
    for function in (friedman, conover):
        with pytest.raises(ValueError, match=rf"{function.__name__}\(.*one row per data set"):
            function(bad)


def test_levels_and_p_values_outside_of_zero_and_one_are_refused():
    with pytest.raises(ValueError, match=r"groups\(alpha=1\.5\)"):
        conover(DEMSAR).groups(1.5)
    with pytest.raises(ValueError, match=r"benjamini_hochberg\(\[0\.1, nan\]\)"):
        benjamini_hochberg([0.1, math.nan])
