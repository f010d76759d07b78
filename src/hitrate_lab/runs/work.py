"""What the engine asks of whoever has runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hitrate_lab.runs.store import key_of

# Plain JSON: all that a result depends on, and what came of it.
Specification = dict[str, Any]
Result = dict[str, Any]


class Work(ABC):
    """Runs that the engine can begin. Processes get a copy: what it knows is in its class."""

    def batch_of(self, specification: Specification) -> str:
        """A text that runs share which are computed together; by default each run is alone."""
        return key_of(specification)

    def needs(
        self, specification: Specification, plan: Sequence[Specification]
    ) -> list[Specification]:
        """Those of the plan whose results a run needs, by default none.

        It begins when they are there, and finds them in `known` by their keys.
        """
        return []

    @abstractmethod
    def run_batch(
        self,
        specifications: Sequence[Specification],
        data_dir: Path | None,
        known: Mapping[str, Result],
        device: str,
    ) -> list[Result | Exception]:
        """For each run of a batch its result, with at least "seconds", or what it ended in.

        Parameters
        ----------
        specifications : sequence of dict
            All of the plan that share `batch_of`.
        data_dir : Path, optional
            As for `read_table`.
        known : mapping
            Results that the batch needs, by key.
        device : str
            Of torch.
        """
