"""Losses of the softmax in kernels, against the same losses step by step in float64."""

import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy

import hitrate
from hitrate import links

pytest.importorskip("triton")
from hitrate.kernels.launch import softmax as softmax_launch

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LINKS = [made for made in (make() for make in links.LINKS.values()) if made.formula is not None]
LINKS += [links.GCE(0.0), links.GCE(0.5, threshold=0.3), links.Mixed(0.7, 2.0)]
LINKS += [links.Focused(0.4999995)]
TARGETS = ["index", "smoothed", "soft", "soft, smoothed"]
SLOW_TARGETS = [pytest.param(name, marks=pytest.mark.slow) for name in TARGETS[2:]]
# A row at once, several of them; and, with few columns here, in steps.
SIZES = {"rows together": (7, 5, None), "a row": (5, 70, None), "in steps": (3, 200, 16)}


SOME = [pytest.param(name, marks=pytest.mark.slow) for name in SIZES if name != "rows together"]


@pytest.fixture(params=["rows together", *SOME])
def size(request, monkeypatch):
    rows, classes, columns = SIZES[request.param]
    if columns is not None:
        monkeypatch.setattr(softmax_launch, "WHOLE_UP_TO", 2 * columns)
        monkeypatch.setattr(softmax_launch, "LONG", (columns, 1))
        monkeypatch.setattr(softmax_launch, "WIDE", (2 * columns, 1))
    return rows, classes


def batch(rows, classes, targets="index", inner=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, *inner, generator=generator)
    if targets.startswith("soft"):
        target = torch.softmax(2 * torch.randn(logits.shape, generator=generator), 1)
    else:
        target = torch.randint(classes, (rows, *inner), generator=generator)
        if not inner:
            logits[0, target[0]] += 15
            logits[1, target[1]] -= 15
    return logits.to(DEVICE), target.to(DEVICE)


def value_and_gradient(logits, target, sigma=1.0, upstream=None, **arguments):
    z = logits.detach().clone().requires_grad_()
    loss = hitrate.exact_loss(z, target, sigma, noise="gumbel", **arguments)
    upstream = torch.ones_like(loss) if upstream is None else upstream.reshape(loss.shape).to(loss)
    return loss.detach(), torch.autograd.grad(loss, z, upstream)[0]


def both(logits, target, *, weight=None, **arguments):
    """By the kernels in float32, and in float64 by torch."""
    wide = target.double() if target.is_floating_point() else target
    ours = value_and_gradient(logits, target, weight=weight, backend="triton", **arguments)
    weight = None if weight is None else weight.double()
    truth = value_and_gradient(logits.double(), wide, weight=weight, backend="torch", **arguments)
    return ours, truth


def assert_same(ours, truth, tolerance=2e-6):
    for one, other in zip(ours, truth, strict=True):
        assert one.shape == other.shape
        scale = max(float(other.nan_to_num(posinf=0.0, neginf=0.0).abs().max()), 1e-3)
        torch.testing.assert_close(
            one.double(), other, rtol=2e-5, atol=tolerance * scale, equal_nan=True
        )


@pytest.mark.parametrize("link", LINKS, ids=str)
@pytest.mark.parametrize("targets", ["index", "smoothed", *SLOW_TARGETS])
def test_every_link_and_kind_of_target(link, targets):
    logits, target = batch(6, 5, targets)
    smoothing = 0.1 if "smoothed" in targets else 0.0
    assert hitrate.explain(logits, target, noise="gumbel", backend="triton").way == "fused"
    assert_same(*both(logits, target, link=link, label_smoothing=smoothing, sigma=0.7))


@pytest.mark.parametrize("targets", TARGETS)
def test_weights_ignored_rows_sigmas_and_reductions(targets, size):
    logits, target = batch(*size, targets)
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(size[1], generator=generator).to(DEVICE)
    weight[1] = 0.0
    smoothing = 0.2 if "smoothed" in targets else 0.0
    ignore = -100 if targets.startswith("soft") else int(target[2])
    sigmas = (0.7, torch.tensor(0.7, device=DEVICE), torch.linspace(0.5, 2, size[0], device=DEVICE))
    every = itertools.product(("mean", "sum", "none"), sigmas, (None, weight))
    for reduction, sigma, w in every:
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
        )
        assert_same(*results)


def test_a_margin_holds_rivals_back(size):
    logits, target = batch(*size)
    for margin in (0.5, 4.0, torch.tensor(2.0, device=DEVICE)):
        assert_same(*both(logits, target, margin=margin, link="log", sigma=0.6))


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("inner", [(1,), (7,), (4, 5)], ids=str)
def test_layouts_are_read_where_they_are(targets, inner, monkeypatch):
    logits, target = batch(3, 6, targets, inner)
    smoothing = 0.1 if "smoothed" in targets else 0.0
    for reduction in ("mean", "none"):
        arguments = {"label_smoothing": smoothing, "reduction": reduction, "link": "mixed"}
        results = both(logits, target, **arguments)
        assert_same(*results)
    # No copy is made of logits that lie as they came.
    monkeypatch.setattr(torch.Tensor, "movedim", None)
    loss = hitrate.exact_loss(logits, target, noise="gumbel", backend="triton", **arguments)
    torch.testing.assert_close(loss, results[0][0])


@pytest.mark.parametrize("size", SIZES, indirect=True)
def test_it_is_cross_entropy(size):
    logits, target = batch(*size)
    soft = torch.softmax(logits.flip(0), 1)
    weight = torch.linspace(0.5, 2, size[1], device=DEVICE)
    for y, w, smoothing in itertools.product((target, soft), (None, weight), (0.0, 0.1)):
        z = logits.clone().requires_grad_()
        truth = cross_entropy(z, y, weight=w, label_smoothing=smoothing)
        (slope,) = torch.autograd.grad(truth, z)
        ours = value_and_gradient(
            logits, y, weight=w, label_smoothing=smoothing, link="log", backend="triton"
        )
        assert_same(ours, (truth.detach().double(), slope.double()))


def test_one_minus_p_keeps_its_digits():
    logits = torch.tensor([[20.0, 0.0, -1.0], [60.0, 0.0, 1.0]], device=DEVICE)
    target = torch.zeros(2, dtype=torch.long, device=DEVICE)
    for link in ("error", "log", "focal"):
        ours, truth = both(logits, target, link=link, reduction="none")
        for one, other in zip(ours, truth, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("targets", ["index", "smoothed"])
def test_infinities_and_nan_are_what_they_are_in_torch(targets, size):
    classes = max(size[1], 5)
    logits, _ = batch(9, classes)
    target = torch.zeros(9, dtype=torch.long, device=DEVICE)
    logits[1, 0] = torch.inf
    logits[2, 1] = torch.inf
    logits[3] = -torch.inf
    logits[5, 2] = -torch.inf
    logits[6, 1] = torch.nan
    smoothing = 0.1 if targets == "smoothed" else 0.0
    if targets == "index":
        logits[0, 0] = -torch.inf
        logits[4, 1:] = -torch.inf
    arguments = {"reduction": "none", "link": "error", "label_smoothing": smoothing}
    for ignored in ([], [1, 6]):
        target[ignored] = -100
        ours, (value, slope) = both(logits, target, sigma=0.7, **arguments)
        assert value.isnan().any()
        # As in cross entropy, what is undefined has no gradient that one could go on with.
        slope[value.isnan()] = torch.nan
        # An ignored row has none at all, whatever is in it.
        slope[ignored] = 0.0
        assert_same(ours, (value, slope))


@pytest.mark.parametrize("sigma", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("targets", TARGETS)
def test_extreme_logits_give_finite_values_and_gradients(targets, sigma, size):
    logits, target = batch(*size, targets)
    logits = 1e4 * torch.tanh(logits)
    smoothing = 0.1 if "smoothed" in targets else 0.0
    value, gradient = value_and_gradient(
        logits, target, sigma, label_smoothing=smoothing, backend="triton"
    )
    assert value.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("targets", ["index", "soft"])
def test_half_precision_is_read_and_written_as_such(targets, dtype, size):
    logits, target = batch(*size, targets)
    half = logits.to(dtype)
    loss, gradient = value_and_gradient(half, target, link="log", backend="triton")
    truth, slope = value_and_gradient(half.float(), target, link="log", backend="torch")
    assert loss.dtype == torch.float32 and gradient.dtype == dtype
    torch.testing.assert_close(loss, truth)
    torch.testing.assert_close(gradient.float(), slope, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("targets", TARGETS)
def test_the_gradient_can_be_asked_for_twice_and_differentiated(targets):
    logits, target = batch(4, 5, targets)
    smoothing = 0.1 if "smoothed" in targets else 0.0
    results = []
    for backend in ("triton", "torch"):
        z = logits.clone().requires_grad_()
        loss = hitrate.exact_loss(
            z, target, 0.9, noise="gumbel", label_smoothing=smoothing, backend=backend
        )
        first = torch.autograd.grad(loss, z, retain_graph=True)[0]
        assert torch.equal(first, torch.autograd.grad(loss, z, retain_graph=True)[0])
        (slope,) = torch.autograd.grad(loss, z, create_graph=True)
        results.append((first, torch.autograd.grad(slope.square().sum(), z)[0]))
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-4, atol=1e-6)


def test_numbers_that_move_are_read_where_they_are():
    logits, target = batch(6, 5)
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


def test_more_rows_than_one_program_adds_up(monkeypatch):
    logits, target = batch(300, 5)
    target[3] = -100
    found = []
    for limit in (softmax_launch.FINISHED_UP_TO, 2):
        monkeypatch.setattr(softmax_launch, "FINISHED_UP_TO", limit)
        for reduction in ("mean", "sum"):
            found.append(value_and_gradient(logits, target, reduction=reduction, backend="triton"))
    for ours, truth in ((found[2], found[0]), (found[3], found[1])):
        for one, other in zip(ours, truth, strict=True):
            torch.testing.assert_close(one, other)


def test_nothing_counted_is_nan_without_gradient_and_nothing_there_is_nan():
    logits, target = batch(6, 5)
    for smoothing in (0.0, 0.1):
        loss, gradient = value_and_gradient(
            logits, target * 0 - 100, label_smoothing=smoothing, backend="triton"
        )
        assert loss.isnan() and not gradient.any()
    assert hitrate.exact_loss(logits[:0], target[:0], noise="gumbel").isnan()


class OfBatch(links.Error):
    """A link of the batch by a formula that is its parent's."""

    of_batch = True

    def pool(self, terms, coefficient, total):
        return -(terms * coefficient).sum() / total


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_what_is_wrong_elsewhere_is_wrong_here(noise):
    logits, target = batch(6, 5)
    for z, y, options in (
        (logits[:, :1], target * 0, {}),
        (logits, target[:, None], {}),
        (logits, target, {"label_smoothing": -0.5}),
    ):
        with pytest.raises(ValueError, match="exact_loss"):
            hitrate.exact_loss(z, y, noise=noise, backend="triton", **options)


def test_what_learns_goes_step_by_step_and_learns():
    logits, target = batch(6, 5)
    smoothing = torch.tensor(0.1, device=DEVICE, requires_grad=True)
    loss = hitrate.exact_loss(logits, target, noise="gumbel", label_smoothing=smoothing)
    assert torch.autograd.grad(loss, smoothing)[0] != 0
    loss = hitrate.exact_loss(logits, target, noise="gumbel", link=OfBatch())
    truth = hitrate.exact_loss(
        logits.double().cpu(), target.cpu(), noise="gumbel", link=OfBatch(), backend="torch"
    )
    torch.testing.assert_close(loss.cpu().double(), truth, rtol=1e-5, atol=0)


def test_a_number_must_not_move_between_value_and_gradient():
    logits, target = batch(6, 5)
    q = torch.tensor(0.3, device=DEVICE)
    z = logits.requires_grad_()
    loss = hitrate.exact_loss(z, target, noise="gumbel", link=links.GCE(q), backend="triton")
    q.fill_(0.9)
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rows_masked_with_the_lowest_number_are_even(smoothing):
    logits = torch.full((3, 5), torch.finfo(torch.float32).min, device=DEVICE)
    target = torch.zeros(3, dtype=torch.long, device=DEVICE)
    loss = hitrate.exact_loss(
        logits, target, noise="gumbel", link="log", label_smoothing=smoothing, backend="triton"
    )
    torch.testing.assert_close(loss, torch.tensor(5.0, device=DEVICE).log())
