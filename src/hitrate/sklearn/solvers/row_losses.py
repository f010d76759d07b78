"""Losses of rows of scores, with their slopes: what the solvers sum up.

The score of the first class is 0, so a row of D = C - 1 scores stands for C classes. EXACT and
cross entropy have code of their own here; every other loss goes through its Module and autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hitrate.losses import ClassificationLoss
from hitrate.recipes import built_loss

Array = NDArray[Any]
# Scores (n, D) and targets (n,) to losses (n,) and slopes (n, D).
RowLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
# Beyond this many sigma the error is 0 or 1 to single precision, and its slope is nothing.
REACH = 8.0
NODES = 8


def cross_entropy(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax of the target."""
    if scores.shape[1] == 1:
        sign = (2 * target - 1).to(scores.dtype)[:, None]
        margin = sign * scores
        loss = torch.nn.functional.softplus(-margin)
        return loss[:, 0], -sign * torch.sigmoid(-margin)
    every = _with_first(scores)
    log_p = torch.log_softmax(every, 1)
    slopes = log_p.exp()
    slopes.scatter_add_(1, target[:, None], slopes.new_full((1, 1), -1.0).expand(len(slopes), 1))
    return -log_p.gather(1, target[:, None])[:, 0], slopes[:, 1:]


class ExactError:
    r"""Expected error 1 - p with normal noise, by Gauss-Hermite nodes :math:`t_k`.

    .. math::

        p = \sum_k w_k \prod_{i \ne y} \Phi(m_i + t_k), \qquad
        m_i = \min(\mu_y - \mu_i, r) / \sigma

    docs/math.md (3) with fixed nodes: 1 - p needs few digits, unlike log p, and slopes are those
    of the sum itself. Two classes have the closed form. Rows that no noise can change are skipped.

    Parameters
    ----------
    sigma : float
    margin : float, optional
        r.
    nodes : int
    """

    def __init__(self, sigma: float, margin: float | None = None, nodes: int = NODES) -> None:
        self.sigma = sigma
        self.margin = margin
        t, w = np.polynomial.hermite.hermgauss(nodes)
        self.t = torch.from_numpy(t * math.sqrt(2))
        self.w = torch.from_numpy(w / math.sqrt(math.pi))
        self._room: Tensor | None = None

    def __call__(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and slopes."""
        if scores.shape[1] == 1:
            return self._two_classes(scores, target)
        every = _with_first(scores)
        column = target[:, None]
        m = (every.gather(1, column) - every) / self.sigma
        clipped = None
        if self.margin is not None:
            clipped = m > self.margin / self.sigma
            m = m.clamp(max=self.margin / self.sigma)
        m.scatter_(1, column, math.inf)
        worst = m.amin(1)
        loss = (worst < 0).to(scores.dtype)
        slopes = torch.zeros_like(every)
        active = (worst.abs() < REACH).nonzero()[:, 0]
        if len(active):
            error, slope = self._integral(m[active])
            loss[active] = error
            if clipped is not None:
                slope = slope.masked_fill(clipped[active], 0.0)
            slope = slope / self.sigma
            slope.scatter_(1, column[active], -slope.sum(1, keepdim=True))
            slopes[active] = slope
        return loss, slopes[:, 1:]

    def _integral(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """1 - p, and -dp/dm (n, C) with 0 for the target, whose m is infinite."""
        t, w = self.t.to(m.dtype), self.w.to(m.dtype)
        shape = (m.shape[1], len(t), m.shape[0])  # (C, K, n)
        size = math.prod(shape)
        # Fresh memory of this size would cost more than the arithmetic.
        if self._room is None or len(self._room) < 2 * size or self._room.dtype != m.dtype:
            self._room = m.new_empty(2 * size)
        a, cdf = self._room[:size].view(shape), self._room[size : 2 * size].view(shape)
        # Within these bounds neither Phi nor its density leaves the normal numbers.
        torch.add(m.T[:, None, :], t[:, None], out=a).clamp_(-9.0, 9.0).mul_(SQRT_HALF)
        torch.erf(a, out=cdf).add_(1).mul_(0.5).clamp_(min=1e-10)
        weighted = cdf.prod(0).mul_(w[:, None])  # (K, n)
        slope = a.square_().neg_().exp_().div_(cdf).mul_(weighted).sum(1)
        slope.masked_fill_(torch.isinf(m.T), 0.0)
        return 1 - weighted.sum(0), slope.T * INV_SQRT_2PI

    def _two_classes(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """1 - Phi(m / sqrt 2)."""
        sign = (2 * target - 1).to(scores.dtype)[:, None]
        distance = sign * scores
        flat = None
        if self.margin is not None:
            flat = distance > self.margin
            distance = distance.clamp(max=self.margin)
        x = distance * (SQRT_HALF / self.sigma)
        loss = torch.erfc(x * SQRT_HALF) * 0.5
        slope = torch.exp(-0.5 * x * x) * (-INV_SQRT_2PI * SQRT_HALF / self.sigma)
        if flat is not None:
            slope = slope.masked_fill(flat, 0.0)
        return loss[:, 0], sign * slope


class AnyLoss:
    """A Module's loss of scores / sigma, with autograd's slopes."""

    def __init__(self, module: ClassificationLoss, sigma: float = 1.0) -> None:
        self.module = module
        self.sigma = sigma

    def __call__(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and slopes."""
        scores = scores.detach().requires_grad_()
        with torch.enable_grad():
            loss = self.module(_with_first(scores) / self.sigma, target)
            (slopes,) = torch.autograd.grad(loss.sum(), scores)
        return loss.detach(), slopes


def _with_first(scores: Tensor) -> Tensor:
    """Scores (n, C), the first class's at zero."""
    return torch.nn.functional.pad(scores, (1, 0))


def row_loss(
    name: str, params: dict[str, Any], sigma: float, margin: float | None, call: str
) -> RowLoss:
    """The rule for rows of a loss by its name, at one sigma."""
    if name == "exact" and not params:
        return ExactError(sigma, margin)
    if name == "cross_entropy" and not params and sigma == 1.0:
        return cross_entropy
    arguments = {**params, "reduction": "none"}
    if name in ("exact", "hinge"):
        # On the scale of scores / sigma.
        if margin is not None:
            arguments["margin"] = margin / sigma
    elif margin is not None:
        raise ValueError(f"{call}: loss={name!r} has no margin, got margin={margin!r}")
    try:
        module, moving = built_loss(name, arguments, f"{call}: loss_params={params!r}")
    except TypeError as error:
        raise ValueError(f"{call}: loss_params={params!r}: {error}") from error
    if moving:
        raise ValueError(
            f"{call}: loss_params={params!r}: nothing moves along with the falling sigma; give "
            f"{', '.join(moving)} a number"
        )
    return AnyLoss(module, sigma)
