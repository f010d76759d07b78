"""Expected cost against its definition, sampling, Bayes' and Chow's decisions."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate
from scipy.stats import gumbel_r, logistic, norm

import hitrate

GENERATOR = torch.Generator().manual_seed(4)
LOGITS = 1.5 * torch.randn(30, 4, generator=GENERATOR, dtype=torch.float64)
TARGET = torch.arange(30) % 4
COST = torch.tensor(
    [[0.0, 1.0, 5.0, 2.0], [1.0, 0.0, 1.0, 1.0], [9.0, 3.0, 0.5, 4.0], [2.0, 2.0, 2.0, 0.0]],
    dtype=torch.float64,
)
NOISES = {"normal": norm, "logistic": logistic, "gumbel": gumbel_r}


def integral(row, sigma, noise):
    """Probabilities of all decisions of one row by scipy's quadrature."""
    kind = NOISES[noise]

    def density(t, c):
        rest = [kind.cdf((row[c] - row[i]) / sigma + t) for i in range(len(row)) if i != c]
        return kind.pdf(t) * math.prod(rest)

    return [
        integrate.quad(density, -40, 40, (c,), epsabs=1e-13, limit=400)[0] for c in range(len(row))
    ]


@pytest.mark.parametrize("noise", NOISES)
def test_the_cost_is_that_of_scipy_s_integrals(noise):
    rows, y = LOGITS[:4], TARGET[:4]
    p = np.array([integral(row, 0.7, noise) for row in rows.tolist()])
    expected = (COST[y].numpy() * p).sum(1)
    ours = hitrate.expected_cost_loss(rows, y, COST, 0.7, noise=noise, reduction="none")
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-8)


@pytest.mark.parametrize("noise", NOISES)
def test_the_cost_is_the_mean_cost_of_noisy_decisions(noise):
    generator = torch.Generator().manual_seed(1)
    draws, row = 200_000, torch.randn(100, generator=generator, dtype=torch.float64)
    cost = torch.rand(100, 100, generator=generator, dtype=torch.float64)
    noises = NOISES[noise].rvs(size=(draws, 100), random_state=np.random.default_rng(0))
    said = (row.numpy() + 0.5 * noises).argmax(1)
    paid = cost[7].numpy()[said]
    ours = hitrate.expected_cost_loss(row[None], torch.tensor([7]), cost, 0.5, noise=noise)
    assert abs(float(ours) - paid.mean()) < 4 * paid.std() / math.sqrt(draws)


@pytest.mark.parametrize("noise", NOISES)
def test_without_costs_it_is_the_expected_error(noise):
    for target in (TARGET, LOGITS.softmax(1).flip(1)):
        ours = hitrate.expected_cost_loss(LOGITS, target, None, 0.8, noise=noise)
        error = hitrate.exact_loss(LOGITS, target, 0.8, noise=noise)
        ones = hitrate.expected_cost_loss(LOGITS, target, 1 - torch.eye(4), 0.8, noise=noise)
        torch.testing.assert_close(ours, error)
        torch.testing.assert_close(ones, error)


def test_a_tiny_cost_keeps_its_digits():
    # The target is 12 sigma ahead of one rival: 1 - p is 1e-17, where 1 - (1 - 1e-17) is 0.
    logits = torch.tensor([[12.0, 0.0]], dtype=torch.float64)
    ours = hitrate.expected_cost_loss(logits, torch.tensor([0]), torch.tensor([[0, 3.0], [1, 0]]))
    assert float(ours) == pytest.approx(3 * norm.sf(12 / math.sqrt(2)), rel=1e-8)


def test_layouts_options_and_soft_targets_are_sums_of_rows():
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    p = hitrate.class_probabilities(LOGITS, 0.6)
    terms = p @ COST.T
    z, y = LOGITS.reshape(2, 3, 5, 4).movedim(-1, 1), TARGET.reshape(2, 3, 5).clone()
    loss = hitrate.ExpectedCostLoss(COST, 0.6, reduction="none")
    torch.testing.assert_close(loss(z, y).reshape(-1), terms[torch.arange(30), TARGET])
    y[0, 0] = -100
    kept = y.reshape(-1) != -100
    own = (terms[torch.arange(30), TARGET] * weight[TARGET])[kept].sum() / weight[TARGET][
        kept
    ].sum()
    ours = hitrate.expected_cost_loss(z, y, COST, 0.6, weight=weight)
    torch.testing.assert_close(ours, own)
    q = LOGITS.flip(1).softmax(1)
    soft = q.reshape(2, 3, 5, 4).movedim(-1, 1)
    smoothed = 0.9 * q + 0.1 / 4
    ours = hitrate.expected_cost_loss(z, soft, COST, 0.6, label_smoothing=0.1)
    torch.testing.assert_close(ours, (smoothed * terms).sum(1).mean())


@pytest.mark.parametrize("noise", NOISES)
def test_gradients_in_logits_and_sigma_are_those_of_differences(noise):
    z = LOGITS[:3].clone().requires_grad_()
    sigma = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def loss(rows, sigma):
        return hitrate.expected_cost_loss(rows, TARGET[:3], COST, sigma, noise=noise)

    assert torch.autograd.gradcheck(loss, (z, sigma))
    if noise == "normal":
        assert torch.autograd.gradgradcheck(loss, (z, sigma))


def test_compile_and_vmap_give_the_same_numbers():
    loss = hitrate.ExpectedCostLoss(COST)
    loss.move("sigma", 0.7)
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    for sigma in (0.7, 0.3):
        loss.move("sigma", sigma)
        torch.testing.assert_close(compiled(LOGITS, TARGET), loss(LOGITS, TARGET))
    stack = LOGITS.reshape(3, 10, 4)
    each = torch.func.vmap(lambda rows: loss(rows, TARGET[:10]))(stack)
    torch.testing.assert_close(each, torch.stack([loss(rows, TARGET[:10]) for rows in stack]))


def minimum_of(loss, posterior, columns):
    """The decision of free scores for one x whose classes have these probabilities."""
    z = torch.zeros(1, columns, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([z], lr=0.1)
    for sigma in np.geomspace(2.0, 0.1, 150):
        loss.sigma = float(sigma)
        value = loss(z, posterior)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return int(z.argmax())


@pytest.mark.parametrize("seed", range(4))
def test_free_scores_end_at_the_decision_of_bayes(seed):
    generator = torch.Generator().manual_seed(seed)
    posterior = torch.rand(1, 4, generator=generator, dtype=torch.float64) ** 2
    posterior /= posterior.sum()
    found = minimum_of(hitrate.ExpectedCostLoss(COST), posterior, 4)
    assert (
        found == int((posterior @ COST).argmin()) == int(hitrate.bayes_decisions(posterior, COST))
    )


@pytest.mark.parametrize(("share", "decision"), [(0.05, 0), (0.2, 2), (0.5, 2), (0.95, 1)])
def test_free_scores_end_at_the_decision_of_chow(share, decision):
    posterior = torch.tensor([[1 - share, share, 0.0]], dtype=torch.float64)
    loss = hitrate.ExpectedCostLoss(abstain_cost=0.1)
    assert minimum_of(loss, posterior, 3) == decision
    assert int(hitrate.bayes_decisions(posterior[:, :2], abstain_cost=0.1)) == decision


def test_abstaining_costs_the_same_for_every_class():
    z, y = torch.tensor([[-9.0, 0.0, 90.0]] * 2), torch.tensor([0, 1])
    loss = hitrate.ExpectedCostLoss(COST[:2, :2], abstain_cost=0.3, reduction="none")
    torch.testing.assert_close(loss(z, y), torch.tensor([0.3, 0.3]))
    assert loss.probabilities(z).argmax(1).tolist() == [2, 2]


def test_the_threshold_of_two_classes_is_that_of_elkan():
    cost = torch.tensor([[0.0, 1.0], [9.0, 0.0]])
    share = torch.linspace(0.005, 0.995, 100)
    said = hitrate.bayes_decisions(torch.stack([1 - share, share], 1), cost)
    assert said.tolist() == (share > 1 / (1 + 9)).long().tolist()


def test_the_module_carries_its_costs_and_shows_itself():
    loss = hitrate.ExpectedCostLoss(COST, 0.5)
    assert str(loss) == "ExpectedCostLoss(cost=Tensor(4, 4), sigma=0.5)"
    other = hitrate.ExpectedCostLoss(torch.zeros(4, 4, dtype=torch.float64), 0.5)
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other(LOGITS, TARGET), loss(LOGITS, TARGET))
    learned = hitrate.ExpectedCostLoss(COST, torch.nn.Parameter(torch.tensor(0.7)))
    learned(LOGITS, TARGET).backward()
    assert learned.sigma.grad.isfinite()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost": torch.ones(3, 4)}, r"cost must have shape \(C, C\).*got \(3, 4\)"),
        ({"cost": torch.eye(4) * -1}, r"finite number >= 0, got cost\[0, 0\] = -1"),
        ({"cost": torch.full((4, 4), math.nan)}, r"got cost\[0, 0\] = nan"),
        ({"cost": torch.full((4, 4), math.inf)}, r"got cost\[0, 0\] = inf"),
        ({"cost": "high"}, "cost must be a matrix of numbers"),
        ({"cost": torch.ones(3, 3)}, r"cost \(3, 3\) does not fit 4 columns"),
        (
            {"cost": COST, "abstain_cost": 0.1},
            "does not fit 4 columns with the last for abstaining",
        ),
        ({"abstain_cost": -0.1}, "abstain_cost must be a finite number >= 0, got -0.1"),
        ({"abstain_cost": 0.1}, "target 3 is out of range for 3 classes"),
        ({"sigma": 0.0}, "sigma must be a positive number, got 0.0"),
        ({"sigma": torch.ones(30)}, "sigma must be one number"),
        ({"noise": "pink"}, "noise='pink' is not one of"),
    ],
    ids=str,
)
def test_bad_arguments_are_one_value_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        hitrate.expected_cost_loss(LOGITS, TARGET, **arguments)
    with pytest.raises(ValueError, match=message if arguments.get("sigma") is None else "sigma"):
        hitrate.ExpectedCostLoss(**arguments)(LOGITS, TARGET)


def test_bad_probabilities_are_one_value_error():
    with pytest.raises(ValueError, match=r"probabilities must have shape \(N, C\)"):
        hitrate.bayes_decisions(torch.ones(4))
    with pytest.raises(ValueError, match=r"cost \(4, 4\) does not fit 3 columns"):
        hitrate.bayes_decisions(torch.ones(2, 3) / 3, COST)
