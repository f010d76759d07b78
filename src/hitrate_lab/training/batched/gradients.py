"""Gradients at the logits of many models, each under its own loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hitrate import losses
from hitrate.links import Link
from hitrate.probability import log_expected_accuracy, normal
from hitrate.probability.normal import SQRT_HALF
from hitrate.recipes import Plan
from hitrate_lab.training.batched.variants import Variant, softmax_link


class LogitGradients:
    """d (mean loss) / d logits for copies (S, V), where V counts variants times learning rates.

    All losses that see the softmax share one: their gradients are steepness (softmax - one hot),
    and sums of log and error need no call of their own. EXACT and others of normal noise with the
    same sigma and margin share one integral, which has a closed form for two classes. So has the
    hinge loss. All else goes through the loss and autograd.

    Parameters
    ----------
    variants : sequence of Variant
        `variants` has them in the order of the copies, those of the softmax first.
    epochs : int
    scale : Tensor, shape (L,)
        What gradients are multiplied by, one for each learning rate.
    """

    def __init__(self, variants: Sequence[Variant], epochs: int, scale: Tensor) -> None:
        planned = [(each, each.plan(epochs)) for each in variants]
        planned.sort(key=lambda pair: not _is_soft(pair[1]))
        self.variants = [each for each, _ in planned]
        self.plans = [plan for _, plan in planned]
        self._each = len(scale)
        self._soft = self._each * sum(map(_is_soft, self.plans))
        factors = torch.tensor([each.factor for each in self.variants], device=scale.device)
        self._scale = (factors[:, None] * scale).reshape(1, -1, 1, 1)  # (1, V, 1, 1)
        self._look()

    def next_epoch(self) -> None:
        """Move on all that moves."""
        for plan in self.plans:
            plan.step()
        self._look()

    def _copies(self, place: int) -> slice:
        return slice(place * self._each, (place + 1) * self._each)

    def _look(self) -> None:
        """Sort losses, as they stand now, by how their gradients are computed."""
        alpha, beta = torch.zeros_like(self._scale), torch.zeros_like(self._scale)
        self._curved: list[tuple[slice, Link]] = []
        self._normal: dict[tuple[float, float | None], list[tuple[slice, Link]]] = {}
        self._other: list[tuple[slice, losses.ClassificationLoss]] = []
        for place, plan in enumerate(self.plans):
            copies, loss = self._copies(place), plan.loss
            link = softmax_link(loss) if copies.start < self._soft else None
            if link is not None and (mixture := link.mixture):
                alpha[:, copies], beta[:, copies] = mixture.alpha, mixture.beta
            elif link is not None:
                self._curved.append((copies, link))
            elif (core := _plain_core(loss)) is not None:
                sigma, margin, link = core
                self._normal.setdefault((sigma, margin), []).append((copies, link))
            else:
                self._other.append((copies, loss))
        self._alpha = (alpha * self._scale)[:, : self._soft]
        self._beta = (beta * self._scale)[:, : self._soft]

    def __call__(self, logits: Tensor, target: Tensor, one_hot: Tensor) -> Tensor:
        """Gradients of the means over rows, times `scale`.

        Parameters
        ----------
        logits : Tensor, shape (S, V, C, B)
        target : Tensor of int, shape (S, 1, 1, B)
        one_hot : Tensor, shape (S, 1, C, B)
            The same as ones and zeros.

        Returns
        -------
        Tensor, shape (S, V, C, B)
        """
        soft = self._of_softmax(logits[:, : self._soft], target, one_hot)
        if self._soft == logits.shape[1]:
            return soft
        gradient = torch.empty_like(logits)
        gradient[:, : self._soft] = soft
        for core, members in self._normal.items():
            together = torch.cat([logits[:, copies] for copies, _ in members], 1)
            log_p, slope = _log_p_and_slope(together, target, one_hot, *core)
            parts = torch.split(log_p, self._each, 1), torch.split(slope, self._each, 1)
            for (copies, link), each, own in zip(members, *parts, strict=True):
                self._put(gradient, link.slope(each) * own, copies)
        for copies, loss in self._other:
            if isinstance(loss, losses.HingeLoss) and loss.rivals == "max":
                own = _hinge(logits[:, copies], target, one_hot, float(loss.margin))  # type: ignore[arg-type]
                self._put(gradient, own, copies)
                continue
            rows, y = _rows(logits[:, copies], target)
            with torch.enable_grad():
                rows.requires_grad_()
                (slope,) = torch.autograd.grad(loss(rows, y).sum(), rows)
            self._put(gradient, _copies(slope, logits[:, copies]), copies)
        return gradient

    def _of_softmax(self, logits: Tensor, target: Tensor, one_hot: Tensor) -> Tensor:
        p = torch.softmax(logits, 2)
        own = p.gather(2, target.expand(-1, p.shape[1], -1, -1))
        steep = torch.addcmul(self._alpha, self._beta, own)
        for copies, link in self._curved:
            # Where p underflows a slope may still need log p.
            log_p = torch.log_softmax(logits[:, copies], 2).gather(
                2, target.expand(-1, copies.stop - copies.start, -1, -1)
            )
            steep[:, copies] = -link.slope(log_p) * self._scale[:, copies]
        return p.sub_(one_hot).mul_(steep.div_(logits.shape[3]))

    def _put(self, gradient: Tensor, slope: Tensor, copies: slice) -> None:
        """Slopes (S, V', C, B) of each row's loss to where they belong, as those of a mean."""
        torch.mul(slope, self._scale[:, copies] / slope.shape[3], out=gradient[:, copies])


def _is_soft(plan: Plan) -> bool:
    """Whether a loss sees the softmax alone, and will do so to the end."""
    moving = {schedule.name for schedule in plan.schedules}
    return softmax_link(plan.loss) is not None and not moving & {"sigma", "margin"}


def _log_p_and_slope(
    logits: Tensor, target: Tensor, one_hot: Tensor, sigma: float, margin: float | None
) -> tuple[Tensor, Tensor]:
    """For normal noise log p (S, V', 1, B) and its slope in logits (S, V', C, B)."""
    if logits.shape[2] == 2 and margin is None:
        # log Phi(gap / (sigma sqrt 2)), docs/math.md (6)
        signs = (2 * one_hot - 1) * (SQRT_HALF / sigma)
        log_p, hazard = normal.log_cdf_and_hazard((logits * signs).sum(2, keepdim=True))
        return log_p, hazard * signs
    rows, y = _rows(logits, target)
    with torch.enable_grad():
        rows.requires_grad_()
        log_p = log_expected_accuracy(rows, y, sigma, margin=margin)
        (slope,) = torch.autograd.grad(log_p.sum(), rows)
    return _copies(log_p.detach()[:, None], logits), _copies(slope, logits)


def _hinge(logits: Tensor, target: Tensor, one_hot: Tensor, margin: float) -> Tensor:
    """Where the margin is missing, 1 for the worst rival and -1 for the target."""
    own = logits.gather(2, target.expand(-1, logits.shape[1], -1, -1))
    worst, rival = logits.masked_fill(one_hot.bool(), -torch.inf).max(2, keepdim=True)
    slope = torch.zeros_like(logits).scatter_(2, rival, 1.0).sub_(one_hot)
    return slope.mul_(worst + margin > own)


def _plain_core(loss: losses.ClassificationLoss) -> tuple[float, float | None, Link] | None:
    """Sigma, margin and link where log p is `log_expected_accuracy` as it is by default."""
    if not isinstance(loss, losses.ExactLoss) or loss.noise != "normal":
        return None
    if loss.options.is_smoothed:
        return None
    if (loss.method, loss.backend, loss.nodes) != ("auto", "auto", None):
        return None
    link = loss.link.fixed()
    if isinstance(loss.sigma, torch.nn.Parameter) or link.formula is None:
        return None
    margin = None if loss.margin is None else float(loss.margin)
    return float(loss.sigma), margin, link


def _rows(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (S, V', C, B) as rows (S V' B, C), with their targets (S V' B,)."""
    seeds, copies, classes, size = logits.shape
    rows = logits.transpose(2, 3).reshape(-1, classes)
    return rows, target.expand(seeds, copies, 1, size).reshape(-1)


def _copies(rows: Tensor, like: Tensor) -> Tensor:
    """Rows (S V' B, c) as copies (S, V', c, B)."""
    seeds, copies, _, size = like.shape
    return rows.view(seeds, copies, size, -1).transpose(2, 3)
