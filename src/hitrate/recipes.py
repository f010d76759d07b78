"""Losses with what moves during training: the papers' settings and others, by name.

A recipe is a loss, its arguments, and for some of them a schedule in the place of a number. Each
part is one keyword, so a combination nobody has tried is as short to write as a known one.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch

from hitrate.links import Link, link_named
from hitrate.losses import LOSSES, ClassificationLoss
from hitrate.optim import GradientNormalizer
from hitrate.schedules import FORMER as FORMER_SCHEDULES
from hitrate.schedules import NAMED, Schedule, linear, named

# Arguments that are words, and never move; in the place of all others a word names a schedule.
WORDS = ("noise", "link", "method", "backend", "reduction", "rivals")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A loss by its name, its arguments, and where it is from.

    Parameters
    ----------
    loss : str
        A name of `hitrate.losses.LOSSES`.
    settings : dict
        Arguments of the loss, and parameters of its link; a schedule in the place of a number.
    normalize_gradient : bool
        Whether to divide gradients by their running mean norm.
    source : str
    """

    loss: str
    settings: dict[str, Any]
    normalize_gradient: bool = False
    source: str = ""


RECIPES: dict[str, Recipe] = {
    "annealed": Recipe(
        "exact",
        {"link": "gce", "q": linear(0.0, 1.0)},
        source="Unpublished: normal noise, from its likelihood to its expected error.",
    ),
    "annealed_softmax": Recipe(
        "exact",
        {"noise": "gumbel", "link": "gce", "q": linear(0.0, 1.0)},
        source="Unpublished: the same with the softmax, from cross entropy to its expected error.",
    ),
    "cross_entropy_smoothed": Recipe(
        "cross_entropy", {"label_smoothing": 0.1}, source="Szegedy et al. 2016."
    ),
    "exact_linear": Recipe(
        "exact",
        {"sigma": "sigma_10_to_0.01", "margin": 0.1, "normalize": True},
        normalize_gradient=True,
        source="EXACT, linear models; the paper tunes the margin, 0.1 is its most frequent choice.",
    ),
    "exact_networks": Recipe(
        "exact",
        {"sigma": "sigma_10_to_1", "margin": 0.5, "normalize": True},
        normalize_gradient=True,
        source="EXACT, networks; the paper tunes the margin, 0.5 is its most frequent choice.",
    ),
    "mixed_switch": Recipe("mixed", {"focus": "focus_0_then_0.5"}, source="Mixing, F = [0, 0.5]."),
    "mixed_gradual": Recipe("mixed", {"focus": "focus_0_to_0.5"}, source="Mixing, F = 0-0.5."),
    "probit_networks": Recipe(
        "exact",
        {"sigma": "sigma_10_to_1", "link": "log", "normalize": True},
        normalize_gradient=True,
        source="Unpublished: exact_networks with the log link, whose gradient never vanishes.",
    ),
    "exact_focused": Recipe(
        "exact",
        {
            "sigma": "sigma_10_to_1",
            "link": "focused",
            "focus": "focus_0_to_0.5",
            "normalize": True,
        },
        normalize_gradient=True,
        source="Unpublished: from probit likelihood plus error to EXACT, in Mixing's phases.",
    ),
}
# Names until 0.1; they warn for one release, as does any hyphen in the place of an underscore.
FORMER = {"log-to-error": "annealed_softmax", "probit": "probit_networks"}


def current_name(name: str) -> str:
    """The name that a recipe or loss has today, with a warning if this is a former one.

    Parameters
    ----------
    name : str
        Any word; one that was never a name stays as it is.

    Examples
    --------
    >>> from hitrate.recipes import current_name
    >>> current_name("exact_networks")
    'exact_networks'
    """
    current = FORMER.get(name) or name.replace("-", "_")
    if current == name or not (current in RECIPES or current in LOSSES):
        return name
    warnings.warn(f"the recipe {name!r} is now {current!r}", DeprecationWarning, stacklevel=3)
    return current


def recipe_named(name: str, call: str) -> Recipe:
    """A recipe by its name, or a loss by its own; a ValueError, which begins with the call, else.

    Parameters
    ----------
    name : str
    call : str
    """
    name = current_name(name)
    if name not in RECIPES and name not in LOSSES:
        names = ", ".join(map(repr, [*RECIPES, *LOSSES]))
        raise ValueError(f"{call}: not one of {names}")
    return RECIPES.get(name) or Recipe(name, {})


class Plan:
    """A loss in training: call `loss` for every batch, `step` after every step.

    Parameters
    ----------
    loss : ClassificationLoss
        Every number that moves at its start.
    curves : dict
        What moves, by its name: functions of progress.
    normalize_gradient : bool
        Whether to divide gradients by their running mean norm.

    Attributes
    ----------
    schedules : list of Schedule
        One for each curve; none before `begin`.
    normalizer : GradientNormalizer or None
    """

    def __init__(
        self,
        loss: ClassificationLoss,
        curves: dict[str, Callable[[float], float]],
        normalize_gradient: bool,
    ) -> None:
        self.loss = loss
        self.curves = curves
        self.normalize_gradient = normalize_gradient
        self.schedules: list[Schedule] = []
        self.normalizer: GradientNormalizer | None = None
        self._has_begun = False

    def begin(self, total_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Plan:
        """Say how long the training is, where a host knows only when it starts.

        `recipe` does it where it is given `total_steps`. A loss whose state was restored goes on
        where that one stood; any other starts anew.

        Parameters
        ----------
        total_steps : int
        optimizer : Optimizer, optional
            As for `recipe`.

        Returns
        -------
        Plan
            This one.
        """
        if self.normalize_gradient and optimizer is None:
            raise ValueError(
                "Plan.begin: normalises gradients, which needs optimizer=; or make the recipe with "
                "normalize_gradient=False"
            )
        loss = self.loss
        self.schedules = [Schedule(loss, *each, total_steps) for each in self.curves.items()]
        if self.normalize_gradient and optimizer is not None:
            self.normalizer = GradientNormalizer(optimizer)
        self._has_begun = True
        return self

    def step(self) -> None:
        """Move every schedule on by one step."""
        for schedule in self._begun("step"):
            schedule.step()

    def goto(self, step: int) -> None:
        """Set every schedule to where it is after so many steps, as of a host that counts them."""
        for schedule in self._begun("goto"):
            schedule.goto(step)

    def _begun(self, call: str) -> list[Schedule]:
        if not self._has_begun:
            raise ValueError(
                f"Plan.{call}: how many steps? Give recipe total_steps=, or call begin"
            )
        return self.schedules

    def train(self, mode: bool = True) -> Plan:
        """Put the loss into training mode, in which margin and normalisation act, or out of it."""
        self.loss.train(mode)
        return self

    def eval(self) -> Plan:
        """Put the loss into evaluation mode, in which it reads as what it is called."""
        return self.train(False)

    def state_dict(self) -> dict[str, Any]:
        """All that a resumed training needs beside model and optimizer."""
        return {
            # A copy: what moves would move in it.
            "loss": {key: value.clone() for key, value in self.loss.state_dict().items()},
            "schedules": [schedule.state_dict() for schedule in self.schedules],
            "normalizer": None if self.normalizer is None else self.normalizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        saved, own = state["normalizer"] is not None, self.normalizer is not None
        if saved != own:
            says = {True: "a gradient normalizer", False: "none"}
            raise ValueError(
                f"Plan.load_state_dict: the state has {says[saved]}, the plan has {says[own]}; "
                "build the plan with the same normalize_gradient="
            )
        self.loss.load_state_dict(state["loss"])
        for schedule, where in zip(self._begun("load_state_dict"), state["schedules"], strict=True):
            schedule.load_state_dict(where)
        if self.normalizer is not None:
            self.normalizer.load_state_dict(state["normalizer"])


def recipe(
    name: str,
    *,
    total_steps: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    normalize_gradient: bool | None = None,
    **changes: Any,
) -> Plan:
    """Build a named recipe, or a loss of your own making, ready for a training loop.

    Parameters
    ----------
    name : str
        A name of `RECIPES`, or of a loss in `hitrate.losses.LOSSES`.
    total_steps : int, optional
        How often `Plan.step` will be called: training steps, or epochs. Without it, whoever knows
        the number later says so to `Plan.begin`.
    optimizer : Optimizer, optional
        Where gradients are normalised; needed if they are. A `GradientNormalizer` that it has, as
        from an earlier recipe, is replaced.
    normalize_gradient : bool, optional
        Divide gradients by their running mean norm; by default as the recipe says.
    **changes
        Any argument of the loss or parameter of its link. A schedule (a function of progress, or
        the name of one) in the place of a number moves it; words and flags stay.

    Returns
    -------
    Plan

    Examples
    --------
    >>> import torch, hitrate
    >>> from hitrate import schedules
    >>> model = torch.nn.Linear(4, 3)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> plan = hitrate.recipe("annealed", total_steps=2, label_smoothing=0.1)
    >>> for _ in range(2):
    ...     plan.loss(model(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
    ...     optimizer.step()
    ...     plan.step()
    >>> plan.loss
    ExactLoss(sigma=1.0, link=GCE(q=1.0, threshold=None), label_smoothing=0.1)
    >>> plan = hitrate.recipe("exact", link="gce", q=schedules.linear(0.0, 1.0), total_steps=10)
    >>> plan.loss.link
    GCE(q=0.0, threshold=None)
    """
    call = f"recipe({name!r})"
    base = recipe_named(name, call)
    loss, moving = built_loss(base.loss, {**base.settings, **changes}, call)
    if normalize_gradient is None:
        normalize_gradient = base.normalize_gradient
    plan = Plan(loss, moving, normalize_gradient)
    if total_steps is None:
        return plan
    if normalize_gradient and optimizer is None:
        raise ValueError(
            f"{call}: normalises gradients, which needs optimizer=; or say normalize_gradient=False"
        )
    return plan.begin(total_steps, optimizer)


def built_loss(
    name: str, settings: dict[str, Any], call: str
) -> tuple[ClassificationLoss, dict[str, Callable[[float], float]]]:
    """The loss with every schedule at its start, and the schedules by argument.

    Parameters
    ----------
    name : str
        Of `hitrate.losses.LOSSES`.
    settings : dict
        Arguments of the loss, and parameters of its link.
    call : str
        What complaints begin with.
    """
    cls = LOSSES[name]
    own = inspect.signature(cls.__init__).parameters
    moving: dict[str, Callable[[float], float]] = {}
    for key, value in settings.items():
        if key in WORDS:
            _check_word(key, value, call)
        elif not (isinstance(value, str) or callable(value)) or isinstance(value, Link):
            continue
        elif key in own and isinstance(own[key].default, bool):
            raise ValueError(f"{call}: {key}={value!r} must be True or False; no schedule moves it")
        elif callable(value):
            moving[key] = value
        elif value in NAMED or value in FORMER_SCHEDULES:
            moving[key] = named(value)
        else:
            known = ", ".join(map(repr, NAMED))
            raise ValueError(f"{call}: {key}={value!r} is not the name of a schedule: {known}")
    fixed = {**settings, **{key: curve(0.0) for key, curve in moving.items()}}
    for_link = {key: fixed.pop(key) for key in list(fixed) if key not in own}
    if for_link:
        link = link_named(fixed["link"], call) if "link" in fixed else None
        fields = [field.name for field in dataclasses.fields(link)] if link else []
        unknown = [key for key in for_link if key not in fields]
        if unknown:
            raise ValueError(
                f"{call}: {', '.join(unknown)} is no argument of {cls.__name__}"
                + (f" and no parameter of {link}" if link else "")
            )
        assert link is not None
        fixed["link"] = dataclasses.replace(link, **for_link)
    return cls(**fixed), moving


def _check_word(key: str, value: Any, call: str) -> None:
    """Refuse what would otherwise be taken for a schedule."""
    if isinstance(value, type):
        example = "an instance, such as GCE(0.7)" if key == "link" else "a word"
        raise ValueError(f"{call}: {key}={value.__name__} is a class; give {example}")
    if not isinstance(value, str | Link) and callable(value):
        kind = "a Link, or the name of one" if key == "link" else "a word"
        raise ValueError(f"{call}: {key}={value!r} must be {kind}; no schedule moves it")
