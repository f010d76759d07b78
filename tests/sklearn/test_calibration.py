"""Probabilities from scores."""

import numpy as np
import pytest
import torch

import hitrate
from hitrate.sklearn.calibration import Calibration, calibrate


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_are_those_of_the_library(noise, classes):
    scores = torch.randn(20, classes - 1, dtype=torch.float64)
    every = torch.nn.functional.pad(scores, (1, 0))
    expected = hitrate.class_probabilities(every, 2.5, noise=noise)
    found = Calibration(noise, 2.5, 0.0).probabilities(scores.numpy())
    np.testing.assert_allclose(found, expected, atol=1e-9)
    mixed = Calibration(noise, 2.5, 0.2).probabilities(scores.numpy())
    np.testing.assert_allclose(mixed, 0.8 * expected + 0.2 / classes, atol=1e-9)


@pytest.mark.parametrize("lapse", [0.0, 0.2])
@pytest.mark.parametrize("noise", ["normal", "gumbel"])
@pytest.mark.parametrize("classes", [2, 4])
def test_what_made_the_targets_is_found_again(noise, classes, lapse):
    random = np.random.default_rng(0)
    scores = 5 * random.standard_normal((4000, classes - 1))
    p = Calibration(noise, 3.0, lapse).probabilities(scores)
    target = (p.cumsum(1) < random.random((4000, 1))).sum(1)
    found = calibrate(scores, target, np.ones(4000), random)
    # The noises look alike, but for their scale: a probit is a softmax at 1.28 of its temperature.
    assert found.lapse == pytest.approx(lapse, abs=0.06)
    np.testing.assert_allclose(found.probabilities(scores), p, atol=0.08)


def test_scores_without_a_difference_are_a_guess():
    found = calibrate(np.zeros((10, 2)), np.zeros(10, int), np.ones(10), np.random.default_rng(0))
    np.testing.assert_allclose(found.probabilities(np.zeros((1, 2))), 1 / 3)


def test_no_error_is_no_infallibility():
    scores = np.array([[-3.0], [4.0]] * 50)
    found = calibrate(scores, np.tile([0, 1], 50), np.ones(100), np.random.default_rng(0))
    assert 0.9 < found.probabilities(scores).max() < 1
