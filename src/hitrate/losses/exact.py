"""EXACT, and with it any noise and any link: the family that the other losses are points of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hitrate.links import BatchLog, Link, link_named
from hitrate.losses.batch import Batch, Options
from hitrate.losses.module import ClassificationLoss
from hitrate.losses.normalization import normalize_logits
from hitrate.probability import log_class_probabilities, log_expected_accuracy

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
        Standardise the logits over the (global) batch first: see `normalize_logits`.
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
    call = f"exact_loss(noise={noise!r}, link={shown!r})"
    kind = link_named(link, call)
    options = Options(weight, ignore_index, reduction, label_smoothing)
    batch = Batch.of(logits, target, options, call)
    scale = batch.rows_of(sigma, "sigma")
    if normalize:
        batch = replace(batch, logits=normalize_logits(batch.logits, batch.ignored, process_group))

    def log_p(rows: Tensor, y: Tensor, scale: float | Tensor = scale) -> Tensor:
        return log_expected_accuracy(
            rows,
            y,
            scale,
            margin=margin,
            noise=noise,
            method=method,
            backend=backend,
            nodes=nodes,
            samples=samples,
            generator=generator,
        )

    def log_p_of_classes(rows: Tensor) -> Tensor:
        per_class = isinstance(scale, Tensor) and scale.dim() == 2
        if margin is None and method == "auto" and not per_class:
            return log_class_probabilities(rows, scale, noise=noise)
        # Each class as the target of a copy of the row.
        count, classes = rows.shape
        every = torch.arange(classes, device=rows.device).repeat(count)
        spread = scale
        if isinstance(scale, Tensor) and scale.dim() and scale.shape[0] == count:
            spread = scale.repeat_interleave(classes, 0)
        return log_p(rows.repeat_interleave(classes, 0), every, spread).view(count, classes)

    if isinstance(kind, BatchLog):
        return batch.loss(log_p, log_p_of_classes, kind.pool)
    return batch.loss(
        lambda rows, y: kind(log_p(rows, y)), lambda rows: kind(log_p_of_classes(rows))
    )


class ExactLoss(ClassificationLoss):
    """EXACT as a Module, in the place of `nn.CrossEntropyLoss`.

    The arguments are those of `exact_loss`. `normalize` acts in training mode only. `sigma` may be
    a number that a `Schedule` changes, a Parameter that is learned, or given with each call.

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
