"""Losses in one kernel against the same losses step by step."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch

import hitrate
from hitrate import links
from hitrate.links import exp, one_minus_exp

pytest.importorskip("triton")
from hitrate.kernels import launch
from hitrate.kernels.launch import rows as rows_launch
from hitrate.kernels.launch import rule as rule_module

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
HALF = 0.5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Every link that kernels can run, by default and with other numbers.
LINKS = [
    *(made for made in (make() for make in links.LINKS.values()) if made.formula is not None),
    links.Mixed(0.7, 2.0),
    links.Focused(0.3),
    links.Focused(0.5),
    links.GCE(0.0),
    links.GCE(0.5, threshold=0.3),
    links.Focal(0.5),
    links.Focal(0.0),
    links.Tamed(1.0),
    links.Tamed(0.9999),
    links.Tamed(1.7),
]
# In rows, at once, and (here) with the gradient in the backward pass.
CLASSES = [5, 40, 130]
WAYS = [5, *(pytest.param(c, marks=pytest.mark.slow) for c in (40, 130))]


@pytest.fixture(autouse=True)
def gradient_in_the_backward_pass_from_100_classes(monkeypatch):
    monkeypatch.setattr(rows_launch, "AT_ONCE_UP_TO", 100)


def batch(classes, rows=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator)
    target = torch.randint(classes, (rows,), generator=generator)
    logits[0, target[0]] += 8
    logits[1, target[1]] -= 8
    return logits.to(DEVICE), target.to(DEVICE)


def value_and_gradients(logits, target, sigma, backend, upstream=None, **arguments):
    z = logits.detach().clone().requires_grad_()
    s = sigma
    if isinstance(sigma, torch.Tensor):
        s = sigma.detach().clone().requires_grad_()
    loss = hitrate.exact_loss(z, target, s, backend=backend, **arguments)
    wanted = (z, s) if isinstance(sigma, torch.Tensor) else (z,)
    upstream = None if upstream is None else upstream.reshape(loss.shape)
    return loss.detach(), *torch.autograd.grad(loss, wanted, upstream)


def assert_same(ours, truth, rtol=1e-5, atol=1e-6):
    for one, other in zip(ours, truth, strict=True):
        assert one.dtype == other.dtype
        scale = float(other.nan_to_num().abs().max()) or 1.0
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol * scale, equal_nan=True)


@pytest.mark.parametrize(
    ("classes", "link"),
    [(5, link) for link in LINKS] + [(c, LINKS[k]) for c in CLASSES[1:] for k in (0, 5)],
    ids=str,
)
def test_every_link_gives_the_value_and_gradient_it_gives_step_by_step(classes, link):
    logits, target = batch(classes)
    results = [
        value_and_gradients(logits, target, 0.8, backend, link=link)
        for backend in ("triton", "torch")
    ]
    assert_same(*results)


@pytest.mark.parametrize("classes", WAYS)
@pytest.mark.parametrize(("reduction", "margin"), [("mean", None), ("sum", 1.5), ("none", 1.5)])
def test_weights_ignored_rows_sigmas_and_reductions(classes, reduction, margin):
    logits, target = batch(classes)
    target[2] = -7
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(classes, generator=generator).to(DEVICE)
    weight[target[3]] = 0.0
    upstream = torch.randn(5 if reduction == "none" else 1, generator=generator).to(DEVICE)
    sigmas = (0.7, torch.tensor(0.7, device=DEVICE), torch.linspace(0.5, 2, 5, device=DEVICE))
    for sigma, w in itertools.product(sigmas, (None, weight)):
        results = [
            value_and_gradients(
                logits,
                target,
                sigma,
                backend,
                upstream,
                weight=w,
                ignore_index=-7,
                reduction=reduction,
                margin=margin,
                link="mixed",
            )
            for backend in ("triton", "torch")
        ]
        assert_same(*results, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("classes", WAYS)
def test_an_ignored_row_has_no_gradient_whatever_is_in_it(classes):
    logits, target = batch(classes)
    target[2] = -100
    clean = value_and_gradients(logits, target, 1.0, "triton")
    logits[2, 1] = torch.nan
    logits[2, 3] = torch.inf
    assert_same(value_and_gradients(logits, target, 1.0, "triton"), clean)


def test_logistic_noise_is_fused_too():
    logits, target = batch(12)
    results = [
        value_and_gradients(
            logits,
            target,
            torch.tensor(0.8, device=DEVICE),
            backend,
            noise="logistic",
            link="focal",
        )
        for backend in ("triton", "torch")
    ]
    assert_same(*results)


@dataclass(frozen=True)
class Squared(links.Link):
    """A link that the kernels have never heard of, with a number of its own module."""

    scale: float = 1.0

    @staticmethod
    def formula(log_p, scale, b):
        e = one_minus_exp(log_p)
        return HALF * scale * e * e, -scale * e * exp(log_p)

    @property
    def numbers(self):
        return self.scale, 0.0


def test_a_link_that_nobody_has_heard_of_runs_in_the_kernels_by_its_own_formula():
    logits, target = batch(12)
    link = Squared(3.0)
    assert hitrate.explain(logits, target, link=link, backend="triton").way == "fused"
    results = [
        value_and_gradients(logits, target, 0.8, backend, link=link)
        for backend in ("triton", "torch")
    ]
    assert_same(*results)
    p = hitrate.expected_accuracy(logits, target, 0.8)
    torch.testing.assert_close(results[0][0], (1.5 * (1 - p) ** 2).mean())


@pytest.mark.parametrize("classes", WAYS)
def test_numbers_that_move_are_read_where_they_are(classes):
    logits, target = batch(classes)
    fixed = value_and_gradients(logits, target, 0.8, "triton", link=links.GCE(0.3), margin=1.5)
    numbers = (torch.tensor(0.3, dtype=torch.float64), torch.tensor(1.5, dtype=torch.float64))
    for home in {"cpu", DEVICE}:
        q, margin = (number.to(home) for number in numbers)
        moving = value_and_gradients(
            logits, target, 0.8, "triton", link=links.GCE(q), margin=margin
        )
        assert_same(moving, fixed, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("classes", WAYS)
def test_kernels_that_read_numbers_from_memory_agree_with_those_that_are_given_them(
    classes, monkeypatch
):
    # What a GPU does when the loss is on it; here the tensor is just not on the CPU's own path.
    logits, target = batch(classes)
    formula = launch.compiled(links.GCE.formula)
    given = launch.Rule("normal", formula, 0.3, -math.inf, "mean", -100, 1.5)

    moving = given._replace(a=torch.tensor(0.3), margin=torch.tensor(1.5))
    moving = moving._replace(
        **{name: getattr(moving, name).to(logits.device) for name in ("a", "margin")}
    )
    monkeypatch.setattr(rule_module, "is_in_memory", lambda number: torch.is_tensor(number))
    found = []
    for rule in (given, moving):
        call = launch.call_of(logits, target, 0.8, None, rule, wanted=True, learned=False)
        assert call.numbers.moving == (0 if rule is given else 3)
        value, made = call.value(logits, target, call.numbers.now())
        upstream = torch.ones((), device=logits.device)
        found.append((value, call.gradient(logits, target, made, upstream)))
    assert_same(found[1], found[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("classes", WAYS)
def test_all_rows_ignored_is_nan_without_gradient(classes):
    logits, target = batch(classes)
    loss, gradient = value_and_gradients(logits, target * 0 - 100, 1.0, "triton")
    assert loss.isnan() and not gradient.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("classes", WAYS)
def test_half_precision_is_read_and_written_as_such(classes, dtype):
    logits, target = batch(classes)
    half = logits.to(dtype)
    loss, gradient = value_and_gradients(half, target, 1.0, "triton")
    truth, slope = value_and_gradients(half.float(), target, 1.0, "torch")
    assert loss.dtype == torch.float32 and gradient.dtype == dtype
    torch.testing.assert_close(loss, truth)
    torch.testing.assert_close(gradient.float(), slope, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("classes", WAYS)
def test_layouts_views_and_small_index_types(classes):
    logits, target = batch(classes, rows=6)
    wide = logits.reshape(2, 3, classes).movedim(2, 1)
    turned = logits.T.contiguous().T
    for reduction in ("mean", "none"):
        plain = hitrate.exact_loss(logits, target, reduction=reduction, backend="triton")
        for z, y in (
            (wide, target.reshape(2, 3)),
            (turned, target),
            (logits, target.to(torch.int32)),
            (logits, torch.stack([target, target], 1)[:, 0]),
        ):
            same = hitrate.exact_loss(z, y, reduction=reduction, backend="triton")
            torch.testing.assert_close(same.reshape(plain.shape), plain)
    ours, truth = (
        hitrate.exact_loss(wide, target.reshape(2, 3), normalize=True, backend=backend)
        for backend in ("triton", "torch")
    )
    torch.testing.assert_close(ours, truth)


@pytest.mark.parametrize("classes", WAYS)
def test_the_gradient_can_be_asked_for_twice_and_differentiated(classes):
    logits, target = batch(classes, rows=3)
    results = []
    for backend in ("triton", "torch"):
        z = logits.clone().requires_grad_()
        s = torch.tensor(0.9, device=DEVICE, requires_grad=True)
        loss = hitrate.exact_loss(z, target, s, backend=backend, link="log")
        first = torch.autograd.grad(loss, (z, s), retain_graph=True)
        second = torch.autograd.grad(loss, (z, s), retain_graph=True)
        torch.testing.assert_close(first, second)
        slopes = torch.autograd.grad(loss, (z, s), create_graph=True)
        curve = torch.autograd.grad(slopes[0].square().sum() + slopes[1], (z, s))
        results.append((*first, *curve))
    assert_same(*results, rtol=1e-3, atol=1e-5)


def test_without_gradient_none_is_computed():
    logits, target = batch(40)
    truth = hitrate.exact_loss(logits, target, backend="torch")
    with torch.no_grad():
        loss = hitrate.exact_loss(logits.requires_grad_(), target, backend="triton")
    assert not loss.requires_grad
    torch.testing.assert_close(loss, truth)
    # Only sigma learns.
    s = torch.tensor(1.0, device=DEVICE, requires_grad=True)
    loss = hitrate.exact_loss(logits.detach(), target, s, backend="triton")
    (slope,) = torch.autograd.grad(loss, s)
    assert slope.isfinite() and slope != 0


def test_one_sigma_of_any_shape_and_weights_that_learn():
    logits, target = batch(5)
    results = []
    for shape in ((), (1,), (1, 1)):
        sigma = torch.full(shape, 0.7, device=DEVICE, requires_grad=True)
        loss = hitrate.exact_loss(logits, target, sigma, backend="triton")
        (slope,) = torch.autograd.grad(loss, sigma)
        assert slope.shape == shape
        results.append(slope.reshape(()))
    assert results[0] == results[1] == results[2]
    slopes = []
    for backend in ("triton", "torch"):
        weight = torch.linspace(1, 2, 5, device=DEVICE, requires_grad=True)
        loss = hitrate.exact_loss(logits, target, weight=weight, backend=backend)
        slopes += torch.autograd.grad(loss, weight)
    torch.testing.assert_close(*slopes)


def test_more_rows_than_one_program_adds_up(monkeypatch):
    logits, target = batch(5, rows=20)
    target[3] = -100
    results = []
    for limit in (rows_launch.FINISHED_UP_TO, 4):
        monkeypatch.setattr(rows_launch, "FINISHED_UP_TO", limit)
        for reduction in ("mean", "sum"):
            results.append(value_and_gradients(logits, target, 1.0, "triton", reduction=reduction))
    assert_same(results[0], results[2])
    assert_same(results[1], results[3])


def test_a_target_that_is_no_class_is_not_a_number_where_values_are_not_looked_at():
    for classes in CLASSES:
        logits, target = batch(classes)
        target[1] = classes + 3
        rule = launch.Rule("normal", reduction="none")
        call = launch.call_of(logits, target, 1.0, None, rule, wanted=True, learned=False)
        value, _ = call.value(logits, target, call.numbers.now())
        assert value.isnan().tolist() == [row == 1 for row in range(5)]
    if DEVICE == "cpu":
        with pytest.raises(ValueError, match="out of range"):
            hitrate.exact_loss(logits, target, backend="triton")
