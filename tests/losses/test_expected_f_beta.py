"""The F-measure of expected counts: scikit-learn's without noise, two processes, running counts."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.metrics import fbeta_score
from two_processes import run_in_two_processes

import hitrate

GENERATOR = torch.Generator().manual_seed(6)
LOGITS = torch.randn(60, 3, generator=GENERATOR, dtype=torch.float64)
TARGET = torch.tensor([0, 0, 0, 1, 2, 0] * 10)


def by_definition(logits, target, average, beta, sigma, weight=None, noise="normal"):
    """One minus F, counted row by row."""
    classes = logits.shape[1]
    p = hitrate.class_probabilities(logits, sigma, noise=noise)
    hits, said, right = (torch.zeros(classes, dtype=torch.float64) for _ in range(3))
    for row, y in zip(p, target.tolist(), strict=True):
        w = 1.0 if weight is None else float(weight[y])
        hits[y] += w * row[y]
        said += w * row
        right[y] += w
    f = (1 + beta**2) * hits / (beta**2 * right + said)
    if average == "binary":
        return 1 - f[1]
    if average == "micro":
        return 1 - (1 + beta**2) * hits.sum() / (beta**2 * right.sum() + said.sum())
    return 1 - f[right > 0].mean()


@pytest.mark.parametrize(("average", "beta"), [*product(["macro", "micro"], [0.5, 1.0, 2.0])])
def test_it_tends_to_scikit_learn_s_score_as_the_noise_goes(average, beta):
    loss = hitrate.expected_f_beta_loss(LOGITS, TARGET, average, beta, sigma=1e-6)
    score = fbeta_score(TARGET, LOGITS.argmax(1), beta=beta, average=average)
    assert 1 - float(loss) == pytest.approx(score, abs=1e-9)
    weight = torch.tensor([1.0, 3.0, 0.5])
    loss = hitrate.expected_f_beta_loss(LOGITS, TARGET, average, beta, sigma=1e-6, weight=weight)
    score = fbeta_score(
        TARGET, LOGITS.argmax(1), beta=beta, average=average, sample_weight=weight[TARGET]
    )
    assert 1 - float(loss) == pytest.approx(score, abs=1e-9)


def test_the_binary_one_is_that_of_class_1():
    logits, target = LOGITS[:, :2], TARGET.clamp(max=1)
    loss = hitrate.expected_f_beta_loss(logits, target, "binary", 2.0, sigma=1e-6)
    assert 1 - float(loss) == pytest.approx(fbeta_score(target, logits.argmax(1), beta=2), abs=1e-9)


@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
@pytest.mark.parametrize("average", ["macro", "micro"])
def test_it_is_made_of_expected_counts(average, noise):
    weight = torch.tensor([1.0, 3.0, 0.5])
    ours = hitrate.expected_f_beta_loss(
        LOGITS, TARGET, average, 2.0, sigma=0.7, weight=weight, noise=noise
    )
    truth = by_definition(LOGITS, TARGET, average, 2.0, 0.7, weight, noise)
    torch.testing.assert_close(ours, truth)


def test_micro_without_weights_is_the_expected_error():
    ours = hitrate.expected_f_beta_loss(LOGITS, TARGET, "micro", 3.0, sigma=0.6)
    torch.testing.assert_close(ours, hitrate.exact_loss(LOGITS, TARGET, 0.6))


def test_layouts_ignored_rows_and_soft_targets_are_those_of_the_rows():
    z, y = LOGITS.reshape(4, 3, 5, 3).movedim(-1, 1).clone(), TARGET.reshape(4, 3, 5).clone()
    y[0, 1] = -100
    z[0, :, 1] = math.nan
    kept = y.reshape(-1) != -100
    loss = hitrate.ExpectedFBetaLoss(sigma=0.5)
    torch.testing.assert_close(loss(z, y), loss(LOGITS[kept], TARGET[kept]))
    hard = torch.nn.functional.one_hot(TARGET, 3).double()
    torch.testing.assert_close(loss(LOGITS, hard), loss(LOGITS, TARGET))
    smooth = hitrate.ExpectedFBetaLoss(sigma=0.5, label_smoothing=0.1)
    torch.testing.assert_close(smooth(LOGITS, TARGET), loss(LOGITS, 0.9 * hard + 0.1 / 3))
    prior = hitrate.ExpectedFBetaLoss(sigma=0.5, class_prior=[0.6, 0.3, 0.1])
    weighted = hitrate.ExpectedFBetaLoss(sigma=0.5, weight=1 / torch.tensor([1.8, 0.9, 0.3]))
    torch.testing.assert_close(prior(LOGITS, TARGET), weighted(LOGITS, TARGET))


def test_classes_without_rows_take_no_part_and_nothing_at_all_is_nan():
    some = TARGET != 2
    ours = hitrate.expected_f_beta_loss(LOGITS[some], TARGET[some])
    p = hitrate.class_probabilities(LOGITS[some])
    f = [
        2 * p[TARGET[some] == c, c].sum() / ((TARGET[some] == c).sum() + p[:, c].sum())
        for c in (0, 1)
    ]
    torch.testing.assert_close(ours, 1 - (f[0] + f[1]) / 2)
    assert hitrate.expected_f_beta_loss(LOGITS[:0], TARGET[:0]).isnan()
    assert hitrate.expected_f_beta_loss(LOGITS, torch.full((60,), -100)).isnan()


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_gradients_in_logits_and_sigma_are_those_of_differences(average):
    z = LOGITS[:6].clone().requires_grad_()
    sigma = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def loss(rows, sigma):
        return hitrate.expected_f_beta_loss(rows, TARGET[:6], average, 2.0, sigma=sigma)

    assert torch.autograd.gradcheck(loss, (z, sigma))


def test_compile_and_vmap_give_the_same_numbers():
    compiled = torch.compile(hitrate.ExpectedFBetaLoss(), fullgraph=True, backend="eager")
    torch.testing.assert_close(
        compiled(LOGITS, TARGET), hitrate.expected_f_beta_loss(LOGITS, TARGET)
    )
    stack = LOGITS.reshape(3, 20, 3)
    each = torch.func.vmap(lambda rows: hitrate.expected_f_beta_loss(rows, TARGET[:20]))(stack)
    truth = [hitrate.expected_f_beta_loss(rows, TARGET[:20]) for rows in stack]
    torch.testing.assert_close(each, torch.stack(truth))


def test_running_counts_of_one_batch_again_and_again_change_nothing():
    loss = hitrate.ExpectedFBetaLoss(momentum=0.9, num_classes=3)
    z = LOGITS.clone().requires_grad_()
    plain = hitrate.expected_f_beta_loss(z, TARGET)
    (slope,) = torch.autograd.grad(plain, z)
    for _ in range(3):
        value = loss(z, TARGET)
        (ours,) = torch.autograd.grad(value, z)
        torch.testing.assert_close(value, plain)
        torch.testing.assert_close(ours, slope)


def test_small_batches_with_running_counts_have_the_gradient_of_all_rows_on_average():
    z = LOGITS.clone().requires_grad_()
    plain = hitrate.ExpectedFBetaLoss(noise="gumbel")
    (whole,) = torch.autograd.grad(plain(z, TARGET), z)
    loss = hitrate.ExpectedFBetaLoss(noise="gumbel", momentum=0.999, num_classes=3)
    order = torch.Generator().manual_seed(0)
    found = {True: torch.zeros_like(z), False: torch.zeros_like(z)}
    for epoch in range(60):
        for some in torch.randperm(60, generator=order).split(6):
            for running in (True, False):
                rule = loss if running else plain
                (slope,) = torch.autograd.grad(rule(z[some], TARGET[some]), z, retain_graph=True)
                if epoch >= 30:
                    found[running] += slope / 30 / 10
    error = {key: float((mean - whole).norm() / whole.norm()) for key, mean in found.items()}
    assert error[True] < 0.03 < 0.15 < error[False]


def test_running_counts_are_saved_and_stand_still_in_evaluation():
    loss = hitrate.ExpectedFBetaLoss(momentum=0.9, num_classes=3)
    first, second = (LOGITS[:30], TARGET[:30]), (LOGITS[30:], TARGET[30:])
    loss(*first)
    other = hitrate.ExpectedFBetaLoss(momentum=0.9, num_classes=3)
    other.load_state_dict(loss.state_dict())
    before = loss.counts.clone()
    loss.eval()
    torch.testing.assert_close(loss(*second), hitrate.expected_f_beta_loss(*second))
    loss.train()
    with torch.no_grad():
        loss(*second)
    assert torch.equal(loss.counts, before)
    assert torch.equal(loss(*second), other(*second))
    assert loss.half().counts.dtype == torch.float64


def part_of_the_batch(rank, momentum):
    """Loss and gradient of one of two uneven parts; rank 1 has none of class 1."""
    part = slice(0, 40) if rank == 0 else slice(40, 60)
    target = TARGET.clone()
    target[40:] = TARGET[40:].clamp(max=0)
    z = LOGITS[part].clone().requires_grad_()
    loss = hitrate.ExpectedFBetaLoss(sigma=0.5, momentum=momentum, num_classes=3)
    value = loss(z, target[part])
    value.backward()
    loss.eval()
    with torch.no_grad():
        apart = loss(z, target[part])
    return {"loss": value.detach(), "gradient": z.grad, "apart": apart}


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_two_processes_have_the_loss_and_gradients_of_one_with_all_rows(momentum):
    first, second = run_in_two_processes(part_of_the_batch, momentum)
    target = TARGET.clone()
    target[40:] = TARGET[40:].clamp(max=0)
    z = LOGITS.clone().requires_grad_()
    whole = hitrate.expected_f_beta_loss(z, target, sigma=0.5)
    whole.backward()
    close = {"rtol": 0, "atol": 1e-12}
    for rank in (first, second):
        torch.testing.assert_close(rank["loss"], whole.detach(), **close)
    # DDP takes the mean over processes: each one's gradient is twice that of the whole.
    gradient = torch.cat([first["gradient"], second["gradient"]]) / 2
    torch.testing.assert_close(gradient, z.grad, **close)
    apart = hitrate.expected_f_beta_loss(LOGITS[:40], target[:40], sigma=0.5)
    torch.testing.assert_close(first["apart"], apart, **close)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reduction": "none"}, "has no reduction='none': a ratio of sums .* is no mean over rows"),
        ({"reduction": "sum"}, "has no reduction='sum'"),
        ({"average": "weighted"}, "average='weighted' is not one of 'macro', 'micro', 'binary'"),
        ({"average": "binary"}, "is for two classes, got 3"),
        ({"beta": -1.0}, "beta must be a number >= 0, got -1.0"),
        ({"beta": math.nan}, "beta must be a number >= 0, got nan"),
        ({"sigma": -1.0}, "sigma must be a positive number, got -1.0"),
        ({"noise": "pink"}, "noise='pink' is not one of"),
    ],
    ids=str,
)
def test_bad_arguments_are_one_value_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        hitrate.expected_f_beta_loss(LOGITS, TARGET, **arguments)
    with pytest.raises(ValueError, match=message):
        hitrate.ExpectedFBetaLoss(**arguments)(LOGITS, TARGET)


def test_bad_running_counts_are_one_value_error():
    with pytest.raises(ValueError, match="running counts need num_classes="):
        hitrate.ExpectedFBetaLoss(momentum=0.9)
    with pytest.raises(ValueError, match=r"momentum=1.0 must be from 0 to below 1"):
        hitrate.ExpectedFBetaLoss(momentum=1.0, num_classes=3)
    with pytest.raises(ValueError, match="logits have 3 classes"):
        hitrate.ExpectedFBetaLoss(momentum=0.9, num_classes=4)(LOGITS, TARGET)
    with pytest.raises(ValueError, match="running counts are a Module's"):
        hitrate.expected_f_beta_loss(LOGITS, TARGET, momentum=0.9)


def test_an_expected_f_is_within_four_standard_errors_of_sampled_counts():
    random = np.random.default_rng(0)
    draws = 20_000
    noises = random.standard_normal((draws, 60, 3))
    said = (LOGITS.numpy() + 0.5 * noises).argmax(2)
    y = TARGET.numpy()
    p = hitrate.class_probabilities(LOGITS, 0.5).numpy()
    for c in range(3):
        counts = ((said == c) & (y == c)).sum(1), (said == c).sum(1)
        for sampled, expected in zip(counts, (p[y == c, c].sum(), p[:, c].sum()), strict=True):
            assert abs(sampled.mean() - expected) < 4 * sampled.std() / math.sqrt(draws)
