"""Profiles, effect sizes and the Bayesian test against definitions, scipy and enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from hitrate_lab.statistics import paired_effect, profiles, signed_rank
from hitrate_lab.statistics.effects import rank_biserial

RANDOM = np.random.default_rng(0)
SCORES = RANDOM.integers(40, 100, size=(50, 4)) / 100
A, B = SCORES[:, 0] + 0.02, SCORES[:, 1]


# Profiles


def naive_share(scores, method, tau):
    return np.mean([row[method] / max(row) >= tau for row in scores.tolist()])


def test_profiles_are_the_definition_at_below_and_above_every_step():
    for method, profile in enumerate(profiles(SCORES)):
        assert (np.diff(profile.thresholds) > 0).all()
        assert profile.shares[0] == 1
        for tau in profile.thresholds:
            for near in (np.nextafter(tau, 0), tau, np.nextafter(tau, 2)):
                assert profile.at(near) == pytest.approx(
                    naive_share(SCORES, method, near), abs=1e-12
                )
        assert profile.at([0.0, 1.5]).tolist() == [1, 0]


def test_the_area_under_a_profile_is_the_mean_ratio_to_the_best():
    ratios = SCORES / SCORES.max(1, keepdims=True)
    for method, profile in enumerate(profiles(SCORES)):
        widths = np.diff(np.append(0.0, profile.thresholds))
        assert widths @ profile.shares == pytest.approx(ratios[:, method].mean(), abs=1e-12)


def test_the_share_at_one_counts_wins_and_ties():
    wins = (SCORES == SCORES.max(1, keepdims=True)).mean(0)
    assert [float(profile.at(1.0)) for profile in profiles(SCORES)] == wins.tolist()
    assert wins.sum() > 1  # there are ties


def test_where_every_score_is_zero_every_method_is_best():
    for profile in profiles([[0.0, 0.0], [0.0, 0.0]]):
        assert profile.thresholds.tolist() == [1] and profile.shares.tolist() == [1]
    (one,) = profiles([[0.3]])
    assert one.at([0.5, 1.0, 1.01]).tolist() == [1, 1, 0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.5])
def test_profiles_refuse_what_has_no_ratio(bad):
    with pytest.raises(ValueError, match=rf"profiles\(.*\(1, 0\) is {bad}"):
        profiles([[0.5, 0.6], [bad, 0.7]])


# Effects


def naive_rank_biserial(d):
    d = [each for each in d if each != 0]
    if not d:
        return 0.0
    rank = [sum(abs(b) < abs(a) for b in d) + (sum(abs(b) == abs(a) for b in d) + 1) / 2 for a in d]
    up = sum(r for r, each in zip(rank, d, strict=True) if each > 0)
    down = sum(r for r, each in zip(rank, d, strict=True) if each < 0)
    return (up - down) / (up + down)


def test_rank_biserial_is_that_of_counting_pairs():
    rows = RANDOM.integers(-3, 4, size=(300, 7)).astype(float)
    assert rank_biserial(rows) == pytest.approx([naive_rank_biserial(row) for row in rows])


def test_rank_biserial_goes_with_the_statistic_of_wilcoxon():
    d = RANDOM.normal(0.3, 1, 25)
    smaller = stats.wilcoxon(d).statistic
    total = 25 * 26 / 2
    assert abs(rank_biserial(d[None])[0]) == pytest.approx(1 - 2 * smaller / total, abs=1e-12)


def test_an_example_worked_by_hand():
    # |d| = 1, 2, 2, 4, 5: ranks 1, 2.5, 2.5, 4, 5; the second and the fourth are losses.
    a = np.array([0.61, 0.50, 0.72, 0.80, 0.95, 0.4])
    b = np.array([0.60, 0.52, 0.70, 0.84, 0.90, 0.4])
    effect = paired_effect(a, b)
    assert (effect.wins, effect.ties, effect.losses) == (3, 1, 2)
    assert effect.rank_biserial.value == pytest.approx((8.5 - 6.5) / 15, abs=1e-12)
    assert effect.mean.value == pytest.approx(0.02 / 6, abs=1e-12)
    assert effect.median.value == pytest.approx(0.005, abs=1e-12)


def test_effects_of_the_other_order_are_the_negative():
    one, other = paired_effect(A, B), paired_effect(B, A)
    assert (one.wins, one.ties, one.losses) == (other.losses, other.ties, other.wins)
    for name in ("mean", "median", "rank_biserial"):
        x, y = getattr(one, name), getattr(other, name)
        assert x.value == pytest.approx(-y.value, abs=1e-12)
        assert (x.low, x.high) == pytest.approx((-y.high, -y.low), abs=1e-9)


STATISTICS = {
    "mean": np.mean,
    "median": np.median,
    "rank_biserial": lambda d, axis=-1: np.apply_along_axis(naive_rank_biserial, axis, d),
}


def exact_bca(d, statistic, level):
    """BCa from all n^n resamples, each as likely as the next: no draws, no seed."""
    value = statistic(np.array(d))
    every = np.array([statistic(np.array(r)) for r in itertools.product(d, repeat=len(d))])
    below = (np.mean(every < value - 1e-12) + np.mean(every < value + 1e-12)) / 2
    left_out = np.array([statistic(np.delete(d, i)) for i in range(len(d))])
    u = left_out.mean() - left_out
    acceleration = (u**3).sum() / (6 * (u**2).sum() ** 1.5)
    bias = stats.norm.ppf(below)
    z = bias + stats.norm.ppf([(1 - level) / 2, (1 + level) / 2])
    return np.quantile(every, stats.norm.cdf(bias + z / (1 - acceleration * z))), every


@pytest.mark.parametrize("name", ["mean", "rank_biserial"])
def test_intervals_are_those_of_all_resamples_up_to_the_draws(name):
    d = [0.03, -0.01, 0.04, 0.02, 0.11]
    (low, high), every = exact_bca(d, STATISTICS[name], 0.8)
    ours = getattr(paired_effect(d, np.zeros(5), level=0.8, resamples=200_000, seed=3), name)
    # Shares below the ends: four standard errors, and what values that tie have in one step.
    for mine, exact in ((ours.low, low), (ours.high, high)):
        at = [np.mean(every < exact - 1e-12), np.mean(every < exact + 1e-12)]
        mass = [np.mean(every < mine - 1e-12), np.mean(every < mine + 1e-12)]
        error = 4 * math.sqrt(0.25 / 200_000)
        assert mass[0] <= at[1] + error and mass[1] >= at[0] - error


@pytest.mark.parametrize("name", STATISTICS)
def test_intervals_are_those_of_scipy_within_the_spread_of_their_draws(name):
    d = np.random.default_rng(2).normal(0.3, 1, 20)
    theirs = [
        stats.bootstrap(
            (d,),
            STATISTICS[name],
            vectorized=True,
            n_resamples=1_000,
            method="BCa",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        for seed in range(6)
    ]
    ours = getattr(paired_effect(d, np.zeros(20), resamples=50_000), name)
    for side in ("low", "high"):
        values = np.array([getattr(each, side) for each in theirs])
        assert abs(getattr(ours, side) - values.mean()) <= 3 * values.std(ddof=1) + 1e-10


def test_the_same_seed_gives_the_same_interval_and_another_a_near_one():
    assert paired_effect(A, B) == paired_effect(A, B, seed=0)
    other = paired_effect(A, B, seed=1)
    assert other != paired_effect(A, B)
    assert other.mean.low == pytest.approx(paired_effect(A, B).mean.low, abs=0.01)


def test_one_data_set_and_equal_differences_have_intervals_without_width():
    one = paired_effect([0.9], [0.8])
    for interval, value in ((one.mean, 0.1), (one.median, 0.1), (one.rank_biserial, 1.0)):
        assert interval.value == interval.low == interval.high == pytest.approx(value)
    same = paired_effect([0.9, 0.5, 0.3], [0.8, 0.4, 0.2])
    assert same.mean.low == same.mean.high == pytest.approx(0.1)
    none = paired_effect([0.5, 0.6], [0.5, 0.6])
    assert (none.wins, none.ties, none.losses) == (0, 2, 0)
    assert none.rank_biserial.value == none.mean.low == none.mean.high == 0


def test_differences_that_are_equal_on_paper_tie():
    # 0.3 - 0.2 < 0.2 - 0.1 < 0.9 - 0.8 in floating point, by a few of the last bits.
    effect = paired_effect([0.3, 0.1, 0.9], [0.2, 0.2, 0.8])
    assert effect.rank_biserial.value == pytest.approx(1 / 3, abs=1e-12)
    tiny = paired_effect([3e-20, 1e-20, 9e-20], [2e-20, 2e-20, 8e-20])
    assert tiny.rank_biserial.value == pytest.approx(1 / 3, abs=1e-12)
    assert tiny.wins == 2


def test_coverage_of_the_interval_of_the_mean_is_near_its_level():
    random = np.random.default_rng(5)
    held = 0
    for seed in range(300):
        d = random.exponential(1, 40) - 0.5
        interval = paired_effect(d, np.zeros(40), resamples=400, seed=seed, level=0.9).mean
        held += interval.low <= 0.5 <= interval.high
    # 90 % of 300, three standard errors of 1.7 %, and the two percent that it is known to lack.
    assert 0.9 - 0.02 - 3 * 0.017 <= held / 300 <= 0.9 + 3 * 0.017


@pytest.mark.parametrize("function", [paired_effect, signed_rank])
def test_what_cannot_be_paired_is_refused(function):
    name = function.__name__
    for a, b in (([], []), ([0.5], [0.5, 0.6]), ([[0.5]], [[0.6]])):
        with pytest.raises(ValueError, match=rf"{name}\(a of shape .*two scores for each"):
            function(a, b)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"{name}\(.*at \(1, 0\) is {bad}"):
            function([0.5, 0.6], [bad, 0.5])


def test_options_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"level=1\.0"):
        paired_effect([0.5], [0.4], level=1.0)
    with pytest.raises(ValueError, match="resamples=0"):
        paired_effect([0.5], [0.4], resamples=0)
    for options in ({"rope": -0.1}, {"rope": math.nan}, {"prior": 0.0}, {"samples": 0}):
        (name,) = options
        with pytest.raises(ValueError, match=rf"signed_rank\(.*{name}="):
            signed_rank([0.5], [0.4], **options)


# The Bayesian test


def naive_theta(w, d, rope):
    """Worse, equal, better for one draw of weights, by the double sum."""
    theta = [0.0, 0.0, 0.0]
    for i, j in itertools.product(range(len(d)), repeat=2):
        total = round(d[i] + d[j], 10)
        theta[1 + (total > 2 * rope) - (total < -2 * rope)] += w[i] * w[j]
    return theta


@pytest.mark.parametrize("rope", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("prior", [0.5, 2.0])
def test_posterior_means_are_those_of_the_moments_of_a_dirichlet(rope, prior):
    a = np.array([0.80, 0.71, 0.66, 0.90, 0.55, 0.61])
    b = np.array([0.78, 0.72, 0.60, 0.88, 0.55, 0.64])
    d = np.append(0, np.round(a - b, 10))
    alpha = np.append(prior, np.ones(6))
    total = alpha.sum()
    second = (np.outer(alpha, alpha) + np.diag(alpha)) / (total * (total + 1))
    mean = np.zeros(3)
    for i, j in itertools.product(range(7), repeat=2):
        pair = round(d[i] + d[j], 10)
        mean[1 + (pair > 2 * rope) - (pair < -2 * rope)] += second[i, j]
    ours = signed_rank(a, b, rope=rope, prior=prior, samples=100_000)
    # A number between 0 and 1 has a standard deviation of at most 1/2.
    assert ours.mean == pytest.approx(mean, abs=4 * 0.5 / math.sqrt(100_000))
    assert sum(ours.mean) == pytest.approx(1, abs=1e-10)


def test_probabilities_are_those_of_a_slow_program_with_its_own_draws():
    a, b = A[:6], B[:6]
    d = [0.0, *np.round(a - b, 10)]
    random = np.random.default_rng(11)
    wins = np.zeros(3)
    for _ in range(4_000):
        gammas = np.array([random.gamma(0.5), *random.gamma(1.0, size=6)])
        wins[np.argmax(naive_theta(gammas / gammas.sum(), d, 0.02))] += 1
    ours = signed_rank(a, b, rope=0.02)
    error = np.sqrt(0.25 / 4_000)
    assert [ours.worse, ours.equal, ours.better] == pytest.approx(wins / 4_000, abs=4 * error)
    assert 0 < ours.error <= 0.5 / math.sqrt(50_000)


def test_with_one_data_set_the_probability_has_a_closed_form():
    # Better is w_1² + 2 w_0 w_1 = 1 - w_0², the most probable case if w_0 < sqrt(1/2), and w_0 is
    # beta(s, 1) distributed: w_0^s is uniform.
    for prior in (0.5, 1.0, 3.0):
        ours = signed_rank([0.9], [0.5], prior=prior)
        assert ours.better == pytest.approx(math.sqrt(0.5) ** prior, abs=4 * ours.error)
        assert ours.worse == 0
        assert ours.equal + ours.better == pytest.approx(1, abs=1e-12)


def test_methods_that_are_the_same_are_equal():
    ours = signed_rank([0.5, 0.6], [0.5, 0.6])
    assert (ours.worse, ours.equal, ours.better, ours.error) == (0, 1, 0, 0)


def test_differences_within_the_region_are_equal_and_its_edge_belongs_to_it():
    a = np.array([0.93, 0.92, 0.94, 0.91])
    b = np.array([0.92, 0.91, 0.93, 0.90])
    assert signed_rank(a, b, rope=0.01).equal == 1
    assert signed_rank(a, b, rope=0.0099).better > 0.8
    assert signed_rank(b, a, rope=0.0099).worse > 0.8


def test_the_seed_decides_the_draws():
    assert signed_rank(A, B, samples=500) == signed_rank(A, B, samples=500, seed=0)
    assert signed_rank(A, B, samples=500) != signed_rank(A, B, samples=500, seed=1)
