"""Expected cost of what is decided for, and the decisions that cost least."""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import pad

from hitrate.losses.base import function_of
from hitrate.losses.link_loss import probabilities_of
from hitrate.losses.row_loss import RowLoss, Rule
from hitrate.losses.ways.reduction import LossOptions
from hitrate.probability import arguments, class_probabilities, log_class_probabilities
from hitrate.probability.arguments import is_moving, is_number, noise_named
from hitrate.probability.execution import is_eager_cpu
from hitrate.probability.noises import Noise

__all__ = ["ExpectedCostLoss", "bayes_decisions", "expected_cost_loss"]


class ExpectedCostLoss(RowLoss):
    r"""What the class with the highest noisy score is expected to cost.

    .. math::

        L = \sum_c K_{yc} \, p_c, \qquad
        p_c = P\Big(\mu_c + \sigma \varepsilon_c > \max_{i \ne c} \mu_i + \sigma \varepsilon_i\Big)

    As sigma falls, this becomes the mean cost of the decisions that `argmax` makes: they are
    trained to be the cheapest ones, and no probabilities are needed. See :doc:`/cost`.

    With `abstain_cost` the last logit is the score of abstaining, which costs the same whatever the
    class is: logits have one column more than there are classes, and targets never name it.

    Parameters
    ----------
    cost : Tensor, shape (C, C), optional
        :math:`K_{yc} \ge 0`, the cost of deciding for c where y is right. Without it every error
        costs 1, which is the expected error of `ExactLoss`.
    sigma : float or Tensor
        Scale of the noise: a number, which a `Schedule` may move, or a Parameter that is learned.
    noise : {"normal", "logistic", "gumbel"} or Noise
        Gumbel noise makes p the softmax.
    abstain_cost : float, optional
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.

    Examples
    --------
    >>> import torch, hitrate
    >>> cost = torch.tensor([[0.0, 1.0], [9.0, 0.0]])  # to overlook the second class costs 9
    >>> loss = hitrate.ExpectedCostLoss(cost)
    >>> loss(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor(3.5410)

    References
    ----------
    Elkan. The Foundations of Cost-Sensitive Learning. 2001. Chow. On Optimum Recognition Error and
    Reject Tradeoff. 1970.
    """

    moving = ("sigma",)
    sigma: float | Tensor
    noise: str | Noise

    def __init__(
        self,
        cost: Tensor | None = None,
        sigma: float | Tensor = 1.0,
        *,
        noise: str | Noise = "normal",
        abstain_cost: float | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        call = type(self).__name__
        matrix = None if cost is None else cost_matrix(cost, call)
        given = {"cost": matrix, "sigma": sigma, "noise": noise, "abstain_cost": abstain_cost}
        super().__init__(given, **options)
        # A buffer goes where the Module goes.
        del self.cost
        self.register_buffer("cost", matrix)

    @staticmethod
    def make_rule(
        cost: Tensor | None = None,
        sigma: float | Tensor = 1.0,
        *,
        noise: str | Noise = "normal",
        abstain_cost: float | None = None,
    ) -> Rule:
        """The rule for a cost and a noise."""
        call = "expected_cost_loss()"
        noise_named(noise, call)
        if not isinstance(sigma, Tensor) and not (is_number(sigma) and 0 < sigma < math.inf):
            raise ValueError(f"{call}: sigma must be a positive number, got {sigma!r}")
        if isinstance(sigma, Tensor) and sigma.numel() != 1:
            raise ValueError(f"{call}: sigma must be one number, got shape {tuple(sigma.shape)}")
        number = sigma.reshape(()) if isinstance(sigma, Tensor) else sigma
        matrix = None if cost is None else cost_matrix(cost, call)
        check_abstaining(abstain_cost, call)

        def of_decisions(rows: Tensor) -> Tensor:
            """Costs (C', C') of all decisions, by class."""
            decisions = rows.shape[1]
            classes = decisions - (abstain_cost is not None)
            if matrix is None:
                found = 1 - torch.eye(classes, dtype=rows.dtype, device=rows.device)
            else:
                check_size(matrix, classes, decisions, call)
                found = matrix.to(rows)
            return found if abstain_cost is None else with_abstaining(found, abstain_cost)

        def of_target(rows: Tensor, y: Tensor) -> Tensor:
            if matrix is None and abstain_cost is None:
                log_p = log_class_probabilities(rows, number, noise=noise)
                return -torch.expm1(log_p.gather(1, y[:, None])[:, 0])
            costs = of_decisions(rows)
            if abstain_cost is not None:
                arguments.check_range(y, rows.shape[1] - 1, f"{call}, abstaining apart")
            p = class_probabilities(rows, number, noise=noise)
            return (p * costs[y]).sum(1)

        def of_classes(rows: Tensor) -> Tensor:
            if matrix is None and abstain_cost is None:
                return -torch.expm1(log_class_probabilities(rows, number, noise=noise))
            return class_probabilities(rows, number, noise=noise) @ of_decisions(rows).T

        return Rule(of_target, of_classes, is_heavy=True)

    def probabilities(self, input: Tensor) -> Tensor:
        """Probability of each decision under the loss's own noise, shaped like the logits."""
        return probabilities_of(input, self.sigma, self.noise)


expected_cost_loss = function_of(ExpectedCostLoss)


def bayes_decisions(
    probabilities: Tensor | Any,
    cost: Tensor | Any | None = None,
    *,
    abstain_cost: float | None = None,
) -> Tensor:
    r"""The cheapest decision for each row of class probabilities, as Bayes and Chow make it.

    .. math::

        \operatorname{argmin}_c \sum_y q_y K_{yc}

    For probabilities that can be believed, such as calibrated ones; a model that was trained by
    `ExpectedCostLoss` has its decisions in the highest score instead.

    Parameters
    ----------
    probabilities : Tensor or array, shape (N, C)
        q.
    cost : Tensor, shape (C, C), optional
        As in `ExpectedCostLoss`; without it every error costs 1.
    abstain_cost : float, optional
        What it costs to leave a row to somebody else, which is done where every class is expected
        to cost more.

    Returns
    -------
    Tensor of int, shape (N,)
        Classes, the first of those that tie; C for abstaining.

    Examples
    --------
    >>> import torch, hitrate
    >>> q = torch.tensor([[0.95, 0.05], [0.85, 0.15], [0.5, 0.5]])
    >>> hitrate.bayes_decisions(q, torch.tensor([[0.0, 1.0], [9.0, 0.0]]))  # from 1 / 10 on
    tensor([0, 1, 1])
    >>> hitrate.bayes_decisions(q, abstain_cost=0.2)
    tensor([0, 0, 2])
    """
    call = f"bayes_decisions(abstain_cost={abstain_cost!r})"
    q = torch.as_tensor(probabilities)
    if q.dim() != 2 or q.shape[1] < 2 or not q.is_floating_point():
        raise ValueError(f"{call}: probabilities must have shape (N, C), got {tuple(q.shape)}")
    arguments.check_probabilities(q, call)
    check_abstaining(abstain_cost, call)
    classes = q.shape[1]
    if cost is None:
        expected = 1 - q
    else:
        matrix = cost_matrix(cost, call)
        check_size(matrix, classes, classes, call)
        expected = q @ matrix.to(q)
    if abstain_cost is not None:
        expected = pad(expected, (0, 1), value=float(abstain_cost))
    return expected.argmin(1)


def cost_matrix(cost: Any, call: object) -> Tensor:
    """Costs as a square matrix of finite numbers from 0 on, looked at where that is free."""
    try:
        given = cost if isinstance(cost, Tensor) else torch.as_tensor(cost, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{call}: cost must be a matrix of numbers: {error}") from error
    if given.dim() != 2 or given.shape[0] != given.shape[1] or len(given) < 2:
        raise ValueError(
            f"{call}: cost must have shape (C, C), the right class by the one decided for, got "
            f"{tuple(given.shape)}; class weights go to weight="
        )
    given = given if given.is_floating_point() else given.double()
    if is_eager_cpu(given):
        bad = ~torch.isfinite(given) | (given < 0)
        if bool(bad.any()):
            y, c = (int(i) for i in bad.nonzero()[0])
            raise ValueError(
                f"{call}: every cost must be a finite number >= 0, got cost[{y}, {c}] = "
                f"{given[y, c]:g}; adding one number to a row changes no decision"
            )
    return given


def check_size(cost: Tensor, classes: int, decisions: int, call: object) -> None:
    """Complain where the costs are of other classes than the logits."""
    if len(cost) != classes:
        last = " with the last for abstaining" if decisions > classes else ""
        raise ValueError(f"{call}: cost {tuple(cost.shape)} does not fit {decisions} columns{last}")


def check_abstaining(abstain_cost: float | None, call: object) -> None:
    """Complain about what is no cost."""
    wrong = is_moving(abstain_cost) or not is_number(abstain_cost)
    if abstain_cost is not None and (wrong or not 0 <= abstain_cost < math.inf):
        raise ValueError(f"{call}: abstain_cost must be a finite number >= 0, got {abstain_cost!r}")


def with_abstaining(cost: Tensor, abstain_cost: float) -> Tensor:
    """Costs (C + 1, C + 1): one decision more, and a class that no row has."""
    return pad(pad(cost, (0, 1), value=float(abstain_cost)), (0, 0, 0, 1))
