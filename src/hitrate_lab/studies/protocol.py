"""What a protocol is: the hooks through which a study is checked, run and reported on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from hitrate_lab.runs.store import Run
from hitrate_lab.runs.work import Context, Result, Specification, Work

if TYPE_CHECKING:
    from hitrate_lab.studies.study_file import Study

# A measure, a data set, a method and a number.
Cell = tuple[str, str, str, float]


class Protocol(Work):
    """One kind of study. A subclass has `name`, `plan`, `run` and `cells`; the rest has defaults.

    Where runs are computed together, it has `batch_of` and `run_batch` in the place of `run`. It
    is listed in `hitrate_lab.studies.registry.PROTOCOLS`.
    """

    # What a study's file calls it.
    name: ClassVar[str]
    # Another one where the same specification would give another result.
    version: ClassVar[int] = 1
    # Whether it can compute elsewhere than on the CPU.
    uses_device: ClassVar[bool] = False

    @property
    def signature(self) -> str:
        """Name and version, as specifications have them."""
        return f"{self.name} {self.version}"

    def check(self, study: Study) -> None:
        """Complain of a field of the study's file that cannot be used."""

    def check_machine(self, study: Study) -> None:
        """Complain of a machine that cannot run the study."""

    @abstractmethod
    def plan(self, study: Study) -> list[Specification]:
        """Specifications of all runs, each with at least "study", "protocol" and "data_set"."""

    def run(self, specification: Specification, context: Context) -> Result:
        """One result, with at least "seconds"."""
        raise NotImplementedError(f"{type(self).__name__} has neither run nor run_batch")

    def run_batch(
        self, specifications: Sequence[Specification], context: Context
    ) -> list[Result | Exception]:
        """Results of runs that are computed together; by default one after the other."""
        return [self.run(specification, context) for specification in specifications]

    @abstractmethod
    def cells(self, specification: Specification, result: Result) -> list[Cell]:
        """What a result adds to the tables of measures by data set and method."""

    def extra_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """Other tables of the report: a "title", a "head", "rows" of texts, and "text" below."""
        return []

    def pictures(self, study: Study, runs: Sequence[Run]) -> dict[str, str]:
        """Pictures beside those of rankings: .svg files with title and description, by name."""
        return {}

    def score_tables(self, study: Study, runs: Sequence[Run]) -> list[dict[str, Any]] | None:
        """What methods are ranked by, see `hitrate_lab.studies.rankings`; None for accuracies."""
        return None

    def differences(self, study: Study) -> list[str]:
        """Where the study is not the paper's; by default what its file says."""
        return list(study.differences)
