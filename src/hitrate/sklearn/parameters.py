"""What the estimator's parameters may be, and what "auto" stands for; complaints show the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate.losses import LOSSES
from hitrate.sklearn.goals import OF_LINEAR, Goal, refuse_others
from hitrate.sklearn.solvers.settings import SMALLEST_SIGMA, Settings
from hitrate.sklearn.tuning import GOAL_SIGMAS, MARGINS, SIGMAS, STRENGTHS, Grid
from hitrate.sklearn.validation import Validation

Array = NDArray[Any]

SOLVERS = ("homotopy", "sgd")
# The paper's random search, Table 8: its most frequent choices come first.
SGD_MARGINS = (0.1, 1.0)
SGD_L2 = (0.0, 1e-3)
SGD_STEPS = 8000
STAGE_ITERATIONS = 100


@dataclass(frozen=True)
class Parameters(Validation):
    """An estimator's parameters, checked.

    Parameters
    ----------
    call : str
        What complaints show.
    given : mapping
        The estimator's own, as from ``get_params``.
    goal : Goal, optional
        What decisions are judged by, where that is not their accuracy.
    """

    goal: Goal | None = None

    def __post_init__(self) -> None:
        given = self.given
        if not isinstance(given["loss"], str) or given["loss"] not in self.losses():
            names = ", ".join(map(repr, self.losses()))
            self.complain("loss", f"is not one of {names}")
        if given["solver"] not in SOLVERS:
            self.complain("solver", f"is not one of {', '.join(map(repr, SOLVERS))}")
        if given["loss_params"] is not None and not isinstance(given["loss_params"], Mapping):
            self.complain("loss_params", "must be None or a dict of the loss's arguments")
        for name in ("l2", "sigma", "margin", "polish"):
            value = given[name]
            if isinstance(value, str) and value != "auto":
                self.complain(name, "is no word but 'auto'")
        if not self._is_auto("l2"):
            self.number("l2", low=0.0)
        if not self._is_auto("sigma"):
            self.number("sigma", above=0.0)
        if not self._is_auto("margin") and given["margin"] is not None:
            self.number("margin", low=0.0)
        if given["polish"] not in ("auto", True, False):
            self.complain("polish", "must be 'auto', True or False")
        if given["max_iter"] is not None:
            self.whole("max_iter")
        self.whole("batch_size")
        self.whole("n_iter_no_change")
        self.number("tol", above=0.0)
        self.number("learning_rate", above=0.0)
        self.number("validation_fraction", above=0.0, below=1.0)
        if self.goal is not None:
            refuse_others(given, OF_LINEAR, self.call)

    @staticmethod
    def losses() -> list[str]:
        """Names that a linear model can be trained with.

        Distances to centres have no lower bound in a linear model's scores.
        """
        return [name for name in LOSSES if name != "max_mahalanobis_center"]

    def settings(self) -> Settings:
        """Settings of one fit, each "auto" at what it is without a choice."""
        given = self.given
        sgd = given["solver"] == "sgd"
        loss, params = given["loss"], dict(given["loss_params"] or {})
        l2 = 0.0 if self._is_auto("l2") else float(given["l2"])
        margin = given["margin"]
        if self._is_auto("margin"):
            margin = SGD_MARGINS[0] if sgd and loss == "exact" else None
        sigma = given["sigma"]
        if self._is_auto("sigma"):
            sigma = SMALLEST_SIGMA if loss == "exact" and (sgd or l2 == 0) else 1.0
        polish = given["polish"]
        if polish == "auto":
            # Of an L2 that is yet to be chosen 0 says nothing.
            without_l2 = l2 == 0 and not self._is_auto("l2")
            polish = not sgd and loss == "exact" and without_l2
        polish = polish and self.goal is None
        default = SGD_STEPS if sgd else STAGE_ITERATIONS
        return Settings(
            loss=loss,
            loss_params=params,
            l2=l2,
            sigma=float(sigma),
            margin=None if margin is None else float(margin),
            polish=bool(polish),
            max_iter=default if given["max_iter"] is None else int(given["max_iter"]),
            tol=float(given["tol"]),
            call=self.call,
            goal=self.goal,
        )

    def grid(self, rows: int) -> Grid | None:
        """What the inner split has to choose from; None if there is nothing to choose."""
        given, fixed = self.given, self.settings()
        l2_off = not self._is_auto("l2") and fixed.l2 == 0
        if given["solver"] == "sgd":
            return None
        free = [name for name in ("l2", "sigma", "margin", "polish") if self._is_auto(name)]
        moving = fixed.loss == "exact"
        stop_early = given["early_stopping"] and moving
        if l2_off and not stop_early:
            return None
        if not moving and "l2" not in free:
            return None
        if not free and not stop_early:
            return None
        l2 = tuple(k / rows for k in STRENGTHS) if "l2" in free else (fixed.l2,)
        if not moving:
            beside = fixed.loss != "cross_entropy"
            sigma, margin, polish = (fixed.sigma,), (fixed.margin,), (fixed.polish,)
            return Grid(l2, sigma, margin, polish, start=False, beside=beside)
        usual = SIGMAS if self.goal is None else GOAL_SIGMAS
        sigmas: tuple[float, ...] = usual if "sigma" in free else (fixed.sigma,)
        if stop_early and "sigma" not in free:
            sigmas = (*(s for s in GOAL_SIGMAS if s > fixed.sigma), fixed.sigma)
        margins: tuple[float | None, ...] = (fixed.margin,)
        if "margin" in free and not l2_off and self.goal is None:
            margins = MARGINS
        ends: tuple[bool, ...] = (fixed.polish,)
        if "polish" in free and self.goal is None:
            ends = (False, True)
        start = "sigma" in free and False in ends
        beside = self.goal is None
        sized = "sigma" in free and self.goal is None and not l2_off
        return Grid(l2, sigmas, margins, ends, start=start, beside=beside, sized=sized)

    def sgd_candidates(self) -> list[Settings]:
        """Settings of "sgd" to try on held-out rows, the first being the one to fall back on."""
        fixed = self.settings()
        margins = SGD_MARGINS if self._is_auto("margin") and fixed.loss == "exact" else ()
        l2s = SGD_L2 if self._is_auto("l2") else (fixed.l2,)
        return [
            replace(fixed, l2=l2, margin=margin)
            for l2 in l2s
            for margin in margins or [fixed.margin]
        ]

    def _is_auto(self, name: str) -> bool:
        return isinstance(self.given[name], str) and self.given[name] == "auto"


def class_weights(
    given: Mapping[Any, float] | str | None,
    classes: Array,
    target: Array,
    weight: Array,
    call: str,
) -> Array:
    """Weights (N,) of rows times their class's; "balanced" gives all classes the same sum."""
    if given is None:
        return weight
    if isinstance(given, str) and given == "balanced":
        total = np.bincount(target, weight, len(classes))
        factors = weight.sum() / (len(classes) * np.where(total > 0, total, 1.0))
    elif isinstance(given, Mapping):
        known = {key: k for k, key in enumerate(classes.tolist())}
        factors = np.ones(len(classes))
        for key, value in given.items():
            if key not in known:
                raise ValueError(f"{call}: class_weight has {key!r}, which is no class of y")
            if not value >= 0:
                raise ValueError(f"{call}: class_weight[{key!r}]={value!r} must not be negative")
            factors[known[key]] = value
    else:
        raise ValueError(f"{call}: class_weight={given!r} must be None, 'balanced' or a dict")
    return np.asarray(weight * factors[target])
