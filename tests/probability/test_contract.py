"""What every noise, method and kind of sigma promises: one table, the whole contract for each."""

import dataclasses
import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import hitrate
from hitrate.probability import NOISES


@dataclasses.dataclass(frozen=True)
class Case:
    noise: str = "normal"
    method: str = "auto"
    sigma: str = "number"
    margin: float | None = None
    classes: int = 5
    k: int = 1

    def __str__(self) -> str:
        margin = "" if self.margin is None else f"-margin{self.margin}"
        k = "" if self.k == 1 else f"-top{self.k}"
        return f"{self.noise}-{self.method}-{self.sigma}-C{self.classes}{margin}{k}"

    def draw(self, rows: int = 4, dtype: torch.dtype = torch.float64):
        """Logits, target and sigma."""
        logits = torch.randn(rows, self.classes, dtype=dtype)
        target = torch.randint(self.classes, (rows,))
        sigma = {
            "number": torch.tensor(0.8, dtype=dtype),
            "per_row": torch.rand(rows, dtype=dtype) + 0.5,
            "per_class": 0.5 * torch.rand(1, self.classes, dtype=dtype) + 0.75,
        }[self.sigma]
        return logits, target, sigma

    def __call__(self, logits, target, sigma):
        return hitrate.log_expected_accuracy(
            logits,
            target,
            sigma,
            noise=self.noise,
            method=self.method,
            margin=self.margin,
            k=self.k,
        )


# Second derivatives come from the quadrature's Hessian; a sampled value has none of its own.
DETERMINISTIC = [
    *(
        Case(noise, "auto", sigma, margin)
        for noise, sigma, margin in itertools.product(
            NOISES, ("number", "per_row", "per_class"), (None, 0.4)
        )
    ),
    Case(classes=2),
    Case(classes=2, sigma="per_row", margin=0.4),
    Case(method="quadrature", classes=2),
    Case(method="quadrature", classes=30),
    Case(method="gridded", sigma="per_row"),
    Case(method="gridded", classes=30, margin=1.0),
    Case("gumbel", "quadrature"),
    *(
        Case(noise, sigma=sigma, k=k)
        for noise, (sigma, k) in itertools.product(NOISES, (("per_row", 2), ("per_class", 3)))
    ),
    Case(margin=0.4, k=4),
    Case(classes=30, k=5),
]
SAMPLED = [
    Case(method="genz"),
    Case(method="monte_carlo"),
    Case("logistic", "monte_carlo"),
    Case("gumbel", "monte_carlo", k=2),
]

deterministic = pytest.mark.parametrize("case", DETERMINISTIC, ids=str)
every = pytest.mark.parametrize("case", DETERMINISTIC + SAMPLED, ids=str)
compiled = pytest.mark.parametrize(
    "case",
    [
        Case(classes=2, sigma="per_row"),
        *(
            pytest.param(case, marks=pytest.mark.slow)
            for case in (
                Case(),
                Case(classes=40, margin=0.4),
                Case("gumbel"),
            )
        ),
    ],
    ids=str,
)


@deterministic
def test_gradients_in_logits_and_sigma_are_right(case):
    logits, target, sigma = case.draw()
    inputs = (logits.requires_grad_(), sigma.requires_grad_())
    # The grid's own error is 1e-9: a difference quotient needs a longer step there.
    eps, atol = (1e-4, 1e-5) if case.method == "gridded" else (1e-6, 1e-7)
    options = {"eps": eps, "fast_mode": True}
    assert gradcheck(lambda x, s: case(x, target, s), inputs, atol=atol, **options)
    assert gradgradcheck(lambda x, s: case(x, target, s), inputs, atol=10 * atol, **options)


@deterministic
def test_forward_mode_agrees_with_reverse_mode(case):
    logits, target, sigma = case.draw()
    tangents = (torch.randn_like(logits), torch.randn_like(sigma))
    value, tangent = torch.func.jvp(lambda x, s: case(x, target, s), (logits, sigma), tangents)
    gradients = torch.func.grad(lambda x, s: case(x, target, s).sum(), (0, 1))(logits, sigma)
    torch.testing.assert_close(value, case(logits, target, sigma))
    expected = sum((g * t).sum() for g, t in zip(gradients, tangents, strict=True))
    torch.testing.assert_close(tangent.sum(), expected)


@deterministic
def test_func_grad_equals_backward(case):
    logits, target, sigma = case.draw()
    x = logits.clone().requires_grad_()
    (expected,) = torch.autograd.grad(case(x, target, sigma).sum(), x)
    found = torch.func.grad(lambda x: case(x, target, sigma).sum())(logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@deterministic
def test_hessians_agree_and_are_symmetric(case):
    logits, target, sigma = case.draw(rows=1)
    size = logits.numel()

    def value(x):
        return case(x, target, sigma).sum()

    forward_over_reverse = torch.func.hessian(value)(logits).reshape(size, size)
    double_backward = torch.autograd.functional.hessian(value, logits).reshape(size, size)
    torch.testing.assert_close(forward_over_reverse, double_backward)
    torch.testing.assert_close(double_backward, double_backward.T)


def test_a_third_derivative_is_refused_rather_than_wrong():
    case = Case()
    logits, target, sigma = case.draw()
    x = logits.requires_grad_()
    (first,) = torch.autograd.grad(case(x, target, sigma).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first[0, 0], x, create_graph=True)
    with pytest.raises(RuntimeError, match="third derivatives"):
        torch.autograd.grad(second.sum(), x)


@deterministic
def test_vmap_equals_a_loop(case):
    draws = [case.draw() for _ in range(3)]
    stacked = [torch.stack(parts) for parts in zip(*draws, strict=True)]
    expected = torch.stack([case(*draw) for draw in draws])
    torch.testing.assert_close(torch.vmap(case)(*stacked), expected)
    logits, target, sigma = stacked
    # One of the inputs shared by all.
    found = torch.vmap(case, in_dims=(0, 0, None))(logits, target, sigma[0])
    expected = torch.stack([case(x, y, sigma[0]) for x, y in zip(logits, target, strict=True)])
    torch.testing.assert_close(found, expected)


def test_per_sample_gradients_come_from_vmap_of_grad():
    case = Case()
    logits, target, sigma = case.draw()

    def one(x, y):
        return case(x[None], y[None], sigma).sum()

    found = torch.vmap(torch.func.grad(one))(logits, target)
    x = logits.requires_grad_()
    (expected,) = torch.autograd.grad(case(x, target, sigma).sum(), x)
    torch.testing.assert_close(found, expected)


@compiled
def test_compiles_into_one_graph_with_the_same_numbers(case):
    torch.compiler.reset()
    logits, target, sigma = case.draw(dtype=torch.float32)
    inputs = (logits.requires_grad_(), sigma.requires_grad_())
    expected = case(inputs[0], target, inputs[1])
    found = torch.compile(case, fullgraph=True)(inputs[0], target, inputs[1])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), inputs),
        torch.autograd.grad(expected.sum(), inputs),
        rtol=1e-4,
        atol=1e-5,
    )


@deterministic
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_repeated_calls_are_bitwise_equal(case, dtype):
    logits, target, sigma = case.draw(rows=64, dtype=dtype)
    x = logits.requires_grad_()
    first, second = (case(x, target, sigma) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(
        torch.autograd.grad(first.sum(), x)[0], torch.autograd.grad(second.sum(), x)[0]
    )


@pytest.mark.parametrize(
    ("method", "k"), [("auto", 1), ("quadrature", 1), ("gridded", 1), ("genz", 1), ("auto", 3)]
)
@pytest.mark.parametrize("classes", [2, 3, 10, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("sigma", [1e-4, 1e-2, 1.0, 1e2, 1e4])
def test_value_and_gradient_are_finite_for_extreme_logits_and_sigma(
    method, k, classes, dtype, sigma
):
    k = min(k, classes - 1)
    logits = torch.cat([torch.randn(6, classes, dtype=dtype) * 10.0**k for k in range(-4, 5)])
    logits = torch.cat([logits.clamp(-1e4, 1e4), torch.full((1, classes), 1e4, dtype=dtype)])
    logits[-2] = torch.where(torch.arange(classes) % 2 == 0, 1e4, -1e4)
    target = torch.randint(classes, (len(logits),))
    x = logits.requires_grad_()
    s = torch.tensor(sigma, dtype=dtype, requires_grad=True)
    value = hitrate.log_expected_accuracy(x, target, s, method=method, k=k)
    assert torch.isfinite(value).all()
    assert (value <= 0).all()
    for gradient in torch.autograd.grad(value.sum(), (x, s)):
        assert torch.isfinite(gradient).all()


@every
def test_a_nan_row_stays_alone(case):
    logits, target, sigma = case.draw(rows=6)
    if case in SAMPLED:
        pytest.skip("draws depend on the batch")
    expected = case(logits, target, sigma)
    spoiled = logits.clone()
    spoiled[2, 1] = torch.nan
    spoiled.requires_grad_()
    found = case(spoiled, target, sigma)
    assert found[2].isnan()
    kept = torch.arange(6) != 2
    torch.testing.assert_close(found[kept], expected[kept])
    (gradient,) = torch.autograd.grad(found[kept].sum(), spoiled)
    assert torch.isfinite(gradient[kept]).all()


@every
def test_an_empty_batch_gives_an_empty_result(case):
    logits = torch.empty(0, case.classes, requires_grad=True)
    sigma = torch.ones(1, case.classes) if case.sigma == "per_class" else 1.0
    found = case(logits, torch.empty(0, dtype=torch.long), sigma)
    assert found.shape == (0,)
    found.sum().backward()
    assert logits.grad.shape == (0, case.classes)


INFINITE_ROWS = {
    "rival_at_minus_infinity": [0.0, -torch.inf, 1.0],
    "all_rivals_at_minus_infinity": [0.0, -torch.inf, -torch.inf],
    "target_at_minus_infinity": [-torch.inf, 0.0, 1.0],
    "target_and_a_rival_at_minus_infinity": [-torch.inf, -torch.inf, 1.0],
    "rival_at_infinity": [0.0, torch.inf, 1.0],
    "target_at_infinity": [torch.inf, 0.0, 1.0],
    "two_at_infinity": [torch.inf, torch.inf, 1.0],
    "all_at_minus_infinity": [-torch.inf] * 3,
}


@pytest.mark.parametrize("row", INFINITE_ROWS.values(), ids=INFINITE_ROWS)
@pytest.mark.parametrize(
    ("method", "k"), [("auto", 1), ("quadrature", 1), ("gridded", 1), ("auto", 2)]
)
def test_infinite_logits_behave_as_in_cross_entropy(row, method, k):
    logits = torch.tensor([row, [0.5, 0.0, -0.5]], requires_grad=True)
    target = torch.tensor([0, 0])
    entropy = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    found = -hitrate.log_expected_accuracy(logits, target, method=method, k=k)
    for kind in (torch.isnan, torch.isposinf, torch.isfinite):
        assert torch.equal(kind(found), kind(entropy))
    found[1].backward()
    assert torch.isfinite(logits.grad[1]).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    logits = torch.randn(8, 20).to(dtype).requires_grad_()
    target = torch.randint(20, (8,))
    found = hitrate.log_expected_accuracy(logits, target)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, hitrate.log_expected_accuracy(logits.float(), target))
    found.sum().backward()
    assert logits.grad.dtype == dtype


def test_autocast_does_not_lower_the_precision():
    logits, target = torch.randn(8, 20), torch.randint(20, (8,))
    expected = hitrate.log_expected_accuracy(logits, target)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(hitrate.log_expected_accuracy(logits, target), expected)


@pytest.mark.parametrize("method", ["quadrature", "gridded"])
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_coarser_matrix_products_elsewhere_do_not_reach_here(method, precision):
    logits, target = torch.randn(64, 20), torch.randint(20, (64,))
    expected = hitrate.log_expected_accuracy(logits, target, method=method)
    torch.set_float32_matmul_precision(precision)
    try:
        found = hitrate.log_expected_accuracy(logits, target, method=method)
    finally:
        torch.set_float32_matmul_precision("highest")
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)


def test_layout_in_memory_does_not_matter():
    logits, target = torch.randn(20, 12), torch.randint(12, (20,))
    expected = hitrate.log_expected_accuracy(logits, target)
    strided = torch.randn(12, 40).T[::2].copy_(logits)
    torch.testing.assert_close(hitrate.log_expected_accuracy(strided, target), expected)
    expanded = logits[:1].expand(20, 12)
    found = hitrate.log_expected_accuracy(expanded, target[:1].expand(20))
    torch.testing.assert_close(found, expected[:1].expand(20))


def test_differences_beyond_the_largest_number_are_finite_losses():
    big = torch.finfo(torch.float32).max
    logits = torch.tensor([[-big, big, 0.0], [0.0, big, 1.0]], requires_grad=True)
    for noise in ("normal", "logistic"):
        value = hitrate.log_expected_accuracy(logits, torch.tensor([0, 0]), noise=noise)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        assert value.isfinite().all() and gradient.isfinite().all()
