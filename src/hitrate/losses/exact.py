"""EXACT, and with it any noise and any link: the family that the other losses are points of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hitrate.links import Error, Link, link_named
from hitrate.losses.base import function_of
from hitrate.losses.link_loss import Call, LinkLoss, explain_loss, link_loss, probabilities_of
from hitrate.losses.normalization import Normalization
from hitrate.losses.ways.asked import Asked
from hitrate.losses.ways.reduction import Options
from hitrate.probability.accuracy import explain_target
from hitrate.probability.arguments import Core, gathered, is_number, noise_named
from hitrate.probability.dispatch import Choice
from hitrate.probability.noises import Noise

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["ExactLoss", "exact_loss", "explain"]


class ExactLoss(LinkLoss):
    r"""A link of the probability that the target's noisy score is the highest.

    .. math::

        L = \ell(\log p), \qquad
        p = P\Big(\mu_y + \sigma \varepsilon_y > \max_{i \ne y} \mu_i + \sigma \varepsilon_i\Big)

    By default normal noise and :math:`\ell = 1 - p`: EXACT, which reads as an expected error rate.
    Probability targets q, and smoothed ones, cost :math:`\sum_c q_c \ell(\log p_c)`, the mean over
    a target drawn from q; see :doc:`/soft_targets` before distilling with them.

    `margin` and `normalize` belong to training: in evaluation mode they are off, so that the loss
    reads as what it is called. That is the loss's own mode, which ``model.eval()`` does not reach
    unless the loss is a part of the model: call ``loss.eval()`` as well.

    Parameters
    ----------
    sigma : float or Tensor
        Scale of the noise: a number, which a `Schedule` may move, a Parameter that is learned; or
        given with each call, one per target, as from a learned head. Its gradient flows.
    margin : float, optional
        Distances :math:`\mu_y - \mu_i` are clipped at this value from above. With probability
        targets or smoothing a margin takes C times as long, for each class that has a part, and
        so does k > 1.
    k : int
        How many of the highest scores count as a hit: with k = 5, and the link 1 - p, the loss
        reads as an expected top-5 error rate. See :doc:`/top_k`.
    normalize : bool
        Standardise the logits over the (global) batch first: see `normalize_logits`. Under
        torch.distributed a collective call.
    noise : {"normal", "logistic", "gumbel"} or Noise
        Gumbel noise makes p the softmax.
    link : str or Link
        A name of `hitrate.links.LINKS`, or a link with its parameters, such as `GCE(q=0.5)`. Its
        parameters are attributes of the loss, and a `Schedule` may move them.
    weight, ignore_index, reduction, label_smoothing
        As in `torch.nn.CrossEntropyLoss`.
    class_prior, reweighting, logit_adjustment, class_margin
        For classes that are not equally frequent: see `hitrate.losses.ClassificationLoss`.
    method, backend, nodes, samples, generator
        As in `log_expected_accuracy`.
    process_group : ProcessGroup, optional
        The processes over which `normalize` works; by default all.

    Examples
    --------
    >>> import torch, hitrate
    >>> loss = hitrate.ExactLoss(sigma=0.5, margin=2.0)
    >>> loss
    ExactLoss(sigma=0.5, margin=2.0, link=Error())
    >>> loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.0797)
    >>> logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    >>> hitrate.exact_loss(logits, torch.tensor([0, 0]), noise="gumbel", link="log")
    tensor(1.4076)

    References
    ----------
    Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. 2022.
    """

    moving = ("sigma", "margin")
    make_link = Error
    sigma: float | Tensor

    def __init__(
        self,
        sigma: float | Tensor = 1.0,
        *,
        margin: float | Tensor | None = None,
        k: int = 1,
        normalize: bool = False,
        noise: str | Noise = "normal",
        link: str | Link = "error",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float | Tensor = 0.0,
        class_prior: Tensor | None = None,
        reweighting: float | Tensor | None = None,
        logit_adjustment: float | Tensor = 0.0,
        class_margin: Tensor | None = None,
        method: str = "auto",
        backend: str = "auto",
        nodes: int | None = None,
        samples: int = 16,
        generator: torch.Generator | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            link_named(link, "ExactLoss"),
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
            class_prior=class_prior,
            reweighting=reweighting,
            logit_adjustment=logit_adjustment,
            class_margin=class_margin,
            k=k,
        )
        noise_named(noise, "ExactLoss")
        for name, value in (("sigma", sigma), ("margin", margin)):
            if is_number(value):
                self.check_number(name, value)
        if isinstance(sigma, Tensor) and sigma.dim() == 2 and sigma.numel() > 1:
            # One per class.
            self._store("sigma", sigma)
        elif isinstance(sigma, Tensor) and sigma.numel() > 1:
            raise ValueError(
                f"ExactLoss(sigma=tensor of shape {tuple(sigma.shape)}): sigma is one number here; "
                "one per target comes with each call, class weights go to weight="
            )
        else:
            self.set_number("sigma", sigma)
        self.set_number("margin", margin, optional=True)
        self.normalize = normalize
        self.noise = noise
        self.method = method
        self.backend = backend
        self.nodes = nodes
        self.samples = samples
        self.generator = generator
        self.process_group = process_group

    def check_number(self, name: str, value: float) -> None:
        """Complain about a value that a number cannot have."""
        if name == "sigma" and not 0 < value < math.inf:
            raise ValueError(f"ExactLoss: sigma must be a positive number, got {value!r}")
        if name == "margin" and not value >= 0:
            raise ValueError(f"ExactLoss: margin must be a number >= 0, got {value!r}")
        super().check_number(name, value)

    @classmethod
    def compute(cls, logits: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of logits, from the Module's arguments."""
        call, sigma, link, core, options, rest = _gathered("exact_loss", args, kwargs)
        normalization = Normalization(rest.pop("normalize", False), rest.pop("process_group", None))
        _refuse(rest, "exact_loss()")
        asked = Asked(logits, target, sigma, link, core, options, call)
        return link_loss(asked, normalization)

    def forward(self, input: Tensor, target: Tensor, sigma: float | Tensor | None = None) -> Tensor:
        """Loss of logits `input`, with the noise of this call if given."""
        ready = self.ready_for(input, target) if sigma is None else None
        if ready is not None:
            return ready(input, target)
        asked = self.asked(input, target, sigma)
        normalization = Normalization(self.normalize and self.training, self.process_group)
        return link_loss(asked, normalization, self.keep if sigma is None else None)

    def probabilities(self, input: Tensor) -> Tensor:
        """Probability of each class under the loss's own noise, shaped like the logits `input`."""
        return probabilities_of(input, self.sigma, self.noise)

    def explain(self, input: Tensor, target: Tensor) -> Choice:
        """Which way a call is computed, and why; print it."""
        return explain_loss(self.asked(input, target))

    def asked(self, input: Tensor, target: Tensor, sigma: float | Tensor | None = None) -> Asked:
        """What a call asks for, but for `normalize`."""
        link, sigma = self.link, self.sigma if sigma is None else sigma
        core = Core(
            self.margin if self.training else None,
            self.k,
            self.noise,
            self.method,
            self.backend,
            self.nodes,
            self.samples,
            self.generator,
        )
        call = Call("exact_loss", _shown(self.noise, self.k, link))
        return Asked(input, target, sigma, link, core, self.options, call)

    def _store(self, name: str, value: Tensor) -> None:
        """Keep a tensor as it is: learned, or a buffer."""
        if isinstance(value, torch.nn.Parameter):
            setattr(self, name, value)
        else:
            self.register_buffer(name, value)


exact_loss = function_of(ExactLoss)


def explain(
    logits: Tensor, target: Tensor | None = None, sigma: float | Tensor = 1.0, **arguments: Any
) -> Choice:
    """Which way a call is computed, and why: print what it returns.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
    target : Tensor, optional
        With it, the way of `exact_loss` is told, otherwise that of `log_expected_accuracy`.
    sigma : float or Tensor
    **arguments
        Those of `exact_loss`, or of `log_expected_accuracy`.

    Returns
    -------
    Choice
        The `way`, its `backend`, and what kept faster ways from being taken: `passed_over`.

    Examples
    --------
    >>> import torch, hitrate
    >>> logits, target = torch.randn(64, 10), torch.randint(10, (64,))
    >>> print(hitrate.explain(logits))
    gridded (torch): rivals as moments
      not closed_form: normal noise has none
      not kernel: the logits are on cpu
    >>> hitrate.explain(logits, target, noise="gumbel").way
    'softmax'
    """
    if target is None:
        core = gathered(Core, arguments, "explain()")
        return explain_target(logits, sigma, core)
    call, sigma, link, core, options, rest = _gathered("explain", (sigma,), arguments)
    rest.pop("normalize", None)
    rest.pop("process_group", None)
    _refuse(rest, "explain()")
    return explain_loss(Asked(logits, target, sigma, link, core, options, call))


def _gathered(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Call, float | Tensor, Link, Core, Options, dict[str, Any]]:
    """Sort the arguments of `exact_loss`; last come those that are left."""
    rest = dict(kwargs)
    if len(args) > 1:
        raise TypeError(
            f"{name}() takes 1 to 3 positional arguments but {2 + len(args)} were given"
        )
    sigma = args[0] if args else rest.pop("sigma", 1.0)
    core = Core(**{key: rest.pop(key) for key in Core._fields if key in rest})
    options = Options(**{key: rest.pop(key) for key in Options._fields if key in rest})
    given = rest.pop("link", "error")
    word = given if isinstance(given, str) else type(given).__name__
    call = Call(name, _shown(core.noise, core.k, word))
    return call, sigma, link_named(given, call), core, options, rest


def _shown(noise: str | Noise, k: int, link: str | Link) -> dict[str, Any]:
    """The arguments that complaints show."""
    return {"noise": noise} | ({} if k == 1 else {"k": k}) | {"link": link}


def _refuse(rest: dict[str, Any], call: str) -> None:
    """Complain about arguments that nobody took."""
    for name in rest:
        raise TypeError(f"{call} got an unexpected keyword argument {name!r}")
