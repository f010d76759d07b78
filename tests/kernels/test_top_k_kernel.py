"""The kernel for the k highest, on a GPU where there is one, and in Triton's interpreter.

That takes a second for a row, so there are few of them.
"""

import functools
import os

import pytest
import torch
from test_kernels import DEVICE, assert_close

import hitrate
from hitrate.probability.dispatch import Request, choose
from hitrate.probability.noises import NOISES as KNOWN

pytest.importorskip("triton")
pytestmark = [
    # numpy, on which the interpreter runs, speaks of infinities that are meant.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
slow = functools.partial(pytest.param, marks=pytest.mark.slow)

# Those that have a kernel; tests elsewhere make noises of their own.
NOISES = ("normal", "logistic", "gumbel")
LEADS = (8.0, 2.0, 0.1, -0.1, -3.0, -12.0)
FEW = (2.0, -3.0)


def rows(classes, k, scale=1.0, leads=LEADS):
    """Logits of rows whose target leads the k-th best rival by so much, and of one at random."""
    count, generator = len(leads) + 1, torch.Generator().manual_seed(classes + k)
    logits = scale * torch.randn(count, classes, generator=generator)
    target = torch.randint(classes, (count,), generator=generator)
    rivals = logits.scatter(1, target[:, None], -torch.inf).topk(k, 1).values[:, -1]
    for row, lead in enumerate(leads):
        logits[row, target[row]] = rivals[row] + lead
    return logits, target


def both(logits, target, sigma, cotangent, **arguments):
    """Value and gradients by the kernel, and in float64 by panels."""
    results = []
    for dtype, device, backend in (
        (torch.float32, DEVICE, "triton"),
        (torch.float64, "cpu", "torch"),
    ):
        z, s = (x.to(device, dtype).requires_grad_() for x in (logits, sigma))
        y = target.to(device)
        value = hitrate.log_expected_accuracy(z, y, s, backend=backend, **arguments)
        gradients = torch.autograd.grad(value, (z, s), cotangent.to(device, dtype))
        distance = (z.gather(1, y[:, None]) - z).abs()
        if arguments.get("margin") is not None:
            distance = distance.clamp(max=arguments["margin"])
        terms = (gradients[0] * distance).abs().sum(1) / s
        results.append([t.detach().cpu().double() for t in (value, *gradients, terms)])
    return results


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("classes", "k", "scale", "margin"),
    [
        (3, 2, 1.0, None),
        (12, 5, 1.0, 1.0),
        (40, 3, 2.0, None),
        slow(11, 10, 1.0, None),
        slow(17, 10, 0.1, None),
        slow(33, 10, 1.0, 0.5),
        slow(100, 5, 5.0, None),
        slow(100, 10, 0.1, None),
        slow(257, 2, 1.0, 1.0),
        slow(300, 7, 0.0, None),
    ],
)
def test_value_and_gradients_agree_with_float64(noise, classes, k, scale, margin):
    logits, target = rows(classes, k, scale, LEADS if classes > 50 else (8.0, 1.0, -12.0))
    sigma, generator = torch.linspace(0.5, 1.5, len(target)), torch.Generator().manual_seed(1)
    cotangent = torch.randn(len(target), generator=generator)
    assert_close(*both(logits, target, sigma, cotangent, noise=noise, k=k, margin=margin))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("classes", "k"), [slow(8, 3), slow(60, 2), slow(30, 10)])
def test_rows_far_behind_agree_with_float64(noise, classes, k):
    logits, target = rows(classes, k, 2.0, leads=(-30.0, -60.0, -200.0, -1000.0))
    ones = torch.ones(len(target))
    assert_close(*both(logits, target, ones, ones, noise=noise, k=k), slope=3e-5, spread=1e-3)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("classes", "k", "far", "leads"),
    [(12, 3, 1e6, (4.0, -3.0)), slow(100, 10, 60.0, LEADS), slow(100, 2, 1e6, LEADS)],
)
def test_all_but_one_of_the_hardest_may_be_far_ahead(noise, classes, k, far, leads):
    # One place is left, which the others and the target are after.
    logits, target = rows(classes, k, 0.1, leads)
    others = logits.scatter(1, target[:, None], -torch.inf)
    logits.scatter_add_(1, others.topk(k - 1, 1).indices, torch.full((len(logits), k - 1), far))
    ones = torch.ones(len(target))
    assert_close(*both(logits, target, ones, ones, noise=noise, k=k))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("margin", [None, slow(1.0)])
def test_infinities_and_nan_are_what_they_are_in_torch(noise, margin):
    logits, _ = rows(6, 2, leads=(1.0,) * 8)
    target = torch.zeros(9, dtype=torch.long)
    logits[0, 0] = -torch.inf
    logits[1, 0] = torch.inf
    logits[2, 1] = torch.inf
    logits[3] = -torch.inf
    # No rival, and one: k - 1 of them may be ahead.
    logits[4, 1:] = -torch.inf
    logits[5, 2:] = -torch.inf
    logits[6, 2] = -torch.inf
    logits[7, 1] = torch.nan
    results = []
    for device, backend in ((DEVICE, "triton"), ("cpu", "torch")):
        z = logits.to(device).requires_grad_()
        value = hitrate.log_expected_accuracy(
            z, target.to(device), 0.7, margin=margin, backend=backend, noise=noise, k=2
        )
        (gradient,) = torch.autograd.grad(value.sum(), z)
        results.append((value.detach().cpu(), gradient.cpu()))
    (value, gradient), (truth, slope) = results
    torch.testing.assert_close(value, truth, equal_nan=True, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, slope, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sigma", [1e-4, slow(1.0), slow(1e4)])
@pytest.mark.parametrize("noise", NOISES)
def test_extreme_logits_give_finite_values_and_gradients(noise, sigma):
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (2, 10), generator=generator) * 2.0 - 1.0
    logits = (1e4 * signs * torch.rand(2, 10, generator=generator)).to(DEVICE)
    logits.requires_grad_()
    target = torch.arange(2, device=DEVICE)
    value = hitrate.log_expected_accuracy(logits, target, sigma, backend="triton", noise=noise, k=2)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.isfinite().all() and gradient.isfinite().all()
    assert (value <= 0).all()


def test_rivals_that_are_level_share_alike():
    # Which of them are counted one by one is no matter.
    logits = torch.zeros(1, 24, device=DEVICE)
    logits[:, 3] = -6.0
    logits.requires_grad_()
    target = torch.full((1,), 3, device=DEVICE)
    value = hitrate.log_expected_accuracy(logits, target, k=4, backend="triton")
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    rivals = gradient[:, torch.arange(24) != 3]
    torch.testing.assert_close(rivals, rivals[:, :1].expand(1, 23), rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.sum(1), torch.zeros_like(value), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, slow(torch.float16)])
def test_half_precision_and_views_are_read_as_they_are(dtype):
    logits, target = rows(9, 2, leads=FEW)
    logits, target = logits.to(DEVICE, dtype), target.to(DEVICE)
    plain = hitrate.log_expected_accuracy(logits.float(), target, k=2, backend="triton")
    z = logits.T.contiguous().T.requires_grad_()
    found = hitrate.log_expected_accuracy(z, target, k=2, backend="triton")
    torch.testing.assert_close(found.detach(), plain)
    (gradient,) = torch.autograd.grad(found.sum(), z)
    assert gradient.dtype == dtype and gradient.isfinite().all()


def test_a_loss_second_derivatives_and_transforms_work_with_the_kernel():
    logits, target = rows(5, 2, leads=(1.0,))
    logits, target = logits.to(DEVICE), target.to(DEVICE)

    def loss(z, backend):
        return hitrate.exact_loss(z, target, 0.8, link="log", backend=backend, k=2)

    results = []
    for backend in ("triton", "torch"):
        z = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(z, backend), z, create_graph=True)
        (curve,) = torch.autograd.grad(gradient.square().sum(), z)
        each = torch.func.vmap(torch.func.grad(lambda z, b=backend: loss(z, b)))(
            torch.stack([logits, 2 * logits])
        )
        results.append((gradient.detach(), curve, each))
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-4, atol=1e-5)


def test_a_compiler_sees_one_operation():
    logits, target = rows(5, 2, leads=())
    logits, target = logits.to(DEVICE), target.to(DEVICE)
    torch._dynamo.reset()

    def loss(z):
        return hitrate.exact_loss(z, target, backend="triton", k=2, margin=1.0)

    gradients = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        z = logits.clone().requires_grad_()
        function(z).backward()
        gradients.append(z.grad)
    torch.testing.assert_close(*gradients)


def test_it_is_told_where_the_kernel_serves():
    logits = torch.randn(4, 20)
    for noise in NOISES:
        choice = hitrate.explain(logits, noise=noise, k=3, backend="triton")
        assert choice.way == "kernel" and choice.backend == "triton"
        for k, way in ((10, "kernel"), (11, "general_top_k")):
            request = Request(KNOWN[noise], 20, torch.float16, "cuda", k=k)
            assert choose(request, "a call on a GPU").way == way
    on_cpu = hitrate.explain(logits, noise="gumbel", k=3)
    assert ("kernel", "the logits are on cpu") in on_cpu.passed_over


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"k": 11}, "k up to 10, and k is 11"),
        ({"k": 2, "sigma": torch.ones(1, 20)}, "one sigma per row"),
        ({"k": 2, "nodes": 20}, "choose method and nodes"),
    ],
)
def test_a_call_that_the_kernel_cannot_take_is_refused_by_name(arguments, complaint):
    logits, target = torch.randn(3, 20, device=DEVICE), torch.zeros(3).long().to(DEVICE)
    if "sigma" in arguments:
        arguments = arguments | {"sigma": arguments["sigma"].to(DEVICE)}
    with pytest.raises(ValueError, match=complaint):
        hitrate.log_expected_accuracy(logits, target, backend="triton", **arguments)


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU")
def test_without_gpu_and_interpreter_the_kernel_is_refused(monkeypatch):
    monkeypatch.setitem(os.environ, "TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match="logits are on cpu"):
        hitrate.log_expected_accuracy(
            torch.randn(2, 5), torch.zeros(2).long(), k=2, backend="triton"
        )
