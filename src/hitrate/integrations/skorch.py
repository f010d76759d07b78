"""A leaf: train for accuracy in skorch, and so in scikit-learn; needs ``hitrate[skorch]``.

A whole program::

    import numpy as np
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV
    from skorch import NeuralNetClassifier
    from hitrate.integrations.skorch import AccuracyCallback

    X, y = load_digits(return_X_y=True)
    net = NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=64,
        module__out_features=10,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=3,
        verbose=0,
        callbacks=[("accuracy", AccuracyCallback("annealed"))],
    )
    choices = {"callbacks__accuracy__recipe": ["cross_entropy", "annealed"]}
    search = GridSearchCV(net, choices, cv=3, scoring="accuracy")
    search.fit(X.astype(np.float32) / 16, y)
    print(search.best_params_, search.best_score_)
"""

from __future__ import annotations

from typing import Any

from hitrate import recipes
from hitrate.losses import ClassificationLoss
from hitrate.recipes import Plan

try:
    from skorch.callbacks import Callback
except ImportError as error:
    raise ImportError(
        "hitrate.integrations.skorch needs skorch: pip install 'hitrate[skorch]'"
    ) from error

__all__ = ["AccuracyCallback"]


class AccuracyCallback(Callback):  # type: ignore[misc]
    """A recipe in the place of a net's criterion.

    Its numbers move with every training batch, from where the net's history says that it is to
    ``max_epochs``: a net whose parameters, optimizer and history were loaded goes on with
    `partial_fit` as if it had not been interrupted. `predict_proba` gives the loss's own
    probabilities, where skorch's softmax is those of Gumbel noise alone, unless the net was given
    a ``predict_nonlinearity``.

    Parameters
    ----------
    recipe : str
        A name for `hitrate.recipe`.
    **changes
        As there; like `recipe` they are parameters in the eyes of scikit-learn.

    Attributes
    ----------
    plan_ : Plan
    """

    def __init__(self, recipe: str, **changes: Any) -> None:
        self.recipe = recipe
        self.changes = changes

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The recipe and its changes."""
        return {"recipe": self.recipe, **self.changes}

    def set_params(self, **params: Any) -> AccuracyCallback:
        """Set the recipe, or any change to it."""
        self.recipe = params.pop("recipe", self.recipe)
        self.changes = {**self.changes, **params}
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Put the recipe's loss into its place."""
        self.plan_: Plan = recipes.recipe(self.recipe, **self.changes)
        self._has_begun = False
        net.criterion_ = self.plan_.loss.to(net.device)
        given = net.predict_nonlinearity
        if given == "auto" or isinstance(getattr(given, "__self__", None), ClassificationLoss):
            net.predict_nonlinearity = self.plan_.loss.probabilities

    def on_epoch_begin(
        self, net: Any, dataset_train: Any = None, dataset_valid: Any = None, **kwargs: Any
    ) -> None:
        """Begin, or go on, where the net's history is."""
        if self._has_begun:
            return
        self._has_begun = True
        batches = len(net.get_iterator(dataset_train, training=True))
        # The epoch that begins is in it already.
        done = sum(row.get("train_batch_count", 0) for row in net.history[:-1])
        # Beyond `max_epochs`, nothing moves any longer.
        steps = max(net.max_epochs * batches, done)
        self.plan_.begin(steps, net.optimizer_).goto(done)

    def on_batch_end(
        self, net: Any, batch: Any = None, training: bool | None = None, **kwargs: Any
    ) -> None:
        """Move on."""
        if training and self.plan_.schedules:
            done = self.plan_.schedules[0].steps_done
            self.plan_.goto(min(done + 1, self.plan_.schedules[0].total_steps))
