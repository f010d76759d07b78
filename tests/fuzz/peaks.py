"""Peak memory of losses with their gradients: a few times the logits, whatever the option.

A case is one call; seeds in turn go through all of them, in an order that is shuffled once.
"""

import math
import random
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

from fuzz.limits import Limits
from fuzz.target import Target, Wrong

sys.path.insert(0, str(Path(__file__).parents[1] / "losses"))


class Peaks(Target):
    """Bytes are counted by torch's profiler, which sees every tensor."""

    chunk = 20
    limits = Limits(cpu_seconds=600, mebibytes=12288, wall_seconds=1800)
    watches_memory = False
    with_every_change = 4
    # Of the calls some take a minute.
    is_slow = True

    def load(self, folder: Path) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch = torch

    @cached_property
    def calls(self) -> list[Any]:
        """All of them, in random order."""
        from peak_cases import calls

        return random.Random(0).sample(found := list(calls()), len(found))

    @property
    def long_form(self) -> int:
        return len(self.calls)

    def describe(self) -> dict[str, Any]:
        return {"torch": self.torch.__version__, "calls": len(self.calls)}

    def case(self, seed: int, folder: Path) -> str:
        from peak_cases import MOST, peak_of

        call = self.calls[seed % len(self.calls)]
        found = peak_of(call)
        if found > MOST:
            raise Wrong(f"{call}: {found:.2f} times the logits")
        return f"{call.rows} x {call.classes}: up to {math.ceil(found)} times"
