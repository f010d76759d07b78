"""Every loss behaves like the torch Module and differentiable function it stands in for."""

import copy
import io

import pytest
import torch
from loss_cases import CASES, NAMED, exact
from torch import nn

import hitrate
from hitrate.links import GCE

IDS = {"ids": lambda case: case.name}


def batch(dtype=torch.float32, seed=0, rows=6, classes=4):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator, dtype=torch.float64).to(dtype)
    return logits, torch.arange(rows) % classes


@pytest.mark.parametrize("case", NAMED, **IDS)
def test_it_is_a_cross_entropy_loss_to_other_libraries(case):
    assert isinstance(case.build(), nn.CrossEntropyLoss)


@pytest.mark.parametrize("case", NAMED, **IDS)
def test_it_takes_the_keywords_of_cross_entropy(case):
    logits, target = batch()
    loss = case.build()
    assert torch.equal(loss(input=logits, target=target), loss(logits, target))


@pytest.mark.parametrize("case", NAMED, **IDS)
def test_the_weight_is_a_buffer_that_is_saved_moved_and_copied(case):
    loss = case.build(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert list(loss.state_dict()) == ["weight"] and not list(loss.parameters())
    other = case.build(weight=torch.zeros(4))
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    logits, target = batch()
    assert torch.equal(other(logits, target), loss(logits, target))
    assert torch.equal(copy.deepcopy(loss)(logits, target), loss(logits, target))
    assert loss.to(torch.float64).weight.dtype == torch.float64
    meta = loss.to("meta")
    shape = meta(logits.to("meta").float(), target.to("meta")).shape
    assert meta.weight.device.type == "meta" and shape == ()


@pytest.mark.parametrize("case", CASES, **IDS)
def test_hooks_fire(case):
    seen = []
    loss = case.build()
    loss.register_forward_hook(lambda module, inputs, output: seen.append("forward"))
    loss.register_full_backward_hook(lambda *_: seen.append("backward"))
    logits, target = batch()
    loss(logits.requires_grad_(), target).backward()
    assert seen == ["forward", "backward"]


def test_the_representation_shows_what_was_set():
    assert repr(hitrate.ExactLoss(10.0, normalize=True)) == (
        "ExactLoss(sigma=10.0, normalize=True, link=Error())"
    )
    assert repr(hitrate.MixedLoss(0.2)) == "MixedLoss(focus=0.2)"
    shown = repr(hitrate.FocalLoss(weight=torch.ones(3), ignore_index=2, label_smoothing=0.1))
    assert shown == "FocalLoss(gamma=2.0, weight=Tensor(3,), ignore_index=2, label_smoothing=0.1)"
    assert "q=0.5" in repr(hitrate.ExactLoss(link=GCE(0.5)))
    assert repr(hitrate.ExpectationLoss()) == "ExpectationLoss()"


@pytest.mark.parametrize("case", CASES, **IDS)
def test_half_precision_is_computed_and_returned_in_float32(case):
    for dtype in (torch.float16, torch.bfloat16):
        logits, target = batch(dtype)
        logits.requires_grad_()
        soft = torch.softmax(logits.detach().flip(0).float(), 1).to(dtype)
        weight = torch.tensor([0.5, 2.0, 1.25, 1.0], dtype=dtype)
        for y in (target, soft):
            value = case(logits, y, weight=weight)
            assert value.dtype == torch.float32
            wide = y if y is target else y.float()
            assert torch.equal(value, case(logits.float(), wide, weight=weight.float()))
            (gradient,) = torch.autograd.grad(value, logits)
            assert gradient.dtype == dtype and gradient.isfinite().all()


@pytest.mark.parametrize("case", CASES, **IDS)
def test_autocast_does_not_lower_the_precision(case):
    logits, target = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = case(logits, target, label_smoothing=0.1)
    assert torch.equal(inside, case(logits, target, label_smoothing=0.1))


@pytest.mark.parametrize("case", CASES, **IDS)
def test_repeats_are_bitwise_equal(case):
    logits, target = batch()
    results = []
    for _ in range(2):
        z = logits.clone().requires_grad_()
        value = case(z, target, label_smoothing=0.1)
        value.backward()
        results.append((value.detach(), z.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


# Differences take long: for every change, one of each kind of loss.
SOME = [case for case in CASES if case in NAMED or case.name.startswith("exact[gumbel")]
OTHERS = [pytest.param(case, marks=pytest.mark.slow) for case in CASES if case not in SOME]
differences = pytest.mark.parametrize("case", [*SOME, *OTHERS], ids=lambda case: case.name)


@differences
def test_gradients_agree_with_differences(case):
    logits, target = batch(torch.float64)
    soft = torch.softmax(logits.flip(0), 1)
    logits.requires_grad_()
    torch.autograd.gradcheck(lambda z: case(z, target, label_smoothing=0.1), logits)
    torch.autograd.gradcheck(lambda z: case(z, soft), logits)
    torch.autograd.gradcheck(lambda z: case(z, target), logits, check_forward_ad=True)


# The kinks of these have no second derivative that differences could find; others are smooth.
PIECEWISE = ("hinge", "truncated", "maximum_probability", "GCE(q=0.3")


@differences
def test_second_derivatives_agree_with_differences(case):
    logits, target = batch(torch.float64, rows=3)
    logits.requires_grad_()
    torch.autograd.gradgradcheck(lambda z: case(z, target), logits)
    if not case.name.startswith(PIECEWISE):
        torch.autograd.gradgradcheck(lambda z: case(z, target, label_smoothing=0.1), logits)


@pytest.mark.parametrize("case", CASES, **IDS)
def test_torch_func_grad_vmap_and_jvp_agree_with_backward(case):
    logits, target = batch(torch.float64)
    logits = torch.stack([logits, -logits, 3 * logits])
    target = target.expand(3, -1)
    each = torch.func.vmap(torch.func.grad(lambda z, y: case(z, y)))(logits, target)
    for z, y, gradient in zip(logits, target, each, strict=True):
        z = z.clone().requires_grad_()
        case(z, y).backward()
        torch.testing.assert_close(gradient, z.grad, rtol=1e-8, atol=1e-10)
    direction = logits[1]
    _, slope = torch.func.jvp(lambda z: case(z, target[0]), (logits[0],), (direction,))
    torch.testing.assert_close(slope, (each[0] * direction).sum(), rtol=1e-8, atol=1e-10)


COMPILED = [*NAMED, exact(link="log", label_smoothing=0.1), exact(normalize=True, noise="logistic")]
QUICK = ("exact", "mixed", "hinge")


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[] if c.name in QUICK else [pytest.mark.slow]) for c in COMPILED],
    ids=lambda case: case.name,
)
def test_compiles_as_one_graph(case):
    logits, target = batch()
    torch._dynamo.reset()
    loss = case.build()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results = []
    for function in (loss, compiled):
        z = logits.clone().requires_grad_()
        value = function(z, target)
        value.backward()
        results.append((value.detach(), z.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_a_scheduled_sigma_does_not_compile_again_at_every_step():
    logits, target = batch()
    torch._dynamo.reset()
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    loss = hitrate.ExactLoss(10.0)
    compiled = torch.compile(loss, fullgraph=True, backend=count)
    schedule = hitrate.Schedule(
        loss, "sigma", hitrate.schedules.geometric(10.0, 0.1), total_steps=30
    )
    for _ in range(30):
        torch.testing.assert_close(compiled(logits, target), loss(logits, target))
        schedule.step()
    assert len(graphs) <= 2


def test_sigma_may_be_learned_given_with_the_call_or_one_per_pixel():
    logits, target = batch()
    learned = hitrate.ExactLoss(nn.Parameter(torch.tensor(2.0)))
    learned(logits, target).backward()
    (parameter,) = learned.parameters()
    assert parameter.grad.abs() > 0
    fixed = hitrate.ExactLoss(torch.tensor(2.0))
    assert list(fixed.state_dict()) == ["sigma"]
    assert fixed(logits, target) == learned(logits, target)
    assert hitrate.ExactLoss()(logits, target, sigma=2.0) == learned(logits, target)
    image = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    classes = torch.zeros(2, 4, 5, dtype=torch.long)
    sigma = torch.linspace(0.5, 2, 40).reshape(2, 4, 5).requires_grad_()
    value = hitrate.exact_loss(image, classes, sigma, reduction="none")
    assert value[1, 2, 3] == hitrate.exact_loss(image[1, :, 2, 3], classes[0, 0, 0], sigma[1, 2, 3])
    hitrate.exact_loss(image, classes, sigma, label_smoothing=0.1).backward()
    assert sigma.grad.shape == sigma.shape and (sigma.grad != 0).any()


def test_one_element_is_a_number_whatever_its_shape():
    logits, target = batch()
    value = hitrate.ExactLoss(2.0)(logits, target)
    for shape in ((), (1,), (1, 1)):
        sigma = nn.Parameter(torch.full(shape, 2.0))
        same = hitrate.ExactLoss(sigma)(logits, target)
        torch.testing.assert_close(same, value)
        same.backward()
        assert sigma.grad.shape == shape


def test_a_subclass_with_arguments_of_its_own_can_be_printed():
    class Mine(hitrate.ExactLoss):
        def __init__(self, extra=1, **others):
            super().__init__(**others)

    assert repr(Mine(margin=2.0)).startswith("Mine(")


@pytest.mark.parametrize("case", NAMED, **IDS)
def test_shapes_can_be_asked_for_without_values(case):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        logits = torch.randn(6, 4, requires_grad=True)
        target = torch.zeros(6, dtype=torch.long)
        value = case(logits, target)
        value.backward()
        assert value.shape == () and logits.grad.shape == (6, 4)
        assert case(logits, target, reduction="none", label_smoothing=0.1).shape == (6,)


def test_normalisation_acts_in_training_mode_only():
    logits, target = batch()
    loss = hitrate.ExactLoss(normalize=True)
    standard = (logits - logits.mean()) / (logits.var() + 1e-5).sqrt()
    assert loss(logits, target).item() == pytest.approx(
        hitrate.exact_loss(standard, target).item(), rel=1e-6
    )
    # The scale of the logits no longer matters.
    assert loss(100 * logits, target).item() == pytest.approx(loss(logits, target).item(), rel=1e-4)
    loss.eval()
    assert loss(logits, target) == hitrate.exact_loss(logits, target)


def test_ignored_rows_and_infinite_logits_do_not_enter_the_statistics():
    logits, target = batch(torch.float64)
    wild = torch.cat([logits, torch.full((1, 4), 1e6, dtype=torch.float64)])
    ignoring = torch.cat([target, torch.tensor([-100])])
    loss = hitrate.ExactLoss(normalize=True)
    torch.testing.assert_close(loss(wild, ignoring), loss(logits, target))
    masked = torch.cat([logits, torch.full((6, 1), -torch.inf, dtype=torch.float64)], 1)
    torch.testing.assert_close(loss(masked, target), loss(logits, target))
