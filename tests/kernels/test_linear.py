"""The last layer with its loss, by kernels that write gradients over the logits."""

import pytest
import torch

import hitrate

pytest.importorskip("triton")
from hitrate.kernels import launch
from hitrate.kernels.launch import rows as rows_launch
from hitrate.kernels.launch import scaling

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION:UserWarning"),
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, CLASSES, WIDTH = 7, 60, 4
LOSSES = {
    "mixed": {"noise": "gumbel", "link": "mixed"},
    "smoothed": {"noise": "gumbel", "link": "log", "label_smoothing": 0.1},
    "softmax with a margin": {"noise": "gumbel", "margin": 1.0},
    "long rows": {"noise": "normal"},
    "long rows with a margin": {"noise": "normal", "margin": 1.0},
    "of each row": {"noise": "gumbel", "reduction": "none"},
    "logistic": {"noise": "logistic", "link": "log"},
}


@pytest.fixture
def long_rows(monkeypatch):
    monkeypatch.setattr(rows_launch, "AT_ONCE_UP_TO", 40)


@pytest.mark.parametrize("name", LOSSES)
def test_kernels_agree_with_all_logits_in_float64(name, long_rows):
    generator = torch.Generator().manual_seed(0)
    made = [
        torch.randn(shape, generator=generator).to(DEVICE)
        for shape in ((ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,))
    ]
    target = torch.randint(CLASSES, (ROWS,), generator=generator).to(DEVICE)
    target[3] = -100
    found = []
    for backend, dtype in (("triton", torch.float32), ("torch", torch.float64)):
        loss = hitrate.ExactLoss(0.8, backend=backend, **LOSSES[name])
        hidden, weight, bias = inputs = [tensor.to(dtype).requires_grad_() for tensor in made]
        if backend == "triton":
            assert loss.explain(hidden @ weight.T, target).way == "fused"
            value = hitrate.linear_loss(hidden, weight, target, bias=bias, loss=loss, rows=3)
        else:
            value = loss(hidden @ weight.T + bias, target)
        upstream = torch.linspace(0.5, 2, value.numel()).reshape(value.shape).to(value)
        found.append([value.detach(), *torch.autograd.grad(value, inputs, upstream)])
    for ours, theirs in zip(*found, strict=True):
        size = float(theirs.abs().max())
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_multiplied_in_place_by_what_comes_from_above(dtype, monkeypatch):
    monkeypatch.setattr(scaling, "PROGRAMS", 2)
    values = torch.randn(3, 9000, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)
    for factor in (1.0, -0.3):
        found = values.clone()
        assert launch.times(found, torch.tensor(factor, device=DEVICE)) is found
        expected = (values.float() * factor).to(dtype)
        if factor == 1:
            assert torch.equal(found, expected)
        # Triton's interpreter rounds another way.
        torch.testing.assert_close(found, expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
