"""The corrected resampled t-test against scipy, a formula written out, and printed tables."""

import math

import numpy as np
import pytest
from scipy import stats

from hitrate_lab.statistics import corrected_estimate, holm

A, B = np.random.default_rng(0).normal([[0.9], [0.88]], 0.02, (2, 10))


def test_without_the_correction_it_is_the_paired_t_test_of_scipy():
    ours = corrected_estimate(A - B, 0.0)
    theirs = stats.ttest_rel(A, B)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, abs=1e-10)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=1e-10)
    assert ours.std == pytest.approx(stats.tstd(A - B), abs=1e-12)


@pytest.mark.parametrize("ratio", [1 / 9, 1 / 4, 1.0])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_with_the_correction_it_is_a_t_distribution_of_the_wider_scale(ratio, level):
    difference = A - B
    scale = math.sqrt((1 / 10 + ratio) * difference.var(ddof=1))
    wider = stats.t(df=9, loc=difference.mean(), scale=scale)
    ours = corrected_estimate(difference, ratio, level=level)
    assert (ours.low, ours.high) == pytest.approx(wider.interval(level), abs=1e-10)
    assert ours.p == pytest.approx(2 * min(wider.cdf(0), wider.sf(0)), abs=1e-10)


def test_critical_values_are_those_of_printed_tables():
    # Student's t, two-sided 5 %: 2.776 at 4 degrees of freedom, 2.262 at 9, 2.093 at 19.
    for n, critical in ((5, 2.776), (10, 2.262), (20, 2.093)):
        values = np.where(np.arange(n) % 2, 1.0, -1.0)
        ours = corrected_estimate(values, 0.25)
        assert ours.high - ours.mean == pytest.approx(
            critical * ours.std * math.sqrt(1 / n + 0.25), rel=3e-4
        )


def test_a_difference_at_the_critical_value_has_a_p_of_five_percent():
    spread = np.array([-1.0, 1.0, -1.0, 1.0, 0.0])
    error = spread.std(ddof=1) * math.sqrt(1 / 5 + 1 / 4)
    ours = corrected_estimate(spread + stats.t.ppf(0.975, 4) * error, 1 / 4)
    assert ours.p == pytest.approx(0.05, abs=1e-10)
    assert ours.low == pytest.approx(0.0, abs=1e-10)


def test_shared_rows_of_folds_make_the_uncorrected_test_too_sure():
    # Two methods that are equally good: the ratio of wrong alarms to 5 %.
    random = np.random.default_rng(1)
    alarms = {0.0: 0, 0.25: 0}
    for _ in range(400):
        shared = random.normal(0, 1)
        folds = shared * math.sqrt(0.25 / 1.25) + random.normal(0, 1, 10)
        for ratio in alarms:
            alarms[ratio] += corrected_estimate(folds, ratio).p < 0.05
    assert alarms[0.25] / 400 < 0.06 < alarms[0.0] / 400


def test_no_difference_in_any_fold_is_no_evidence():
    ours = corrected_estimate(np.zeros(10), 0.25)
    assert (ours.mean, ours.low, ours.high, ours.p) == (0, 0, 0, 1)


def test_the_same_difference_in_every_fold_is_judged_by_its_sign_and_has_no_interval():
    ours = corrected_estimate(np.full(10, 0.1), 0.25)
    assert (ours.mean, ours.low, ours.high) == (0.1, None, None)
    assert ours.p == stats.binomtest(10, 10).pvalue


def test_one_fold_has_a_mean_and_nothing_else():
    ours = corrected_estimate([0.75], 0.25)
    assert (ours.mean, ours.n) == (0.75, 1)
    assert ours.std is ours.low is ours.high is ours.p is None


@pytest.mark.parametrize("values", [[0.1, math.nan], [math.inf, 0.2], [], [[0.1, 0.2]]])
def test_what_is_no_row_of_numbers_is_refused(values):
    with pytest.raises(ValueError, match="corrected_estimate"):
        corrected_estimate(values, 0.25)


@pytest.mark.parametrize("ratio", [-0.1, math.nan, math.inf])
def test_a_ratio_that_cannot_be_is_refused(ratio):
    with pytest.raises(ValueError, match="ratio"):
        corrected_estimate([0.1, 0.2], ratio)


def test_holm_is_the_example_worked_out_by_hand():
    # 4 * 0.005, 3 * 0.01, 2 * 0.03, 1 * 0.04 kept at the 0.06 before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_rejects_what_the_step_down_rule_rejects():
    random = np.random.default_rng(2)
    for _ in range(200):
        p = random.uniform(0, 0.1, random.integers(1, 8))
        rejected = np.zeros(len(p), bool)
        for step, k in enumerate(np.argsort(p)):
            if p[k] > 0.05 / (len(p) - step):
                break
            rejected[k] = True
        assert [each <= 0.05 for each in holm(p)] == rejected.tolist()


def test_what_is_no_p_value_is_refused():
    for p in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="holm"):
            holm([0.5, p])
