"""Complement objective training: cross entropy, and evenness among the wrong classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from hitrate.losses.base import function_of
from hitrate.losses.named import cross_entropy_loss
from hitrate.losses.row_loss import RowLoss, Rule
from hitrate.losses.ways.reduction import Batch, LossOptions, Options
from hitrate.probability.arguments import gathered, is_moving, is_number
from hitrate.probability.signatures import spelled_out

__all__ = [
    "ComplementObjectiveLoss",
    "complement_entropy_loss",
    "complement_objective_loss",
    "complement_objective_step",
]


@spelled_out(Options)
def complement_entropy_loss(
    logits: Tensor, target: Tensor, **options: Unpack[LossOptions]
) -> Tensor:
    r"""Negative entropy of the wrong classes among themselves, per wrong class.

    .. math::

        L = \frac{1}{C - 1} \sum_{j \ne y} \hat p_j \log \hat p_j, \qquad
        \hat p_j = \frac{p_j}{1 - p_y}

    Lowest, :math:`-\log(C - 1) / (C - 1)`, where no wrong class stands out. The mixing paper prints
    the entropy itself as a loss, equation (6); it is to be *maximised*, and the authors of the
    objective divide by C - 1 to balance it against cross entropy.

    Parameters
    ----------
    logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
    target : Tensor
        Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.

    Returns
    -------
    Tensor
        A number, or with ``reduction="none"`` one per target.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 1.0], [2.0, 9.0, 0.0]])
    >>> hitrate.complement_entropy_loss(logits, torch.tensor([0, 0]), reduction="none")
    tensor([-0.3466, -0.0006])

    References
    ----------
    Chen, Wang, Liu, Chang, Pan, Chen, Wei, Juan. Complement Objective Training. 2019.
    """
    call = "complement_entropy_loss()"
    batch = Batch.of(logits, target, gathered(Options, options, call), call)
    return batch.loss(_of_target, _of_classes)


class ComplementObjectiveLoss(RowLoss):
    r"""Cross entropy plus `balance` times the complement's negative entropy, in one pass.

    .. math::

        L = -\log p_y + \frac{b}{C - 1} \sum_{j \ne y} \hat p_j \log \hat p_j

    May be negative. The authors take two steps instead, one for each term:
    `complement_objective_step`.

    Parameters
    ----------
    balance : float
        b.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.ComplementObjectiveLoss()(logits, torch.tensor([0, 0]))
    tensor(1.1165)

    References
    ----------
    Chen, Wang, Liu, Chang, Pan, Chen, Wei, Juan. Complement Objective Training. 2019.
    """

    moving = ("balance",)

    def __init__(self, balance: float | Tensor = 1.0, **options: Unpack[LossOptions]) -> None:
        super().__init__({"balance": balance}, **options)

    @staticmethod
    def make_rule(balance: float | Tensor = 1.0) -> Rule:
        """The rule for a balance."""
        if not is_moving(balance) and not (is_number(balance) and math.isfinite(balance)):
            raise ValueError(
                "complement_objective_loss(): balance must be a number; class weights go to weight="
            )

        def of_target(rows: Tensor, y: Tensor) -> Tensor:
            entropy = -rows.log_softmax(1).gather(1, y[:, None])[:, 0]
            return entropy + balance * _of_target(rows, y)

        def of_classes(rows: Tensor) -> Tensor:
            return balance * _of_classes(rows) - rows.log_softmax(1)

        return Rule(of_target, of_classes)


complement_objective_loss = function_of(ComplementObjectiveLoss)


def complement_objective_step(
    forward: Callable[[], Tensor],
    target: Tensor,
    optimizer: torch.optim.Optimizer,
    complement_optimizer: torch.optim.Optimizer | None = None,
) -> tuple[Tensor, Tensor]:
    """One iteration as the authors train: a step on cross entropy, then one on the complement.

    Parameters
    ----------
    forward : callable
        Computes the logits anew, such as ``lambda: model(x)``; called twice.
    target : Tensor of int
    optimizer : Optimizer
        Steps on cross entropy.
    complement_optimizer : Optimizer, optional
        Steps on the complement, with momentum of its own; by default the same optimizer.

    Returns
    -------
    (Tensor, Tensor)
        The two losses, detached.

    Examples
    --------
    >>> import torch, hitrate
    >>> model = torch.nn.Linear(4, 3)
    >>> x, y = torch.randn(8, 4), torch.randint(3, (8,))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> losses = hitrate.complement_objective_step(lambda: model(x), y, optimizer)
    """
    found = []
    steps = (
        (cross_entropy_loss, optimizer),
        (complement_entropy_loss, complement_optimizer or optimizer),
    )
    for loss_function, stepper in steps:
        stepper.zero_grad()
        loss = loss_function(forward(), target)
        loss.backward()  # type: ignore[no-untyped-call]
        stepper.step()
        found.append(loss.detach())
    return found[0], found[1]


def _of_target(rows: Tensor, y: Tensor) -> Tensor:
    """Negative entropy (R,) of the softmax over the rivals alone, which loses nothing to 1 - p."""
    rivals = rows.scatter(1, y[:, None], -torch.inf)
    none = torch.isneginf(rivals).all(1)
    rivals = rivals.masked_fill(none[:, None], 0.0)
    p = rivals.softmax(1)
    # A class without probability adds nothing, and must not add 0 times infinity.
    log_p = rivals.log_softmax(1).masked_fill(p == 0, 0.0)
    negative_entropy = (p * log_p).sum(1)
    return negative_entropy.masked_fill(none, 0.0) / (rows.shape[1] - 1)


def _of_classes(rows: Tensor) -> Tensor:
    """The same (R, C) for each class in turn, from one sum over all.

    Without class c: sum_j p_j log p_j - log(sum_j p_j), both sums less the part of c. The highest
    class may hold all of them, so it gets its own sums; any other holds at most half.
    """
    top = rows.argmax(1)
    shifted = rows - rows.gather(1, top[:, None]).detach()
    part = shifted.exp()
    # A class without probability adds nothing, and must not add 0 times infinity.
    turned = part * shifted.masked_fill(part == 0, 0.0)
    rest = part.sum(1, keepdim=True) - part.scatter(1, top[:, None], 0.0)
    negative_entropy = (
        turned.sum(1, keepdim=True) - turned.scatter(1, top[:, None], 0.0)
    ) / rest - rest.log()
    others = negative_entropy / (rows.shape[1] - 1)
    return others.scatter(1, top[:, None], _of_target(rows, top)[:, None])
