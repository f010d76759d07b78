"""Seeds of whatever is random."""

from __future__ import annotations

import numpy as np


def seed_of(*numbers: int) -> int:
    """A seed from several numbers, without a pattern between neighbours."""
    (state,) = np.random.SeedSequence(numbers).generate_state(1)
    return int(state >> 1)
