"""The Triton kernels, on a GPU where there is one and in Triton's interpreter elsewhere."""

import functools
import itertools
import os

import pytest
import torch

import hitrate

pytest.importorskip("triton")
pytestmark = [
    # numpy, on which the interpreter runs, speaks of infinities that are meant.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# One row per program to dozens of them, both ends of the rows in registers, the few for many.
CLASSES = [2, 3, 10, 33, 64, 65, 100, 257, 1000]
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


def rows(classes, scale, seed=0):
    """Logits of random rows, and rows clearly ahead, narrowly ahead, behind and far behind."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(9, classes, generator=generator)
    target = torch.randint(classes, (9,), generator=generator)
    rivals = logits.scatter(1, target[:, None], -torch.inf).amax(1)
    for row, lead in enumerate((8.0, 2.0, 0.1, -0.1, -3.0, -12.0)):
        logits[row, target[row]] = rivals[row] + lead
    return logits, target


def both(logits, target, sigma, cotangent, **arguments):
    """Value and gradients by the kernels, and in float64 by the quadrature."""
    results = []
    for dtype, device, options in (
        (torch.float32, DEVICE, {"backend": "triton"}),
        (torch.float64, "cpu", {"backend": "torch", "method": "quadrature", "nodes": 150}),
    ):
        z = logits.to(device, dtype).requires_grad_()
        s = sigma.to(device, dtype).requires_grad_()
        value = hitrate.log_expected_accuracy(z, target.to(device), s, **arguments, **options)
        gradients = torch.autograd.grad(value, (z, s), cotangent.to(device, dtype))
        own = z.gather(1, target.to(device)[:, None])
        distance = (own - z).abs()
        if arguments.get("margin") is not None:
            distance = distance.clamp(max=arguments["margin"])
        terms = (gradients[0] * distance).abs().sum(1) / s
        results.append([t.detach().cpu().double() for t in (value, *gradients, terms)])
    return results


def assert_close(ours, truth, *, value=1e-6, slope=1e-5, spread=1e-4):
    off = (ours[0] - truth[0]).abs() / truth[0].abs().clamp(min=1.0)
    assert off.max() < value
    # Where 1 - p is below 1e-12 the squares in exponents round to less than that.
    largest = truth[1].abs().amax(1, keepdim=True).clamp(min=1e-10)
    assert ((ours[1] - truth[1]).abs() / largest).max() < slope
    # The gradient in sigma is a sum of terms of both signs, distances times slopes over sigma.
    largest = torch.maximum(ours[3], truth[2].abs()).clamp(min=1e-3)
    assert ((ours[2] - truth[2]).abs() / largest).max() < spread


def shapes_and_scales():
    """All of them; for every change, the few that take each way through the kernels once."""
    scales = [(0.1, None), (1.0, None), (5.0, None), (1.0, 1.0)]
    for classes, (scale, margin) in itertools.product(CLASSES, scales):
        quick = scale == 1.0 and classes in (2, 10, 64, 100)
        yield (classes, scale, margin) if quick else slow(classes, scale, margin)


@pytest.mark.parametrize(("classes", "scale", "margin"), [*shapes_and_scales()])
def test_value_and_gradients_agree_with_float64(classes, scale, margin):
    logits, target = rows(classes, scale)
    sigma = torch.linspace(0.5, 1.5, 9)
    cotangent = torch.randn(9, generator=torch.Generator().manual_seed(1))
    assert_close(*both(logits, target, sigma, cotangent, margin=margin))


@pytest.mark.parametrize("margin", [None, 1.0])
@pytest.mark.parametrize(
    ("classes", "scale"),
    [(2, 1.0), slow(3, 5.0), (10, 1.0), slow(40, 0.1), (70, 1.0), slow(100, 0.1), slow(300, 2.0)],
)
def test_logistic_noise_agrees_with_float64(classes, scale, margin):
    logits, target = rows(classes, scale)
    sigma = torch.linspace(0.5, 1.5, 9)
    cotangent = torch.randn(9, generator=torch.Generator().manual_seed(1))
    assert_close(*both(logits, target, sigma, cotangent, margin=margin, noise="logistic"))


@pytest.mark.parametrize("classes", [10, 70])
@pytest.mark.parametrize("ahead", [1, 2])
def test_logistic_rivals_may_lie_in_groups_far_apart(classes, ahead):
    logits = torch.randn(4, classes, generator=torch.Generator().manual_seed(0))
    logits[:, :ahead] = torch.tensor([[10.0], [30.0], [60.0], [300.0]])
    target = torch.full((4,), 5)
    assert_close(*both(logits, target, torch.ones(4), torch.ones(4), noise="logistic"))


@pytest.mark.parametrize("classes", [10, slow(100)])
def test_strides_and_views_are_respected(classes):
    logits, target = rows(classes, 1.0)
    sigma = torch.ones(9)
    plain = hitrate.log_expected_accuracy(
        logits.to(DEVICE), target.to(DEVICE), sigma.to(DEVICE), backend="triton"
    )
    turned = logits.T.contiguous().T.to(DEVICE)
    wide = torch.stack([logits, -logits], 2)[:, :, 0].to(DEVICE)
    for view in (turned, wide):
        for spread in (1.0, torch.tensor(1.0), torch.ones(1).expand(9).to(DEVICE)):
            same = hitrate.log_expected_accuracy(view, target.to(DEVICE), spread, backend="triton")
            torch.testing.assert_close(same, plain)


@pytest.mark.parametrize("classes", [5, slow(80)])
@pytest.mark.parametrize("margin", [None, 1.0])
@pytest.mark.parametrize("noise", ["normal", "logistic"])
def test_infinities_and_nan_are_what_they_are_in_torch(classes, margin, noise):
    logits, _ = rows(classes, 1.0)
    target = torch.zeros(9, dtype=torch.long)
    logits[0, 0] = -torch.inf
    logits[1, 0] = torch.inf
    logits[2, 1] = torch.inf
    logits[3] = -torch.inf
    # By torch a row without rivals has no value under logistic noise.
    if noise == "normal":
        logits[4, 1:] = -torch.inf
    logits[5, 2] = -torch.inf
    logits[6, 1] = torch.nan
    results = []
    for device, backend in ((DEVICE, "triton"), ("cpu", "torch")):
        z = logits.to(device).requires_grad_()
        value = hitrate.log_expected_accuracy(
            z, target.to(device), 0.7, margin=margin, backend=backend, noise=noise
        )
        (gradient,) = torch.autograd.grad(value.sum(), z)
        results.append((value.detach().cpu(), gradient.cpu()))
    (value, gradient), (truth, slope) = results
    torch.testing.assert_close(value, truth, equal_nan=True, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, slope, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sigma", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("classes", [2, 10, slow(100)])
@pytest.mark.parametrize("noise", ["normal", "logistic"])
def test_extreme_logits_give_finite_values_and_gradients(classes, sigma, noise):
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (16, classes), generator=generator) * 2.0 - 1.0
    logits = (1e4 * signs * torch.rand(16, classes, generator=generator)).to(DEVICE)
    logits.requires_grad_()
    target = torch.arange(16, device=DEVICE) % classes
    value = hitrate.log_expected_accuracy(logits, target, sigma, backend="triton", noise=noise)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert value.isfinite().all() and gradient.isfinite().all()


def test_the_loss_second_derivatives_and_transforms_work_with_the_kernels():
    logits, target = rows(12, 1.0)
    logits, target = logits.to(DEVICE), target.to(DEVICE)

    def loss(z, backend):
        return hitrate.exact_loss(z, target, 0.8, link="log", backend=backend)

    results = []
    for backend in ("triton", "torch"):
        z = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(z, backend), z, create_graph=True)
        (curve,) = torch.autograd.grad(gradient.square().sum(), z)
        each = torch.func.vmap(torch.func.grad(lambda z, b=backend: loss(z, b)))(
            torch.stack([logits, 2 * logits])
        )
        _, tangent = torch.func.jvp(lambda z, b=backend: loss(z, b), (logits,), (logits,))
        results.append((gradient.detach(), curve, each, tangent))
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("classes", [10, slow(100)])
def test_a_compiler_sees_one_operation(classes):
    logits, target = rows(classes, 1.0)
    logits, target = logits.to(DEVICE), target.to(DEVICE)
    torch._dynamo.reset()

    def loss(z):
        return hitrate.exact_loss(z, target, backend="triton")

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    gradients = []
    for function in (loss, compiled):
        z = logits.clone().requires_grad_()
        function(z).backward()
        gradients.append(z.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"noise": "gumbel"}, "there is no kernel for gumbel noise"),
        ({"sigma": torch.ones(1, 10)}, "one sigma per row"),
        ({"method": "genz"}, "choose method and nodes"),
        ({"nodes": 20}, "choose method and nodes"),
    ],
)
def test_a_call_that_the_kernels_cannot_take_is_refused_by_name(arguments, complaint):
    logits, target = rows(10, 1.0)
    if "sigma" in arguments:
        arguments = arguments | {"sigma": arguments["sigma"].to(DEVICE)}
    with pytest.raises(ValueError, match=complaint):
        hitrate.log_expected_accuracy(
            logits.to(DEVICE), target.to(DEVICE), backend="triton", **arguments
        )
    with pytest.raises(ValueError, match="compute in float32"):
        hitrate.log_expected_accuracy(
            logits.double().to(DEVICE), target.to(DEVICE), backend="triton"
        )


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU")
def test_without_gpu_and_interpreter_the_kernels_are_refused(monkeypatch):
    logits, target = rows(10, 1.0)
    monkeypatch.setitem(os.environ, "TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match="logits are on cpu"):
        hitrate.log_expected_accuracy(logits, target, backend="triton")


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("classes", [10, 100])
def test_a_training_step_can_be_captured_in_a_cuda_graph(classes):
    logits, target = rows(classes, 1.0)
    logits, target = logits.cuda().requires_grad_(), target.cuda()
    loss = hitrate.ExactLoss(torch.tensor(1.0, device="cuda"))

    def step():
        value = loss(logits, target)
        (gradient,) = torch.autograd.grad(value, logits)
        # What is returned must not keep the graph, whose leaf belongs to one stream.
        return value.detach(), gradient

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, gradient = step()
    loss.sigma.fill_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    truth, slope = step()
    torch.testing.assert_close(value, truth)
    torch.testing.assert_close(gradient, slope)
