"""The last layer with its loss, against the loss of all logits."""

import pytest
import torch
from loss_cases import NAMED
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import hitrate

ROWS, CLASSES, WIDTH = 11, 7, 5
GUMBEL = [hitrate.MixedLoss, hitrate.ExpectationLoss, hitrate.CrossEntropyLoss]
OPTIONS = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"weight": torch.linspace(0.5, 2, CLASSES)},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.1, "weight": torch.linspace(0.5, 2, CLASSES), "reduction": "none"},
]


def layer(dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in ((ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,))
    )
    target = torch.randint(CLASSES, (ROWS,), generator=generator)
    return hidden, weight, bias, target


def both(loss, target, *, rows=4, dtype=torch.float64, **layout):
    """Values and gradients by pieces, and from all logits."""
    found = []
    for by_pieces in (True, False):
        hidden, weight, bias, _ = layer(dtype)
        shaped = hidden.reshape(*layout.get("shape", (ROWS,)), WIDTH)
        if by_pieces:
            value = hitrate.linear_loss(shaped, weight, target, bias=bias, loss=loss, rows=rows)
        else:
            logits = (shaped @ weight.T + bias).reshape(-1, CLASSES)
            flat = target.reshape(-1, *([CLASSES] if target.is_floating_point() else []))
            value = loss(logits, flat)
            value = value.reshape(shaped.shape[:-1]) if value.dim() else value
        upstream = torch.linspace(0.5, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
        inputs = [hidden, weight, bias, *loss.parameters()]
        found.append([value, *torch.autograd.grad(value, inputs, upstream)])
    return found


def assert_equal(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", NAMED, ids=lambda case: case.name)
def test_every_loss_is_what_it_is_of_all_logits(case):
    assert_equal(*both(case.build(), layer()[3]))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options) or "none")
@pytest.mark.parametrize("make", [hitrate.MixedLoss, hitrate.ExactLoss, nn.CrossEntropyLoss])
def test_options_are_those_of_cross_entropy(make, options):
    target = layer()[3]
    target[2] = target[9] = -100
    assert_equal(*both(make(**options).double(), target))


@pytest.mark.parametrize("noise", ["normal", "logistic", "gumbel"])
def test_probability_targets(noise):
    target = torch.softmax(torch.randn(ROWS, CLASSES, dtype=torch.float64), 1)
    assert_equal(*both(hitrate.ExactLoss(0.7, noise=noise), target))


def test_rows_of_rows_keep_their_layout():
    hidden, weight, _, _ = layer()
    hidden, target = hidden[:10].reshape(2, 5, WIDTH), torch.arange(10).reshape(2, 5) % CLASSES
    loss = hitrate.ExpectationLoss(reduction="none")
    found = hitrate.linear_loss(hidden, weight, target, loss=loss, rows=3)
    expected = loss((hidden @ weight.T).movedim(-1, 1), target)
    torch.testing.assert_close(found, expected)


def test_parameters_of_the_loss_learn():
    loss = hitrate.ExactLoss(nn.Parameter(torch.tensor(0.7, dtype=torch.float64)))
    assert_equal(*both(loss, layer()[3]))


@pytest.mark.parametrize("rows", [1, 5, ROWS, 100, None])
def test_any_number_of_rows_at_a_time(rows):
    assert_equal(*both(hitrate.MixedLoss(0.25), layer()[3], rows=rows))


def test_nothing_counted_is_nan_without_gradient():
    hidden, weight, _, target = layer()
    value = hitrate.linear_loss(hidden, weight, torch.full_like(target, -100), rows=4)
    assert value.isnan()
    for gradient in torch.autograd.grad(value, [hidden, weight]):
        assert not gradient.any()


def test_no_rows():
    _, weight, _, target = layer()
    loss = hitrate.ExpectationLoss(reduction="sum")
    value = hitrate.linear_loss(torch.zeros(0, WIDTH).double(), weight, target[:0], loss=loss)
    assert value == 0
    assert not torch.autograd.grad(value, weight)[0].any()


def test_a_graph_that_is_kept_gives_its_gradient_twice():
    hidden, weight, _, target = layer()
    value = hitrate.linear_loss(hidden, weight, target, loss=hitrate.MixedLoss(0.25), rows=4)
    first = torch.autograd.grad(value, [hidden, weight], retain_graph=True)
    first = [gradient.clone() for gradient in first]
    for once, twice in zip(first, torch.autograd.grad(3 * value, [hidden, weight]), strict=True):
        torch.testing.assert_close(3 * once, twice)


def test_only_what_is_wanted_gets_a_gradient():
    hidden, weight, _, target = layer()
    hitrate.linear_loss(hidden, weight.detach(), target, rows=4).backward()
    assert hidden.grad is not None and weight.grad is None
    with torch.no_grad():
        assert not hitrate.linear_loss(hidden, weight, target, rows=4).requires_grad


def test_small_gradients_in_float16_have_the_scale_from_above():
    hidden, weight, _, target = layer()
    logits = 8 * hidden.detach() @ weight.detach().T
    target = logits.argmax(1)
    scale = 2.0**14
    gradients = []
    for dtype in (torch.float16, torch.float64):
        h, w = (8 * hidden).detach().to(dtype).requires_grad_(), weight.detach().to(dtype)
        value = hitrate.linear_loss(h, w, target, rows=4) * scale
        gradients.append(torch.autograd.grad(value, h)[0].double())
    torch.testing.assert_close(*gradients, rtol=0.03, atol=0.03 * float(gradients[1].abs().max()))


class LargestTensor(TorchDispatchMode):
    """Notes how many numbers the largest tensor had."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.size = max(self.size, tensor.numel())
        return made


@pytest.mark.parametrize("loss", [hitrate.MixedLoss(0.25), hitrate.ExpectationLoss()])
def test_all_logits_are_never_there(loss):
    hidden, weight = torch.randn(640, 4).requires_grad_(), torch.randn(50, 4).requires_grad_()
    target = torch.randint(50, (640,))
    with LargestTensor() as seen:
        hitrate.linear_loss(hidden, weight, target, loss=loss, rows=40).backward()
    assert seen.size == max(hidden.numel(), 40 * 50)


def test_under_autocast_as_a_linear_layer():
    hidden, weight, _, target = layer(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = hitrate.linear_loss(hidden, weight, target, rows=4)
        expected = hitrate.CrossEntropyLoss()(torch.nn.functional.linear(hidden, weight), target)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(
        *(torch.autograd.grad(v, [hidden, weight]) for v in (found, expected)), strict=True
    ):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.01)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled_code_calls_it():
    hidden, weight, _, target = layer(torch.float32)

    def step(h, w):
        return hitrate.linear_loss(2 * h, w, target, loss=hitrate.MixedLoss(0.25), rows=4)

    compiled = torch.compile(step, backend="aot_eager")
    expected = torch.autograd.grad(step(hidden, weight), [hidden, weight])
    found = torch.autograd.grad(compiled(hidden, weight), [hidden, weight])
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_second_derivatives_are_refused():
    hidden, weight, _, target = layer()
    value = hitrate.linear_loss(hidden, weight, target, rows=4)
    (gradient,) = torch.autograd.grad(value, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives are not available"):
        gradient.sum().backward()


def test_a_layer_with_its_loss():
    torch.manual_seed(0)
    linear = nn.Linear(WIDTH, CLASSES)
    head = hitrate.LinearLoss(linear, hitrate.MixedLoss(0.25))
    hidden, target = torch.randn(ROWS, WIDTH), torch.randint(CLASSES, (ROWS,))
    torch.testing.assert_close(head(hidden, target), head.loss(head(hidden), target))
    head(hidden, target).backward()
    assert linear.weight.grad is not None and linear.bias.grad is not None
    hitrate.Schedule(head.loss, "focus", hitrate.schedules.linear(0.0, 0.5), 10)
    assert {"linear.weight", "linear.bias", "loss.focus"} <= {*head.state_dict()}


def test_a_loss_of_ones_own_and_its_hooks_are_called():
    class Tempered(hitrate.MixedLoss):
        def forward(self, input, target):
            return super().forward(input / 4, target)

    assert_equal(*both(Tempered(0.25), layer()[3]))
    seen = []
    loss = hitrate.MixedLoss(0.25)
    loss.register_forward_hook(lambda *_: seen.append(True))
    both(loss, layer()[3])
    assert len(seen) > 3


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_targets_of_any_whole_type(dtype):
    hidden, weight = torch.randn(4, 3), torch.randn(200, 3)
    target = torch.tensor([156, 3, 156, 7])
    found = hitrate.linear_loss(hidden, weight, target.to(dtype))
    torch.testing.assert_close(found, hitrate.linear_loss(hidden, weight, target))


def test_no_rows_of_probabilities():
    loss = hitrate.CrossEntropyLoss(reduction="sum")
    none, weight = torch.zeros(0, WIDTH), torch.zeros(CLASSES, WIDTH)
    assert hitrate.linear_loss(none, weight, torch.zeros(0, CLASSES), loss=loss) == 0


def test_targets_without_weight_are_nan_as_in_cross_entropy():
    hidden, weight, _, target = layer()
    loss = hitrate.CrossEntropyLoss(weight=torch.zeros(CLASSES), label_smoothing=0.1).double()
    loss.weight[6] = 1
    assert hitrate.linear_loss(hidden, weight, target % 6, loss=loss).isnan()


def test_torchs_own_cross_entropy_is_summed_in_full_precision():
    hidden, weight = torch.randn(3000, 8), torch.randn(500, 8)
    target = torch.randint(500, (3000,))
    expected = nn.CrossEntropyLoss()(hidden @ weight.T, target)
    with torch.autocast("cpu", torch.bfloat16):
        found = hitrate.linear_loss(hidden, weight, target, loss=nn.CrossEntropyLoss())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)


def test_a_number_that_moved_before_the_backward_pass_is_told():
    hidden, weight, _, target = layer()
    loss = hitrate.MixedLoss(0.25, reduction="none")
    schedule = hitrate.Schedule(loss, "focus", hitrate.schedules.linear(0.0, 0.5), 10)
    value = hitrate.linear_loss(hidden, weight, target, loss=loss, rows=4)
    schedule.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_layers_with_a_way_of_their_own_are_refused():
    class Adapted(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    with pytest.raises(TypeError, match="whose own way to make logits"):
        hitrate.LinearLoss(Adapted(WIDTH, CLASSES))
    linear = nn.Linear(WIDTH, CLASSES)
    linear.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="has hooks"):
        hitrate.LinearLoss(linear)(torch.zeros(2, WIDTH), torch.zeros(2).long())


WRONG = {
    "do not fit together": {"weight": torch.zeros(CLASSES, WIDTH + 1)},
    "bias must have one value": {"bias": torch.zeros(3)},
    "target must be class indices": {"target": torch.zeros(3, dtype=torch.long)},
    "rows must be a whole number": {"rows": 0},
    "loss must be a loss of hitrate": {"loss": nn.MSELoss()},
    "needs all logits at once": {"loss": hitrate.ExactLoss(normalize=True)},
    "mean over the whole batch": {"loss": hitrate.ExactLoss(link="batch_log")},
    "target must be a tensor": {"target": [0] * ROWS},
    "differ in dtype": {"weight": torch.zeros(CLASSES, WIDTH, dtype=torch.float64)},
    "get a gradient here": {"target": torch.ones(ROWS, CLASSES, requires_grad=True)},
    "out of range": {"target": torch.full((ROWS,), CLASSES)},
}


@pytest.mark.parametrize("words", WRONG)
def test_complaints_say_what_is_wrong(words):
    hidden, weight, _, target = layer(torch.float32)
    arguments = {"hidden": hidden, "weight": weight, "target": target, **WRONG[words]}
    with pytest.raises((ValueError, TypeError), match=words):
        hitrate.linear_loss(**arguments)
