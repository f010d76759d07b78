"""Losses of rows of scores, with their slopes: what the solvers sum up.

The score of the first class is 0, so a row of D = C - 1 scores stands for C classes. EXACT and
cross entropy have code of their own here; every other loss goes through its Module and autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
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
    every = _by_class(scores)
    every -= every.amax(0)
    row = target[None]
    own = every.gather(0, row)[0]
    slopes = every.exp_()
    total = slopes.sum(0)
    loss = total.log() - own
    slopes /= total
    slopes.scatter_add_(0, row, slopes.new_full((1, 1), -1.0).expand(1, len(target)))
    return loss, slopes[1:].T


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
        self.t, self.w = _normal_rule(nodes)
        self._room: Tensor | None = None

    def __call__(self, scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and slopes."""
        if scores.shape[1] == 1:
            return self._two_classes(scores, target)
        every, row = _by_class(scores), target[None]
        m = every.gather(0, row).sub(every).mul_(1 / self.sigma)
        clipped = None
        if self.margin is not None:
            clipped = m > self.margin / self.sigma
            m.clamp_(max=self.margin / self.sigma)
        m.scatter_(0, row, math.inf)
        worst = m.amin(0)
        active = worst.abs() < REACH
        if active.all():
            loss, slopes = self._integral(m)
        else:
            loss, slopes = (worst < 0).to(m.dtype), torch.zeros_like(m)
            some = active.nonzero()[:, 0]
            if len(some):
                loss[some], slopes[:, some] = self._integral(m[:, some])
        if clipped is not None:
            slopes.masked_fill_(clipped, 0.0)
        slopes *= 1 / self.sigma
        slopes.scatter_(0, row, -slopes.sum(0, keepdim=True))
        return loss, slopes[1:].T

    def _integral(self, m: Tensor) -> tuple[Tensor, Tensor]:
        """1 - p (n,), and -dp/dm (C, n) with 0 for the target, whose m (C, n) is infinite."""
        t, w = self.t.to(m.dtype)[:, None], self.w.to(m.dtype)[:, None]
        shape = (m.shape[0], len(t), m.shape[1])  # (C, K, n)
        size = math.prod(shape)
        # Fresh memory of this size would cost more than the arithmetic.
        if self._room is None or len(self._room) < 2 * size or self._room.dtype != m.dtype:
            self._room = m.new_empty(2 * size)
        a, cdf = self._room[:size].view(shape), self._room[size : 2 * size].view(shape)
        # Within these bounds neither Phi nor its density leaves the normal numbers.
        torch.add(m[:, None, :], t, out=a).clamp_(-9.0, 9.0).mul_(SQRT_HALF)
        torch.erf(a, out=cdf).add_(1).mul_(0.5).clamp_(min=1e-10)
        weighted = cdf.prod(0).mul_(w)  # (K, n)
        slope = a.square_().neg_().exp_().div_(cdf).mul_(weighted).sum(1)
        return 1 - weighted.sum(0), slope.mul_(INV_SQRT_2PI).masked_fill_(torch.isinf(m), 0.0)

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
            every = torch.nn.functional.pad(scores, (1, 0))
            loss = self.module(every / self.sigma, target)
            (slopes,) = torch.autograd.grad(loss.sum(), scores)
        return loss.detach(), slopes


@lru_cache
def _normal_rule(nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss and Hermite's nodes and weights for the mean over a normal variable."""
    t, w = np.polynomial.hermite.hermgauss(nodes)
    return torch.from_numpy(t * math.sqrt(2)), torch.from_numpy(w / math.sqrt(math.pi))


def _by_class(scores: Tensor) -> Tensor:
    """Scores (C, n) of scores (n, D), the first class's at zero: sums over classes are fast so."""
    every = scores.new_zeros(scores.shape[1] + 1, len(scores))
    every[1:] = scores.T
    return every


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
