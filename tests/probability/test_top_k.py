"""Among the k highest: values and gradients against mpmath, counting, and each other."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from noise_cases import DISTRIBUTIONS, KNOWN, NAMES, UNKNOWN

import hitrate
from hitrate.links import LINKS
from hitrate.losses.link_loss import LinkLoss
from hitrate.probability import register_noise
from hitrate.probability.methods.poisson_binomial import Count, tilt_of

EXACTLY = {"rtol": 1e-9, "atol": 0.0}
NORMAL, LOGISTIC, GUMBEL = "normal", "logistic", "gumbel"


@pytest.fixture(autouse=True, scope="module")
def registered():
    """The noises that the library has never heard of, as elsewhere."""
    for noise in UNKNOWN:
        register_noise(noise)


def density_and_tails(noise, x):
    """f, F and 1 - F of a noise in mpmath's arithmetic."""
    mp = mpmath.mp
    if noise == NORMAL:
        root = mp.sqrt(2)
        return mp.npdf(x), mp.erfc(-x / root) / 2, mp.erfc(x / root) / 2
    if noise == LOGISTIC:
        below, above = 1 / (1 + mp.exp(-x)), 1 / (1 + mp.exp(x))
        return below * above, below, above
    rate = mp.exp(-x)
    return rate * mp.exp(-rate), mp.exp(-rate), -mp.expm1(-rate)


def by_mpmath(noise, margins, k):
    """log p, and its slope in each margin, of one row: the recursion over rivals at each node.

    The integrals are mpmath's, over panels of width 1.6 around all places where a rival ties.
    """
    mp = mpmath.mp
    with mp.workdps(30):
        rivals = [mp.mpf(m) for m in margins]

        def counts(tails):
            exactly = [mp.mpf(1)] + [mp.mpf(0)] * (k - 1)
            more = mp.mpf(0)
            for below, above in tails:
                more += above * exactly[-1]
                exactly = [
                    below * p + (above * exactly[j - 1] if j else 0) for j, p in enumerate(exactly)
                ]
            return exactly, more

        def integrands(t):
            own = density_and_tails(noise, t)[0]
            found = [density_and_tails(noise, m + t) for m in rivals]
            tails = [each[1:] for each in found]
            exactly, more = counts(tails)
            slopes = [
                own * each[0] * counts(tails[:i] + tails[i + 1 :])[0][-1]
                for i, each in enumerate(found)
            ]
            return [own * sum(exactly), own * more, *slopes]

        low = -max(0.0, *margins) - 12
        high = -min(0.0, *margins) + (12 if noise == NORMAL else 45)
        if noise == LOGISTIC:
            low -= 33
        x, w = np.polynomial.legendre.leggauss(24)
        edges = np.linspace(low, high, math.ceil((high - low) / 1.6) + 1)
        totals = [mp.mpf(0)] * (len(rivals) + 2)
        for left, right in itertools.pairwise(edges):
            half, middle = (right - left) / 2, (left + right) / 2
            for node, weight in zip(x, w, strict=True):
                values = integrands(mp.mpf(middle + half * node))
                totals = [
                    total + float(half * weight) * value
                    for total, value in zip(totals, values, strict=True)
                ]
        p, missed, *slopes = totals
        log_p = mp.log(p) if p < 0.5 else mp.log1p(-missed)
        return float(log_p), [float(slope / p) for slope in slopes]


# Near p = 0, near p = 1, crowds, rivals far ahead that may stay there; k and the margins.
ROWS = {
    "usual": (2, [0.5, -0.3, 1.2, 2.0]),
    "last_but_one": (3, [0.5, -0.3, 1.2, 2.0]),
    "two_far_ahead": (3, [-40.0, -25.0, 0.4, 0.1, 3.0]),
    "behind": (2, [-9.0, -8.0, -7.5, 0.0]),
    "ahead": (2, [9.0, 8.0, 7.0, 12.0]),
    "crowd": (5, [0.2] * 8),
    "wide": (4, [-6.0, -3.0, 0.0, 3.0, 6.0, 9.0]),
}


# mpmath takes its time.
QUICK = {("usual", noise) for noise in KNOWN} | {("ahead", NORMAL), ("two_far_ahead", GUMBEL)}


@pytest.mark.parametrize(
    ("row", "noise"),
    [
        pytest.param(row, noise, marks=() if (row, noise) in QUICK else pytest.mark.slow)
        for row in ROWS
        for noise in KNOWN
    ],
)
def test_values_and_gradients_agree_with_mpmath(row, noise):
    k, margins = ROWS[row]
    logits = torch.tensor([[0.0, *[-m for m in margins]]], dtype=torch.float64, requires_grad=True)
    found = hitrate.log_expected_accuracy(logits, torch.tensor([0]), noise=noise, k=k)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    log_p, slopes = by_mpmath(noise, margins, k)
    assert found.item() == pytest.approx(log_p, rel=1e-9)
    largest = max(slopes)
    assert (-gradient[0, 1:]).tolist() == pytest.approx(slopes, rel=1e-7, abs=1e-9 * largest)


# Margins at which log p is about -500.
TAILS = {
    NORMAL: (3, [-40.0, -33.0, -31.0, -30.5, 2.0]),
    LOGISTIC: (3, [-600.0, -520.0, -505.0, -500.0, 2.0]),
    GUMBEL: (3, [-600.0, -520.0, -505.0, -500.0, 2.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "row"), TAILS.items(), ids=TAILS)
def test_far_tails_agree_with_mpmath(noise, row):
    k, margins = row
    logits = torch.tensor([[0.0, *[-m for m in margins]]], dtype=torch.float64, requires_grad=True)
    found = hitrate.log_expected_accuracy(logits, torch.tensor([0]), noise=noise, k=k)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    log_p, slopes = by_mpmath(noise, margins, k)
    assert -1500 < log_p < -300
    assert found.item() == pytest.approx(log_p, rel=1e-9)
    assert (-gradient[0, 1:]).tolist() == pytest.approx(slopes, rel=1e-6, abs=1e-8 * max(slopes))


def counted(noise, logits, target, k, draws, seed=0):
    """Share of draws in which fewer than k rivals are ahead, and its standard error."""
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(draws // 1000):
        scores = logits + DISTRIBUTIONS[noise].rvs((1000, len(logits)), random_state=rng)
        hits += int(((scores > scores[:, [target]]).sum(1) < k).sum())
    share = hits / draws
    return share, math.sqrt(max(share * (1 - share), 1 / draws) / draws)


@pytest.mark.parametrize("noise", NAMES)
@pytest.mark.parametrize(("classes", "k"), [(3, 2), (12, 5)])
def test_every_noise_agrees_with_counting(noise, classes, k):
    logits = np.random.default_rng(classes).normal(size=classes) * 1.5
    share, error = counted(noise, logits, 0, k, 20_000)
    found = hitrate.expected_accuracy(
        torch.tensor(logits)[None], torch.tensor([0]), noise=noise, k=k
    )
    assert abs(found.item() - share) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("noise", KNOWN)
@pytest.mark.parametrize("classes", [30, 100, 1000])
@pytest.mark.parametrize("k", [1, 2, 5, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_many_classes_agree_with_counting(noise, classes, k, dtype):
    logits = np.random.default_rng(classes).normal(size=classes)
    # The target stands where it is a hit about as often as not.
    logits[0] = np.sort(logits)[-k] + 1.0
    share, error = counted(noise, logits, 0, k, 20_000)
    rows = torch.tensor(logits, dtype=dtype)[None]
    found = hitrate.expected_accuracy(rows, torch.tensor([0]), noise=noise, k=k)
    assert abs(found.item() - share) < 4 * error


@pytest.mark.parametrize("noise", NAMES)
def test_one_sigma_per_class_agrees_with_counting(noise):
    rng = np.random.default_rng(3)
    logits, sigma = rng.normal(size=6), rng.uniform(0.3, 3.0, size=6)
    scores = logits + sigma * DISTRIBUTIONS[noise].rvs((40_000, 6), random_state=rng)
    hits = (scores > scores[:, :1]).sum(1) < 3
    found = hitrate.expected_accuracy(
        torch.tensor(logits)[None], torch.tensor([0]), torch.tensor(sigma)[None], noise=noise, k=3
    )
    assert abs(found.item() - hits.mean()) < 4 * hits.std() / math.sqrt(len(hits))


def test_gumbel_noise_gives_plackett_luce():
    # The target is second with the first place to any rival: a sum over who is first.
    logits = torch.tensor([[0.3, 1.0, -0.5, 0.2, 2.0]], dtype=torch.float64)
    weight = logits[0].exp()
    total = weight.sum()
    expected = weight[0] / total
    for rival in range(1, 5):
        expected = expected + weight[rival] / total * weight[0] / (total - weight[rival])
    found = hitrate.expected_accuracy(logits, torch.tensor([0]), noise="gumbel", k=2)
    torch.testing.assert_close(found[0], expected, **EXACTLY)


@pytest.mark.parametrize("noise", NAMES)
def test_the_last_but_one_is_who_is_not_the_last(noise):
    # Of C classes with k = C - 1 only the last place is none: by symmetry the first of -noise.
    logits = torch.randn(3, 5, dtype=torch.float64)
    each = torch.stack(
        [
            hitrate.expected_accuracy(logits, torch.full((3,), c), noise=noise, k=4)
            for c in range(5)
        ],
        1,
    )
    torch.testing.assert_close((1 - each).sum(1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("noise", KNOWN)
@pytest.mark.parametrize("k", [2, 4])
def test_k_of_all_classes_are_hits(noise, k):
    logits = torch.randn(2, 6, dtype=torch.float64)
    each = [
        hitrate.expected_accuracy(logits, torch.full((2,), c), noise=noise, k=k) for c in range(6)
    ]
    torch.testing.assert_close(
        sum(each), torch.full((2,), float(k), dtype=torch.float64), **EXACTLY
    )


def test_k_of_one_is_what_it_was_bit_for_bit():
    logits, target = torch.randn(20, 7), torch.randint(7, (20,))
    for noise in KNOWN:
        plain, one = (
            hitrate.log_expected_accuracy(logits, target, noise=noise, **k) for k in ({}, {"k": 1})
        )
        assert torch.equal(plain, one)


def test_more_hits_are_more_likely():
    logits, target = 3 * torch.randn(40, 8), torch.randint(8, (40,))
    found = torch.stack([hitrate.log_expected_accuracy(logits, target, k=k) for k in range(1, 8)])
    assert (found.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("noise", KNOWN)
@pytest.mark.parametrize(
    ("classes", "k"),
    [
        *((3, 2), (10, 5), (40, 10), (60, 24)),
        *(pytest.param(300, k, marks=pytest.mark.slow) for k in (2, 10)),
    ],
)
def test_even_nodes_in_float32_agree_with_panels_in_float64(noise, classes, k):
    generator = torch.Generator().manual_seed(classes)
    # Beyond the ends of what even nodes serve, too.
    closest = torch.linspace(-30.0, 30.0, 32)[:, None]
    spread = torch.tensor([0.0, 1.0, 8.0])[torch.arange(32) % 3][:, None]
    rivals = closest + spread * torch.rand(32, classes - 1, generator=generator)
    logits = torch.cat([torch.zeros(32, 1), -rivals], 1)
    target = torch.zeros(32, dtype=torch.long)
    found = []
    for dtype in (torch.float32, torch.float64):
        x = logits.to(dtype).requires_grad_()
        log_p = hitrate.log_expected_accuracy(x, target, k=k, noise=noise)
        found.append((log_p.double(), torch.autograd.grad(log_p.sum(), x)[0].double()))
    (value, gradient), (truth, slope) = found
    # Below the smallest number of float32 there is nothing.
    torch.testing.assert_close(value, truth, rtol=3e-5, atol=1e-36)
    largest = slope.abs().amax(1, keepdim=True)
    assert ((gradient - slope).abs() <= 5e-5 * largest + 1e-36).all()


@pytest.mark.parametrize("noise", KNOWN)
@pytest.mark.parametrize(("classes", "k"), [(10, 5), (300, 2), (300, 5)])
def test_even_nodes_find_the_narrow_peak_of_many_level_rivals(noise, classes, k):
    # Where all of them are at one margin, at many places between two nodes.
    margin = torch.linspace(-16.0, 0.0, 41, dtype=torch.float64)[:, None]
    logits = torch.cat([margin, torch.zeros(41, classes - 1, dtype=torch.float64)], 1)
    target, found = torch.zeros(41, dtype=torch.long), []
    for dtype in (torch.float32, torch.float64):
        x = logits.to(dtype).requires_grad_()
        log_p = hitrate.log_expected_accuracy(x, target, k=k, noise=noise)
        found.append((log_p.double(), torch.autograd.grad(log_p.sum(), x)[0].double()))
    (value, gradient), (truth, slope) = found
    torch.testing.assert_close(value, truth, rtol=3e-5, atol=1e-36)
    assert ((gradient - slope).abs() <= 5e-5 * slope.abs().amax(1, keepdim=True) + 1e-36).all()


def test_counts_are_those_of_all_subsets():
    ahead = torch.rand(1, 6, 2, dtype=torch.float64)
    exactly = torch.zeros(7, 2, dtype=torch.float64)
    for who in itertools.product((0, 1), repeat=6):
        chosen = torch.tensor(who, dtype=torch.float64)[:, None]
        exactly[sum(who)] += torch.where(chosen > 0, ahead[0], 1 - ahead[0]).prod(0)
    for k in range(2, 6):
        for tilt in (None, tilt_of((1 - ahead).log(), k)):
            count = Count.of((1 - ahead).log(), k, tilt)
            torch.testing.assert_close(count.log_fewer[0].exp(), exactly[:k].sum(0), **EXACTLY)
            torch.testing.assert_close(count.more[0], exactly[k:].sum(0), **EXACTLY)


def test_a_tilt_keeps_what_would_underflow():
    # A hundred rivals each behind with probability e^-20, of which 98 have to be.
    log_cdf = torch.full((1, 100, 1), -20.0, dtype=torch.float64)
    count = Count.of(log_cdf, 3, tilt_of(log_cdf, 3))
    with mpmath.mp.workdps(50):
        lose = mpmath.exp(-20)
        terms = [mpmath.binomial(100, j) * lose ** (100 - j) * (1 - lose) ** j for j in range(3)]
        expected = float(mpmath.log(sum(terms)))
    assert count.log_fewer.item() == pytest.approx(expected, rel=1e-12)
    assert count.decides().sum().item() == pytest.approx(98.0)


def test_binomial_tails_agree_with_scipy():
    log_cdf = torch.linspace(-5.0, -1e-6, 40, dtype=torch.float64)[None, None].expand(1, 50, 40)
    ahead = -np.expm1(log_cdf[0, 0].numpy())
    for k in (2, 7, 20):
        count = Count.of(log_cdf, k, tilt_of(log_cdf, k))
        expected = scipy.stats.binom.logcdf(k - 1, 50, ahead)
        np.testing.assert_allclose(count.log_fewer[0].numpy(), expected, rtol=1e-8, atol=1e-16)
        more = scipy.stats.binom.sf(k - 1, 50, ahead)
        np.testing.assert_allclose(count.more[0].numpy(), more, rtol=1e-9)


@pytest.mark.parametrize("noise", KNOWN)
def test_monte_carlo_agrees(noise):
    logits, target = torch.tensor([[0.3, 1.0, -0.5, 0.2, 2.0]]), torch.tensor([0])
    generator = torch.Generator().manual_seed(0)
    gradients = []
    for options in ({}, {"method": "monte_carlo", "samples": 200_000, "generator": generator}):
        x = logits.clone().requires_grad_()
        p = hitrate.expected_accuracy(x, target, noise=noise, k=2, **options)
        gradients.append((p.detach(), torch.autograd.grad(p.sum(), x)[0]))
    (p, slope), (sampled, sampled_slope) = gradients
    assert abs(p - sampled) < 4 * math.sqrt(p * (1 - p) / 200_000)
    # The draws' weights have a spread of about 1.
    torch.testing.assert_close(sampled_slope, slope, rtol=0, atol=4 * 1.5 / math.sqrt(200_000))


@pytest.mark.slow
def test_a_compiler_sees_one_graph():
    torch.compiler.reset()
    logits, target = torch.randn(4, 4, requires_grad=True), torch.randint(4, (4,))
    sigma = (torch.rand(4) + 0.5).requires_grad_()

    def value(logits, sigma):
        return hitrate.log_expected_accuracy(logits, target, sigma, noise="gumbel", k=2)

    results = []
    # Inductor takes long over so many operations.
    for function in (value, torch.compile(value, fullgraph=True, backend="aot_eager")):
        found = function(logits, sigma)
        results.append((found.detach(), *torch.autograd.grad(found.sum(), (logits, sigma))))
    for compiled, plain in zip(*results, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-5)


LINK_LOSSES = {
    name: loss for name, loss in hitrate.losses.LOSSES.items() if issubclass(loss, LinkLoss)
}


@pytest.mark.parametrize("loss", LINK_LOSSES.values(), ids=LINK_LOSSES)
def test_every_loss_of_a_link_takes_k(loss):
    logits = torch.randn(6, 5, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, -100, 4])
    function = getattr(hitrate, loss.function_name)
    module = loss(k=2, weight=torch.rand(5, dtype=torch.float64))
    assert "k=2" in repr(module)
    assert not torch.equal(module(logits, target), loss(weight=module.weight)(logits, target))
    expected = function(logits, target, k=2, weight=module.weight)
    torch.testing.assert_close(module(logits, target), expected)
    log_p = hitrate.log_expected_accuracy(logits, target.clamp(min=0), k=2, noise=module.noise)
    rows = module.link(log_p) * module.weight[target.clamp(min=0)]
    kept = target >= 0
    by_hand = rows[kept].sum() / module.weight[target[kept]].sum()
    torch.testing.assert_close(expected, by_hand)


@pytest.mark.parametrize("link", [name for name in LINKS if name != "batch_log"])
def test_soft_and_smoothed_targets_are_sums_over_classes(link):
    logits, q = torch.randn(3, 4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    loss = hitrate.ExactLoss(link=link, k=2, reduction="none")
    each = torch.stack([loss(logits, torch.full((3,), c)) for c in range(4)], 1)
    torch.testing.assert_close(loss(logits, q), (q * each).sum(1))
    smoothed = hitrate.exact_loss(
        logits, torch.tensor([0, 1, 2]), link=link, k=2, label_smoothing=0.2, reduction="none"
    )
    hard = each.gather(1, torch.tensor([[0], [1], [2]]))[:, 0]
    torch.testing.assert_close(smoothed, 0.8 * hard + 0.2 * each.mean(1))


def test_a_loss_may_have_any_layout_and_counts_hits_in_evaluation():
    logits, target = 50 * torch.randn(4, 6, 3, 2), torch.randint(6, (4, 3, 2))
    loss = hitrate.ExactLoss(sigma=1e-3, margin=0.5, k=3).eval()
    rows = logits.movedim(1, -1).reshape(-1, 6)
    hits = (rows.topk(3, 1).indices == target.reshape(-1, 1)).any(1)
    torch.testing.assert_close(loss(logits, target), 1 - hits.float().mean())


def test_recipes_and_last_layers_take_k():
    plan = hitrate.recipe("annealed", total_steps=4, k=2)
    hidden, weight, target = torch.randn(5, 3), torch.randn(7, 3), torch.randint(7, (5,))
    found = hitrate.linear_loss(hidden, weight, target, loss=plan.loss)
    torch.testing.assert_close(found, plan.loss(hidden @ weight.T, target))
    assert plan.loss.k == 2


WRONG = {
    "all_classes": (lambda x, y: hitrate.exact_loss(x, y, k=4), "k=4 for 4 classes"),
    "module": (lambda x, y: hitrate.ExactLoss(k=9)(x, y), r"exact_loss\(.*k=9.*k=9 for 4 classes"),
    "zero": (
        lambda x, y: hitrate.MixedLoss(k=0),
        "MixedLoss: k must be a whole number >= 1, got 0",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_k_is_one_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.randn(3, 4), torch.tensor([0, 1, 2]))
