"""How often classes are, and what a loss makes of it: weights, shifted logits, margins by class.

docs/math.md, equations (50) and (51). Of a prior the losses make class weights before anything else
happens, and of an adjustment other logits, so that every way to compute a loss has them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hitrate.probability import arguments
from hitrate.probability.execution import is_eager_cpu

__all__ = ["class_margin", "class_prior"]


def class_prior(
    target: Tensor,
    num_classes: int | None = None,
    *,
    ignore_index: int = -100,
    pseudocount: float = 0.0,
) -> Tensor:
    r"""The share of each class among targets: what the losses take as `class_prior`.

    .. math::

        \pi_c = \frac{n_c + a}{\sum_j (n_j + a)}

    Take all targets of the training set, not those of a batch.

    Parameters
    ----------
    target : Tensor
        Class indices of any shape, or probabilities of shape (N, C) or (N, C, d1, ...).
    num_classes : int, optional
        C; by default one more than the largest index.
    ignore_index : int
        An index that does not count.
    pseudocount : float
        a, rows that each class is given on top. A class without rows has no share, and is refused
        without it.

    Returns
    -------
    Tensor, shape (C,)
        Positive, with the sum 1, in float64.

    Examples
    --------
    >>> import torch, hitrate
    >>> hitrate.class_prior(torch.tensor([0, 0, 0, 1]))
    tensor([0.7500, 0.2500], dtype=torch.float64)
    """
    call = f"class_prior(num_classes={num_classes}, pseudocount={pseudocount})"
    if not isinstance(target, Tensor):
        target = torch.as_tensor(target)
    if not (arguments.is_number(pseudocount) and 0 <= pseudocount < math.inf):
        raise ValueError(f"{call}: pseudocount must be a number >= 0")
    if target.is_floating_point():
        if target.dim() < 2 or num_classes not in (None, target.shape[1]):
            raise ValueError(
                f"{call}: probabilities must have shape (N, C) or (N, C, d1, ...), got "
                f"{tuple(target.shape)}"
            )
        arguments.check_probabilities(target, call)
        counts = target.movedim(1, -1).reshape(-1, target.shape[1]).sum(0, dtype=torch.float64)
    else:
        if target.dtype not in arguments.INDEX_DTYPES:
            raise ValueError(f"{call}: target must be class indices, got {target.dtype}")
        labels = target.reshape(-1).long()
        labels = labels[labels != ignore_index]
        if num_classes is None and not len(labels):
            raise ValueError(f"{call}: there are no targets to count")
        classes = int(labels.max()) + 1 if num_classes is None else num_classes
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            wrong = int(labels.min()) if int(labels.min()) < 0 else int(labels.max())
            raise ValueError(f"{call}: target {wrong} is out of range for {classes} classes")
        counts = torch.bincount(labels, minlength=classes).double()
    counts = counts + pseudocount
    if not bool((counts > 0).all()):
        empty = int((counts <= 0).nonzero()[0, 0])
        raise ValueError(
            f"{call}: class {empty} has no rows, and so no share; say pseudocount=1 to give every "
            "class a row more"
        )
    return counts / counts.sum()


def class_margin(prior: Tensor | Any, largest: float = 0.5) -> Tensor:
    r"""Margins that rare classes must win by, as in LDAM: what losses take as `class_margin`.

    .. math::

        \Delta_c = \Delta_{max} \Big( \frac{\min_j \pi_j}{\pi_c} \Big)^{1/4}

    Parameters
    ----------
    prior : Tensor, shape (C,)
        Shares or counts of the classes, as from `class_prior`.
    largest : float
        That of the rarest class, in units of the logits.

    Returns
    -------
    Tensor, shape (C,)

    Examples
    --------
    >>> import torch, hitrate
    >>> prior = hitrate.class_prior(torch.tensor([0] * 16 + [1]))
    >>> hitrate.class_margin(prior)
    tensor([0.2500, 0.5000], dtype=torch.float64)

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma. Learning Imbalanced Datasets with Label-Distribution-Aware
    Margin Loss. 2019. Equation (13).
    """
    call = f"class_margin(largest={largest!r})"
    if not (arguments.is_number(largest) and 0 <= largest < math.inf):
        raise ValueError(f"{call}: largest must be a number >= 0")
    shares = per_class(prior, "prior", call, positive=True)
    return largest * (shares.min() / shares) ** 0.25


class Balance(NamedTuple):
    """The options of a loss that are about classes of different frequency."""

    class_prior: Tensor | None = None
    reweighting: float | Tensor | None = None
    logit_adjustment: float | Tensor = 0.0
    class_margin: Tensor | None = None

    @property
    def is_shifted(self) -> bool:
        """Whether logits are other ones; an adjustment that moves may pass through 0."""
        if self.class_margin is not None:
            return True
        tau = self.logit_adjustment
        return self.class_prior is not None and (isinstance(tau, Tensor) or tau != 0)

    def weights(self, weight: Tensor | None, like: Tensor, call: object) -> Tensor | None:
        """Class weights (C,): those given, times the prior's, math (50)."""
        strength = self.reweighting
        if strength is None:
            strength = 1 - self.logit_adjustment
        prior = self.class_prior
        if prior is None:
            return weight
        if not isinstance(strength, Tensor) and strength == 0:
            check_length(prior, "class_prior", call, _classes(like))
            return weight
        relative = _log_share(prior, like, call) + math.log(_classes(like))
        if isinstance(strength, Tensor):
            strength = strength.to(relative)
        own = torch.exp(-strength * relative)
        if weight is None:
            return own
        check_weight(weight, len(own), call)
        return own * weight.to(own)

    def shift(self, rows: Tensor, target: Tensor | None, call: object) -> Tensor:
        """Logits (R, C) plus tau log prior, less each target's margin, math (51)."""
        tau = self.logit_adjustment
        if self.class_prior is not None and (isinstance(tau, Tensor) or tau != 0):
            share = _log_share(self.class_prior, rows, call).to(rows.dtype)
            rows = rows + (tau.to(rows) if isinstance(tau, Tensor) else tau) * share
        if self.class_margin is not None:
            if target is None:
                raise ValueError(
                    f"{call}: class_margin takes class indices without label smoothing"
                )
            margin = per_class(self.class_margin, "class_margin", call, _classes(rows))
            ahead = margin.to(rows)[target][:, None]
            rows = rows.scatter_add(1, target[:, None], -ahead)
        return rows


def check_balance(balance: Balance, call: object) -> None:
    """Complain about options that no logits could save."""
    for name in ("reweighting", "logit_adjustment"):
        value = getattr(balance, name)
        if value is None and name == "reweighting":
            continue
        if not arguments.is_moving(value) and not (
            arguments.is_number(value) and math.isfinite(value)
        ):
            raise ValueError(f"{call}: {name} must be a finite number, got {value!r}")
        needs = balance.class_prior is None
        if needs and (arguments.is_moving(value) or name == "reweighting" or value != 0):
            raise ValueError(
                f"{call}: {name}={_shown(value)} needs class_prior=, the shares of the classes; "
                "hitrate.class_prior(target) counts them"
            )


def per_class(
    value: Any, name: str, call: object, classes: int | None = None, *, positive: bool = False
) -> Tensor:
    """One finite number for each class (C,), looked at where that is free."""
    try:
        given = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{call}: {name} must have a number for each class: {error}") from error
    check_length(given, name, call, classes)
    if given.requires_grad:
        raise ValueError(f"{call}: {name} is counted, and has no gradient")
    if is_eager_cpu(given):
        bad = ~torch.isfinite(given) | ((given <= 0) if positive else (given < 0))
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            why = "; hitrate.class_prior(pseudocount=1) gives classes without rows a share"
            raise ValueError(
                f"{call}: {name} must be {'positive' if positive else 'at least 0'} and finite, "
                f"got {given[first]:g} for class {first}"
                f"{why if positive and given[first] == 0 else ''}"
            )
    return given if given.is_floating_point() else given.double()


def check_weight(weight: Any, classes: int, call: object) -> None:
    """Complain where class weights are no tensor of one for each class."""
    if not isinstance(weight, Tensor):
        raise TypeError(f"{call}: weight must be a tensor, got {type(weight).__name__}")
    if weight.shape != (classes,):
        raise ValueError(
            f"{call}: weight must have one value for each of the {classes} classes, "
            f"got shape {tuple(weight.shape)}"
        )


def check_length(value: Any, name: str, call: object, classes: int | None) -> None:
    """Complain where there is not one value for each class."""
    shape = tuple(value.shape) if isinstance(value, Tensor) else (len(value),)
    if len(shape) != 1 or shape[0] < 2 or classes not in (None, shape[0]):
        wanted = "each class" if classes is None else f"each of the {classes} classes"
        raise ValueError(f"{call}: {name} must have one value for {wanted}, got shape {shape}")


def _log_share(prior: Tensor, like: Tensor, call: object) -> Tensor:
    """log of the prior, whose sum is 1, where the logits are."""
    given = per_class(prior, "class_prior", call, _classes(like), positive=True)
    log_prior = given.to(like.device).log()
    return log_prior - log_prior.logsumexp(0)


def _classes(logits: Tensor) -> int:
    """C of logits (C,), (N, C) or (N, C, d1, ...)."""
    return logits.shape[min(1, logits.dim() - 1)]


def _shown(value: object) -> str:
    return "tensor" if isinstance(value, Tensor) else repr(value)
