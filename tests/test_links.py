"""Links: values and slopes against mpmath, and the criterion's properties as facts."""

from dataclasses import dataclass, fields, replace

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from hitrate.links import GCE, LINKS, BatchLog, Error, Focal, Focused, Log, Mixed, Tamed, link_named

# Each link with its formula in p, in mpmath's arithmetic.
FORMULAS = {
    Error(): lambda p: 1 - p,
    Log(): lambda p: -mpmath.log(p),
    Mixed(1.0, 3.0): lambda p: -mpmath.log(p) + 3 * (1 - p),
    Mixed(0.0, 2.0): lambda p: 2 * (1 - p),
    Mixed(2.0, 0.0): lambda p: -2 * mpmath.log(p),
    Focused(0.0): lambda p: -mpmath.log(p) + (1 - p),
    Focused(0.3): lambda p: -mpmath.log(p) + (1 - p) / (1 - 2 * mpmath.mpf(0.3)),
    Focused(0.5): lambda p: 1 - p,
    GCE(0.7): lambda p: (1 - p ** mpmath.mpf(0.7)) / mpmath.mpf(0.7),
    GCE(0.0): lambda p: -mpmath.log(p),
    GCE(1e-9): lambda p: (1 - p ** mpmath.mpf(1e-9)) / mpmath.mpf(1e-9),
    GCE(0.5, 0.2): lambda p: (1 - max(p, mpmath.mpf(0.2)) ** 0.5) / 0.5,
    Focal(2.0): lambda p: -((1 - p) ** 2) * mpmath.log(p),
    Focal(0.5): lambda p: -mpmath.sqrt(1 - p) * mpmath.log(p),
    Focal(0.0): lambda p: -mpmath.log(p),
    Tamed(0.5): lambda p: 2 * (mpmath.sqrt(1 - mpmath.log(p)) - 1),
    Tamed(0.0): lambda p: -mpmath.log(p),
    Tamed(1.0): lambda p: mpmath.log(1 - mpmath.log(p)),
    Tamed(1.5): lambda p: ((1 - mpmath.log(p)) ** -0.5 - 1) / -0.5,
}
LOG_P = [-1e-30, -1e-16, -1e-9, -1e-4, -0.1, -0.7, -1.5, -3.0, -30.0, -99.0, -101.0, -700.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("link", FORMULAS, ids=str)
def test_value_and_slope_keep_their_relative_accuracy_at_both_ends(link, dtype):
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    with mpmath.workdps(700):
        for given in LOG_P:
            log_p = torch.tensor(given, dtype=dtype, requires_grad=True)
            value = link(log_p)
            (slope,) = torch.autograd.grad(value, log_p)
            at = mpmath.mpf(log_p.item())
            truth = FORMULAS[link](mpmath.exp(at))
            truth_slope = mpmath.diff(lambda x: FORMULAS[link](mpmath.exp(x)), at)
            assert abs(value.item() - truth) <= 20 * eps * abs(truth) + tiny, given
            # A rounding of log p is one of p^q, as large as log p is.
            slack = 10 * eps * (1 + abs(given)) * abs(truth_slope)
            assert abs(slope.item() - truth_slope) <= slack + tiny, given


@pytest.mark.parametrize("link", FORMULAS, ids=str)
def test_the_slope_is_the_derivative_and_the_curvature_bounds_the_second(link):
    log_p = -torch.logspace(-6, 2, 400, dtype=torch.float64)
    log_p.requires_grad_()
    (first,) = torch.autograd.grad(link(log_p).sum(), log_p, create_graph=True)
    torch.testing.assert_close(link.slope(log_p), first, rtol=0, atol=0)
    second = torch.zeros_like(log_p)
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.sum(), log_p)
    bound = link.curvature(log_p.detach())
    assert (bound >= 0).all()
    assert (bound >= second - 1e-9 * (1 + second.abs())).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("link", FORMULAS, ids=str)
def test_parameters_that_move_are_tensors_and_give_the_same_numbers(link, dtype):
    values = {field.name: getattr(link, field.name) for field in fields(link)}
    moving = {
        name: torch.tensor(value, dtype=torch.float64)
        for name, value in values.items()
        if name != "threshold"
    }
    twin = replace(link, **moving)
    log_p = torch.tensor([*LOG_P, 0.0, -torch.inf], dtype=dtype)
    torch.testing.assert_close(twin(log_p), link(log_p), rtol=2e-6, atol=0)
    torch.testing.assert_close(twin.slope(log_p), link.slope(log_p), rtol=2e-5, atol=1e-37)
    assert repr(twin) == repr(link)
    assert twin.fixed() == link


def test_a_subclass_with_a_call_of_its_own_is_no_longer_its_parent_s_formula():
    @dataclass(frozen=True)
    class Twice(GCE):
        def __call__(self, log_p):
            return 2 * GCE(self.q)(log_p)

    assert Twice.formula is None and GCE.formula is not None
    log_p = torch.tensor([-0.5, -2.0], dtype=torch.float64)
    torch.testing.assert_close(Twice(0.3).slope(log_p), 2 * GCE(0.3).slope(log_p))


def test_former_names_warn():
    with pytest.warns(DeprecationWarning, match="meets_criterion"):
        assert Log().follows_recipe


def logit_gradient(link, p):
    """|d loss / d target's logit| for the softmax p of two classes, by autograd."""
    logits = torch.stack([torch.zeros_like(p), torch.logit(p)], 1).requires_grad_()
    link(logits.log_softmax(1)[:, 1]).sum().backward()
    return logits.grad[:, 1].abs()


@pytest.mark.parametrize("link", FORMULAS, ids=str)
def test_the_criterion_s_properties_are_facts(link):
    p = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    value = link(p.log())
    (slope,) = torch.autograd.grad(value, p)
    assert value == 0
    assert slope.item() == pytest.approx(link.slope_at_one, abs=1e-12)
    # A bounded link has stopped growing long before log p = -1e150.
    middle, far = link(torch.tensor([-1e150, -1e300], dtype=torch.float64)).tolist()
    grows = far > 1.01 * middle
    assert link.is_unbounded is grows
    near = (link(torch.tensor(-1e-8, dtype=torch.float64)) / 1e-8).item()
    assert link.meets_criterion is (grows and near == pytest.approx(1.0, abs=1e-6))


@pytest.mark.parametrize("link", FORMULAS, ids=str)
def test_the_target_s_logit_has_the_largest_gradient_at_the_focus_point(link):
    p = torch.cat([torch.logspace(-12, -4, 200), torch.linspace(1e-4, 1 - 1e-6, 20001)]).double()
    gradient = logit_gradient(link, p)
    at = p[gradient.argmax()].item()
    # Where the maximum is at p = 0 the grid's first point is the closest there is.
    assert at == pytest.approx(link.focus_point, abs=1e-4)


@pytest.mark.parametrize("focus", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_the_focus_form_has_its_largest_gradient_at_f(focus):
    def minus_gradient(p):
        return -logit_gradient(Focused(focus), torch.tensor([p], dtype=torch.float64)).item()

    found = minimize_scalar(minus_gradient, bounds=(1e-9, 1 - 1e-9), options={"xatol": 1e-9})
    assert found.x == pytest.approx(focus, abs=1e-3)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (1, 0), (0, 1), (1, 2.5), (0.3, 4.0)])
def test_the_mixture_s_gradient_is_equation_13_of_the_mixing_paper(alpha, beta):
    logits = torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits = (3 * logits).requires_grad_()
    target = torch.arange(50) % 7
    log_p = logits.log_softmax(1).gather(1, target[:, None])[:, 0]
    Mixed(alpha, beta)(log_p).sum().backward()
    p = logits.detach().softmax(1).numpy()
    own = p[np.arange(50), target][:, None]
    expected = p * (beta * own + alpha)
    expected[np.arange(50), target] = (beta * own**2 + own * (alpha - beta) - alpha)[:, 0]
    assert np.abs(logits.grad.numpy() - expected).max() < 1e-12


def test_the_batch_s_log_is_the_log_of_mean_p():
    p = torch.tensor([0.9, 0.1, 1e-30], dtype=torch.float64)
    assert BatchLog()(p.log()).item() == pytest.approx(-np.log(p.mean().item()), rel=1e-14)
    tiny = torch.tensor([-2000.0, -2001.0], dtype=torch.float64)
    truth = 2000 - float(mpmath.log((1 + mpmath.e**-1) / 2))
    assert BatchLog()(tiny).item() == pytest.approx(truth, rel=1e-14)


@pytest.mark.parametrize("name", LINKS)
def test_every_link_is_zero_for_sure_hits_and_has_a_slope_for_sure_misses(name):
    link = LINKS[name]()
    log_p = torch.tensor([0.0, -0.0], requires_grad=True)
    value = link(log_p)
    assert (value == 0).all()
    value.sum().backward()
    assert torch.isfinite(log_p.grad).all()
    lost = torch.tensor([-1e8, -torch.inf], requires_grad=True)
    link(lost).sum().backward()
    assert torch.isfinite(lost.grad).all()
    assert not link(lost).isnan().any()
    nobody = torch.tensor([-torch.inf], requires_grad=True)
    link(nobody).sum().backward()
    assert torch.isfinite(nobody.grad).all()


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: Mixed(-1.0, 1.0), "alpha"),
        (lambda: Mixed(0.0, 0.0), "not both 0"),
        (lambda: Focused(0.6), "from 0 to 0.5"),
        (lambda: Focused(float("nan")), "focus"),
        (lambda: GCE(-0.1), "q must be"),
        (lambda: GCE(0.5, 1.0), "threshold"),
        (lambda: Focal(-1.0), "gamma"),
        (lambda: Tamed(-1.0), "alpha"),
        (lambda: link_named("hinge", "call"), "'hinge' is neither"),
    ],
)
def test_a_parameter_out_of_range_is_a_value_error_that_shows_it(build, complaint):
    with pytest.raises(ValueError, match=complaint):
        build()
