"""Boosted trees of LightGBM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.boosted.family import Boosted
from hitrate_lab.models.boosted.lightgbm_trees import checked_lightgbm
from hitrate_lab.models.family import LEAST, State, check_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hitrate_lab.models.boosted.estimator import BoostedTrees


class LightGBM(Boosted):
    """Its trees are kept as its text, and beside them the noise that makes probabilities."""

    name = package = "lightgbm"
    words = "LightGBM"
    kinds = ("lightgbm",)
    files = ("trees.txt",)
    # Leaves.
    sizes = (
        *((rate, leaves) for leaves in (31, 7) for rate in (0.1, 0.3)),
        *((rate, leaves) for leaves in (31, 7, 63, 3) for rate in (0.03, 0.5)),
    )

    def classifier(self, loss: str, size: int, options: dict[str, Any]) -> Any:
        """LightGBM's classifier, with probabilities of the noise where it has an objective."""
        from hitrate.integrations import lightgbm
        from hitrate_lab.models.boosted.estimator import link_and_noise

        if loss != "cross_entropy":
            options["objective"] = lightgbm.AccuracyObjective(**link_and_noise(loss))
        return lightgbm.AccuracyLGBMClassifier(num_leaves=size, verbose=-1, **options)

    def trees_of(self, estimator: BoostedTrees) -> State:
        """LightGBM's text."""
        model = estimator.model_
        # What was loaded knows its noise; what was fitted has an objective, or the host's own.
        said = model if isinstance(model, LightGBMTrees) else model.objective
        noise, sigma = getattr(said, "noise", None), getattr(said, "sigma", None)
        booster = model.booster_
        # What could not be read again is not written.
        text = checked_lightgbm(
            booster.model_to_string().encode(),
            booster.num_feature(),
            len(estimator.classes_),
            own=noise is None,
        )
        return State("lightgbm", {"noise": noise, "sigma": sigma}, files={"trees.txt": text})

    def restore(self, state: State, features: int, classes: int) -> Any:
        """Read by LightGBM, once the text may be shown to it."""
        try:
            from lightgbm import Booster
            from lightgbm.basic import LightGBMError
        except ImportError:
            raise self.missing() from None
        from hitrate.integrations.boosting import NOISES

        noise, sigma = state.settings["noise"], state.settings["sigma"]
        if noise is not None:
            check_between("sigma", sigma, LEAST)
            if noise not in NOISES:
                raise ValueError(f"noise={noise!r:.40}")
        elif sigma is not None:
            raise ValueError(f"sigma={sigma!r:.40} without a noise")
        text = checked_lightgbm(self.text_in(state), features, classes, own=noise is None)
        try:
            booster = Booster(model_str=text.decode())
        except LightGBMError:
            raise BadInput("the model's trees cannot be read by LightGBM") from None
        scores = booster.num_model_per_iteration()
        found = booster.num_feature(), 2 if scores == 1 else scores
        return self.restored(LightGBMTrees(booster, noise, sigma), found, (features, classes))


@dataclass(frozen=True)
class LightGBMTrees:
    """Probabilities of trees that LightGBM has read.

    Parameters
    ----------
    booster_ : lightgbm.Booster
    noise, sigma
        Of the objective; None for LightGBM's own.
    """

    booster_: Any
    noise: str | None
    sigma: float | None

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities (N, C).

        Parameters
        ----------
        X : array or sparse matrix, shape (N, F)
        """
        import numpy as np
        import torch

        from hitrate.probability import class_probabilities

        own = self.noise is None
        found = np.asarray(self.booster_.predict(X, raw_score=not own, num_threads=1), np.float64)
        if found.ndim == 1:
            first = 1.0 - found if own else np.zeros_like(found)
            found = np.column_stack([first, found])
        if own or self.sigma is None or self.noise is None:
            return found
        return class_probabilities(torch.from_numpy(found), self.sigma, noise=self.noise).numpy()
