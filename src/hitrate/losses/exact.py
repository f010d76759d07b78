"""EXACT, and with it any noise and any link: the family that the other losses are points of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hitrate.links import Link, link_named
from hitrate.losses.base import ClassificationLoss
from hitrate.losses.link_loss import family_loss
from hitrate.losses.reduction import Options

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def exact_loss(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor = 1.0,
    *,
    margin: float | None = None,
    normalize: bool = False,
    noise: str = "normal",
    link: str | Link = "error",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    method: str = "auto",
    backend: str = "auto",
    nodes: int | None = None,
    samples: int = 16,
    generator: torch.Generator | None = None,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    r"""A link of the probability that the target's noisy score is the highest.

    .. math::

        L = \ell(\log p), \qquad
        p = P\Big(\mu_y + \sigma \varepsilon_y > \max_{i \ne y} \mu_i + \sigma \varepsilon_i\Big)

    By default normal noise and :math:`\ell = 1 - p`: EXACT, which reads as an expected error rate.
    Probability targets q, and smoothed ones, cost :math:`\sum_c q_c \ell(\log p_c)`.

    Parameters
    ----------
    logits : Tensor, shape (C,), (N, C) or (N, C, d1, ...)
        Scores :math:`\mu`. Half precision is computed, and the loss returned, in float32.
    target : Tensor
        Class indices of shape (), (N,) or (N, d1, ...), or probabilities shaped like `logits`.
    sigma : float or Tensor
        Scale of the noise: a number, or one per target, as from a learned head. Its gradient flows.
    margin : float, optional
        Distances :math:`\mu_y - \mu_i` are clipped at this value from above. With probability
        targets or smoothing a margin costs C times as much.
    normalize : bool
        Standardise the logits over the (global) batch first: see `normalize_logits`. Under
        torch.distributed a collective call.
    noise : {"normal", "logistic", "gumbel"}
        Gumbel noise makes p the softmax.
    link : str or Link
        A name of `hitrate.links.LINKS`, or a link with its parameters, such as `GCE(q=0.5)`.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.functional.cross_entropy`.
    method, backend, nodes, samples, generator
        As in `log_expected_accuracy`.
    process_group : ProcessGroup, optional
        The processes over which `normalize` works; by default all.

    Returns
    -------
    Tensor
        A number, or with ``reduction="none"`` one per target.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.exact_loss(logits, torch.tensor([0, 0]))
    tensor(0.6120)
    >>> hitrate.exact_loss(logits, torch.tensor([0, 0]), noise="gumbel", link="log")
    tensor(1.4076)

    References
    ----------
    Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. 2022.
    """
    shown = link if isinstance(link, str) else type(link).__name__
    return family_loss(
        f"exact_loss(noise={noise!r}, link={shown!r})",
        logits,
        target,
        sigma,
        noise=noise,
        link=link,
        options=Options(weight, ignore_index, reduction, label_smoothing),
        margin=margin,
        normalize=normalize,
        method=method,
        backend=backend,
        nodes=nodes,
        samples=samples,
        generator=generator,
        process_group=process_group,
    )


class ExactLoss(ClassificationLoss):
    """EXACT as a Module, in the place of `nn.CrossEntropyLoss`.

    The arguments are those of `exact_loss`. `normalize` acts in the loss's own training mode, which
    `model.eval()` does not reach: call `loss.eval()` as well. `sigma` may be a number that a
    `Schedule` changes, a Parameter that is learned, or given with each call.

    Examples
    --------
    >>> import torch, hitrate
    >>> loss = hitrate.ExactLoss(sigma=0.5, margin=2.0)
    >>> loss
    ExactLoss(sigma=0.5, margin=2.0, link=Error())
    >>> loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.0797)
    """

    sigma: float | Tensor

    def __init__(
        self,
        sigma: float | Tensor = 1.0,
        *,
        margin: float | None = None,
        normalize: bool = False,
        noise: str = "normal",
        link: str | Link = "error",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        method: str = "auto",
        backend: str = "auto",
        nodes: int | None = None,
        samples: int = 16,
        generator: torch.Generator | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        if isinstance(sigma, Tensor) and sigma.dim() == 1 and sigma.numel() > 1:
            raise ValueError(
                f"ExactLoss(sigma=tensor of shape {tuple(sigma.shape)}): sigma is one number here; "
                "one per target comes with each call, class weights go to weight="
            )
        if isinstance(sigma, Tensor) and not isinstance(sigma, torch.nn.Parameter):
            self.register_buffer("sigma", sigma)
        else:
            self.sigma = sigma
        self.margin = margin
        self.normalize = normalize
        self.noise = noise
        self.link = link_named(link, "ExactLoss")
        self.method = method
        self.backend = backend
        self.nodes = nodes
        self.samples = samples
        self.generator = generator
        self.process_group = process_group

    def forward(self, input: Tensor, target: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Loss of logits `input`, with the noise of this call if given."""
        return exact_loss(
            input,
            target,
            self.sigma if sigma is None else sigma,
            margin=self.margin,
            normalize=self.normalize and self.training,
            noise=self.noise,
            link=self.link,
            method=self.method,
            backend=self.backend,
            nodes=self.nodes,
            samples=self.samples,
            generator=self.generator,
            process_group=self.process_group,
            **self.options,
        )
