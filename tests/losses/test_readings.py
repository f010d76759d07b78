"""What a loss says of itself: how it is computed, what it reads as, which probabilities it has."""

import pytest
import torch

import hitrate
from hitrate.losses import LOSSES
from hitrate.probability import log_class_probabilities

LOGITS = 3 * torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
TARGET = LOGITS.argmax(1)


@pytest.mark.parametrize("name", ["exact_networks", "exact_linear", "annealed", "annealed_softmax"])
def test_in_evaluation_a_loss_that_ends_as_the_error_reads_as_an_expected_error_rate(name):
    plan = hitrate.recipe(name, total_steps=5, normalize_gradient=False)
    plan.goto(4)
    # So far ahead that no noise changes a decision.
    sure = 50 * torch.nn.functional.one_hot(TARGET, 6).float()
    plan.eval()
    assert plan.loss(sure, TARGET) < 1e-6
    noise = plan.loss.noise
    expected = 1 - hitrate.expected_accuracy(LOGITS, TARGET, plan.loss.sigma, noise=noise).mean()
    torch.testing.assert_close(plan.loss(LOGITS, TARGET), expected)
    plan.train()
    if name == "exact_networks":
        # With the margin, which belongs to training, it would not.
        assert plan.loss(sure, TARGET) > 0.1


def test_options_of_cross_entropy_stay_in_evaluation():
    weight = torch.tensor([1.0, 2.0, 3.0, 1.0, 1.0, 0.5])
    options = {"weight": weight, "label_smoothing": 0.1, "ignore_index": 2}
    loss = hitrate.ExactLoss(link="log", margin=1.0, normalize=True, **options).eval()
    expected = hitrate.exact_loss(LOGITS, TARGET, link="log", **options)
    assert torch.equal(loss(LOGITS, TARGET), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_probabilities_are_those_of_the_loss_in_every_layout(name):
    loss = LOSSES[name]()
    noise = getattr(loss, "noise", "gumbel")
    expected = hitrate.class_probabilities(LOGITS, noise=noise)
    torch.testing.assert_close(loss.probabilities(LOGITS), expected)
    torch.testing.assert_close(loss.probabilities(LOGITS[0]), expected[0])
    image = LOGITS.reshape(4, 5, 2, 6).movedim(3, 1)
    torch.testing.assert_close(
        loss.probabilities(image), expected.reshape(4, 5, 2, 6).movedim(3, 1)
    )


def test_probabilities_follow_sigma_and_noise():
    loss = hitrate.ExactLoss(0.5, noise="logistic")
    expected = log_class_probabilities(LOGITS, 0.5, noise="logistic").exp()
    torch.testing.assert_close(loss.probabilities(LOGITS), expected)
    hitrate.Schedule(loss, "sigma", hitrate.schedules.constant(2.0), total_steps=3)
    expected = log_class_probabilities(LOGITS, 2.0, noise="logistic").exp()
    torch.testing.assert_close(loss.probabilities(LOGITS), expected)
    softmax = hitrate.ExactLoss(2.0, noise="gumbel")
    torch.testing.assert_close(softmax.probabilities(LOGITS), (LOGITS / 2).softmax(1))


WIDE = torch.randn(4, 20)
# What is asked for -> the way it goes here, without a GPU.
WAYS = {
    "few classes": ({"logits": LOGITS}, "gridded"),
    "many classes": ({"logits": WIDE}, "gridded"),
    "many classes in float64": ({"logits": WIDE.double()}, "quadrature"),
    "two classes": ({"logits": LOGITS[:, :2]}, "two_classes"),
    "Gumbel noise": ({"logits": LOGITS, "noise": "gumbel"}, "closed_form"),
    "logistic noise": ({"logits": LOGITS, "noise": "logistic"}, "general_quadrature"),
    "one sigma per class": ({"logits": LOGITS, "sigma": torch.ones(1, 6)}, "general_quadrature"),
    "by name": ({"logits": WIDE, "method": "quadrature"}, "quadrature"),
    "the paper's": ({"logits": WIDE, "method": "genz"}, "genz"),
    "a loss": ({"logits": LOGITS, "target": TARGET}, "gridded"),
    "smoothed": ({"logits": LOGITS, "target": TARGET, "label_smoothing": 0.1}, "all_classes"),
    "soft": ({"logits": LOGITS, "target": LOGITS.softmax(1)}, "all_classes"),
    "smoothed with a margin": (
        {"logits": LOGITS, "target": TARGET, "label_smoothing": 0.1, "margin": 1.0},
        "each_class",
    ),
    "smoothed softmax": (
        {"logits": LOGITS, "target": TARGET, "label_smoothing": 0.1, "noise": "gumbel"},
        "closed_form",
    ),
}


@pytest.mark.parametrize("what", WAYS)
def test_a_call_explains_which_way_it_goes_and_goes_it(what, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    arguments, way = WAYS[what]
    choice = hitrate.explain(**arguments)
    assert choice.way == way and choice.backend in ("torch", "any")
    shown = str(choice)
    assert shown.startswith(f"{way} (")
    for name, why in choice.passed_over:
        assert f"not {name}: {why}" in shown and why


def test_what_kept_a_faster_way_away_is_told(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    told = dict(hitrate.explain(WIDE, sigma=torch.ones(1, 20)).passed_over)
    assert "the kernels take one sigma per row" in told["kernel"]
    assert "gridded takes one sigma per row" in told["gridded"]
    told = dict(hitrate.explain(WIDE).passed_over)
    assert "the logits are on cpu" in told["kernel"]
    loss = hitrate.ExactLoss(link="batch_log", backend="triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    choice = loss.explain(WIDE, torch.zeros(4, dtype=torch.long))
    assert choice.way == "kernel" and "BatchLog has no formula" in dict(choice.passed_over)["fused"]


def test_an_unknown_argument_is_a_type_error_that_names_the_function():
    for function in (hitrate.log_expected_accuracy, hitrate.expected_accuracy):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\).*'margins'"):
            function(LOGITS, TARGET, margins=1.0)
    for function in (hitrate.exact_loss, hitrate.explain):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\).*'margins'"):
            function(LOGITS, TARGET, margins=1.0)
    with pytest.raises(TypeError, match="margins"):
        hitrate.mixed_loss(LOGITS, TARGET, margins=1.0)


def test_swapped_arguments_are_told():
    one_hot = torch.nn.functional.one_hot(TARGET, 6).float()
    with pytest.raises(ValueError, match=r"must not be negative.*the logits come first"):
        hitrate.MixedLoss()(one_hot, LOGITS)


def test_the_softmax_at_once_is_the_softmax_step_by_step():
    loss = hitrate.ExactLoss(noise="gumbel", link="focal")
    assert loss.explain(LOGITS, TARGET).way == "softmax"
    z = LOGITS.clone().requires_grad_()
    value = loss(z, TARGET)
    value.backward()
    # A sigma that learns takes the long way, one that only moves does not.
    moved = hitrate.ExactLoss(torch.tensor(1.0), noise="gumbel", link="focal")
    assert moved.explain(LOGITS, TARGET).way == "softmax"
    torch.testing.assert_close(moved(LOGITS, TARGET), value.detach())
    other = LOGITS.clone().requires_grad_()
    learned = torch.nn.Parameter(torch.tensor(1.0))
    slow = hitrate.ExactLoss(learned, noise="gumbel", link="focal")
    assert slow.explain(LOGITS, TARGET).way == "closed_form"
    longer = slow(other, TARGET)
    longer.backward()
    torch.testing.assert_close(value, longer)
    torch.testing.assert_close(z.grad, other.grad)
    # As elsewhere, what was saved is let go.
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()
    for sigma in (-1.0, 0.0, float("nan")):
        with pytest.raises(ValueError, match="sigma must be a positive number"):
            hitrate.exact_loss(LOGITS, TARGET, sigma, noise="gumbel")


@pytest.mark.parametrize("classes", [2, 6])
@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_a_graph_that_is_kept_gives_its_gradient_again(noise, classes):
    z = LOGITS[:, :classes].clone().requires_grad_()
    target = TARGET.clamp(max=classes - 1)
    rows = hitrate.exact_loss(z, target, noise=noise, reduction="none")
    above = torch.linspace(1, 2, len(rows))
    first, second = (torch.autograd.grad(rows, z, above, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    # All rows' gradients in one call.
    each = torch.autograd.grad(rows, z, torch.eye(len(rows)), is_grads_batched=True)[0]
    torch.testing.assert_close((each * above[:, None, None]).sum(0), first)


def test_weights_that_change_before_the_gradient_are_complained_about():
    weight, z = torch.ones(6), LOGITS.clone().requires_grad_()
    loss = hitrate.exact_loss(z, TARGET, weight=weight)
    weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("classes", [2, 5, 50])
@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_tensors_that_are_made_elsewhere_by_default_do_not_matter(noise, classes):
    z, target = torch.randn(20, classes, requires_grad=True), torch.zeros(20, dtype=torch.long)
    with torch.device("meta"):
        found = hitrate.exact_loss(z, target, 0.83, noise=noise)
        found.backward()
        accuracy = hitrate.log_expected_accuracy(z, target, 0.83, noise=noise)
    assert accuracy.isfinite().all()
    assert torch.equal(found, hitrate.exact_loss(z, target, 0.83, noise=noise))
    assert z.grad.isfinite().all()
