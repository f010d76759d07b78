r"""Curvature of a loss along the noise of its gradients: Tr(H Σ) of Mixing's equations 15 to 18.

Losses are mixtures, :math:`\ell = -\alpha \log p + \beta (1 - p)`, with p the softmax's probability
of a row's class. H is the Hessian of their mean over N rows, and

.. math::

    \Sigma = \frac1N \sum_i g_i g_i^T - \bar g \bar g^T, \qquad
    \mathrm{Tr}(H \Sigma) = \frac1N \sum_i g_i^T H g_i - \bar g^T H \bar g

the covariance of gradients of one row; a batch of m rows has Σ / m. A step of SGD from a minimum
raises the loss by :math:`\eta^2 \mathrm{Tr}(H \Sigma) / 2m`, to second order in the learning rate.

All mixtures see the weights through log p. Its first and second derivatives along a direction v
give :math:`v^T H v` for each of them, by forward passes alone, and all gradients of a row are
parallel: N directions are enough for any number of mixtures.

Shape letters: N rows, P weights, C classes, K directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp, vmap

from hitrate.links import Mixed

# Weights (P,) and rows (N, I) to logits (N, C).
Logits = Callable[[Tensor, Tensor], Tensor]
# Numbers of a layer, and of gradients, that are computed at once: what fits into a cache.
AT_ONCE = 200_000


@dataclass(frozen=True)
class Noise:
    """Gradients of a loss at some weights, and how they meet its curvature.

    Parameters
    ----------
    trace : float
        Tr(H Σ), of batches of one row.
    error : float
        Its standard error; 0 where it is exact.
    norm : float
        Mean norm of the rows' gradients.
    drift : float
        Norm of the mean gradient, squared, over the mean of the rows' squared norms: 0 at a
        minimum, 1 where there is no noise.
    """

    trace: float
    error: float
    norm: float
    drift: float


@dataclass(frozen=True)
class Terms:
    r"""What the right side of the paper's equation 18 is made of.

    Parameters
    ----------
    ff : float
        :math:`\mathrm{Tr}(F_p F_p^T)`, with :math:`F_p = E[\nabla p \nabla p^T]`.
    hf : float
        :math:`\mathrm{Tr}(H_p F_p)`, with :math:`H_p = -E[\nabla^2 p]`.
    largest : float
        M, the largest p of all rows.
    """

    ff: float
    hf: float
    largest: float

    def printed(self, beta: float) -> float:
        """The right side of equation 18, as it is printed."""
        m = self.largest
        return (beta**3 + 3 * beta**2 / m + beta * (2 / m**2 + 1 / m)) * (self.ff + 2 * self.hf)

    def of_equal_p(self, beta: float) -> float:
        """What the left side is if all rows have p = M, and mean gradients are 0.

        Each gradient is then ∇p times -(1 / M + beta), and each Hessian (1 / M + beta) H_p + F_p /
        M². It is a lower bound where -∇²p of each row is positive semidefinite.
        """
        m = self.largest
        of_hf = beta**3 + 3 * beta**2 / m + 3 * beta / m**2
        return of_hf * self.hf + (beta**2 / m**2 + 2 * beta / m**3) * self.ff


def network_logits(layers: Sequence[tuple[int, int]]) -> Logits:
    """Logits of a network of these layers, with relu between them.

    Parameters
    ----------
    layers : sequence of pairs
        Inputs and outputs of each, as of `Setting.layers`.

    Returns
    -------
    callable
        Takes weights as `flat` has them.
    """
    sizes = [(inputs + 1) * outputs for inputs, outputs in layers]

    def logits(weights: Tensor, x: Tensor) -> Tensor:
        parts = torch.split(weights, sizes)
        for k, (part, (inputs, outputs)) in enumerate(zip(parts, layers, strict=True)):
            matrix = part.view(outputs, inputs + 1)
            x = (torch.relu(x) if k else x) @ matrix[:, :-1].T + matrix[:, -1]
        return x

    return logits


def flat(weights: Sequence[Tensor]) -> Tensor:
    """Layers (outputs, inputs + 1), as `History` has them, in one vector (P,) of float64."""
    return torch.cat([part.detach().double().flatten() for part in weights])


def log_p(logits: Tensor, y: Tensor) -> Tensor:
    """log p (..., N) of rows' classes (N,)."""
    return _of_target(torch.log_softmax(logits, -1), y)


def row_gradients(logits: Logits, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradients (N, P) of each row's log p."""

    def of_row(w: Tensor, row: Tensor, label: Tensor) -> Tensor:
        return log_p(logits(w, row[None]), label[None])[0]

    return torch.as_tensor(vmap(grad(of_row), (None, 0, 0))(weights, x, y))


def row_norms(logits: Logits, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Norms (N,) of each row's gradient of log p, a part of the rows at a time."""
    part = max(1, AT_ONCE // len(weights))
    return torch.cat(
        [
            row_gradients(logits, weights, some, labels).norm(dim=1)
            for some, labels in zip(torch.split(x, part), torch.split(y, part), strict=True)
        ]
    )


def along(
    logits: Logits, weights: Tensor, x: Tensor, y: Tensor, directions: Tensor
) -> tuple[Tensor, Tensor]:
    r"""First and second derivative (K, N) of log p along directions (K, P).

    With the logits' own, :math:`\dot z` and :math:`\ddot z`, they are

    .. math::

        \dot z_y - E_p[\dot z], \qquad \ddot z_y - E_p[\ddot z] - \mathrm{Var}_p[\dot z]
    """

    def both(v: Tensor) -> tuple[Tensor, Tensor]:
        def first(w: Tensor) -> Tensor:
            return torch.as_tensor(jvp(lambda w: logits(w, x), (w,), (v,))[1])

        dz, ddz = jvp(first, (weights,), (v,))  # type: ignore[misc]
        return dz, ddz

    p = torch.softmax(logits(weights, x), -1)
    part = max(1, AT_ONCE // x.numel())
    found: list[tuple[Tensor, Tensor]] = []
    for some in torch.split(directions, part):
        dz, ddz = vmap(both)(some)  # (k, N, C)
        mean = (p * dz).sum(-1)
        spread = (p * dz**2).sum(-1) - mean**2
        found.append((_of_target(dz, y) - mean, _of_target(ddz, y) - (p * ddz).sum(-1) - spread))
    firsts, seconds = zip(*found, strict=True)
    return torch.cat(firsts), torch.cat(seconds)


def exact_noise(
    logits: Logits, weights: Tensor, x: Tensor, y: Tensor, losses: Sequence[Mixed]
) -> tuple[list[Noise], Terms]:
    """Tr(H Σ) of each loss, with all rows as directions; takes time and memory of N².

    Parameters
    ----------
    logits : callable
        Of weights and rows, such as from `network_logits`.
    weights : Tensor, shape (P,)
    x : Tensor, shape (N, I)
    y : Tensor of int, shape (N,)
    losses : sequence of Mixed
        The error link is ``Mixed(0, 1)``, the log link ``Mixed(1, 0)``.

    Returns
    -------
    list of Noise
        One for each loss.
    Terms
    """
    rows = row_gradients(logits, weights, x, y)
    p = log_p(logits(weights, x), y).exp()
    # In order: each row's gradient of log p, and each loss's mean gradient.
    means = torch.stack([(_slopes(loss, p)[0][:, None] * rows).mean(0) for loss in losses])
    first, second = along(logits, weights, x, y, torch.cat([rows, means]))
    norms = rows.norm(dim=1)
    found = []
    for k, loss in enumerate(losses):
        slope, bend = _slopes(loss, p)
        quadratic = (slope * second + bend * first**2).mean(1)
        uncentred = (slope**2 * quadratic[: len(x)]).mean()
        trace = uncentred - quadratic[len(x) + k]
        found.append(Noise(float(trace), 0.0, *_norms(slope, norms, means[k])))
    ff = float(((p[:, None] * p * first[: len(x)]) ** 2).mean())
    slope, bend = _slopes(Mixed(0, 1), p)
    hf = float((p**2 * (slope * second + bend * first**2)[: len(x)].mean(1)).mean())
    return found, Terms(ff, hf, float(p.max()))


def estimated_noise(
    logits: Logits,
    weights: Tensor,
    x: Tensor,
    y: Tensor,
    losses: Sequence[Mixed],
    *,
    draws: int = 100,
    seed: int = 0,
) -> tuple[list[Noise], Terms]:
    r"""The same by Hutchinson's estimator, in time of N.

    With signs :math:`\varepsilon_i = \pm 1` and :math:`u = N^{-1/2} \sum_i \varepsilon_i (g_i -
    \bar g)` the mean of :math:`u^T H u` is Tr(H Σ). Each draw is one backward and two forward
    passes, and no row's own gradient is needed but for the mean norm. All losses have the same
    signs.

    Parameters
    ----------
    logits, weights, x, y, losses
        As of `exact_noise`.
    draws : int
        Two or more.
    seed : int
        Of the signs.
    """
    if draws < 2:
        raise ValueError(f"estimated_noise(draws={draws}): needs two or more for a standard error")
    values, pull, *_ = vjp(lambda w: log_p(logits(w, x), y), weights)
    p = values.exp()
    random = torch.Generator().manual_seed(seed)
    signs = 2.0 * torch.randint(2, (draws, len(x)), generator=random).to(x.dtype) - 1
    centred = signs - signs.mean(1, keepdim=True)
    norms = row_norms(logits, weights, x, y)

    def drawn(slope: Tensor, signs: Tensor) -> Tensor:
        pulled = [pull(each)[0] for each in signs * slope]
        return torch.stack(pulled) / math.sqrt(len(x))

    found = []
    for loss in losses:
        slope, bend = _slopes(loss, p)
        first, second = along(logits, weights, x, y, drawn(slope, centred))
        each = (slope * second + bend * first**2).mean(1)  # (draws,)
        error = float(each.std()) / math.sqrt(draws)
        mean = pull(slope / len(x))[0]
        found.append(Noise(float(each.mean()), error, *_norms(slope, norms, mean)))
    slope, bend = _slopes(Mixed(0, 1), p)
    first, second = along(logits, weights, x, y, drawn(slope, signs))
    hf = float((slope * second + bend * first**2).mean())
    return found, Terms(float(((p * first) ** 2).mean()), hf, float(p.max()))


def _slopes(loss: Mixed, p: Tensor) -> tuple[Tensor, Tensor]:
    """First and second derivative of a loss in log p."""
    return -(loss.alpha + loss.beta * p), -loss.beta * p


def _norms(slope: Tensor, norms: Tensor, mean: Tensor) -> tuple[float, float]:
    """Mean norm of the gradients, and their drift."""
    own = slope.abs() * norms
    squares = float((own**2).mean())
    return float(own.mean()), float(mean @ mean) / squares if squares else 0.0


def _of_target(values: Tensor, y: Tensor) -> Tensor:
    """Those of each row's class: (..., N) of (..., N, C)."""
    return values.gather(-1, y.expand(values.shape[:-1])[..., None])[..., 0]
