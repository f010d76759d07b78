"""Probabilities from logits."""

import pytest
import torch

import hitrate
from hitrate import Calibration, calibrate
from hitrate.calibration import lowest_of


def some(rows, classes, seed=0):
    return torch.randn(
        rows, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def drawn(p, seed=1):
    return torch.multinomial(p, 1, generator=torch.Generator().manual_seed(seed))[:, 0]


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_are_those_of_the_library(noise, classes):
    logits = some(20, classes)
    expected = hitrate.class_probabilities(logits, 2.5, noise=noise)
    torch.testing.assert_close(Calibration(noise, 2.5, 0.0).probabilities(logits), expected)
    mixed = Calibration(noise, 2.5, 0.2).probabilities(logits)
    torch.testing.assert_close(mixed, 0.8 * expected + 0.2 / classes)


def test_classes_may_be_anywhere_but_first():
    images = some(6, 12).reshape(2, 3, 3, 4)
    found = Calibration("normal", 2.0, 0.1).probabilities(images)
    torch.testing.assert_close(found.sum(1), torch.ones(2, 3, 4, dtype=torch.float64))
    one = Calibration("normal", 2.0, 0.1).probabilities(images[:, :, 1, 2])
    torch.testing.assert_close(found[:, :, 1, 2], one)


@pytest.mark.parametrize("lapse", [0.0, 0.2])
@pytest.mark.parametrize("noise", ["normal", "gumbel"])
@pytest.mark.parametrize("classes", [2, 4])
def test_what_made_the_targets_is_found_again(noise, classes, lapse):
    logits = 5 * some(4000, classes)
    p = Calibration(noise, 3.0, lapse).probabilities(logits)
    found = calibrate(logits, drawn(p))
    # The noises look alike, but for their scale: a probit is a softmax at 1.28 of its temperature.
    assert found.lapse == pytest.approx(lapse, abs=0.06)
    torch.testing.assert_close(found.probabilities(logits), p, atol=0.08, rtol=0)
    asked_for = calibrate(logits, drawn(p), noise=noise)
    assert asked_for.noise == noise
    assert asked_for.temperature == pytest.approx(3.0, rel=0.2)


def test_rows_count_by_their_weight():
    logits, target = 3 * some(300, 3), torch.arange(300) % 3
    weight = (torch.arange(300) < 100).float()
    assert calibrate(logits, target, weight=weight).temperature == pytest.approx(
        calibrate(logits[:100], target[:100]).temperature, rel=0.1
    )


def test_of_many_rows_the_same_ones_are_looked_at():
    logits = 3 * some(20_000, 3)
    target = drawn(logits.softmax(1))
    assert calibrate(logits, target) == calibrate(logits, target)
    other = calibrate(logits, target, generator=torch.Generator().manual_seed(5))
    assert other.temperature == pytest.approx(calibrate(logits, target).temperature, rel=0.2)


def test_logits_without_a_difference_are_a_guess():
    found = calibrate(torch.zeros(10, 3), torch.zeros(10, dtype=torch.long))
    torch.testing.assert_close(found.probabilities(torch.zeros(1, 3)), torch.full((1, 3), 1 / 3))


def test_no_error_is_no_infallibility():
    logits = torch.tensor([[3.0, 0.0], [0.0, 4.0]]).repeat(50, 1)
    found = calibrate(logits, torch.tensor([0, 1]).repeat(50))
    assert 0.9 < found.probabilities(logits).max() < 1


def test_a_masked_class_stays_the_least_likely():
    logits = 2 * some(500, 4)
    logits[:, 3] = -torch.inf
    found = calibrate(logits, drawn(logits.softmax(1)))
    p = found.probabilities(logits)
    torch.testing.assert_close(p[:, 3], torch.full_like(p[:, 3], found.lapse / 4))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"noise": "cauchy"}, "calibrate\\(noise='cauchy'\\): not one of 'normal', 'gumbel'"),
        ({"weight": torch.ones(3)}, "weight must have shape \\(10,\\)"),
        ({"target": torch.full((10,), 7)}, "target 7 is out of range"),
        ({"logits": torch.zeros(0, 3), "target": torch.zeros(0).long()}, "no rows"),
        ({"logits": torch.zeros(10)}, "must have shape \\(N, C\\)"),
    ],
)
def test_what_is_wrong_is_told(arguments, complaint):
    given = {"logits": torch.zeros(10, 3), "target": torch.zeros(10).long(), **arguments}
    with pytest.raises(ValueError, match=complaint):
        calibrate(given.pop("logits"), given.pop("target"), **given)


def test_the_lowest_place_of_a_valley_is_found():
    place, least = lowest_of(lambda x: (x - 0.3) ** 2 + 1, -1.0, 1.0)
    assert place == pytest.approx(0.3, abs=0.02)
    assert least == pytest.approx(1.0, abs=1e-3)


def test_classes_that_only_rounding_tells_apart_are_level():
    # Beside a lapse both losing classes have the same probability, so their logarithms do too.
    far = torch.linspace(0.06, 0.09, 200, dtype=torch.float64)
    logits = torch.stack([-far, -far - 0.0005, torch.zeros_like(far)], 1)
    found = Calibration("gumbel", 0.0019, 0.025).probabilities(logits)
    of_logarithms = found.log().argsort(dim=1, stable=True)
    assert torch.equal(found.argsort(dim=1, stable=True), of_logarithms)
    torch.testing.assert_close(found.sum(1), torch.ones_like(far), rtol=1e-15, atol=0)
