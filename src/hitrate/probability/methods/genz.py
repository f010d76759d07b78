"""The sampled method of the EXACT paper, for normal noise: a reference, not the default.

Every pairwise difference of scores is positive when the target wins, so p is the integral of a
normal density over an orthant (Theorem 4.2), and each partial derivative is such an integral with
one dimension less (Theorem 4.3). Genz's sequential conditioning estimates both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def genz(
    a: Tensor,
    *,
    samples: int = 16,
    generator: torch.Generator | None = None,
    reorder: bool = True,
) -> tuple[Tensor, Tensor]:
    r"""Estimate log p and its gradient for normal noise by Genz's sequential conditioning.

    .. math::
        p = \int_{t > 0} \mathcal{N}(t; a, I + 1 1^T) \, dt, \qquad
        \frac{\partial p}{\partial a_i} = \mathcal{N}(0; a_i, 2)
        \int_{t > 0} \mathcal{N}(t; \hat m_i, I + \tfrac12 1 1^T) \, dt, \qquad
        \hat m_{i,j} = a_j - \tfrac12 a_i \quad (j \ne i)

    ``exp(log_p)`` and ``exp(log_p) * slope`` are unbiased for p and its gradient; ``log_p`` and
    ``slope`` by themselves are not. The C integrals of the gradient use samples of their own, so
    time is O(S C^2) a row. Steps of the conditioning are streamed: memory is O(C^2 + S C) a row.

    Parameters
    ----------
    a : Tensor
        Scaled margins, shape (N, C), float32 or float64. The target's own column holds
        `margins.ABSENT`: one more rival, which always loses and whose slope is zero.
    samples : int
        Number S of samples behind each integral.
    generator : torch.Generator, optional
        Source of the uniform draws; torch's default generator when omitted.
    reorder : bool
        Integrate over the hardest rival first, which Genz advises. The EXACT paper does not say
        in which order it integrates; False takes the columns as they come, with far more variance.

    Returns
    -------
    log_p : Tensor
        Logarithm of the estimate of p, shape (N,).
    slope : Tensor
        Estimate of the gradient of p divided by the estimate of p, shape (N, C).

    Examples
    --------
    >>> import torch
    >>> a = torch.tensor([[1e4, 0.0, 0.0]])  # three equal scores, the first is the target
    >>> log_p, slope = genz(a, samples=4096, generator=torch.Generator().manual_seed(0))
    >>> bool(abs(log_p.exp() - 1 / 3) < 0.01)
    True

    References
    ----------
    I. Karpukhin, S. Dereka, S. Kolesnikov, "EXACT: How to Train Your Accuracy": Theorems 4.2 and
    4.3, Equations 45 to 47.

    A. Genz, "Numerical computation of multivariate normal probabilities", Journal of
    Computational and Graphical Statistics 1(2), 1992.
    """
    # log p falls like a^2, and the slope is the exponential of a difference of two such numbers:
    # past eps^(-1/2) (2896 in float32) that difference has no correct digit left, and p is zero.
    limit = torch.finfo(a.dtype).eps ** -0.5
    margins = a.clamp(-limit, limit)
    order = torch.arange(a.shape[1], device=a.device).expand_as(a)
    if reorder:
        # Hardest rival first: the early factors, alike in all samples, then carry most of log p.
        margins, order = margins.sort(dim=1)
    log_p = _log_orthant(margins, 1.0, samples, generator)
    log_gradient = _log_density_at_zero(margins) + _log_orthant(
        _means_given_a_tie(margins), 0.5, samples, generator
    )
    # With many classes two independent estimates can differ by tens of orders of magnitude. A cap
    # of sqrt(max) leaves room for sums and squares, and acts only where p_hat is below 1e-19.
    log_cap = 0.5 * math.log(torch.finfo(a.dtype).max)
    log_slope = (log_gradient - log_p[:, None]).clamp(max=log_cap)
    return log_p, torch.empty_like(a).scatter_(1, order, log_slope.exp())


def structured_cholesky(size: int, rho: float) -> tuple[list[float], list[float]]:
    r"""Cholesky factor of I + rho 1 1^T as its diagonal and its columns' constants (Equation 47).

    .. math::
        \alpha_k = \sqrt{\frac{1 + k \rho}{1 + (k-1) \rho}}, \qquad
        \beta_k = \frac{\rho}{\sqrt{(1 + (k-1) \rho)(1 + k \rho)}}, \qquad k = 1, \dots, size

    Parameters
    ----------
    size : int
        Number of rows of the matrix.
    rho : float
        Covariance of every pair of variables; their variance is 1 + rho.

    Returns
    -------
    alpha, beta : list of float
        L[k, k] = alpha[k], and L[j, k] = beta[k] for all j > k.
    """
    # The remaining variables given the first k have covariance I + rho / (1 + k rho) 1 1^T: the
    # same form with a smaller rho, hence one formula for all columns.
    steps = range(1, size + 1)
    alpha = [math.sqrt((1 + k * rho) / (1 + (k - 1) * rho)) for k in steps]
    beta = [rho / math.sqrt((1 + (k - 1) * rho) * (1 + k * rho)) for k in steps]
    return alpha, beta


def _log_orthant(
    mean: Tensor, rho: float, samples: int, generator: torch.Generator | None
) -> Tensor:
    """Log of the estimated P(w > 0), w ~ N(mean, I + rho 1 1^T): (..., D) to (...)."""
    size = mean.shape[-1]
    alpha, beta = structured_cholesky(size, rho)
    log_weight = mean.new_zeros((*mean.shape[:-1], samples))  # (..., S)
    # Below the diagonal a column of the factor is constant, so the past enters as one sum.
    shift = torch.zeros_like(log_weight)
    for k in range(size):
        bound = (mean[..., k, None] + shift) / alpha[k]
        log_factor = torch.special.log_ndtr(bound)
        log_weight += log_factor
        if k + 1 < size:
            uniform = torch.rand(
                bound.shape, generator=generator, dtype=mean.dtype, device=mean.device
            )
            # By symmetry z > -bound is -z < bound, where small probabilities keep their digits.
            shift -= beta[k] * _truncated_normal(bound, log_factor, uniform)
    return log_weight.logsumexp(dim=-1) - math.log(samples)


def _truncated_normal(bound: Tensor, log_mass: Tensor, uniform: Tensor) -> Tensor:
    """Draw a standard normal given that it is below ``bound``; ``log_mass`` is log Phi(bound)."""
    info = torch.finfo(bound.dtype)
    # torch.rand can return 0, whose quantile is infinite: use half of its smallest positive value.
    uniform = uniform.clamp(min=info.eps / 4)
    # exp(log Phi), because torch's ndtr loses its relative accuracy below -3. The largest
    # probability short of 1 keeps the quantile finite from above.
    inside = torch.special.ndtri((uniform * log_mass.exp()).clamp(max=1 - info.eps / 2))
    # Where that product would underflow, invert Mills' ratio Phi(-x) x / phi(x) = 1 - 1/x^2 in
    # terms of v = (x^2 - bound^2) / 2, close to an exponential variable. Two rounds leave an
    # error below 1e-5 where float32 needs them, 1e-8 where float64 does.
    square = bound.clamp(max=-1.0).square()
    exponential = -uniform.log()
    v = exponential - 0.5 * torch.log1p(2 * exponential / square)
    v = exponential - 0.5 * torch.log1p(2 * v / square) + 2 * v / (square * (square + 2 * v))
    far = -(square + 2 * v).sqrt()
    return torch.where(log_mass > math.log(info.tiny / (info.eps / 4)), inside, far)


def _log_density_at_zero(a: Tensor) -> Tensor:
    """Log N(0; a_i, 2): the density of a tie between the target and rival i."""
    return -0.25 * a.square() - 0.5 * math.log(4 * math.pi)


def _means_given_a_tie(a: Tensor) -> Tensor:
    """Means of the other differences when difference i is zero: (N, C) to (N, C, C - 1).

    Row i holds a_j - a_i / 2 for all j but i, in the order of ``a``: hardest first stays so.
    """
    rows = torch.arange(a.shape[1], device=a.device)[:, None]  # (C, 1)
    others = torch.arange(a.shape[1] - 1, device=a.device)[None, :]  # (1, C - 1)
    others = others + (others >= rows).to(others.dtype)  # (C, C - 1), skipping the diagonal
    return a[:, others] - 0.5 * a[:, :, None]
