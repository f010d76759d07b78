"""What all tests of kernels share."""

import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
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
