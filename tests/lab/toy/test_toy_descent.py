"""Trained models: EXACT's recipe against its limits, and descents with a temperature."""

import functools
import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from toy_formulas import FIRST, SECOND, arrays

import hitrate
from hitrate_lab.toy.descent import Tempered, anneal, descend
from hitrate_lab.toy.losses import CASES, zero_and

EXACT = CASES["exact"]


EXAMPLES = {"first": FIRST, "second": SECOND}


@functools.cache
def model(name, start=None):
    """What EXACT trains on an example."""
    (found,) = anneal(EXACT, EXAMPLES[name], start=start).models
    return found


def test_exact_reaches_the_middle_of_the_gap_in_the_first_example():
    assert model("first").threshold == pytest.approx(0.125, abs=0.01)


def test_exact_reaches_the_middle_of_the_best_interval_in_the_second_example():
    assert model("second").weight > 0
    assert model("second").threshold == pytest.approx(-5.5, abs=0.01)


@pytest.mark.parametrize(
    ("example", "start"),
    [("first", (-2.0,)), ("first", (2.0,))]
    + [("second", start) for start in [(-1.0, 0.0), (0.0, -1.0), (0.1, -3.0)]],
)
def test_exact_does_not_depend_on_the_start(example, start):
    found, usual = model(example, start), model(example)
    assert found.threshold == pytest.approx(usual.threshold, abs=1e-3)


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


@pytest.mark.parametrize("link", ["error", "log", "batch_log"])
def test_a_tempered_loss_is_what_exact_does_by_itself(link):
    case = {"error": EXACT, "log": CASES["probit"], "batch_log": CASES["exact_batch_log"]}[link]
    scores = torch.randn(6, dtype=torch.float64)
    target = torch.randint(2, (6,))
    own = hitrate.ExactLoss(0.3, normalize=True, link=link)(zero_and(scores), target)
    assert Tempered(case, 0.3)(scores, target).item() == pytest.approx(own.item(), rel=1e-12)


@pytest.mark.slow
def test_falling_noise_leads_all_losses_but_one_to_a_perfect_threshold(results):
    failed = [row.loss for row in results.first if not row.annealed.is_perfect(FIRST)]
    assert failed == ["truncated GCE"]


@pytest.mark.slow
def test_falling_noise_leads_only_bounded_losses_to_the_middle_of_the_best_interval(results):
    near = [
        row.loss
        for row in results.second
        if row.annealed.thresholds[0] == pytest.approx(-5.5, abs=0.01)
    ]
    bounded = ["EXACT", "expectation", "mean absolute error", "GCE", "EXACT, batch log"]
    assert near == bounded


@pytest.mark.slow
def test_only_the_point_at_zero_is_missed_by_exact_in_the_second_example(results):
    (row,) = (row for row in results.second if row.loss == "EXACT")
    (model,) = row.annealed.models
    hits = [model.accuracy([x], [y]) for x, y in zip(SECOND.points, SECOND.labels, strict=True)]
    assert hits == [1, 1, 1, 0, 1]


@pytest.mark.slow
def test_with_a_temperature_descent_makes_all_losses_but_one_perfect(results):
    failed = [row.loss for row in results.temperatures if row.perfect_step is None]
    assert failed == ["truncated GCE"]
    for row in results.temperatures:
        is_perfect = row.descent.accuracy(FIRST.points, FIRST.labels) == 1
        assert is_perfect == (row.loss not in failed)


@pytest.mark.slow
def test_without_temperature_only_a_small_sigma_can_be_perfect_and_then_not_from_everywhere(
    results,
):
    counts = {row.sigma: row.perfect_starts for row in results.sigmas}
    assert all(counts[sigma] == 0 for sigma in (10.0, 3.0, 1.0, 0.3))
    assert counts[0.1] > counts[0.03] > counts[0.01] > 0


def test_descents_started_together_do_not_feel_each_other():
    start = torch.tensor([[1.0, 0.0], [2.0, -0.5]], dtype=torch.float64)

    def losses(theta):
        return EXACT.of_models(FIRST, theta[:, 0], -theta[:, 0] * theta[:, 1])

    together = descend(losses, start, steps=20)
    alone = descend(losses, start[1:], steps=20)
    assert torch.allclose(together[:, 1:], alone, rtol=0, atol=1e-12)
