"""Slopes and curvatures of losses in the scores of boosted trees; the hosts' modules call this."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hitrate.links import Link, link_named
from hitrate.probability import log_expected_accuracy
from hitrate.probability.noises import NORMAL
from hitrate.probability.normal import SQRT_HALF

Array = NDArray[Any]

NOISES = ("gumbel", "normal")
# Curvature of a row that no step can help, so that no leaf divides by zero.
SMALLEST = 1e-6
# Of the integral over the noise; its curvature needs few digits.
STEPS, NODES = 6, 8


class BoostingObjective:
    r"""Slope and curvature of :math:`\ell(\log p)` in the scores f of each row.

    Trees take steps slope / curvature, so the curvature has to be positive, while
    :math:`\ell(\log p)` is not convex. With :math:`s = \log p`, which is concave in the scores,
    :math:`c = -\ell'(s) \ge 0` and :math:`g = \nabla s`, the matrix

    .. math::

        -c \nabla^2 s + \max(\ell''(s), 0) \, g g^T

    is at least the loss's own, and never negative. Its first part is the curvature of the
    likelihood with the row's weight c: 1 for "log", p for "error". The diagonal that is returned is
    at least this matrix; for Gumbel noise it is :math:`2 c p_i (1 - p_i) / \sigma^2`, or half of
    that for two classes with one score. It is raised to slope / `max_step` where it is smaller.

    Parameters
    ----------
    link : str or Link
        A name of `hitrate.links.LINKS` but "batch_log", or a link, such as ``Focused(0.25)``.
    noise : {"gumbel", "normal"}
        "gumbel" makes p the softmax, or the sigmoid of one score.
    sigma : float
        Size of the noise.
    max_step : float
        The largest step that a row may ask for, before the learning rate.
    """

    def __init__(
        self,
        link: str | Link = "focused",
        *,
        noise: str = "gumbel",
        sigma: float = 1.0,
        max_step: float = 5.0,
    ) -> None:
        self.link = link
        self.noise = noise
        self.sigma = sigma
        self.max_step = max_step
        if link_named(link, self._call).of_batch:
            raise ValueError(f"{self._call}: link={link!r} is of a whole batch, not of rows")
        if noise not in NOISES:
            names = ", ".join(map(repr, NOISES))
            raise ValueError(f"{self._call}: noise={noise!r} is not one of {names}")
        for name in ("sigma", "max_step"):
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and 0 < value < math.inf):
                raise ValueError(f"{self._call}: {name}={value!r} must be a number > 0")

    def __repr__(self) -> str:
        return f"{self._call}(link={self.link!r}, noise={self.noise!r}, sigma={self.sigma!r})"

    @property
    def _call(self) -> str:
        return type(self).__name__

    def derivatives(
        self, scores: Any, target: Any, weight: Any | None = None
    ) -> tuple[Array, Array]:
        """Slopes and curvatures, shaped like the scores.

        Parameters
        ----------
        scores : array, shape (N,) or (N, C)
            One number per row is the score of class 1, that of class 0 being 0.
        target : array, shape (N,)
            Classes 0, 1, ... as whole numbers of any dtype.
        weight : array, shape (N,), optional

        Returns
        -------
        slope, curvature : arrays, shaped like `scores`

        Examples
        --------
        >>> from hitrate.integrations.boosting import BoostingObjective
        >>> slope, curvature = BoostingObjective("log").derivatives([0.0, 2.0], [1, 1])
        >>> slope.round(4).tolist(), curvature.round(4).tolist()
        ([-0.5, -0.1192], [0.25, 0.105])
        """
        scores, target = np.asarray(scores, np.float64), np.asarray(target)
        shown = f"{self._call}: scores of shape {scores.shape}, target of shape {target.shape}"
        if scores.ndim not in (1, 2) or target.shape != scores.shape[:1]:
            raise ValueError(f"{shown}; scores must be (N,) or (N, C), target (N,)")
        classes = 2 if scores.ndim == 1 else scores.shape[1]
        if classes < 2:
            raise ValueError(f"{shown}; needs two classes or more")
        y = target.astype(np.int64)
        strange = (y != target) | (y < 0) | (y >= classes)
        if strange.any():
            raise ValueError(
                f"{self._call}: target has {target[strange][0]!r}, which is none of the "
                f"classes 0 to {classes - 1}"
            )
        f = torch.from_numpy(scores)
        logits = torch.stack([torch.zeros_like(f), f], 1) if f.dim() == 1 else f
        slope, curvature = self._of_rows(logits, torch.from_numpy(y), single=f.dim() == 1)
        curvature = torch.maximum(curvature, slope.abs() / self.max_step).clamp(min=SMALLEST)
        if weight is not None and np.size(weight):
            share = np.asarray(weight, np.float64)
            if share.shape != target.shape:
                raise ValueError(f"{shown}, weight of shape {share.shape}: one weight per row")
            scale = torch.from_numpy(share).reshape(-1, *[1] * (f.dim() - 1))
            slope, curvature = slope * scale, curvature * scale
        return slope.numpy(), curvature.numpy()

    def _of_rows(self, logits: Tensor, target: Tensor, *, single: bool) -> tuple[Tensor, Tensor]:
        """Slope and curvature of all scores (N, C), or of class 1's (N,) where the other is 0."""
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            s = log_expected_accuracy(logits, target, self.sigma, noise=self.noise)
            (g,) = torch.autograd.grad(s.sum(), logits)
        logits, s = logits.detach(), s.detach()
        link = link_named(self.link, self._call)
        first, convex = link.slope(s)[:, None], link.curvature(s)[:, None]
        # (g d)^2 <= sum |g| * sum |g| d^2, and two classes' slopes are opposite.
        bend = self._bend(logits, target) * -first + convex * g.abs() * g.abs().sum(1, keepdim=True)
        slope = first * g
        return (slope[:, 1], 0.5 * bend[:, 1]) if single else (slope, bend)

    def _bend(self, logits: Tensor, target: Tensor) -> Tensor:
        """A diagonal (N, C) that is at least minus the second derivatives of log p."""
        if self.noise == "gumbel":
            p = torch.softmax(logits / self.sigma, 1)
            return 2 * p * (1 - p) / self.sigma**2
        column = target[:, None]
        rival = torch.ones_like(logits, dtype=torch.bool).scatter_(1, column, False)
        m = (logits.gather(1, column) - logits) / self.sigma
        if m.shape[1] == 2:
            # log p = log Phi(m / sqrt 2), docs/math.md (6).
            b = torch.where(rival, -0.5 * NORMAL.hazard_slope(m * SQRT_HALF), 0.0)
        else:
            b = expected_bend(m, rival)
        b = b / self.sigma**2
        # sum_i b_i (d_y - d_i)^2 <= 2 d_y^2 sum_i b_i + 2 sum_i b_i d_i^2.
        return 2 * b.scatter(1, column, b.sum(1, keepdim=True))


def expected_bend(m: Tensor, rival: Tensor) -> Tensor:
    r"""The mean of -h'(m_i + t) under the integrand of docs/math.md (3), for normal noise.

    .. math::

        -\nabla^2_m \log p = \text{diag}\, E[-h'(m_i + t)] - \text{Cov}[h(m + t)]
        \preceq \text{diag}\, E[-h'(m_i + t)]

    Parameters
    ----------
    m : Tensor, shape (N, C)
        Scaled margins.
    rival : Tensor of bool, shape (N, C)
        All columns but the target's.

    Returns
    -------
    Tensor, shape (N, C)
        Zero in the target's column.
    """

    def look(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log of the integrand, its slope, and -h' of each rival."""
        x = m + t[:, None]
        log_cdf, hazard = NORMAL.log_cdf_and_hazard(x)
        bend = torch.where(rival, -NORMAL.hazard_slope(x), 0.0)
        height = torch.where(rival, log_cdf, 0.0).sum(1) - 0.5 * t * t
        return height, torch.where(rival, hazard, 0.0).sum(1) - t, bend

    # h is convex and falls, so Newton's steps from the left of the peak never pass it.
    t = torch.zeros_like(m[:, 0])
    for _ in range(STEPS):
        _, slope, bend = look(t)
        t = t + slope / (1 + bend.sum(1))
    top, _, bend = look(t)
    width = (0.5 * (1 + bend.sum(1))).rsqrt()
    total, mean = torch.zeros_like(t), torch.zeros_like(m)
    nodes, weights = np.polynomial.hermite.hermgauss(NODES)
    for node, weight in zip(nodes, weights * np.exp(nodes**2), strict=True):
        height, _, bend = look(t + width * node)
        share = weight * (height - top).exp()
        total, mean = total + share, mean + share[:, None] * bend
    return mean / total[:, None]
