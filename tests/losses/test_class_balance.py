"""Priors, adjustments and margins by class: what each makes of a loss, written out."""

import math

import pytest
import torch
from loss_cases import CASES, NAMED
from torch.nn.functional import cross_entropy, one_hot

import hitrate
from hitrate import schedules
from hitrate.losses import LOSSES

GENERATOR = torch.Generator().manual_seed(3)
LOGITS = 2 * torch.randn(60, 4, generator=GENERATOR, dtype=torch.float64)
TARGET = torch.arange(60) % 4
COUNTS = torch.tensor([60.0, 25.0, 10.0, 5.0], dtype=torch.float64)
SHARES = COUNTS / 100
WEIGHTS = 1 / (4 * SHARES)
BALANCED = {"class_prior": COUNTS}
# Links of a whole batch divide by the same sum of weights, and are among the cases too.
EACH = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def gradient_of(loss, logits):
    (gradient,) = torch.autograd.grad(loss, logits)
    return gradient


@EACH
def test_a_prior_weighs_every_loss_s_rows_by_one_over_classes_times_share(case):
    for more in ({}, {"label_smoothing": 0.1}, {"weight": torch.tensor([1.0, 2.0, 0.5, 1.0])}):
        z = LOGITS.clone().requires_grad_()
        weight = WEIGHTS * more.get("weight", 1.0)
        ours = case(z, TARGET, **BALANCED, **more)
        truth = case(z, TARGET, **{**more, "weight": weight})
        torch.testing.assert_close(ours, truth)
        torch.testing.assert_close(gradient_of(ours, z), gradient_of(truth, z))


@EACH
def test_an_adjustment_is_a_loss_of_logits_plus_tau_log_prior(case):
    for target in (TARGET, LOGITS.softmax(1).flip(1)):
        z = LOGITS.clone().requires_grad_()
        shifted = z + 0.7 * SHARES.log()
        ours = case(z, target, **BALANCED, logit_adjustment=0.7)
        truth = case(shifted, target, weight=WEIGHTS**0.3)
        torch.testing.assert_close(ours, truth)
        torch.testing.assert_close(gradient_of(ours, z), gradient_of(truth, z))


@EACH
def test_a_margin_by_class_lowers_the_target_s_logit(case):
    margin = hitrate.class_margin(COUNTS, 0.8)
    z = LOGITS.clone().requires_grad_()
    ours = case(z, TARGET, class_margin=margin)
    truth = case(z - margin[TARGET][:, None] * one_hot(TARGET, 4), TARGET)
    torch.testing.assert_close(ours, truth)
    torch.testing.assert_close(gradient_of(ours, z), gradient_of(truth, z))


def test_the_balanced_softmax_is_cross_entropy_with_an_adjustment_of_one():
    ours = hitrate.cross_entropy_loss(LOGITS, TARGET, **BALANCED, logit_adjustment=1.0)
    # Ren et al., equation (3), with counts in the place of shares.
    own = COUNTS[TARGET] * LOGITS.exp()[torch.arange(60), TARGET]
    torch.testing.assert_close(ours, -(own / (LOGITS.exp() @ COUNTS)).log().mean())


@pytest.mark.parametrize("adjustment", [0.0, 0.4, 1.0])
def test_weights_and_adjustment_together_are_always_consistent_for_balanced_accuracy(adjustment):
    # One row, the posterior as its target: the loss is convex, and this is its minimum.
    posterior = torch.tensor([[0.7, 0.2, 0.08, 0.02]], dtype=torch.float64)
    z = (posterior / SHARES).log().requires_grad_()
    loss = hitrate.cross_entropy_loss(z, posterior, **BALANCED, logit_adjustment=adjustment)
    assert gradient_of(loss, z).abs().max() < 1e-14


def test_layouts_ignored_rows_and_module_are_those_of_the_rows():
    z = LOGITS.reshape(3, 5, 4, 4).movedim(-1, 1)  # (3, 4, 5, 4)
    target = TARGET.reshape(3, 5, 4).clone()
    target[0, 0] = -100
    options = {**BALANCED, "logit_adjustment": 0.5, "class_margin": [0.1, 0.2, 0.3, 0.4]}
    flat = target.reshape(-1)
    kept = flat != -100
    for name in ("exact", "hinge", "cross_entropy"):
        loss = LOSSES[name](**options)
        truth = getattr(hitrate, f"{name}_loss")(LOGITS[kept], flat[kept], **options)
        torch.testing.assert_close(loss(z, target), truth)
        rows = LOSSES[name](**options, reduction="none")(z, target)
        assert rows.shape == target.shape and (rows[0, 0] == 0).all()


def test_in_evaluation_mode_nothing_is_adjusted_and_weights_take_over():
    loss = hitrate.ExactLoss(**BALANCED, logit_adjustment=1.0, class_margin=torch.ones(4))
    loss.eval()
    torch.testing.assert_close(
        loss(LOGITS, TARGET), hitrate.exact_loss(LOGITS, TARGET, weight=WEIGHTS)
    )


def test_standardised_logits_are_adjusted_after_they_are_standardised():
    rows = hitrate.normalize_logits(LOGITS) + 0.5 * SHARES.log()
    truth = hitrate.exact_loss(rows, TARGET, weight=WEIGHTS**0.5)
    ours = hitrate.exact_loss(LOGITS, TARGET, normalize=True, **BALANCED, logit_adjustment=0.5)
    torch.testing.assert_close(ours, truth)


def test_deferred_reweighting_moves_from_plain_to_balanced_and_is_saved():
    loss = hitrate.CrossEntropyLoss(**BALANCED, reweighting=0.0)
    curve = schedules.phases([0.0, 1.0], at=[0.5])
    schedule = hitrate.Schedule(loss, "reweighting", curve, total_steps=4)
    seen = []
    for _ in range(4):
        seen.append(loss(LOGITS, TARGET))
        schedule.step()
    plain, balanced = cross_entropy(LOGITS, TARGET), cross_entropy(LOGITS, TARGET, WEIGHTS)
    torch.testing.assert_close(torch.stack(seen), torch.stack([plain, plain, balanced, balanced]))
    other = hitrate.CrossEntropyLoss(**BALANCED)
    other.load_state_dict(loss.state_dict())
    assert float(other.reweighting) == 1.0 and other.steps_of("reweighting") == 4


@pytest.mark.parametrize("name", ["exact", "cross_entropy", "hinge"])
def test_a_compiled_loss_sees_weights_and_adjustment_move(name):
    loss = LOSSES[name](**BALANCED, reweighting=0.0, logit_adjustment=0.5)
    loss.move("reweighting", 0.0)
    loss.move("logit_adjustment", 0.5)
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    for strength in (0.0, 0.3, 1.0):
        loss.move("reweighting", strength)
        loss.move("logit_adjustment", 1 - strength)
        torch.testing.assert_close(compiled(LOGITS, TARGET), loss(LOGITS, TARGET))


def test_second_derivatives_and_vmap_go_through_an_adjustment():
    options = {**BALANCED, "logit_adjustment": 0.5, "class_margin": [0.1, 0.2, 0.3, 0.4]}
    z = LOGITS[:3].clone().requires_grad_()
    y = TARGET[:3]

    def loss(rows):
        return hitrate.exact_loss(rows, y, link="log", **options)

    assert torch.autograd.gradgradcheck(loss, z)
    stack = torch.stack([LOGITS[:3], LOGITS[3:6]])
    each = torch.func.vmap(lambda rows: hitrate.mixed_loss(rows, y, 0.25, **options))(stack)
    for rows, value in zip(stack, each, strict=True):
        torch.testing.assert_close(value, hitrate.mixed_loss(rows, y, 0.25, **options))


def test_the_linear_loss_has_the_same_weights_and_shifts():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    for options in (
        BALANCED,
        {**BALANCED, "logit_adjustment": 1.0},
        {"class_margin": [1.0, 2, 3, 4]},
    ):
        loss = hitrate.MixedLoss(0.3, **options)
        w, v = (weight.clone().requires_grad_() for _ in range(2))
        pieces = hitrate.linear_loss(hidden, w, TARGET[:30], loss=loss, rows=7)
        whole = loss(hidden @ v.T, TARGET[:30])
        torch.testing.assert_close(pieces, whole)
        torch.testing.assert_close(gradient_of(pieces, w), gradient_of(whole, v))


def test_class_prior_counts_indices_and_adds_up_probabilities():
    target = torch.tensor([[0, 1], [-100, 1]])
    torch.testing.assert_close(
        hitrate.class_prior(target), torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    )
    soft = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
    assert hitrate.class_prior(soft).tolist() == [0.25, 0.5, 0.25]
    assert hitrate.class_prior(target, 3, pseudocount=1).tolist() == pytest.approx(
        [2 / 6, 3 / 6, 1 / 6]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"class_prior": [0.5, 0.5, 0.0, 0.1]},
            "class_prior must be positive .* got 0 for class 2",
        ),
        ({"class_prior": [0.5, 0.5]}, r"class_prior must have one value for each of the 4 classes"),
        ({"class_prior": [0.5, math.nan, 1, 1]}, "positive and finite, got nan for class 1"),
        ({"class_prior": [0.5, -1, 1, 1]}, "positive and finite, got -1 for class 1"),
        ({"class_prior": "balanced"}, "class_prior must have a number for each class"),
        ({"logit_adjustment": 1.0}, "logit_adjustment=1.0 needs class_prior="),
        ({"reweighting": 0.5}, "reweighting=0.5 needs class_prior="),
        ({**BALANCED, "reweighting": math.inf}, "reweighting must be a finite number, got inf"),
        (
            {"class_margin": [1, 1, 1, -1.0]},
            "class_margin must be at least 0 .* got -1 for class 3",
        ),
        ({"class_margin": [1.0] * 4, "label_smoothing": 0.1}, "class_margin takes class indices"),
    ],
    ids=str,
)
@pytest.mark.parametrize("case", NAMED[:1] + NAMED[8:9], ids=lambda c: c.name)
def test_bad_options_are_one_value_error(case, options, message):
    with pytest.raises(ValueError, match=message):
        case(LOGITS, TARGET, **options)
    with pytest.raises(ValueError, match=message):
        case.build(**options)(LOGITS, TARGET)


@pytest.mark.parametrize("case", NAMED, ids=lambda c: c.name)
def test_weights_beside_a_prior_are_complained_of_as_without_one(case):
    for weight in ("balanced", [1.0] * 4, 3):
        with pytest.raises(TypeError, match="weight must be a tensor"):
            case(LOGITS, TARGET, weight=weight, **BALANCED)
    for call in (case, lambda *given, **options: case.build(**options)(*given)):
        with pytest.raises(ValueError, match="weight must have one value for each of the 4"):
            call(LOGITS, TARGET, weight=torch.ones(3), **BALANCED)


def test_bad_counts_are_one_value_error():
    with pytest.raises(ValueError, match=r"class 1 has no rows.*pseudocount=1"):
        hitrate.class_prior(torch.tensor([0, 0]), 2)
    with pytest.raises(ValueError, match="target 2 is out of range for 2 classes"):
        hitrate.class_prior(torch.tensor([0, 2]), 2)
    with pytest.raises(ValueError, match="there are no targets"):
        hitrate.class_prior(torch.tensor([-100]))
    with pytest.raises(ValueError, match="pseudocount must be a number >= 0"):
        hitrate.class_prior(torch.tensor([0, 1]), pseudocount=-1)
    with pytest.raises(ValueError, match="largest must be a number >= 0"):
        hitrate.class_margin(COUNTS, -1.0)


def test_what_a_module_keeps_follows_its_prior_weight_and_mode():
    loss = hitrate.ExactLoss(weight=torch.ones(4), class_prior=torch.ones(4))
    logits = LOGITS.float()

    def expected(**options):
        return hitrate.exact_loss(logits, TARGET, **options)

    for _ in range(2):
        torch.testing.assert_close(loss(logits, TARGET), expected())
    loss.class_prior.copy_(SHARES)
    for _ in range(2):
        torch.testing.assert_close(loss(logits, TARGET), expected(**BALANCED))
    loss.weight[0] = 5.0
    torch.testing.assert_close(loss(logits, TARGET), expected(weight=loss.weight, **BALANCED))
    loss.reweighting = 0.5
    half = {"class_prior": SHARES, "reweighting": 0.5, "weight": loss.weight}
    torch.testing.assert_close(loss(logits, TARGET), expected(**half))
    loss.logit_adjustment = 0.5
    both = {**half, "logit_adjustment": 0.5}
    torch.testing.assert_close(loss(logits, TARGET), expected(**both))
    loss.eval()
    torch.testing.assert_close(loss(logits, TARGET), expected(**half))
