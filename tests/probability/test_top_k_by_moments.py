"""Among the k highest with a crowd of rivals as moments: against panels that count each of them."""

import numpy as np
import pytest
import torch

import hitrate
from hitrate.probability.methods import even_nodes, fading_moments, top_k_near
from hitrate.probability.methods.top_k import top_k
from hitrate.probability.methods.top_k_by_moments import MORE, MOST, by_moments
from hitrate.probability.noises import NOISES

NODES = {near.noise: near for near in (even_nodes.NORMAL, even_nodes.LOGISTIC, even_nodes.GUMBEL)}


def rivals(kind, count, generator):
    """Margins (count,) of a row's rivals, but for where they begin."""
    even = torch.rand(count, generator=generator, dtype=torch.float64)
    return {
        "level": torch.zeros_like(even),
        "spread": 8 * even,
        "normal": 3 * torch.randn(count, generator=generator, dtype=torch.float64),
        "two groups": 3 * (even > 0.5).double(),
        "a gap": 8 * even - 10 * (torch.arange(count) < 7),
        "a ladder": 0.4 * torch.arange(count).double(),
    }[kind]


KINDS = ("level", "spread", "normal", "two groups", "a gap", "a ladder")


def rows_of(kinds, noise, classes, k, places):
    """Margins (N, C) of each kind with the k-th closest at each place of what even nodes serve."""
    generator, high = torch.Generator().manual_seed(classes), NODES[noise].reach[1]
    low, rows = (-16.0 if noise == "normal" else -60.0), []
    for kind in kinds:
        for at in np.linspace(low, high, places):
            a = rivals(kind, classes - 1, generator)
            rows.append(a - a.kthvalue(k).values + at)
    # The target is the last one.
    return torch.nn.functional.pad(torch.stack(rows), (0, 1), value=1e30)


def assert_agrees(a, k, noise, tolerance=3e-6):
    """Value, relative to itself, and slopes, relative to the row's largest."""
    value, slope = by_moments(a, k, NODES[noise])
    truth, slopes, _ = top_k(a, None, NOISES[noise], k=k)
    torch.testing.assert_close(value, truth, rtol=tolerance, atol=0)
    largest = slopes.amax(1, keepdim=True)
    assert ((slope - slopes).abs() <= tolerance * largest).all()
    assert (slope >= 0).all() and (slope[:, -1] == 0).all()


SHAPES = [(12, 5), (40, 2), (40, 10), (100, 5)]


@pytest.mark.parametrize("noise", NODES)
@pytest.mark.parametrize(
    ("classes", "k"),
    [*SHAPES, *(pytest.param(*more, marks=pytest.mark.slow) for more in [(300, 2), (300, 10)])],
)
def test_moments_agree_with_panels(noise, classes, k):
    assert_agrees(rows_of(KINDS, noise, classes, k, 5), k, noise)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NODES)
@pytest.mark.parametrize(("classes", "k"), [(3, 2), (300, 5)])
def test_so_they_do_at_many_places(noise, classes, k):
    assert_agrees(rows_of(KINDS, noise, classes, k, 23), k, noise)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NODES)
@pytest.mark.parametrize(("classes", "k"), [(100, 40), (3000, 5)])
def test_so_they_do_for_larger_k_and_more_classes(noise, classes, k):
    assert_agrees(rows_of(("level", "normal"), noise, classes, k, 3), k, noise)


@pytest.mark.parametrize("noise", NODES)
def test_one_rival_more_than_are_counted_is_a_crowd(noise):
    k = 3
    for classes in range(k + MORE, k + MORE + 4):
        assert_agrees(rows_of(("normal", "level"), noise, classes, k, 4), k, noise)


@pytest.mark.parametrize("noise", NODES)
@pytest.mark.parametrize(("classes", "k"), [(9, 2), (12, 5), (30, 10)])
def test_so_it_is_at_both_ends_of_what_is_served(noise, classes, k):
    a, (low, high) = rows_of(KINDS, noise, classes, k, 1), NODES[noise].reach
    closest = a.kthvalue(k).values[:, None]
    target = torch.arange(classes) == classes - 1
    for end in (low, high):
        assert_agrees(torch.where(target, a, a - closest + end), k, noise, tolerance=3e-5)


@pytest.mark.parametrize("noise", NODES)
@pytest.mark.parametrize("at", [-8.0, 2.0, 4.0, 10.0])
@pytest.mark.parametrize(("classes", "k"), [(12, 2), (100, 5), (300, 60)])
def test_all_but_one_of_the_k_may_be_far_ahead(noise, at, classes, k):
    # A row alone: rows side by side have the same nodes.
    a = at + rivals("spread", classes - 1, torch.Generator().manual_seed(k)) / 16
    a[: k - 1] -= 60
    assert_agrees(torch.nn.functional.pad(a[None], (0, 1), value=1e30), k, noise)


@pytest.mark.parametrize("noise", NODES)
def test_rivals_infinitely_far_away_are_ahead_or_behind(noise):
    near = rows_of(("normal", "level"), noise, 30, 2, 5)
    # Two that are ahead for certain, and forty that are behind.
    far = torch.tensor([-1e15, -1e15, *[1e15] * 40], dtype=torch.float64).expand(len(near), 42)
    value, slope = by_moments(torch.cat([far, near], 1), 4, NODES[noise])
    expected, slopes = by_moments(near, 2, NODES[noise])
    torch.testing.assert_close(value, expected, rtol=3e-6, atol=0)
    assert (slope[:, :42] == 0).all()
    assert ((slope[:, 42:] - slopes).abs() <= 3e-6 * slopes.amax(1, keepdim=True)).all()


def test_rows_of_all_kinds_stand_side_by_side():
    # Rows alone, and among others that need other nodes.
    a = rows_of(KINDS, "normal", 60, 5, 7)
    value, slope = by_moments(a, 5, NODES["normal"])
    for row in range(0, len(a), 5):
        alone, its_slope = by_moments(a[row : row + 1], 5, NODES["normal"])
        torch.testing.assert_close(alone[0], value[row], rtol=2e-6, atol=0)
        torch.testing.assert_close(its_slope[0], slope[row], rtol=0, atol=2e-6 * its_slope.max())


@pytest.mark.parametrize("noise", NODES)
def test_all_rivals_are_counted_where_powers_would_overflow(noise):
    k = MOST + 6
    a = rows_of(("level", "normal"), noise, k + 20, k, 2)
    value, slope, _ = getattr(top_k_near, noise)(a, None, k=k)
    truth, slopes, _ = top_k(a, None, NOISES[noise], k=k)
    torch.testing.assert_close(value, truth, rtol=3e-5, atol=0)
    assert ((slope - slopes).abs() <= 5e-5 * slopes.amax(1, keepdim=True)).all()


@pytest.mark.parametrize("noise", NODES)
@pytest.mark.parametrize(("classes", "k"), [(50, 5), (MOST + 11, MOST)])
def test_a_crowd_counted_one_by_one_is_the_same(noise, classes, k):
    a = rows_of(("normal", "level"), noise, classes, k, 4)
    # Rows of one band.
    closest, (low, high) = a.kthvalue(k).values, NODES[noise].bands[0]
    a = a[(closest >= low) & (closest <= high)]
    value, slope = by_moments(a, k, NODES[noise])
    counted, slopes = top_k_near.by_counts(a, k, NODES[noise])
    # In float32, below whose smallest number there is nothing.
    torch.testing.assert_close(value, counted, rtol=3e-5, atol=1e-36)
    assert ((slope - slopes).abs() <= 5e-5 * slopes.amax(1, keepdim=True) + 1e-36).all()


# Functions that fall to nothing, and how fast the moments fade.
FALLING = {
    "exponential": (lambda a: torch.exp(-2 * a), 1.0),
    "log sigmoid": (lambda a: torch.nn.functional.logsigmoid(a - 1), 0.5),
    "normal tail": (lambda a: torch.special.erfc(a), 0.5),
}


@pytest.mark.parametrize("name", FALLING)
def test_sums_and_values_of_a_function_come_from_its_coefficients(name):
    function, fading = FALLING[name]
    generator = torch.Generator().manual_seed(0)
    behind = 9 * torch.rand(3, 40, generator=generator, dtype=torch.float64)
    behind[:, 0], first = 0.0, torch.tensor([-3.0, 0.0, 2.0], dtype=torch.float64)
    factors = fading_moments.FadingMoments(np.empty((fading_moments.ARRAYS, 3, 40)))
    factors.write((first[:, None] + behind).numpy(), first.numpy(), fading, np.array([7, 45]))
    moments, read = np.empty((3, fading_moments.TERMS)), np.empty((3, 40))
    factors.moments(moments)
    s, to_coefficients = fading_moments.fading_interpolation()
    coefficients = to_coefficients @ function(torch.from_numpy(-np.log(s) / fading)).numpy()
    factors.read(np.stack([coefficients] * 3), read)
    expected = function(behind).flatten().index_fill(0, torch.tensor([7, 45]), 0.0).view(3, 40)
    np.testing.assert_allclose(read, expected, rtol=0, atol=2e-7)
    np.testing.assert_allclose(moments @ coefficients, expected.sum(1), rtol=0, atol=2e-6)


@pytest.mark.parametrize("noise", NODES)
def test_a_loss_at_once_is_the_loss_step_by_step(noise):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20, 30, generator=generator)
    target = torch.randint(30, (20,), generator=generator)
    target[3], weight = -100, torch.rand(30, generator=generator)
    loss = hitrate.ExactLoss(0.7, noise=noise, link="gce", k=3, margin=2.0, weight=weight)
    assert loss.explain(logits, target).at_once
    results = []
    for sigma in (0.7, torch.full((20,), 0.7)):
        z = logits.clone().requires_grad_()
        loss = hitrate.exact_loss(
            z, target, sigma, noise=noise, link="gce", k=3, margin=2.0, weight=weight
        )
        (gradient,) = torch.autograd.grad(loss, z, create_graph=True)
        (curve,) = torch.autograd.grad(gradient.square().sum(), z)
        results.append((loss.detach(), gradient.detach(), curve))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)
