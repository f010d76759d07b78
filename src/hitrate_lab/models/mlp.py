"""Networks with one hidden layer, under a loss or a whole recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hitrate_lab.models.family import Family, State, arrays_in, calibration_in

# Learning rate and weight decay; the same for every loss.
STEPS = (
    (0.01, 0.01),
    (0.003, 0.01),
    (0.03, 0.01),
    (0.01, 1.0),
    (0.003, 1.0),
    (0.03, 1.0),
    (0.001, 0.01),
    (0.01, 0.1),
    (0.003, 0.1),
    (0.03, 0.1),
    (0.001, 1.0),
    (0.1, 0.01),
)
# Fewer epochs than the estimator's own 100: five fits in each fold have to end soon.
EPOCHS, PATIENCE = 30, 10


class MLP(Family):
    """`AccuracyMLPClassifier` on the processor."""

    name = words = "mlp"
    default_losses = ("cross_entropy", "exact_networks")
    kinds = ("mlp",)

    def losses(self) -> Sequence[str]:
        """Losses but for distances to centres, as linear models have them, and recipes."""
        from hitrate.losses import LOSSES
        from hitrate.recipes import RECIPES

        return [*(loss for loss in LOSSES if loss != "max_mahalanobis_center"), *RECIPES]

    def grid(self, loss: str, rows: int) -> Sequence[dict[str, Any]]:
        """Learning rates and weight decays."""
        return [{"learning_rate": rate, "weight_decay": decay} for rate, decay in STEPS]

    def build(self, loss: str, parameters: dict[str, Any], seed: int) -> Any:
        """Hitrate's estimator."""
        from hitrate.sklearn import AccuracyMLPClassifier

        return AccuracyMLPClassifier(
            loss,
            max_iter=EPOCHS,
            n_iter_no_change=PATIENCE,
            device="cpu",
            random_state=seed,
            **parameters,
        )

    def state_of(self, estimator: Any) -> State | None:
        """Weights of both layers, and how scores become probabilities."""
        from hitrate.sklearn import AccuracyMLPClassifier

        if type(estimator) is not AccuracyMLPClassifier:
            return None
        (w, v), (b, c) = estimator.coefs_, estimator.intercepts_
        arrays = {"hidden": w, "hidden_bias": b, "output": v, "output_bias": c}
        return State("mlp", {"calibration": asdict(estimator.calibration_)}, arrays)

    def restore(self, state: State, features: int, classes: int) -> Any:
        """As many hidden units as have a bias."""
        from hitrate.sklearn import AccuracyMLPClassifier

        bias = state.arrays["hidden_bias"]
        units = bias.shape[0] if bias.ndim else 0
        w, b, v, c = arrays_in(
            state,
            {
                "hidden": (features, units),
                "hidden_bias": (units,),
                "output": (units, classes),
                "output_bias": (classes,),
            },
        )
        estimator = AccuracyMLPClassifier()
        estimator.coefs_, estimator.intercepts_ = [w, v], [b, c]
        estimator.calibration_ = calibration_in(state)
        return estimator
