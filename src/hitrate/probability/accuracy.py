"""Expected accuracy of noisy scores: the public functions and the one table of methods."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec

import torch
from torch import Tensor

from hitrate.probability import arguments
from hitrate.probability.autograd import Kernel, Method, log_probability
from hitrate.probability.execution import full_precision, is_eager_cpu
from hitrate.probability.methods.closed_forms import log_softmax_of_target, two_classes
from hitrate.probability.methods.general_quadrature import general_quadrature
from hitrate.probability.methods.genz import genz
from hitrate.probability.methods.gridded import gridded
from hitrate.probability.methods.monte_carlo import monte_carlo
from hitrate.probability.methods.quadrature import quadrature
from hitrate.probability.noises import Noise

METHODS = ("auto", "quadrature", "gridded", "genz", "monte_carlo")
BACKENDS = ("auto", "torch", "triton")
# Found without importing it, and here: a compiler cannot trace the search.
HAS_TRITON = find_spec("triton") is not None
# Below, the direct sum over rivals is faster than spreading them on a grid.
GRIDDED_FROM = 8


def log_expected_accuracy(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor = 1.0,
    *,
    margin: float | None = None,
    noise: str = "normal",
    method: str = "auto",
    backend: str = "auto",
    nodes: int | None = None,
    samples: int = 16,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Log of the probability that the target's noisy score is the highest.

    .. math::

        \log p = \log P\Big(\mu_y + \sigma \varepsilon_y >
            \max_{i \ne y} \mu_i + \sigma \varepsilon_i\Big)

    Differentiable in `logits` and `sigma`, with relative accuracy near p = 0 and near p = 1.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
        Scores :math:`\mu`. Half precision is computed in float32.
    target : Tensor of int, shape (N,)
        Class indices.
    sigma : float or Tensor
        Scale of the noise: a number or shape () for all, (N,) for one per row, (1, C) or (N, C)
        for one per class. Its gradient flows.
    margin : float, optional
        Distances :math:`\mu_y - \mu_i` are clipped at this value from above.
    noise : {"normal", "logistic", "gumbel"}
        With Gumbel noise p is the softmax and -log p is cross entropy.
    method : {"auto", "quadrature", "gridded", "genz", "monte_carlo"}
        How p is computed. "auto" takes a closed form where there is one, "gridded" for many
        classes in float32, and "quadrature" otherwise. The last two are sampled references.
    backend : {"auto", "torch", "triton"}
        What computes it. "auto" takes the Triton kernels on a GPU, for normal and logistic
        noise in float32 or lower precision.
    nodes : int, optional
        Nodes per row for "quadrature", per unit of the scaled margin for "gridded"; by default
        enough for the dtype.
    samples : int
        Sample size of "genz" and "monte_carlo".
    generator : torch.Generator, optional
        Source of the samples.

    Returns
    -------
    Tensor, shape (N,)
        log p, in float32 or float64.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.log_expected_accuracy(logits, torch.tensor([0, 0])).exp()
    tensor([0.7288, 0.0472])

    References
    ----------
    Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. Theorems 4.2 and 4.3.
    """
    call = f"log_expected_accuracy(noise={noise!r}, method={method!r}, backend={backend!r})"
    scores = arguments.logits_of(logits, call)
    target = arguments.target_of(target, scores, call)
    scale = arguments.sigma_of(sigma, scores, call)
    margin = arguments.margin_of(margin, call)
    kind = arguments.noise_named(noise, call)
    run = _method(kind, scores, scale, method, backend, nodes, samples, generator, call)
    if not len(scores):
        return scores.sum(1)
    with full_precision(scores):
        learned = isinstance(sigma, Tensor)
        if run is None:
            return log_softmax_of_target(scores, target, scale, margin, learned=learned)
        return log_probability(scores, target, scale, margin, kind, run, learned=learned)


def expected_accuracy(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor = 1.0,
    *,
    margin: float | None = None,
    noise: str = "normal",
    method: str = "auto",
    backend: str = "auto",
    nodes: int | None = None,
    samples: int = 16,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Probability that the target's noisy score is the highest; its mean is expected accuracy.

    The exponential of `log_expected_accuracy`, with the same arguments.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.expected_accuracy(logits, torch.tensor([0, 0]), sigma=0.01).mean()
    tensor(0.5000)
    """
    return log_expected_accuracy(
        logits,
        target,
        sigma,
        margin=margin,
        noise=noise,
        method=method,
        backend=backend,
        nodes=nodes,
        samples=samples,
        generator=generator,
    ).exp()


def _method(
    noise: Noise,
    logits: Tensor,
    sigma: Tensor,
    method: str,
    backend: str,
    nodes: int | None,
    samples: int,
    generator: torch.Generator | None,
    call: str,
) -> Method | Kernel | None:
    """The function that computes log p and its slopes; None for the softmax of Gumbel noise."""
    if backend not in BACKENDS:
        raise ValueError(f"{call}: backend is not one of {', '.join(map(repr, BACKENDS))}")
    if method not in METHODS:
        raise ValueError(f"{call}: method is not one of {', '.join(map(repr, METHODS))}")
    samples = arguments.count_of(samples, "samples", 1, call)
    nodes = None if nodes is None else arguments.count_of(nodes, "nodes", 4, call)

    per_class = sigma.shape[1] > 1
    normal = noise.name == "normal"
    if backend == "triton" or (backend == "auto" and logits.is_cuda):
        why_not = _why_no_kernel(noise, logits, per_class, method, nodes)
        if why_not is None:
            from hitrate.kernels.launch import log_probability as kernel

            return Kernel(functools.partial(kernel, logistic=noise.name == "logistic"))
        if backend == "triton":
            raise ValueError(f"{call}: the triton backend cannot run: {why_not}")
    if method == "auto":
        method = _choose(noise, logits, per_class)
    elif method in ("gridded", "genz") and not normal:
        raise ValueError(f"{call}: {method} is for normal noise")
    elif method == "gridded" and torch.compiler.is_compiling():
        raise ValueError(f"{call}: gridded looks at values and cannot be compiled")
    elif method != "quadrature" and per_class:
        raise ValueError(f"{call}: {method} takes one sigma per row, not one per class")

    if method == "softmax":
        return None
    if method == "two classes":
        return lambda a, b: (*two_classes(a), None)
    if method == "gridded":
        return lambda a, b: (*gridded(a, nodes=nodes), None)
    if method == "genz":
        return lambda a, b: (*genz(a, samples=samples, generator=generator), None)
    if method == "monte_carlo":
        return lambda a, b: (*monte_carlo(a, noise, samples=samples, generator=generator), None)
    if normal and not per_class:
        return lambda a, b: (*quadrature(a, nodes=nodes), None)
    return lambda a, b: general_quadrature(a, b, noise, nodes=nodes)


def _why_no_kernel(
    noise: Noise, logits: Tensor, per_class: bool, method: str, nodes: int | None
) -> str | None:
    """What keeps the kernels from this call; None if nothing does."""
    if noise.name == "gumbel" or per_class:
        return "the kernels are for normal and logistic noise with one sigma per row"
    if method != "auto" or nodes is not None:
        return "the kernels choose method and nodes themselves"
    if logits.dtype != torch.float32:
        return f"the kernels compute in float32, the logits are {logits.dtype}"
    if not HAS_TRITON:
        return "triton is not installed"
    if not logits.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the logits are on {logits.device.type}, without TRITON_INTERPRET=1"
    return None


def _choose(noise: Noise, logits: Tensor, per_class: bool) -> str:
    """The best method for a noise, number of classes, dtype and device."""
    classes = logits.shape[1]
    if per_class or noise.name == "logistic":
        return "quadrature"
    if noise.name == "gumbel":
        return "softmax"
    if classes == 2:
        return "two classes"
    many = classes >= GRIDDED_FROM and logits.dtype == torch.float32
    return "gridded" if many and is_eager_cpu(logits) else "quadrature"
