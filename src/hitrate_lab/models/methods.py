"""What can be compared: a model trained under a loss, and the parameters that are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from hitrate_lab.bad_input import BadInput

BASELINE = "linear/cross_entropy"
MODELS = {"linear": "linear", "mlp": "mlp", "xgboost": "XGBoost", "lightgbm": "LightGBM"}
LOSS_LABELS = {
    "cross_entropy": "cross entropy",
    "exact": "EXACT",
    "exact_linear": "EXACT",
    "exact_networks": "EXACT",
}
# What each model is compared under unless one says so: cross entropy, and EXACT in the way that
# suits the model.
DEFAULT_LOSSES = {
    "linear": ("cross_entropy", "exact"),
    "mlp": ("cross_entropy", "exact_networks"),
    "xgboost": ("cross_entropy", "exact"),
    "lightgbm": ("cross_entropy", "exact"),
}

# C of LogisticRegression, which is 1 / (rows * l2) elsewhere: the same for every linear method, so
# that these differ in their loss alone.
STRENGTHS = (1.0, 100.0, 0.1, 1e4, 10.0, 0.01, 1000.0, 1e-3, 3.0, 30.0, 0.3, 300.0)
# Where sigma ends for linear/exact: the middle of what AccuracyClassifier tries on its own. This,
# the strengths and the networks' settings were settled with car, wine, breast-cancer, balance-scale
# and cylinder-bands in view, so gains on these flatter them a little.
SIGMA, MARGIN = 0.25, 1.0
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
# Learning rate and size of a tree, the host's defaults first.
DEPTHS = (
    *((rate, depth) for depth in (6, 3) for rate in (0.3, 0.1)),
    *((rate, depth) for depth in (6, 3, 9, 2) for rate in (0.03, 0.5)),
)
LEAVES = (
    *((rate, leaves) for leaves in (31, 7) for rate in (0.1, 0.3)),
    *((rate, leaves) for leaves in (31, 7, 63, 3) for rate in (0.03, 0.5)),
)
MOST_TRIALS = 12


@dataclass(frozen=True)
class Method:
    """A model and the loss it is trained under, by the names of the command line.

    Parameters
    ----------
    name : str
        "<model>/<loss>".
    model : str
        One of `MODELS`.
    loss : str
        A name of `hitrate.losses.LOSSES`; for a network, of `hitrate.recipes.RECIPES` too.
    label : str
        For people.
    """

    name: str
    model: str
    loss: str
    label: str

    def candidates(self, trials: int, rows: int) -> list[dict[str, Any]]:
        """Parameters to try, the default first; as many for every method.

        Parameters
        ----------
        trials : int
            How many, from 1 to 12.
        rows : int
            Rows to train on, which L2 is relative to.
        """
        if not 1 <= trials <= MOST_TRIALS:
            raise BadInput(f"trials={trials}: a method has from 1 to {MOST_TRIALS} candidates")
        if self.name == BASELINE:
            return [{"C": strength} for strength in STRENGTHS[:trials]]
        if self.model == "linear":
            fixed = {"sigma": 1.0, "margin": None, "polish": False}
            if self.loss == "exact":
                fixed |= {"sigma": SIGMA, "margin": MARGIN}
            return [
                {"l2": float(f"{1 / (rows * strength):.3g}"), **fixed}
                for strength in STRENGTHS[:trials]
            ]
        if self.model == "mlp":
            return [{"learning_rate": rate, "weight_decay": w} for rate, w in STEPS[:trials]]
        grid = DEPTHS if self.model == "xgboost" else LEAVES
        return [{"learning_rate": rate, "size": size} for rate, size in grid[:trials]]

    def build(self, parameters: dict[str, Any], seed: int) -> Any:
        """An estimator with fit, predict and predict_proba.

        Parameters
        ----------
        parameters : dict
            One of `candidates`.
        seed : int
        """
        if self.name == BASELINE:
            from sklearn.linear_model import LogisticRegression

            return LogisticRegression(max_iter=1000, random_state=seed, **parameters)
        if self.model == "linear":
            from hitrate.sklearn import AccuracyClassifier

            return AccuracyClassifier(self.loss, random_state=seed, **parameters)
        if self.model == "mlp":
            from hitrate.sklearn import AccuracyMLPClassifier

            return AccuracyMLPClassifier(
                self.loss,
                max_iter=EPOCHS,
                n_iter_no_change=PATIENCE,
                device="cpu",
                random_state=seed,
                **parameters,
            )
        from hitrate_lab.models.boosted import BoostedTrees

        return BoostedTrees(self.model, self.loss, random_state=seed, **parameters)


def methods(models: Sequence[str], losses: Sequence[str] | None = None) -> list[Method]:
    """Every model under every loss.

    Parameters
    ----------
    models : sequence of str
        Names of `MODELS`.
    losses : sequence of str, optional
        Names of `hitrate.losses.LOSSES`, and for networks of `hitrate.recipes.RECIPES`; by default
        each model has its own, `DEFAULT_LOSSES`.

    Examples
    --------
    >>> from hitrate_lab.models.methods import methods
    >>> [method.label for method in methods(["linear"], ["cross_entropy", "exact"])]
    ['logistic regression', 'linear, EXACT']
    """
    from hitrate.losses import LOSSES
    from hitrate.recipes import RECIPES

    every = [*LOSSES, *RECIPES]
    for kind, given, known in (("model", models, list(MODELS)), ("loss", losses, every)):
        if given is None and kind == "loss":
            continue
        if isinstance(given, str) or not given:
            raise BadInput(f"{kind}: needs a list of one or more of {', '.join(known)}")
        for name in given:
            if name not in known:
                raise BadInput(f"{kind} {name!r} is not one of {', '.join(known)}")
    found = []
    for model in dict.fromkeys(models):
        usable = _losses_of(model)
        for loss in dict.fromkeys(losses or DEFAULT_LOSSES[model]):
            if loss not in usable:
                raise BadInput(f"{model} has no loss {loss!r}; it has {', '.join(usable)}")
            found.append(Method(f"{model}/{loss}", model, loss, _label(model, loss)))
    return found


def _losses_of(model: str) -> list[str]:
    """Losses that a model can be trained with, if it is installed."""
    from hitrate.losses import LOSSES
    from hitrate.recipes import RECIPES

    if model in ("linear", "mlp"):
        # Distances to centres have no lower bound in scores that are not held back.
        own = [loss for loss in LOSSES if loss != "max_mahalanobis_center"]
        return [*own, *RECIPES] if model == "mlp" else own
    if find_spec(model) is None:
        raise BadInput(f"{model} is not installed: pip install 'hitrate[{model}]'")
    from hitrate_lab.models.boosted import TREE_LOSSES

    return list(TREE_LOSSES)


def _label(model: str, loss: str) -> str:
    """A method's name for people."""
    if f"{model}/{loss}" == BASELINE:
        return "logistic regression"
    return f"{MODELS[model]}, {LOSS_LABELS.get(loss, loss.replace('_', ' '))}"
