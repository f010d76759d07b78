"""Expected accuracy of noisy scores: the public functions."""

from __future__ import annotations

import functools
from typing import Any, Unpack

import torch
from torch import Tensor

from hitrate.probability import arguments
from hitrate.probability.arguments import Core, CoreOptions, gathered
from hitrate.probability.autograd import Kernel, Margined, Steps, log_probability
from hitrate.probability.dispatch import Choice, Request, choose, is_transformed
from hitrate.probability.execution import full_precision
from hitrate.probability.methods.general_quadrature import general_quadrature
from hitrate.probability.methods.monte_carlo import monte_carlo
from hitrate.probability.methods.top_k import top_k
from hitrate.probability.noises import Noise
from hitrate.probability.sharded import by_rows, is_sharded
from hitrate.probability.signatures import spelled_out


@spelled_out(Core)
def log_expected_accuracy(
    logits: Tensor, target: Tensor, sigma: float | Tensor = 1.0, **core: Unpack[CoreOptions]
) -> Tensor:
    r"""Log of the probability that the target's noisy score is the highest, or among the k highest.

    .. math::

        \log p = \log P\Big(\mu_y + \sigma \varepsilon_y >
            \max_{i \ne y} \mu_i + \sigma \varepsilon_i\Big)

    With k > 1 it is the probability that fewer than k rivals score higher than the target.
    Differentiable in `logits` and `sigma`, with relative accuracy near p = 0 and near p = 1.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
        Scores :math:`\mu`. Half precision is computed in float32.
    target : Tensor of int, shape (N,)
        Class indices.
    sigma : float or Tensor
        Scale of the noise: a number or shape () for all, (N,) for one per row, (1, C) or (N, C)
        for one per class. Its gradient flows. On a CPU a tensor that is not positive and finite is
        refused; on a GPU, where looking would wait for it, the torch path makes its rows NaN.
    margin : float, optional
        Distances :math:`\mu_y - \mu_i` are clipped at this value from above.
    k : int
        How many of the highest count as a hit: at least 1, and fewer than C.
    noise : {"normal", "logistic", "gumbel"} or Noise
        With Gumbel noise p is the softmax and -log p is cross entropy.
    method : {"auto", "quadrature", "gridded", "genz", "monte_carlo"}
        How p is computed. "auto" takes a closed form where there is one, "gridded" for normal noise
        in float32, and "quadrature" otherwise. The last two are sampled references. With k > 1
        there are "quadrature" and "monte_carlo".
    backend : {"auto", "torch", "triton"}
        What computes it. "auto" takes the Triton kernels on a GPU, for a noise that has one, in
        float32 or lower precision. `hitrate.explain` says what is taken, and why.
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
    return log_p_of_target(logits, target, sigma, gathered(Core, core, "log_expected_accuracy()"))


@spelled_out(Core)
def expected_accuracy(
    logits: Tensor, target: Tensor, sigma: float | Tensor = 1.0, **core: Unpack[CoreOptions]
) -> Tensor:
    """Probability that the target's noisy score is the highest; its mean is expected accuracy.

    With k > 1, that it is among the k highest: top-k accuracy. The exponential of
    `log_expected_accuracy`, with the same arguments.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.expected_accuracy(logits, torch.tensor([0, 0]), sigma=0.01).mean()
    tensor(0.5000)
    >>> hitrate.expected_accuracy(logits, torch.tensor([0, 0]), k=2)
    tensor([0.9528, 0.2712])
    """
    return log_p_of_target(logits, target, sigma, gathered(Core, core, "expected_accuracy()")).exp()


def log_p_of_target(logits: Tensor, target: Tensor, sigma: float | Tensor, core: Core) -> Tensor:
    """`log_expected_accuracy`, with its options gathered."""
    if is_sharded(logits):
        return by_rows(functools.partial(log_p_of_target, core=core), logits, target, sigma)
    call = _call(core)
    scores = arguments.logits_of(logits, call)
    target = arguments.target_of(target, scores, call)
    scale = arguments.sigma_of(sigma, scores, call)
    margin = arguments.margin_of(core.margin, call)
    noise = arguments.noise_named(core.noise, call)
    choice = _choice(noise, scores, scale, core, call)
    if not len(scores):
        return scores.sum(1)
    learned = isinstance(sigma, Tensor) and (sigma.requires_grad or is_transformed(sigma))
    with full_precision(scores):
        if choice.way == "closed_form":
            closed: Tensor = noise.closed_form(scores, target, scale, margin, learned=learned)
            return closed
        steps = steps_of(choice.way, noise, scores.dtype, core)
        return log_probability(scores, target, scale, margin, noise, steps, learned=learned)


def explain_target(logits: Tensor, sigma: float | Tensor, core: Core, **facts: Any) -> Choice:
    """The way that `log_p_of_target` takes, without taking it."""
    call = _call(core)
    scores = arguments.logits_of(logits, call)
    noise = arguments.noise_named(core.noise, call)
    return _choice(noise, scores, arguments.sigma_of(sigma, scores, call), core, call, **facts)


def _call(core: Core) -> str:
    name = core.noise if isinstance(core.noise, str) else getattr(core.noise, "name", core.noise)
    return (
        f"log_expected_accuracy(noise={name!r}, {'' if core.k == 1 else f'k={core.k!r}, '}"
        f"method={core.method!r}, backend={core.backend!r})"
    )


def _choice(
    noise: Noise, logits: Tensor, sigma: Tensor, core: Core, call: str, **facts: Any
) -> Choice:
    if core.nodes is not None:
        arguments.count_of(core.nodes, "nodes", 4, call)
    arguments.count_of(core.samples, "samples", 1, call)
    arguments.k_of(core.k, logits.shape[1], call)
    request = Request.of(
        noise,
        logits,
        sigma,
        margin=core.margin,
        nodes=core.nodes,
        k=core.k,
        method=core.method,
        backend=core.backend,
        **facts,
    )
    return choose(request, call)


def steps_of(way: str, noise: Noise, dtype: torch.dtype, core: Core) -> Steps:
    """The function that a way runs."""
    run: Any
    match way:
        case "kernel":
            from hitrate.kernels.launch import log_probability as kernel

            name = noise.kernel if core.k == 1 else noise.top_k_kernel
            assert name is not None
            return Kernel(functools.partial(kernel, noise=name, k=core.k), core.k)
        case "two_classes":
            return Margined(noise.two_classes)
        case "gridded" | "quadrature":
            run = functools.partial(getattr(noise, way), nodes=core.nodes)
        case "genz":
            run = functools.partial(noise.genz, samples=core.samples, generator=core.generator)
        case "monte_carlo":
            run = functools.partial(
                monte_carlo, noise=noise, k=core.k, samples=core.samples, generator=core.generator
            )
        case "top_k":
            run = functools.partial(noise.top_k, k=core.k)
            return Margined(run, True, core.k, noise.has_linear_tails, is_light=True)
        case "general_top_k":
            run = functools.partial(top_k, noise=noise, k=core.k, nodes=core.nodes, dtype=dtype)
            return Margined(run, True, core.k, noise.has_linear_tails)
        case _:
            run = functools.partial(general_quadrature, noise=noise, nodes=core.nodes, dtype=dtype)
            return Margined(run, anywhere=True, is_linear=noise.has_linear_tails)
    return Margined(run, k=core.k)
