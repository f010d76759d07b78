"""What can be compared: a family of models under a loss. Here is the list of all families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hitrate_lab.bad_input import BadInput
from hitrate_lab.models.boosted.lightgbm import LightGBM
from hitrate_lab.models.boosted.xgboost import XGBoost
from hitrate_lab.models.family import Family
from hitrate_lab.models.linear import Linear
from hitrate_lab.models.mlp import MLP

# By the names of the command line, the simplest first.
MODELS: dict[str, Family] = {each.name: each for each in (Linear(), MLP(), XGBoost(), LightGBM())}
BASELINE = "linear/cross_entropy"
MOST_TRIALS = 12


@dataclass(frozen=True)
class Method:
    """A family of models and the loss that it is trained under.

    Parameters
    ----------
    family : Family
    loss : str
        One of the family's `losses`.
    """

    family: Family
    loss: str

    @property
    def model(self) -> str:
        """The family's name."""
        return self.family.name

    @property
    def name(self) -> str:
        """As on the command line, "<model>/<loss>"."""
        return f"{self.model}/{self.loss}"

    @property
    def label(self) -> str:
        """For people."""
        return self.family.label(self.loss)

    def candidates(self, trials: int, rows: int) -> list[dict[str, Any]]:
        """Parameters to try, the default first: as many for every method that does not choose.

        Parameters
        ----------
        trials : int
            How many, from 1 to 12.
        rows : int
            Rows to train on, which L2 is relative to.
        """
        if not 1 <= trials <= MOST_TRIALS:
            raise BadInput(f"trials={trials}: a method has from 1 to {MOST_TRIALS} candidates")
        found = list(self.family.grid(self.loss, rows))[:trials]
        if 1 < len(found) < trials:
            raise BadInput(f"trials={trials}: {self.name} has {len(found)} candidates")
        return found

    def build(self, parameters: dict[str, Any], seed: int) -> Any:
        """An estimator with fit, predict and predict_proba.

        Parameters
        ----------
        parameters : dict
            One of `candidates`.
        seed : int
        """
        return self.family.build(self.loss, parameters, seed)


def methods(models: Sequence[str], losses: Sequence[str] | None = None) -> list[Method]:
    """Every model under every loss.

    Parameters
    ----------
    models : sequence of str
        Names of `MODELS`.
    losses : sequence of str, optional
        Names of `hitrate.losses.LOSSES`, and for networks of `hitrate.recipes.RECIPES`; by default
        each model has its own, `default_losses`.

    Examples
    --------
    >>> from hitrate_lab.models.methods import methods
    >>> [method.label for method in methods(["linear"], ["cross_entropy", "exact"])]
    ['logistic regression', 'linear, EXACT']
    """
    from hitrate.losses import LOSSES
    from hitrate.recipes import RECIPES

    _check("model", models, list(MODELS))
    families = [MODELS[name] for name in dict.fromkeys(models)]
    if losses is not None:
        own = [loss for family in families for loss in family.default_losses]
        _check("loss", losses, list(dict.fromkeys([*LOSSES, *RECIPES, *own])))
    found = []
    for family in families:
        family.check_installed()
        usable = family.losses()
        for loss in dict.fromkeys(losses or family.default_losses):
            if loss not in usable:
                raise BadInput(f"{family.name} has no loss {loss!r}; it has {', '.join(usable)}")
            found.append(Method(family, loss))
    return found


def _check(kind: str, given: Sequence[str], known: list[str]) -> None:
    """Refuse what is no list of known names."""
    if isinstance(given, str) or not given:
        raise BadInput(f"{kind}: needs a list of one or more of {', '.join(known)}")
    for name in given:
        if name not in known:
            raise BadInput(f"{kind} {name!r} is not one of {', '.join(known)}")
