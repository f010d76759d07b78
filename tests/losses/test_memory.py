"""The peak of a loss and its gradient is a few times its logits, whatever the option.

Bytes are counted by torch's profiler, which sees every tensor: no clock, no other process.
"""

import pytest
import torch
from loss_cases import CASES, exact
from peak_cases import FAMILY, MOST, OPTIONS, SIGMAS, Call, feasible, options_of, peak_of

import hitrate
from hitrate.losses.ways import in_pieces


def light(case):
    """Whether all options of it take well below a second each, at 64 x 1000."""
    given = case.arguments
    if case.name == "hinge[sum]" or "method" in given:
        return False
    if case.module is not hitrate.ExactLoss:
        return True
    return given.get("noise") == "gumbel" and "margin" not in given


def every_option():
    """Each loss with each option; those with integrals by their most usual member."""
    for case in CASES:
        for option in OPTIONS:
            if case.of_batch and option == "none":
                continue
            marks = () if light(case) else pytest.mark.slow
            yield pytest.param(case, option, marks=marks, id=f"{case.name}-{option}")


def test_memory_known_by_hand_is_measured_right():
    from memory import check_memory_of

    check_memory_of()


@pytest.mark.parametrize(("case", "option"), [*every_option()])
def test_the_peak_is_a_few_times_the_logits(case, option):
    assert peak_of(Call(case, feasible(case, option), 64, 1000)) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("noise", FAMILY)
def test_so_it_is_with_any_sigma(noise, sigma):
    assert peak_of(Call(FAMILY[noise], "plain", 64, 1000, sigma)) <= MOST


def test_so_it_is_with_many_rows_and_a_sigma_for_each_class():
    # Integrals of several rows at once, whose nodes are taken in parts.
    assert peak_of(Call(FAMILY["normal"], "plain", 2048, 30, "class")) <= MOST


@pytest.mark.parametrize("noise", FAMILY)
@pytest.mark.parametrize("what", ["margin", "class"])
def test_so_it_is_where_each_class_has_its_own_integral(noise, what):
    case, sigma = FAMILY[noise], None
    if what == "margin":
        case = exact(**case.arguments, margin=1.0)
    else:
        sigma = "class"
    # One class with a part: as many pieces of the same size take C times as long.
    assert peak_of(Call(case, "sparse", 40, 1000, sigma)) <= MOST


def many_rows():
    """Noises and options; of logistic noise the panels for any noise take half a minute."""
    for noise in FAMILY:
        for option in ("plain", "smoothed"):
            takes_long = noise == "logistic" and option == "plain"
            yield pytest.param(noise, option, marks=pytest.mark.slow if takes_long else ())


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("noise", "option"), [*many_rows()])
def test_so_it_is_with_many_rows(noise, option, normalize):
    case = exact(**FAMILY[noise].arguments, normalize=normalize)
    assert peak_of(Call(case, option, 4096, 100)) <= MOST


@pytest.mark.parametrize(("rows", "classes"), [(64, 1000), (4096, 100)])
@pytest.mark.parametrize("noise", FAMILY)
def test_so_it_is_among_the_five_highest(noise, rows, classes):
    case = exact(**FAMILY[noise].arguments, k=5)
    assert peak_of(Call(case, "none", rows, classes)) <= MOST


@pytest.fixture
def few(monkeypatch):
    """Pieces of some dozen elements."""
    monkeypatch.setattr(in_pieces, "FEW", 24)
    monkeypatch.setattr(in_pieces, "LEAST", 8)
    monkeypatch.setattr(in_pieces, "LEAST_BYTES", 64)


@pytest.fixture
def whole(monkeypatch):
    """No pieces at all."""
    monkeypatch.setattr(in_pieces, "FEW", 2**40)


def results(case, option, dtype=torch.float64, sigma=None):
    """Value, gradient, and the gradient of the gradient's square."""
    generator = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(12, 6, generator=generator, dtype=dtype)).requires_grad_()
    target = torch.randint(6, (12,), generator=generator)
    target[3] = -100 if option not in ("soft", "sparse") else 0
    wanted = [logits]
    target, options = options_of(option, 12, 6, target)
    if sigma is not None:
        shape = {"row": (12,), "class": (1, 6), "row and class": (12, 6)}.get(sigma, ())
        options["sigma"] = (0.5 + torch.rand(shape, generator=generator)).to(dtype)
        wanted.append(options["sigma"].requires_grad_())
    value = case(logits, target, **options)
    above = torch.linspace(1, 2, value.numel(), dtype=dtype).reshape(value.shape)
    plain = torch.autograd.grad(value, wanted, above, retain_graph=True)
    # On a graph that was retained they are found anew.
    again = torch.autograd.grad(value, wanted, above, retain_graph=True)
    steps = torch.autograd.grad(value, wanted, above, create_graph=True)
    squares = sum(step.square().sum() for step in steps)
    second = [None]
    if squares.requires_grad:
        second = torch.autograd.grad(squares, wanted, allow_unused=True)
    second = [torch.zeros(()) if s is None else s for s in second]
    return [value.detach(), *plain, *again, *(s.detach() for s in steps), *second]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pieces_add_up_to_the_whole(case, option, request):
    if case.of_batch and option == "none":
        pytest.skip("a link of the batch is one number")
    request.getfixturevalue("whole")
    expected = results(case, option)
    request.getfixturevalue("few")
    for ours, theirs in zip(results(case, option), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-7, atol=2e-7)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("option", ["plain", "smoothed", "sparse"])
@pytest.mark.parametrize("noise", FAMILY)
def test_so_they_do_with_any_sigma(noise, option, sigma, request):
    request.getfixturevalue("whole")
    expected = results(FAMILY[noise], option, sigma=sigma)
    request.getfixturevalue("few")
    for ours, theirs in zip(results(FAMILY[noise], option, sigma=sigma), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-7, atol=2e-7)
