"""No input that cross entropy would take makes a loss NaN or raise.

The default number of examples is small; `pytest --hypothesis-profile=thorough` runs 10,000 per
loss.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from loss_cases import NAMED, exact
from torch.nn.functional import cross_entropy

CASES = [
    *NAMED,
    exact(link="log"),
    exact(noise="logistic"),
    exact(noise="logistic", link="log"),
    exact(link="gce", margin=1.0),
    exact(link="focal", normalize=True),
    exact(link="batch_log"),
]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
VALUES = st.one_of(
    st.floats(-5, 5, width=16),
    st.floats(-1e4, 1e4, width=16),
    st.sampled_from([0.0, -0.0, 1e4, -1e4, 1e-8, 1e30, -1e30]),
)


@st.composite
def inputs(draw):
    """Logits of any layout, stride and size, a target of either kind, and options."""
    classes = draw(st.integers(2, 5))
    layout = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    axis = min(1, len(layout))
    shape = (*layout[:axis], classes, *layout[axis:])
    logits = torch.tensor(draw(arrays.arrays(np.float64, shape, elements=VALUES)))
    dtype = draw(st.sampled_from(DTYPES))
    limit = torch.finfo(dtype).max
    logits = logits.clamp(-limit, limit).to(dtype)
    form = draw(st.sampled_from(["contiguous", "transposed", "strided", "expanded"]))
    if form == "transposed":
        logits = logits.transpose(0, -1).contiguous().transpose(0, -1)
    elif form == "strided":
        logits = torch.stack([logits, -logits], -1)[..., 0]
    elif form == "expanded" and len(layout) > 1:
        logits = logits[..., :1].expand(shape)
    if draw(st.booleans()):
        parts = draw(arrays.arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.5, 1.0])))
        target, ignored = torch.tensor(parts).to(logits.dtype), -100
    else:
        every = st.sampled_from([-100, *range(classes)])
        target = torch.tensor(draw(arrays.arrays(np.int64, layout, elements=every)))
        ignored = draw(st.sampled_from([-100, -100, 0]))
        if ignored == 0:
            target = target.clamp(min=0)
    weights = st.lists(st.sampled_from([0.0, 0.5, 3.0]), min_size=classes, max_size=classes)
    weight = draw(st.none() | weights)
    return (
        logits.detach().requires_grad_(),
        target,
        {
            "weight": None if weight is None else torch.tensor(weight, dtype=logits.dtype),
            "ignore_index": ignored,
            "label_smoothing": draw(st.sampled_from([0.0, 0.0, 0.1, 1.0])),
            "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
        },
    )


def total_weight(logits, target, options):
    """What the mean divides by."""
    if target.is_floating_point():
        return logits.numel()
    kept = target[target != options["ignore_index"]]
    weight = options["weight"]
    return kept.numel() if weight is None else weight[kept].sum().item()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_finite_input_gives_nan(case, data):
    logits, target, options = data.draw(inputs())
    if case.arguments.get("normalize"):
        # Squares of more would be beyond the largest number.
        limit = min(1e15, torch.finfo(logits.dtype).max)
        logits = logits.detach().clamp(-limit, limit).requires_grad_()
    if case.of_batch:
        options["reduction"] = "mean"
    arguments = dict(options)
    if case.function.__name__ == "exact_loss":
        arguments["sigma"] = data.draw(st.sampled_from([1.0, 0.01, 1e-4, 1e4]))
    value = case(logits, target, **arguments)
    assert value.dtype == torch.promote_types(logits.dtype, torch.float32)
    empty = options["reduction"] == "mean" and total_weight(logits, target, options) == 0
    if empty:
        # Nothing to divide by, as in cross entropy.
        assert value.isnan()
        assert cross_entropy(logits, target, **options).isnan()
        return
    assert not value.isnan().any()
    # A sum of what is near the largest number may be beyond it, as in cross entropy.
    if not case.of_batch and (logits.detach().double().abs() < 1e5).all():
        assert value.isfinite().all()
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert gradient.shape == logits.shape and not gradient.isnan().any()
