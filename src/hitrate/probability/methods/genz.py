"""The sampled method of the EXACT paper, for normal noise: a reference, not the default.

Every pairwise difference of scores is positive when the target wins, so p is the integral of a
normal density over an orthant (Theorem 4.2), and each partial derivative is such an integral with
one dimension less (Theorem 4.3). Genz's sequential conditioning estimates both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hitrate.probability.normal import SQRT_HALF

# The density of a tie, exp(-a^2 / 4), with rivals that are further behind is below 1e-7.
FAR_BEHIND = 8.0
# Where the hardest rival is less far ahead than this, Phi itself has digits to spare.
NEAR = {torch.float32: -4.0, torch.float64: -7.0}


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

    Sequential conditioning draws one difference of scores after the other, given that it is
    positive, and multiplies the probabilities. One pass with the same draws serves all C + 1
    integrals. ``exp(log_p)`` and ``exp(log_p) * slope`` are unbiased for p and its
    gradient; ``log_p`` and ``slope`` by themselves are not. Time is O(S C^2) a row, memory O(S C).
    Looks at values, to be quick where no rival is far ahead.

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
    size = a.shape[1]
    # For all rows at once: what is drawn for one does not depend on the others.
    uniform = torch.rand(
        (max(size - 1, 0), len(a), 1, samples), generator=generator, dtype=a.dtype, device=a.device
    )
    log_sums = torch.empty(len(a), size + 1, dtype=a.dtype, device=a.device)
    for rows, conditioning, dtype in _ways(margins):
        found = _log_integrals(margins[rows].to(dtype), uniform[:, rows].to(dtype), conditioning)
        log_sums[rows] = found.to(a.dtype)
    log_p, log_gradient = log_sums[:, -1], log_sums[:, :-1]
    # With many classes two estimates can differ by tens of orders of magnitude. A cap of sqrt(max)
    # leaves room for sums and squares, and acts only where p_hat is below 1e-19.
    log_cap = 0.5 * math.log(torch.finfo(a.dtype).max)
    log_slope = (log_gradient - log_p[:, None]).clamp(max=log_cap)
    return log_p, torch.empty_like(a).scatter_(1, order, log_slope.exp())


# One factor: bound and uniform draws -> log P(z < bound), and a draw of z given that.
Conditioning = Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


def _ways(margins: Tensor) -> list[tuple[Any, Conditioning, torch.dtype]]:
    """Rows by how far the hardest rival is ahead, and so by what their factors need."""
    hardest = margins.amin(1) if margins.shape[1] else margins.new_zeros(len(margins))
    if margins.shape[1]:
        # A tie with rival i takes a_i / 2 off the others; ties with those far behind do not count.
        hardest = hardest - 0.5 * margins.where(margins < FAR_BEHIND, 0.0).amax(1).clamp_min(0.0)
    near = hardest > NEAR[margins.dtype]
    if bool(near.all()):
        return [(slice(None), _near, margins.dtype)]
    far = ~(hardest > NEAR[torch.float64])
    ways: list[tuple[Any, Conditioning, torch.dtype]] = [
        (near, _near, margins.dtype),
        (~near & ~far, _near, torch.float64),
        (far, _anywhere, margins.dtype),
    ]
    return [(rows, factor, dtype) for rows, factor, dtype in ways if bool(rows.any())]


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


def _log_integrals(mean: Tensor, uniform: Tensor, conditioning: Conditioning) -> Tensor:
    """Logs (N, D + 1) of the estimated derivatives of P(w > 0) in its D means, and of itself.

    Column i of the (N, D + 1, S) numbers on the way has difference i at zero, and the others given
    that; the last column has none.
    """
    (rows, size), samples = mean.shape, uniform.shape[-1]
    alpha, beta = (factor.to(mean) for factor in _factors(size))
    tied = torch.cat([0.5 * mean, torch.zeros_like(mean[:, :1])], 1)  # (N, D + 1)
    shift = mean.new_zeros(rows, size + 1, samples)
    log_weight = torch.zeros_like(shift)
    for k in range(size):
        # Below the diagonal a column of the factor is constant, so the past enters as one sum.
        bound = (shift + (mean[:, k, None] - tied)[..., None]).mul_(alpha[k, :, None])
        log_factor, z = conditioning(bound, uniform[k] if k + 1 < size else None)
        # The density of a tie between the target and rival k.
        log_factor[:, k] = -0.25 * mean[:, k, None].square() - 0.5 * math.log(4 * math.pi)
        log_weight += log_factor
        if z is not None:
            # By symmetry z > -bound is -z < bound, where small probabilities keep their digits.
            shift.sub_(z.mul_(beta[k, :, None]))
    return log_weight.logsumexp(dim=-1) - math.log(samples)


def _factors(size: int) -> tuple[Tensor, Tensor]:
    """1 / alpha and beta (D, D + 1) of step k in column i; a step in its own column is left out."""
    alpha, beta = (
        torch.tensor(part, dtype=torch.float64) for part in structured_cholesky(size, 1.0)
    )
    tied = [
        torch.tensor(part, dtype=torch.float64)
        for part in structured_cholesky(max(size - 1, 0), 0.5)
    ]
    step, column = torch.arange(size)[:, None], torch.arange(size)[None, :]
    # Which one it is among those that are left.
    place = (step - (step > column).long()).clamp(0, max(size - 2, 0))
    own = step == column
    found = []
    for whole, less, absent in ((1 / alpha, 1 / tied[0], 1.0), (beta, tied[1], 0.0)):
        inner = less[place] if size > 1 else torch.zeros(size, size).double()
        found.append(torch.cat([inner.masked_fill(own, absent), whole[:, None]], 1))
    return found[0], found[1]


def _near(bound: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """By erfc and its inverse, while Phi(bound) has digits to spare; overwrites the bound."""
    mass = torch.erfc(bound.mul_(-SQRT_HALF)).mul_(0.5)
    log_mass = mass.log()
    if uniform is None:
        return log_mass, None
    # torch.rand can return 0, and a product round to 1, whose quantiles are infinite.
    most = 1 - torch.finfo(bound.dtype).eps
    place = mass.mul_(2 * uniform).sub_(1.0).clamp_(-most, most)
    return log_mass, place.erfinv_().mul_(1 / SQRT_HALF)


def _anywhere(bound: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """In the log domain, for any bound."""
    log_mass = torch.special.log_ndtr(bound)
    return log_mass, None if uniform is None else _truncated_normal(bound, log_mass, uniform)


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
