"""Boosted trees of XGBoost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.boosted.family import Boosted
from hitrate_lab.models.boosted.xgboost_trees import checked_xgboost
from hitrate_lab.models.family import State

if TYPE_CHECKING:
    from hitrate_lab.models.boosted.estimator import BoostedTrees


class XGBoost(Boosted):
    """Its trees are kept as its JSON."""

    name = package = "xgboost"
    words = "XGBoost"
    kinds = ("xgboost",)
    files = ("trees.json",)
    # Depths.
    sizes = (
        *((rate, depth) for depth in (6, 3) for rate in (0.3, 0.1)),
        *((rate, depth) for depth in (6, 3, 9, 2) for rate in (0.03, 0.5)),
    )

    def classifier(self, loss: str, size: int, options: dict[str, Any]) -> Any:
        """XGBoost's own classifier."""
        from xgboost import XGBClassifier

        from hitrate.integrations import xgboost
        from hitrate_lab.models.boosted.estimator import link_and_noise

        if loss != "cross_entropy":
            options["objective"] = xgboost.AccuracyObjective(**link_and_noise(loss))
        return XGBClassifier(max_depth=size, **options)

    def trees_of(self, estimator: BoostedTrees) -> State:
        """XGBoost's JSON."""
        booster = estimator.model_.get_booster()
        # What could not be read again is not written.
        text = checked_xgboost(
            bytes(booster.save_raw("json")), booster.num_features(), len(estimator.classes_)
        )
        return State("xgboost", files={"trees.json": text})

    def restore(self, state: State, features: int, classes: int) -> Any:
        """Read by XGBoost, once the text may be shown to it."""
        try:
            from xgboost import XGBClassifier
            from xgboost.core import XGBoostError
        except ImportError:
            raise self.missing() from None
        text = checked_xgboost(self.text_in(state), features, classes)
        model = XGBClassifier(n_jobs=1)
        try:
            model.load_model(bytearray(text))
            found = model.get_booster().num_features(), model.n_classes_
        except XGBoostError:
            raise BadInput("the model's trees cannot be read by XGBoost") from None
        return self.restored(model, found, (features, classes))
