"""A few kills of the commands at random moments; `python tests/fuzz/kills.py` does hundreds."""

import os

import pytest

from fuzz.kills import Compare, Study, campaign


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes")
@pytest.mark.parametrize("job", [Compare, Study], ids=lambda job: job.__name__.lower())
def test_killed_commands_end_as_if_never_killed(job):
    faults, counts, _ = campaign(3, seed=0, jobs=[job])
    assert not faults, "\n".join(faults)
    assert sum(counts.values()) >= 3
