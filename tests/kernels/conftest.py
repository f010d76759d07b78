"""What all tests of kernels share."""

import pytest
import torch
from torch._dynamo import trace_rules
from torch.utils import _device


@pytest.fixture(autouse=True, scope="session")
def known_to_torch():
    """Tables of its functions, made once, must not hold those that stand in for them."""
    # The compiler's, and that of what makes tensors on a default device.
    trace_rules.get_torch_obj_rule_map()
    _device._device_constructors()


@pytest.fixture(autouse=True)
def poisoned(monkeypatch, known_to_torch):
    """Whatever a kernel does not write is NaN, in every tensor that is made to be written."""
    for name in ("empty", "empty_like", "empty_strided"):
        monkeypatch.setattr(torch, name, _poisoned(getattr(torch, name)))
    for name in ("new_empty", "new_empty_strided"):
        monkeypatch.setattr(torch.Tensor, name, _poisoned(getattr(torch.Tensor, name)))


def _poisoned(make):
    def poison(*arguments, **options):
        made = make(*arguments, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    return poison
