"""What boosted trees of every host have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.family import Family, State

if TYPE_CHECKING:
    from hitrate_lab.models.boosted.estimator import BoostedTrees


class Boosted(Family):
    """`BoostedTrees` of one host, whose package has the family's name."""

    # Learning rates and sizes of a tree, the host's defaults first.
    sizes: ClassVar[tuple[tuple[float, int], ...]]

    @abstractmethod
    def classifier(self, loss: str, size: int, options: dict[str, Any]) -> Any:
        """The host's classifier.

        Parameters
        ----------
        loss : str
            "cross_entropy" is the host's own.
        size : int
            Of a tree, as the host measures it.
        options : dict
            That all hosts call the same.
        """

    def losses(self) -> Sequence[str]:
        """Losses that are a link of log p, as an objective needs them."""
        from hitrate_lab.models.boosted.estimator import TREE_LOSSES

        return TREE_LOSSES

    def grid(self, loss: str, rows: int) -> Sequence[dict[str, Any]]:
        """Learning rates and sizes."""
        return [{"learning_rate": rate, "size": size} for rate, size in self.sizes]

    def build(self, loss: str, parameters: dict[str, Any], seed: int) -> Any:
        """An estimator that has the host's."""
        from hitrate_lab.models.boosted.estimator import BoostedTrees

        return BoostedTrees(self.name, loss, random_state=seed, **parameters)

    def state_of(self, estimator: Any) -> State | None:
        """The state of the host's model, if that is whose trees they are."""
        from hitrate_lab.models.boosted.estimator import BoostedTrees

        is_own = type(estimator) is BoostedTrees and estimator.host == self.name
        return self.trees_of(estimator) if is_own else None

    @abstractmethod
    def trees_of(self, estimator: BoostedTrees) -> State:
        """The state of `BoostedTrees` that were fitted or loaded."""

    def restored(self, model: Any, found: tuple[int, int], needed: tuple[int, int]) -> Any:
        """An estimator of trees for as many features and classes as there are."""
        from hitrate_lab.models.boosted.estimator import BoostedTrees

        if found != needed:
            raise BadInput(f"the model's trees are for {found} features and classes, not {needed}")
        estimator = BoostedTrees(self.name)
        estimator.model_ = model
        return estimator

    def text_in(self, state: State) -> bytes:
        """The one file that a state has."""
        if set(state.files) != set(self.files) or state.arrays:
            raise BadInput(f"the model needs the file {self.files[0]} and nothing else")
        return state.files[self.files[0]]

    def missing(self) -> BadInput:
        """What to raise when a model is to be loaded and the host is not there."""
        return BadInput(f"the model needs {self.words}: pip install 'hitrate[{self.package}]'")
