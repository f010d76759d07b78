"""A leaf: train for accuracy in Keras 3, with torch behind it; needs ``hitrate[keras]``.

A whole program::

    import os

    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np
    from hitrate.integrations.keras import AccuracyCallback

    x = np.random.default_rng(0).standard_normal((256, 20)).astype("float32")
    y = x[:, :10].argmax(1)
    model = keras.Sequential([keras.layers.Input((20,)), keras.layers.Dense(10)])

    accuracy = AccuracyCallback("annealed")
    model.compile(optimizer="adam", loss=accuracy.loss, metrics=["accuracy"])
    model.fit(x, y, epochs=2, verbose=0, callbacks=[accuracy])
    print(model.evaluate(x, y, verbose=0, callbacks=[accuracy]))
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from hitrate import recipes

try:
    import keras as _keras
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.keras needs Keras: pip install 'hitrate[keras]'"
    ) from error
if _keras.backend.backend() != "torch":
    raise ImportError(
        "hitrate.integrations.keras needs torch behind Keras, and not "
        f"{_keras.backend.backend()}: set KERAS_BACKEND=torch before Keras is imported"
    )

__all__ = ["AccuracyCallback", "Loss"]


class Loss(_keras.losses.Loss):  # type: ignore[misc]
    """A loss of hitrate, or torch's cross entropy, as a loss of Keras.

    Keras hands over targets first, made floats, and has classes on the last axis. Class indices
    (N,) or (N, 1) and probabilities (N, C) are told apart by their shape. Keras reduces, and
    applies weights of samples.

    Parameters
    ----------
    loss : Module
        Its own reduction does not count, and it has to be one of rows: not the link "batch_log".
        Logits are standardised, if it says so, over the batch.
    name : str
    reduction : str
        As in Keras.
    """

    def __init__(
        self,
        loss: nn.CrossEntropyLoss,
        *,
        name: str = "hitrate_loss",
        reduction: str = "sum_over_batch_size",
    ) -> None:
        super().__init__(name=name, reduction=reduction)
        self.loss = loss
        self.loss.reduction = "none"

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Losses of rows (N, ...)."""
        logits = y_pred.movedim(-1, 1)
        if y_true.shape == y_pred.shape:
            return self.loss(logits, y_true.movedim(-1, 1).to(logits.dtype))  # type: ignore[no-any-return]
        if y_true.dim() == y_pred.dim() and y_true.shape[-1] == 1:
            y_true = y_true.squeeze(-1)
        if y_true.shape != y_pred.shape[:-1]:
            raise ValueError(
                f"hitrate.integrations.keras.Loss: targets {tuple(y_true.shape)} are neither "
                f"classes nor probabilities for logits {tuple(y_pred.shape)}"
            )
        return self.loss(logits, y_true.long())  # type: ignore[no-any-return]


class AccuracyCallback(_keras.callbacks.Callback):  # type: ignore[misc]
    """A recipe in Keras: compile with its `loss`, fit with it among the callbacks.

    Numbers go by the optimizer's count of steps, which Keras saves with the model. In `evaluate`
    and validation the loss is in evaluation mode. The model's last layer gives logits: no softmax.

    Parameters
    ----------
    recipe : str
        A name for `hitrate.recipe`; not one that normalises gradients, which Keras's optimizers
        have no place for: say ``normalize_gradient=False``.
    **changes
        As there.

    Attributes
    ----------
    loss : Loss
    plan : Plan
    """

    def __init__(self, recipe: str, **changes: Any) -> None:
        super().__init__()
        self.plan = recipes.recipe(recipe, **changes)
        if self.plan.normalize_gradient:
            raise ValueError(
                f"AccuracyCallback({recipe!r}): normalises gradients, which Keras's optimizers "
                "have no place for; say normalize_gradient=False"
            )
        self.loss = Loss(self.plan.loss)

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin, or go on, where the optimizer is."""
        steps = self.params.get("steps")
        if steps is None:
            raise ValueError("AccuracyCallback: how many steps? Give fit steps_per_epoch=")
        parts = getattr(self.model.optimizer, "gradient_accumulation_steps", None) or 1
        self.plan.begin(max(self.params["epochs"] * steps // parts, 1))
        self._follow()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Move on with the optimizer."""
        self._follow()

    def on_test_begin(self, logs: Any = None) -> None:
        """Read as what the loss is called."""
        self.plan.eval()

    def on_test_end(self, logs: Any = None) -> None:
        """Go on with training."""
        self.plan.train()

    def _follow(self) -> None:
        done = int(_keras.ops.convert_to_numpy(self.model.optimizer.iterations))
        for schedule in self.plan.schedules:
            # A second fit counts on: beyond its steps nothing moves any longer.
            schedule.goto(min(done, schedule.total_steps))
