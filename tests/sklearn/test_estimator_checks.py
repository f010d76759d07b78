"""scikit-learn's own checks of an estimator, for every way to use it."""

import pytest
from expected_failures import ESTIMATORS, EXPECTED, EXPECTED_OF_NETWORK, NETWORKS
from sklearn.utils.estimator_checks import parametrize_with_checks

from hitrate.sklearn import AccuracyClassifier, AccuracyMLPClassifier


# One fit at a time may take few rows of few classes: what is said about convergence is no error.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [AccuracyClassifier(**settings) for settings in ESTIMATORS.values()],
    expected_failed_checks=lambda estimator: EXPECTED,
    xfail_strict=True,
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [AccuracyMLPClassifier(**settings) for settings in NETWORKS.values()],
    expected_failed_checks=lambda estimator: EXPECTED_OF_NETWORK,
    xfail_strict=True,
)
def test_scikit_learn_check_of_the_network(estimator, check):
    check(estimator)
