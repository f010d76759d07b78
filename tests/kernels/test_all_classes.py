"""All classes at once in kernels, against the same step by step in float64."""

import pytest
import torch

import hitrate
from hitrate import links
from hitrate.probability import all_classes, log_class_probabilities
from hitrate.probability.noises import LOGISTIC, NORMAL

pytest.importorskip("triton")
from hitrate.kernels.launch import all_classes as all_classes_launch

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NOISES = {"normal": NORMAL, "logistic": LOGISTIC}
LINKS = [made for made in (make() for make in links.LINKS.values()) if made.formula is not None]
LINKS += [links.GCE(0.0), links.GCE(0.5, threshold=0.3), links.Mixed(0.7, 2.0)]
TARGETS = ["smoothed", "soft", "soft, smoothed"]
SLOW_TARGETS = [pytest.param(name, marks=pytest.mark.slow) for name in TARGETS[1:]]
# Each class a place of its own, or points that stand for all.
SIZES = {"few": (3, 18), "many": (4, 70)}
# The interpreter takes a second for a row of many classes.
SOME = ["few", pytest.param("many", marks=pytest.mark.slow)]
SLOW_CLASSES = [pytest.param(c, marks=pytest.mark.slow) for c in (2, 10, 40, 64, 65, 300, 1100)]


@pytest.fixture(params=SOME)
def size(request):
    return SIZES[request.param]


@pytest.fixture(params=NOISES)
def noise(request):
    return request.param


def batch(rows, classes, targets="smoothed", seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=generator)
    logits[0, 0] += 25
    logits[1, 1] -= 15
    if targets.startswith("soft"):
        target = torch.softmax(2 * torch.randn(logits.shape, generator=generator), 1)
        target[:, -1] = 0.0
    else:
        target = torch.randint(classes, (rows,), generator=generator)
    return logits.to(DEVICE), target.to(DEVICE)


def hard_rows(classes, seed=0):
    """Level, spread, led and left behind: rows that ask for something of nodes and segments."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(4, classes, generator=generator) * torch.tensor([[0.1], [1], [3], [9]])
    spread = spread.clamp(min=-20, max=18)
    level = torch.zeros(4, classes)
    level[:, -1] = torch.tensor([-5.0, -39.0, 5.0, 30.0])
    uniform = -39 * torch.rand(1, classes, generator=generator)
    steps = torch.full((1, classes), -39.0)
    steps[:, : classes // 2] = -20.0
    steps[:, 0] = 0.0
    return torch.cat([spread, level, uniform, steps]).to(DEVICE)


def value_and_gradient(logits, target, sigma=1.0, upstream=None, **arguments):
    z = logits.detach().clone().requires_grad_()
    loss = hitrate.exact_loss(z, target, sigma, **arguments)
    upstream = torch.ones_like(loss) if upstream is None else upstream.reshape(loss.shape).to(loss)
    return loss.detach(), torch.autograd.grad(loss, z, upstream)[0]


def both(logits, target, *, weight=None, **arguments):
    """By the kernels in float32, and in float64 by torch."""
    wide = target.double() if target.is_floating_point() else target
    ours = value_and_gradient(logits, target, weight=weight, backend="triton", **arguments)
    weight = None if weight is None else weight.double()
    truth = value_and_gradient(logits.double(), wide, weight=weight, **arguments)
    return ours, truth


def assert_same(ours, truth):
    (value, gradient), (true_value, slope) = ours, truth
    assert value.shape == true_value.shape
    torch.testing.assert_close(value.double(), true_value, rtol=5e-6, atol=5e-6, equal_nan=True)
    # Where all is lost or won, parts of the smoothed gradient cancel to less than they round to.
    atol = 5e-5 * max(float(slope.nan_to_num().abs().amax()), 1e-4)
    torch.testing.assert_close(gradient.double(), slope, rtol=0, atol=atol, equal_nan=True)


def log_p_and_product(logits, noise, v, sigma=1.0):
    """log p by the kernel, and the product of its gradients with v."""
    z = logits.detach().clone().requires_grad_()
    log_p = all_classes.kernel_log_probabilities(z, sigma, NOISES[noise])
    return log_p.detach(), torch.autograd.grad(log_p, z, v)[0]


@pytest.mark.parametrize("classes", [3, *SLOW_CLASSES])
def test_log_p_and_its_gradient_are_those_of_float64(classes, noise):
    check_log_p(hard_rows(classes), noise)


def test_points_stand_for_many_classes(noise):
    logits = hard_rows(70)
    check_log_p(logits[[1, 7]], noise)
    _, target = batch(4, 70)
    arguments = {"link": "mixed", "label_smoothing": 0.1, "noise": noise}
    assert_same(*both(logits[[0, 7]], target[:2], **arguments))


@pytest.mark.slow
def test_the_few_that_matter_are_not_lost_among_thousands(noise):
    logits = torch.randn(2, 5000, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    logits[0, 5], logits[1, 0] = -25.0, 14.0
    check_log_p(logits, noise)


def check_log_p(logits, noise):
    v = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    log_p, product = log_p_and_product(logits, noise, v)
    z = logits.double().requires_grad_()
    truth = log_class_probabilities(z, noise=noise)
    (slope,) = torch.autograd.grad(truth, z, v.double())
    truth = truth.detach()
    error = (log_p - truth).abs() / truth.abs().clamp(min=1)
    assert float(error.max()) < 5e-6
    assert bool((log_p <= 0).all())
    error = (product - slope).abs().amax(1) / slope.abs().amax(1)
    assert float(error.max()) < 5e-5


@pytest.mark.parametrize("classes", [3, 70])
def test_a_certain_winner_keeps_the_digits_of_one_minus_p(classes, noise):
    logits = torch.zeros(1, classes, device=DEVICE)
    logits[0, 1] = 11.0
    log_p, _ = log_p_and_product(logits, noise, torch.ones_like(logits))
    truth = log_class_probabilities(logits.double(), noise=noise)
    torch.testing.assert_close(log_p.double(), truth, rtol=2e-5, atol=0)
    ours, truth = both(
        logits, torch.ones(1, dtype=torch.long, device=DEVICE), noise=noise, label_smoothing=1e-30
    )
    torch.testing.assert_close(ours[0].double(), truth[0], rtol=2e-5, atol=0)
    torch.testing.assert_close(ours[1].double(), truth[1], rtol=1e-4, atol=1e-37)


@pytest.mark.parametrize("classes", [6, pytest.param(70, marks=pytest.mark.slow)])
def test_classes_far_down_are_roughly_right_and_leave_the_others_alone(classes, noise):
    logits = batch(4, classes)[0][1:3]
    usual = log_class_probabilities(logits[:, 1:].double(), noise=noise)
    for depth in (60.0, 300.0, 1e4):
        logits[:, 0] = -depth
        log_p, product = log_p_and_product(logits, noise, torch.ones_like(logits))
        error = (log_p[:, 1:] - usual).abs() / usual.abs().clamp(min=1)
        assert float(error.max()) < 5e-6
        truth = log_class_probabilities(logits.double(), noise=noise)[:, 0]
        torch.testing.assert_close(log_p[:, 0].double(), truth, rtol=4e-3, atol=0)
        assert bool(product.isfinite().all())


@pytest.mark.slow
@pytest.mark.parametrize("depth", [100.0, 1000.0])
def test_many_classes_far_down_together(depth, noise):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(2, 70, generator=generator) - depth).to(DEVICE)
    logits[:, 0] = 0.0
    log_p, product = log_p_and_product(logits, noise, torch.ones_like(logits))
    truth = log_class_probabilities(logits.double(), noise=noise)
    torch.testing.assert_close(log_p.double(), truth, rtol=3e-3, atol=1e-6)
    assert bool(product.isfinite().all())


@pytest.mark.parametrize("link", LINKS, ids=str)
def test_every_link(link):
    logits, target = batch(3, 5)
    asked = {"label_smoothing": 0.1, "backend": "triton"}
    choice = hitrate.explain(logits, target, **asked)
    assert choice.way == "fused" and choice.backend == "triton"
    assert_same(*both(logits, target, link=link, label_smoothing=0.1, sigma=0.7))


@pytest.mark.parametrize("targets", ["smoothed", "soft", *SLOW_TARGETS[1:]])
def test_weights_ignored_rows_sigmas_and_reductions(targets, size, noise):
    logits, target = batch(*size, targets)
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(size[1], generator=generator).to(DEVICE)
    weight[1] = 0.0
    smoothing = 0.2 if "smoothed" in targets else 0.0
    ignore = -100 if targets.startswith("soft") else int(target[2])
    sigmas = (0.7, torch.tensor(0.7, device=DEVICE), torch.linspace(0.5, 2, size[0], device=DEVICE))
    # Each option with another one, not every combination.
    for reduction, sigma, w in zip(
        ("mean", "sum", "none"), sigmas, (weight, None, weight), strict=True
    ):
        upstream = torch.randn(size[0] if reduction == "none" else 1, generator=generator)
        results = both(
            logits,
            target,
            sigma=sigma,
            weight=w,
            upstream=upstream.to(DEVICE),
            ignore_index=ignore,
            reduction=reduction,
            label_smoothing=smoothing,
            link="mixed",
            noise=noise,
        )
        assert_same(*results)


def test_infinities_and_nan_are_what_they_are_in_torch(size, noise):
    logits, target = batch(8, size[1])
    logits[1, 0] = torch.inf
    logits[2] = -torch.inf
    logits[3, 2] = logits[7, 1] = torch.nan
    logits[4, 2] = -torch.inf
    logits[5, target[5]] = -torch.inf
    logits[6, 1:] = -torch.inf
    target[6], target[7] = 0, -100
    arguments = {"reduction": "none", "link": "error", "label_smoothing": 0.1, "noise": noise}
    ours, (value, slope) = both(logits, target, sigma=0.7, **arguments)
    assert value[1:4].isnan().all() and value[4:].isfinite().all()
    # What is undefined has no gradient that one could go on with; an ignored row has none.
    slope[value.isnan()] = torch.nan
    slope[7] = 0.0
    assert_same(ours, (value, slope))
    with torch.no_grad():
        log_p = all_classes.kernel_log_probabilities(logits, 0.7, NOISES[noise])
    truth = log_class_probabilities(logits.double(), 0.7, noise=noise)
    torch.testing.assert_close(log_p.double(), truth, rtol=5e-6, atol=5e-6, equal_nan=True)


@pytest.mark.parametrize("sigma", [1e-4, pytest.param(1.0, marks=pytest.mark.slow), 1e4])
@pytest.mark.parametrize("targets", ["smoothed", *SLOW_TARGETS[:1]])
def test_extreme_logits_give_finite_values_and_gradients(targets, sigma, size, noise):
    logits, target = batch(*size, targets)
    logits = 1e4 * torch.tanh(logits)
    smoothing = 0.1 if "smoothed" in targets else 0.0
    value, gradient = value_and_gradient(
        logits, target, sigma, label_smoothing=smoothing, backend="triton", noise=noise
    )
    assert value.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)]
)
def test_half_precision_is_read_and_written_as_such(dtype, size):
    for targets in TARGETS[:2]:
        logits, target = batch(*size, targets)
        half = logits.to(dtype)
        smoothing = 0.1 if targets == "smoothed" else 0.0
        arguments = {"link": "log", "label_smoothing": smoothing}
        loss, gradient = value_and_gradient(half, target, backend="triton", **arguments)
        truth, slope = value_and_gradient(half.double(), target, **arguments)
        assert loss.dtype == torch.float32 and gradient.dtype == dtype
        torch.testing.assert_close(loss.double(), truth, rtol=5e-6, atol=5e-6)
        tolerance = float(slope.abs().max()) * 5e-5
        torch.testing.assert_close(gradient.double(), slope, rtol=2e-2, atol=tolerance)
    log_p, product = log_p_and_product(half, "normal", torch.ones_like(logits))
    assert log_p.dtype == torch.float32 and product.dtype == dtype


def test_the_gradient_can_be_asked_for_twice_and_differentiated(noise):
    logits, target = batch(3, 5)
    results = []
    for backend in ("triton", "torch"):
        z = logits.clone().requires_grad_()
        loss = hitrate.exact_loss(z, target, 0.9, noise=noise, label_smoothing=0.1, backend=backend)
        first = torch.autograd.grad(loss, z, retain_graph=True)[0]
        assert torch.equal(first, torch.autograd.grad(loss, z, retain_graph=True)[0])
        (slope,) = torch.autograd.grad(loss, z, create_graph=True)
        results.append((first, torch.autograd.grad(slope.square().sum(), z)[0]))
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sigma", [0.8, torch.tensor([0.5, 1.0, 2.0])], ids=["number", "each"])
def test_log_p_can_be_differentiated_twice(sigma):
    logits = batch(3, 5)[0] / 3
    sigma = sigma.to(DEVICE) if isinstance(sigma, torch.Tensor) else sigma
    v = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = []
    for of in (
        lambda z: all_classes.kernel_log_probabilities(z, sigma, NORMAL),
        lambda z: log_class_probabilities(z.double(), sigma),
    ):
        z = logits.clone().requires_grad_()
        log_p = of(z)
        (slope,) = torch.autograd.grad(log_p, z, v.to(log_p), create_graph=True)
        found.append((slope.detach(), torch.autograd.grad(slope.square().sum(), z)[0]))
    for ours, truth in zip(*found, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-3, atol=1e-4 * float(truth.abs().max()))


def test_probabilities_sum_to_one_and_have_the_slopes_of_float64(noise, size):
    logits, _ = batch(*size)
    logits[2, 2] = -torch.inf
    # Much the same for all classes, so that slopes are what differences leave.
    v = 3 + torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = []
    for of in (
        lambda z: all_classes.kernel_probabilities(z, 0.8, NOISES[noise]),
        lambda z: hitrate.class_probabilities(z.double(), 0.8, noise=noise),
    ):
        z = logits.clone().requires_grad_()
        p = of(z)
        found.append((p.detach().double(), torch.autograd.grad(p, z, v.to(p))[0].double()))
    (p, slope), (truth, true_slope) = found
    torch.testing.assert_close(p.sum(1), torch.ones_like(p[:, 0]), rtol=0, atol=1e-6)
    torch.testing.assert_close(p, truth, rtol=1e-4, atol=5e-7)
    torch.testing.assert_close(slope, true_slope, rtol=0, atol=1e-5)


def test_probabilities_can_be_differentiated_twice_and_half_precision_is_read():
    logits = batch(3, 5)[0] / 3
    v = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = []
    for of in (
        lambda z: all_classes.kernel_probabilities(z, 0.8, NORMAL),
        lambda z: hitrate.class_probabilities(z.double(), 0.8),
    ):
        z = logits.clone().requires_grad_()
        p = of(z)
        (slope,) = torch.autograd.grad(p, z, v.to(p), create_graph=True)
        found.append((slope.detach(), torch.autograd.grad(slope.square().sum(), z)[0]))
    for ours, truth in zip(*found, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-3, atol=1e-4 * float(truth.abs().max()))
    half = logits.bfloat16().requires_grad_()
    p = all_classes.kernel_probabilities(half, 0.8, NORMAL)
    assert p.dtype == torch.float32
    assert torch.autograd.grad(p.square().sum(), half)[0].dtype == torch.bfloat16


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU's memory")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_take_no_memory_but_theirs_and_the_gradients(dtype):
    logits = torch.randn(4096, 1000, device=DEVICE).to(dtype).requires_grad_()
    upstream = torch.randn(logits.shape, device=DEVICE)
    torch.autograd.grad(hitrate.class_probabilities(logits), logits, upstream)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.autograd.grad(hitrate.class_probabilities(logits), logits, upstream)
    torch.cuda.synchronize()
    size = logits.numel() * (4 + logits.element_size())
    assert torch.cuda.max_memory_allocated() - before < 1.05 * size


def test_numbers_that_move_are_read_where_they_are():
    logits, target = batch(3, 5)
    fixed = value_and_gradient(
        logits, target, link=links.GCE(0.3), label_smoothing=0.1, backend="triton"
    )
    for home in {"cpu", DEVICE}:
        q, smoothing = (torch.tensor(x, dtype=torch.float64, device=home) for x in (0.3, 0.1))
        moving = value_and_gradient(
            logits, target, link=links.GCE(q), label_smoothing=smoothing, backend="triton"
        )
        for ours, truth in zip(moving, fixed, strict=True):
            torch.testing.assert_close(ours, truth, rtol=1e-6, atol=1e-7)


def test_programs_take_rows_in_turn_and_classes_in_blocks(monkeypatch, size):
    logits, target = batch(5, size[1])
    target[3] = -100
    arguments = {"label_smoothing": 0.1, "backend": "triton"}
    reductions = ("mean", "sum", "none")
    usual = [value_and_gradient(logits, target, reduction=r, **arguments) for r in reductions]
    monkeypatch.setattr(all_classes_launch, "PROGRAMS", 2)
    monkeypatch.setattr(all_classes_launch, "BLOCK", 32)
    all_classes_launch._kernel.cache_clear()
    found = [value_and_gradient(logits, target, reduction=r, **arguments) for r in reductions]
    all_classes_launch._kernel.cache_clear()
    for ours, truth in zip(found, usual, strict=True):
        for one, other in zip(ours, truth, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-6)


def test_nothing_counted_is_nan_without_gradient_and_nothing_there_is_nan(noise):
    logits, target = batch(3, 5)
    arguments = {"label_smoothing": 0.1, "noise": noise}
    loss, gradient = value_and_gradient(logits, target * 0 - 100, backend="triton", **arguments)
    assert loss.isnan() and not gradient.any()
    assert hitrate.exact_loss(logits[:0], target[:0], **arguments).isnan()
    assert hitrate.class_probabilities(logits[:0], noise=noise).shape == (0, 5)


def test_what_the_kernels_do_not_know_goes_step_by_step():
    logits, target = batch(3, 5)
    sigma = torch.tensor(0.8, device=DEVICE, requires_grad=True)
    for asked, why in (
        ({"sigma": sigma}, "sigma wants a gradient"),
        ({"margin": 2.0}, "with a margin each class has its own"),
    ):
        told = hitrate.explain(logits, target, label_smoothing=0.1, backend="triton", **asked)
        assert told.way != "fused" and dict(told.passed_over)["fused"] == why
    loss = hitrate.exact_loss(logits, target, sigma, label_smoothing=0.1)
    assert torch.autograd.grad(loss, sigma)[0] != 0


@pytest.mark.skipif(DEVICE == "cpu", reason="on a CPU nothing but a test asks for the kernel")
def test_class_probabilities_take_the_kernel_on_a_gpu(noise, size, monkeypatch):
    logits, _ = batch(*size)
    truth = hitrate.class_probabilities(logits.double(), noise=noise)
    monkeypatch.setattr(all_classes, "_by_torch", None)
    found = hitrate.class_probabilities(logits.requires_grad_(), noise=noise)
    torch.testing.assert_close(found.double(), truth, rtol=1e-4, atol=5e-6)
    found.square().sum().backward()
    assert logits.grad.isfinite().all()
