"""Cross entropy's manners: layouts, targets, weights, ignored rows, smoothing, reduction.

Every loss here is a rule for rows, loss(row, class as target); this file makes of it a loss that
takes what `torch.nn.functional.cross_entropy` takes and treats it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from hitrate.losses.class_balance import Balance, check_balance, check_weight
from hitrate.losses.ways.in_pieces import Piece, by_pieces, pieces_of, terms_by_pieces
from hitrate.probability import arguments
from hitrate.probability.execution import full_precision
from hitrate.probability.sharded import everywhere, is_sharded

REDUCTIONS = ("mean", "sum", "none")

# Loss (R,) of rows (R, C) with targets (R,), and with what stands beside the rows, if anything.
OfTarget = Callable[..., Tensor]
# Losses (R, C) of rows (R, C), with each class in turn as the target.
OfClasses = Callable[..., Tensor]
# A mean of its own, for a loss that is no sum over rows: of terms, coefficients and their total.
Pool = Callable[[Tensor, Tensor, Tensor], Tensor]


class Options(NamedTuple):
    """The options of `nn.CrossEntropyLoss`, and those about classes of different frequency."""

    weight: Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float | Tensor = 0.0
    class_prior: Tensor | None = None
    reweighting: float | Tensor | None = None
    logit_adjustment: float | Tensor = 0.0
    class_margin: Tensor | None = None

    @property
    def is_smoothed(self) -> bool:
        """Whether targets are smoothed; a smoothing that moves may pass through 0."""
        return isinstance(self.label_smoothing, Tensor) or self.label_smoothing > 0

    @property
    def balance(self) -> Balance:
        """The options about classes of different frequency."""
        return Balance(*self[4:])

    @property
    def is_balanced(self) -> bool:
        """Whether there are any."""
        tau = self.logit_adjustment
        classes = (self.class_prior, self.reweighting, self.class_margin)
        return any(o is not None for o in classes) or isinstance(tau, Tensor) or tau != 0

    def weighted(self, logits: Tensor, call: object) -> Options:
        """The same with the prior's weights in `weight`, and only what shifts logits left."""
        if not self.is_balanced:
            return self
        balance = self.balance
        check_balance(balance, call)
        weight = balance.weights(self.weight, logits, call)
        if not balance.is_shifted:
            return Options(weight, *self[1:4])
        done = None if self.class_prior is None else 0.0
        return self._replace(weight=weight, reweighting=done)


class LossOptions(TypedDict, total=False):
    """The same as keywords."""

    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float | Tensor
    class_prior: Tensor | None
    reweighting: float | Tensor | None
    logit_adjustment: float | Tensor
    class_margin: Tensor | None


@dataclass(frozen=True)
class Batch:
    """Logits and target as rows, whatever their layout was."""

    logits: Tensor  # (R, C), float32 or float64
    target: Tensor  # (R,) class indices, or (R, C) probabilities
    ignored: Tensor | None  # (R,), where the target is an index
    layout: torch.Size  # of a loss with one value per row
    options: Options
    call: object  # what complaints begin with

    @staticmethod
    def of(logits: Tensor, target: Tensor, options: Options, call: object) -> Batch:
        """Check the arguments of a loss and lay them out as rows."""
        _check_options(options, call)
        scores = arguments.scores_of(logits, call)
        if logits.dim() < 1 or logits.shape[min(1, logits.dim() - 1)] < 2:
            raise ValueError(
                f"{call}: logits must have shape (C,), (N, C) or (N, C, d1, ...) with at least two "
                f"classes, got {tuple(logits.shape)}"
            )
        axis = min(1, scores.dim() - 1)
        classes = scores.shape[axis]
        layout = scores.shape[:axis] + scores.shape[axis + 1 :]
        rows = scores if scores.dim() == 2 else scores.movedim(axis, -1).reshape(-1, classes)
        options = options.weighted(logits, call)
        weight = options.weight
        if weight is not None:
            check_weight(weight, classes, call)
        if not isinstance(target, Tensor):
            raise ValueError(f"{call}: target must be a tensor, got {type(target).__name__}")
        if is_sharded(logits):
            target = everywhere(target, logits)
            if weight is not None:
                options = options._replace(weight=everywhere(weight, logits))
        if target.shape == logits.shape and target.is_floating_point():
            if options.ignore_index >= 0:
                raise ValueError(f"{call}: ignore_index has no meaning for probability targets")
            arguments.check_probabilities(target, call)
            soft = target.movedim(axis, -1).reshape(-1, classes).to(rows.dtype)
            return Batch(rows, soft, None, layout, options, call)
        if target.shape != layout or target.dtype not in arguments.INDEX_DTYPES:
            raise ValueError(
                f"{call}: target must be class indices of shape {tuple(layout)} or probabilities "
                f"of shape {tuple(logits.shape)} for logits of shape {tuple(logits.shape)}; "
                f"got {target.dtype} of shape {tuple(target.shape)}"
            )
        indices = target.reshape(-1).long()
        ignored = indices == options.ignore_index
        indices = indices.masked_fill(ignored, 0)
        arguments.check_range(indices, classes, call)
        return Batch(rows, indices, ignored, layout, options, call)

    @property
    def is_soft(self) -> bool:
        """Whether targets are probabilities."""
        return self.ignored is None

    def adjusted(self) -> Batch:
        """The same with logits as the classes' frequencies make them, in training."""
        balance = self.options.balance
        if not balance.is_shifted:
            return self
        hard = None if self.is_soft or self.options.is_smoothed else self.target
        if is_sharded(self.logits):
            prior, margin = balance.class_prior, balance.class_margin
            balance = balance._replace(
                class_prior=None if prior is None else everywhere(prior, self.logits),
                class_margin=None if margin is None else everywhere(margin, self.logits),
            )
        rows = balance.shift(self.logits, hard, self.call)
        return replace(self, logits=rows, options=Options(*self.options[:4]))

    def rows_of(self, value: float | Tensor, name: str) -> float | Tensor:
        """A number as it is; a tensor with one value per loss value as one per row (R,)."""
        if not isinstance(value, Tensor):
            return value
        if value.numel() == 1:
            return value.reshape(())
        if value.shape == self.layout:
            return value.reshape(-1)
        if value.dim() == 2 and len(self.layout) == 1:
            # One per class, which the core checks.
            return value
        raise ValueError(
            f"{self.call}: {name} must be a number or have shape {tuple(self.layout)}, one value "
            f"for each target; got {tuple(value.shape)}"
        )

    def loss(
        self,
        of_target: OfTarget,
        of_classes: OfClasses,
        pool: Pool | None = None,
        *,
        link: Callable[[Tensor], Tensor] | None = None,
        beside: Tensor | None = None,
        is_heavy: bool = False,
        keeps_gradients: bool = False,
    ) -> Tensor:
        """Apply a rule to the rows and reduce, as cross entropy does.

        With target probabilities q and class weights w a row costs sum_c w_c q_c loss(row, c).
        Smoothing mixes q with the uniform distribution. The mean divides by the sum of the
        targets' weights for index targets, by the number of rows for probabilities.

        Many rows are taken in pieces, unless the rule keeps to itself what wants a gradient;
        `beside` may want one, with a row (R, ...) for each of them. A `pool`, and a `link` of what
        the rule says, may be anything: they get all rows. Heavy is a rule of integrals.
        """
        if self.options.is_balanced:
            return self.adjusted().loss(
                of_target,
                of_classes,
                pool,
                link=link,
                beside=beside,
                is_heavy=is_heavy,
                keeps_gradients=keeps_gradients,
            )
        rule = BatchRule(self, of_target, of_classes)
        beside_rows = () if beside is None else (beside,)
        pieces = None
        if not (keeps_gradients or self._wants_more()):
            each_class = rule.of_all and isinstance(of_classes, EachClass)
            pieces = pieces_of(self.logits, each_class=each_class, is_heavy=is_heavy)
        with full_precision(self.logits):
            tensors = (self.logits, *beside_rows)
            if pool is None and link is None and pieces is not None:
                return self._reduce(by_pieces(rule.rows, pieces, tensors))
            if pieces is not None:
                wide = self.logits.shape if rule.of_all else self.logits.shape[:1]
                terms = terms_by_pieces(rule.terms, pieces, tensors, wide)
            else:
                terms = rule.terms(Piece(slice(None)), *tensors)
            terms = terms if link is None else link(terms)
            coefficient = rule.coefficient(slice(None))
            if pool is not None:
                return self._pooled(terms, coefficient, pool)
            return self._reduce(rule.summed(terms, coefficient, slice(None)))

    def _wants_more(self) -> bool:
        """Whether a gradient is wanted in something beside the logits and sigma."""
        others = (self.options.weight, self.options.label_smoothing, self.target)
        return any(isinstance(other, Tensor) and other.requires_grad for other in others)

    def _weight(self) -> Tensor | None:
        weight = self.options.weight
        return None if weight is None else weight.to(self.logits)

    def shares(self, rows: slice) -> Tensor:
        """Target probabilities (n, C) of some rows, smoothed."""
        if self.is_soft:
            q = self.target[rows]
        else:
            like = self.logits[rows].detach()
            q = torch.zeros_like(like).scatter(1, self.target[rows, None], 1.0)
        if not self.options.is_smoothed:
            return q
        smoothing = self.options.label_smoothing
        return q * (1 - smoothing) + smoothing / self.logits.shape[1]

    def coefficients(self) -> Tensor:
        """What each class of each row counts for (R, C): target probability times weight."""
        q, weight = self.shares(slice(None)), self._weight()
        q = q if weight is None else q * weight
        return q if self.ignored is None else q.masked_fill(self.ignored[:, None], 0.0)

    def _total(self) -> Tensor | int:
        """What the mean divides by."""
        if self.ignored is None:
            return self.logits.shape[0]
        weight = self._weight()
        if weight is None:
            total = (~self.ignored).sum()
        else:
            total = weight[self.target].masked_fill(self.ignored, 0.0).sum()
        if not self.options.is_smoothed:
            return total
        # Smoothing leaves something even where no target has weight; cross entropy says NaN.
        return torch.where(total == 0, torch.nan, total)

    def _pooled(self, terms: Tensor, coefficient: Tensor | None, pool: Pool) -> Tensor:
        """The batch's own mean of terms; no coefficient stands for 1."""
        reduction = self.options.reduction
        if reduction != "mean":
            raise ValueError(
                f"{self.call}: a link of the whole batch has no reduction={reduction!r}; "
                "it can only be 'mean'"
            )
        coefficient = torch.ones_like(terms) if coefficient is None else coefficient
        if self.ignored is not None:
            aside = self.ignored.reshape(-1, *[1] * (terms.dim() - 1))
            coefficient = coefficient.masked_fill(aside, 0.0)
        return pool(terms, coefficient, torch.as_tensor(self._total()).to(terms))

    def _reduce(self, rows: Tensor) -> Tensor:
        """Losses (R,) as one number, or in the layout of the call."""
        reduction = self.options.reduction
        if reduction == "none":
            return rows.reshape(self.layout)
        return rows.sum() if reduction == "sum" else rows.sum() / self._total()


@dataclass(frozen=True)
class BatchRule:
    """A rule for rows with the targets and options of a batch: pieces of its rows."""

    batch: Batch
    of_target: OfTarget
    of_classes: OfClasses

    @property
    def of_all(self) -> bool:
        """Whether every class of a row is a target, more or less."""
        return self.batch.is_soft or self.batch.options.is_smoothed

    def terms(self, piece: Piece, logits: Tensor, *beside: Tensor) -> Tensor:
        """What the rule says of a piece: (n,), or of each of its classes as the target."""
        if not self.of_all:
            return self.of_target(logits, self.batch.target[piece.rows], *beside)
        if piece.classes is None:
            return self.of_classes(logits, *beside)
        assert isinstance(self.of_classes, EachClass)
        return self.of_classes.some(logits, piece.classes, *beside)

    def coefficient(self, rows: slice) -> Tensor | None:
        """Parts that the terms of some rows have in their losses; None for all 1."""
        batch, weight = self.batch, self.batch._weight()
        if not self.of_all:
            return None if weight is None else weight[batch.target[rows]]
        q = batch.shares(rows)
        return q if weight is None else q * weight

    def summed(self, terms: Tensor, coefficient: Tensor | None, rows: slice) -> Tensor:
        """Losses (n,) of some rows, from their terms."""
        if coefficient is not None:
            # What has no part in a row adds nothing, be it infinite; cross entropy would say NaN.
            terms = (terms * coefficient).masked_fill(coefficient == 0, 0.0)
            terms = terms.sum(1) if terms.dim() == 2 else terms
        ignored = self.batch.ignored
        # Last, so that what divides by zero does not reach the gradient of ignored rows.
        return terms if ignored is None else terms.masked_fill(ignored[rows], 0.0)

    def rows(self, piece: Piece, logits: Tensor, *beside: Tensor) -> Tensor:
        """Losses (n,) of a piece."""
        coefficient = self.coefficient(piece.rows)
        if coefficient is not None and isinstance(piece.classes, slice):
            coefficient = coefficient[:, piece.classes]
            if coefficient.is_cpu:
                # Classes without a part need not be looked at, which is most of sparse targets.
                some = coefficient[0].nonzero()[:, 0]
                coefficient = coefficient[:, some]
                piece = piece._replace(classes=some + piece.classes.start)
        return self.summed(self.terms(piece, logits, *beside), coefficient, piece.rows)


@dataclass(frozen=True)
class EachClass:
    """Losses (R, C) by treating each row once per class; C times the cost."""

    of_target: OfTarget

    def __call__(self, rows: Tensor, *beside: Tensor) -> Tensor:
        """With all classes in turn."""
        return self.some(rows, slice(None), *beside)

    def some(self, rows: Tensor, classes: slice | Tensor, *beside: Tensor) -> Tensor:
        """With some of the classes (n, c)."""
        every = torch.arange(rows.shape[1], device=rows.device)[classes]
        if not len(every):
            return rows.new_zeros(len(rows), 0)
        copies = (tensor.repeat_interleave(len(every), 0) for tensor in (rows, *beside))
        first, *others = copies
        return self.of_target(first, every.repeat(len(rows)), *others).view(len(rows), len(every))


def _check_options(options: Options, call: object) -> None:
    """Complain about options that no layout could save."""
    if options.reduction not in REDUCTIONS:
        names = ", ".join(map(repr, REDUCTIONS))
        raise ValueError(f"{call}: reduction={options.reduction!r} is not one of {names}")
    smoothing = options.label_smoothing
    if not isinstance(smoothing, Tensor) and not 0.0 <= smoothing <= 1.0:
        raise ValueError(f"{call}: label_smoothing must lie between 0 and 1, got {smoothing}")
