"""What all tests of kernels share."""

import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Whatever a kernel does not write is NaN."""
    empty = torch.empty

    def poison(*shape, **options):
        made = empty(*shape, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poison)
