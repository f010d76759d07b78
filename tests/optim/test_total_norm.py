"""The norm of all gradients, against numpy."""

import numpy as np
import pytest
import torch
from waiting import NoWaiting

from hitrate.optim.norms import total_norm

KINDS = {
    "float32": (torch.float32, 1e-6),
    "float64": (torch.float64, 1e-14),
    "bfloat16": (torch.bfloat16, 1e-6),
    "float16": (torch.float16, 1e-6),
    "complex64": (torch.complex64, 1e-6),
}


def norm_in_numpy(tensors):
    wide = [t.to(torch.complex128 if t.is_complex() else torch.float64).numpy() for t in tensors]
    return np.sqrt(sum(np.sum(np.abs(array) ** 2) for array in wide))


@pytest.mark.parametrize(("dtype", "tolerance"), KINDS.values(), ids=KINDS)
def test_it_is_the_norm_of_all_numbers_together(dtype, tolerance):
    grads = [torch.randn(shape, dtype=dtype) for shape in ((3, 4), (5,), (), (0,), (2, 3, 1))]
    found = total_norm(grads)
    assert found.shape == ()
    assert found.item() == pytest.approx(norm_in_numpy(grads), rel=tolerance)


def test_half_precision_is_summed_in_float32():
    # Each square is beyond float16, and so is the norm.
    grads = [torch.full((100,), 3e4, dtype=torch.float16)] * 2
    found = total_norm(grads)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(norm_in_numpy(grads), rel=1e-6)


def test_dtypes_can_be_mixed():
    grads = [torch.randn(9).to(dtype) for dtype in (torch.float16, torch.float32, torch.float64)]
    assert total_norm(grads).item() == pytest.approx(norm_in_numpy(grads), rel=1e-12)


def sparse_gradient():
    """Of an embedding that met row 1 twice."""
    table = torch.nn.Embedding(5, 4, sparse=True)
    table(torch.tensor([1, 1, 3])).square().sum().backward()
    return table.weight.grad


def test_a_sparse_gradient_counts_like_the_dense_one_it_stands_for():
    sparse = sparse_gradient()
    assert not sparse.is_coalesced()
    dense = sparse.to_dense()
    assert total_norm([sparse]).item() == pytest.approx(norm_in_numpy([dense]), rel=1e-6)


def test_strides_do_not_matter():
    grad = torch.randn(6, 4).t()[::2]
    assert total_norm([grad]).item() == pytest.approx(norm_in_numpy([grad]), rel=1e-6)


def test_no_gradients_have_norm_zero():
    assert total_norm([]).item() == 0.0


def test_an_infinity_or_a_nan_anywhere_is_in_the_norm():
    assert total_norm([torch.ones(2), torch.tensor([1.0, torch.inf])]).item() == torch.inf
    assert total_norm([torch.tensor([torch.nan]), torch.ones(2)]).isnan()


def test_it_does_not_wait_for_the_device():
    grads = [torch.randn(3), torch.randn(2).half(), sparse_gradient()]
    with NoWaiting():
        total_norm(grads)
