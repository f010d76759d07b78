"""What all tests of kernels share."""

import pytest
import torch
from torch._dynamo import trace_rules


@pytest.fixture(autouse=True, scope="session")
def known_to_the_compiler():
    """Its table of torch's functions, made once, must not hold those that stand in for them."""
    trace_rules.get_torch_obj_rule_map()


@pytest.fixture(autouse=True)
def poisoned(monkeypatch, known_to_the_compiler):
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
