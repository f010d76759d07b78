"""F-measure of expected counts: a loss of a whole batch, not a mean over rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from hitrate.losses.base import ClassificationLoss, function_of
from hitrate.losses.link_loss import probabilities_of
from hitrate.losses.normalization import over_processes
from hitrate.losses.ways.reduction import Batch, LossOptions, Options
from hitrate.probability import class_probabilities
from hitrate.probability.arguments import is_number, noise_named
from hitrate.probability.execution import full_precision
from hitrate.probability.noises import Noise

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["ExpectedFBetaLoss", "expected_f_beta_loss"]

AVERAGES = ("macro", "micro", "binary")


class ExpectedFBetaLoss(ClassificationLoss):
    r"""One minus the F-measure of expected counts over the (global) batch.

    .. math::

        L = 1 - \frac{1}{C} \sum_c \frac{(1 + \beta^2) \, T_c}{\beta^2 N_c + S_c}, \qquad
        T_c = \sum_{n : y_n = c} p_{nc}, \quad S_c = \sum_n p_{nc}

    T is how often c is expected to be said and right, S how often to be said, N how often it is
    right: the F-measure of scikit-learn, with expected counts in the place of counts. A ratio of
    sums is not a mean over rows: there is no ``reduction="none"``, a small batch is another
    problem than a large one, and batches without a class say nothing about it. `momentum` makes
    small batches part of a larger one. See :doc:`/f_beta`.

    Where torch.distributed runs, counts are of the global batch, and gradients are those of one
    process with all rows: a collective call. Under `torch.no_grad` each process is on its own.

    Parameters
    ----------
    average : {"macro", "micro", "binary"}
        The mean over the classes that have rows; one F of all counts together, which with one
        class per row is the expected accuracy; or that of class 1 of two.
    beta : float
        Recall counts beta times as much as precision.
    sigma : float or Tensor
        Scale of the noise: a number, which a `Schedule` may move, or a Parameter that is learned.
    noise : {"normal", "logistic", "gumbel"} or Noise
        Gumbel noise makes p the softmax.
    momentum : float, optional
        In training, counts are a running mean over batches: so much of the former ones stays. The
        gradient is that of this batch's counts, at the running mean. A Module's, not a function's.
    num_classes : int, optional
        C, which running counts have to know.
    process_group : ProcessGroup, optional
        The processes that share a batch; by default all.
    weight, ignore_index, label_smoothing
        As in `torch.nn.CrossEntropyLoss`: rows count as much as their class weighs.
    reduction : {"mean"}
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits, target = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.5, 0.0]]), torch.tensor([0, 1, 1])
    >>> hitrate.ExpectedFBetaLoss()(logits, target)
    tensor(0.2691)
    >>> hitrate.expected_f_beta_loss(logits, target, "binary", sigma=0.01)  # F1 is 2 / 3
    tensor(0.3333)

    References
    ----------
    Dembczyński, Waegeman, Cheng, Hüllermeier. An Exact Algorithm for F-Measure Maximization. 2011.
    Eban et al. Scalable Learning of Non-Decomposable Objectives. 2017.
    """

    moving = ("sigma",)
    sigma: float | Tensor
    counts: Tensor | None
    mass: Tensor | None

    def __init__(
        self,
        average: str = "macro",
        beta: float = 1.0,
        *,
        sigma: float | Tensor = 1.0,
        noise: str | Noise = "normal",
        momentum: float | None = None,
        num_classes: int | None = None,
        process_group: ProcessGroup | None = None,
        **options: Unpack[LossOptions],
    ) -> None:
        super().__init__(**options)
        _check(average, beta, noise, self.reduction, self.function_name)
        if momentum is not None and not (is_number(momentum) and 0 <= momentum < 1):
            raise ValueError(f"ExpectedFBetaLoss: momentum={momentum!r} must be from 0 to below 1")
        if momentum is not None and not (isinstance(num_classes, int) and num_classes > 1):
            raise ValueError(
                f"ExpectedFBetaLoss(momentum={momentum}): running counts need num_classes=, the "
                f"number of classes, got {num_classes!r}"
            )
        if not isinstance(sigma, Tensor):
            self.check_number("sigma", sigma)
        self.set_number("sigma", sigma)
        self.average = average
        self.beta = beta
        self.noise = noise
        self.momentum = momentum
        self.num_classes = num_classes
        self.process_group = process_group
        counts, mass = None, None
        if momentum is not None:
            assert num_classes is not None
            counts = torch.zeros(3, num_classes, dtype=torch.float64)
            mass = torch.zeros((), dtype=torch.float64)
        self.register_buffer("counts", counts)
        self.register_buffer("mass", mass)

    def check_number(self, name: str, value: float) -> None:
        """Complain about a value that a number cannot have."""
        if name == "sigma" and not (is_number(value) and 0 < value < math.inf):
            raise ValueError(f"ExpectedFBetaLoss: sigma must be a positive number, got {value!r}")
        super().check_number(name, value)

    @classmethod
    def compute(
        cls,
        logits: Tensor,
        target: Tensor,
        average: str = "macro",
        beta: float = 1.0,
        *,
        sigma: float | Tensor = 1.0,
        noise: str | Noise = "normal",
        momentum: float | None = None,
        num_classes: int | None = None,
        process_group: ProcessGroup | None = None,
        **options: Any,
    ) -> Tensor:
        """The loss of one batch."""
        if momentum is not None:
            raise ValueError(
                f"{cls.function_name}(momentum={momentum!r}): running counts are a Module's; take "
                "hitrate.ExpectedFBetaLoss"
            )
        chosen = Options(**options)
        _check(average, beta, noise, chosen.reduction, cls.function_name)
        call = f"{cls.function_name}(average={average!r})"
        counts = expected_counts(Batch.of(logits, target, chosen, call), sigma, noise)
        return 1 - f_measure(over_processes(counts, process_group), average, beta)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Loss of logits `input`."""
        _check(self.average, self.beta, self.noise, self.reduction, self.function_name)
        call = f"{self.function_name}(average={self.average!r})"
        batch = Batch.of(input, target, self.options, call)
        counts = expected_counts(batch, self.sigma, self.noise)
        counts = over_processes(counts, self.process_group)
        if self.momentum is not None and self.training and torch.is_grad_enabled():
            counts = self._with_former(counts)
        return 1 - f_measure(counts, self.average, self.beta)

    def probabilities(self, input: Tensor) -> Tensor:
        """Probability of each class under the loss's own noise, shaped like the logits `input`."""
        return probabilities_of(input, self.sigma, self.noise)

    def _moving(self) -> list[str]:
        """Running counts keep their digits too."""
        there = [name for name in ("counts", "mass") if self._buffers.get(name) is not None]
        return [*super()._moving(), *there]

    def _with_former(self, counts: Tensor) -> Tensor:
        """The running mean of counts, whose gradient is that of this batch's."""
        former, mass, keep = self.counts, self.mass, self.momentum
        assert former is not None and mass is not None and keep is not None
        if former.shape != counts.shape:
            raise ValueError(
                f"ExpectedFBetaLoss(num_classes={self.num_classes}): logits have "
                f"{counts.shape[1]} classes"
            )
        now = counts.detach()
        with torch.no_grad():
            former.mul_(keep).add_(now, alpha=1 - keep)
            mass.mul_(keep).add_(1 - keep)
            mean = (former / mass).to(counts.dtype)
        return mean + (counts - now)


expected_f_beta_loss = function_of(ExpectedFBetaLoss)


def expected_counts(batch: Batch, sigma: float | Tensor, noise: str | Noise) -> Tensor:
    """How often each class is expected to be said and right, said, and right (3, C)."""
    batch = batch.adjusted()
    rows = batch.logits
    if batch.ignored is not None:
        rows = rows.masked_fill(batch.ignored[:, None], 0.0)
    with full_precision(rows):
        p = class_probabilities(rows, sigma, noise=noise)
        share = batch.coefficients()
        hits = (share * p).sum(0)
        said = (share.sum(1, keepdim=True) * p).sum(0)
        return torch.stack([hits, said, share.sum(0)])


def f_measure(counts: Tensor, average: str, beta: float) -> Tensor:
    """F of counts (3, C), as from `expected_counts`; not a number where there is nothing."""
    hits, said, right = counts.unbind()
    square = beta * beta
    if average == "micro":
        return (1 + square) * hits.sum() / (square * right.sum() + said.sum())
    if average == "binary":
        if len(hits) != 2:
            raise ValueError(
                f"expected_f_beta_loss(average='binary'): is for two classes, got {len(hits)}"
            )
        return (1 + square) * hits[1] / (square * right[1] + said[1])
    there = right > 0
    every = (1 + square) * hits / (square * right + said).masked_fill(~there, 1.0)
    return every.masked_fill(~there, 0.0).sum() / there.sum()


def _check(average: str, beta: float, noise: str | Noise, reduction: str, name: str) -> None:
    """Complain about what no batch could save."""
    if average not in AVERAGES:
        names = ", ".join(map(repr, AVERAGES))
        raise ValueError(f"{name}: average={average!r} is not one of {names}")
    if not is_number(beta) or not 0 <= beta < math.inf:
        raise ValueError(f"{name}: beta must be a number >= 0, got {beta!r}")
    noise_named(noise, name)
    if reduction != "mean":
        raise ValueError(
            f"{name}: has no reduction={reduction!r}: a ratio of sums over the batch is no mean "
            "over rows; it can only be 'mean'"
        )
