"""What the engine asks of whoever has runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hitrate_lab.runs.store import key_of

# Plain JSON: all that a result depends on, and what came of it.
Specification = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Context:
    """What runs have beside their specifications, and what no result depends on.

    Parameters
    ----------
    data_dir : Path, optional
        As for `read_table`.
    known : mapping
        Results that a batch needs, by key.
    device : str
        Of torch.
    scratch : Path, optional
        A folder of the batch's own for what outlives a kill, such as checkpoints: the same when it
        is begun again, gone when all of it is kept. Who uses it makes it.
    """

    data_dir: Path | None = None
    known: Mapping[str, Result] = field(default_factory=dict)
    device: str = "cpu"
    scratch: Path | None = None


class Work(ABC):
    """Runs that the engine can begin. Each process gets a copy, once."""

    # Whether a process has one thread, so that numbers do not depend on how many cores there are,
    # or its share of the cores.
    has_one_thread: ClassVar[bool] = True

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

    def ignores_time_budget(self, specification: Specification) -> bool:
        """Whether a run begins also when the time is up; by default it does not."""
        return False

    def seconds_of(self, result: Result) -> float | None:
        """How long a run took, if it says so."""
        return result.get("seconds")

    @abstractmethod
    def run_batch(
        self, specifications: Sequence[Specification], context: Context
    ) -> list[Result | Exception]:
        """For each run of a batch its result or what it ended in.

        Parameters
        ----------
        specifications : sequence of dict
            All of the plan that share `batch_of`.
        context : Context
        """
