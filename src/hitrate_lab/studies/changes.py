"""What the table of a method changes of its recipe: what moves, and what is known of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# What a loss is told of the classes' shares in training.
BALANCES = ("none", "prior", "margin", "margin and weights")


def told(balance: str, largest_margin: float, target: Tensor, classes: int) -> dict[str, Any]:
    """What a loss is told of the classes, as its arguments.

    Parameters
    ----------
    balance : str
        Of `BALANCES`: nothing; `class_prior`; `class_margin`, as LDAM has it; or both of these.
    largest_margin : float
        Of the rarest class.
    target : Tensor, shape (N,)
        Of the training rows.
    classes : int

    Examples
    --------
    >>> import torch
    >>> told("prior", 0.5, torch.tensor([0, 0, 0, 1]), 2)
    {'class_prior': tensor([0.7500, 0.2500], dtype=torch.float64)}
    """
    from hitrate import class_margin, class_prior

    if balance == "none":
        return {}
    prior = class_prior(target, num_classes=classes)
    found = {} if balance == "margin" else {"class_prior": prior}
    if balance != "prior":
        found["class_margin"] = class_margin(prior, largest=largest_margin)
    return found


def told_before(balance: str) -> dict[str, Any]:
    """The same of two classes that are equally frequent: enough to check a method's arguments.

    Parameters
    ----------
    balance : str
    """
    import torch

    return told(balance, 0.5, torch.tensor([0, 1]), 2)


def moving(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a recipe, of which lists of levels and of where they change become schedules.

    Parameters
    ----------
    changes : mapping
        Such as ``{"reweighting": [[0.0, 1.0], [0.8]]}``: 0, and 1 in the last fifth.

    Examples
    --------
    >>> moving({"q": 0.7, "reweighting": [[0.0, 1.0], [0.8]]})
    {'q': 0.7, 'reweighting': phases([0.0, 1.0], at=[0.8])}
    """
    from hitrate import schedules

    return {
        key: schedules.phases(*value) if isinstance(value, list) else value
        for key, value in changes.items()
    }
