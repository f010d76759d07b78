"""Adaptive sharpness-aware minimisation: descend by the gradient of a worse place nearby."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from hitrate.optim.norms import local_values, total_norm
from hitrate.probability.sharded import is_sharded

Tensors = list[Tensor] | tuple[Tensor, ...]
Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


class ASAM(Optimizer):
    r"""Adaptive sharpness-aware minimisation around another optimizer.

    .. math::

        \varepsilon = \rho \, \frac{T^2 g(w)}{\|T g(w)\|}, \qquad
        T = |w| + \eta \text{ on weights, } 1 \text{ on all other parameters}

    The base optimizer then steps from w by the gradient at :math:`w + \varepsilon`. The norm is
    over all parameters together. Weights are the parameters with "weight" in their name, as in the
    authors' code, where `params` has names; otherwise those of two or more dimensions. So the
    scales of normalisation layers are weights only by their name.

    Parameters
    ----------
    params : iterable
        Best ``model.named_parameters()``; or parameters, or parameter groups. A group may have its
        own "rho" and "eta".
    base : Optimizer or callable
        An optimizer over the same parameters, or what makes one from `params`, such as
        ``functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)``. Parameter groups and state
        are the base's, so learning rate schedulers work on either.
    rho : float
        Size of the neighbourhood.
    eta : float
        Added to the size of each weight, so that those near zero move too.

    Notes
    -----
    `GradScaler`: scale both losses, and unscale only after the block, if at all; the ascent does
    not depend on the gradient's length. If the first gradients are not finite nothing is perturbed.

    Accumulation: all micro-batches before the block, then all again inside.

    DDP: each process climbs by the average of all gradients. With ``model.no_sync()`` around the
    first backward pass it climbs by its own (m-sharpness), which saves a communication. The weights
    stay the same on all processes either way. Sharded parameters have to be DTensors, as in FSDP2.

    Examples
    --------
    >>> import functools, torch
    >>> from hitrate.optim import ASAM
    >>> model = torch.nn.Linear(3, 2)
    >>> loss_fn = torch.nn.CrossEntropyLoss()
    >>> asam = ASAM(model.named_parameters(), functools.partial(torch.optim.SGD, lr=0.1))
    >>> for x, y in [(torch.randn(8, 3), torch.randint(2, (8,)))]:
    ...     loss_fn(model(x), y).backward()
    ...     with asam.perturbed(model):
    ...         loss_fn(model(x), y).backward()
    ...     asam.step()
    ...     asam.zero_grad()

    References
    ----------
    Kwon, Kim, Park, Choi. ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning
    of Deep Neural Networks. 2021.
    """

    def __init__(
        self,
        params: Params,
        base: Optimizer | Callable[[Any], Optimizer],
        rho: float = 0.5,
        eta: float = 0.01,
    ) -> None:
        call = f"ASAM(rho={rho!r}, eta={eta!r})"
        if not (0 <= rho < math.inf and 0 <= eta < math.inf):
            raise ValueError(f"{call}: rho and eta must be numbers >= 0")
        entries: list[Any] = list(params)
        if isinstance(base, Optimizer):
            _name_groups(base, entries, call)
        else:
            base = base(entries)
        self.base = base
        self._is_perturbed = False
        self._has_climbed = False
        self._has_warned = False
        super().__init__(base.param_groups, {**base.defaults, "rho": rho, "eta": eta})
        self._follow_base()

    def state_dict(self) -> dict[str, Any]:
        """The base's state."""
        return self.base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the base's state."""
        self.base.load_state_dict(state_dict)

    def step(
        self, closure: Callable[[], Any] | None = None, *, model: nn.Module | None = None
    ) -> Any:
        """Take the base's step by the gradients that the parameters now have.

        Without a closure and without a `perturbed` block since the last step, that is the base's
        plain step; the first such step warns. ``base.step()`` says that it is meant.

        Parameters
        ----------
        closure : callable, optional
            Zeroes the gradients, computes the loss, calls backward and returns the loss. It is
            called twice, the second time inside ``perturbed(model)``.
        model : nn.Module, optional
            As in `perturbed`; only a closure needs it.

        Returns
        -------
        object
            What the closure returned at the unperturbed weights; None without a closure.
        """
        if self._is_perturbed:
            raise RuntimeError("ASAM.step() inside perturbed(): leave the with block first")
        loss = None
        if closure is None:
            self._warn_of_a_plain_step()
        else:
            with torch.enable_grad():
                loss = closure()
                with self.perturbed(model):
                    closure()
        self._has_climbed = False
        self.base.step()
        return loss

    @contextmanager
    def perturbed(
        self, model: nn.Module | None = None, *, set_to_none: bool = True
    ) -> Iterator[None]:
        r"""A block with the weights at :math:`w + \varepsilon`, entered without gradients.

        Behind it, however it is left, the weights are what they were, bit for bit; the gradients
        are those that the block has computed.

        Parameters
        ----------
        model : nn.Module, optional
            Its batch normalisation statistics are put back too: they have seen the batch before.
        set_to_none : bool
            How the first gradients are dropped; see `torch.optim.Optimizer.zero_grad`.
        """
        if self._is_perturbed:
            raise RuntimeError("ASAM.perturbed() inside perturbed(): leave the outer block first")
        # The base may have got more groups since.
        self._share(self.base)
        changed = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not changed:
            raise RuntimeError("ASAM.perturbed() without gradients: call backward() before it")
        changed += _statistics(model)
        kept = [torch.empty_like(tensor) for tensor in changed]
        _copy(changed, kept)
        try:
            self._is_perturbed = True
            self._climb()
            self._has_climbed = True
            self.zero_grad(set_to_none)
            # Autocast may hold half precision copies of the weights as they were.
            torch.clear_autocast_cache()
            yield
        finally:
            _copy(kept, changed)
            torch.clear_autocast_cache()
            self._is_perturbed = False

    @torch.no_grad()
    def _climb(self) -> None:
        """w <- w + rho T^2 g / |T g|."""
        terms: list[tuple[list[Tensor], Tensors | None, Tensors, float]] = []
        for group in self.param_groups:
            for is_weight, params in _alike(group):
                scales: Tensors | None = None
                scaled: Tensors = [_wide(param.grad) for param in params]
                if is_weight:
                    scales = torch._foreach_abs([_wide(param) for param in params])
                    torch._foreach_add_(scales, group["eta"])
                    scaled = torch._foreach_mul(scaled, scales)
                terms.append((params, scales, scaled, group["rho"]))
        norm = total_norm([tensor for _, _, scaled, _ in terms for tensor in scaled])
        inverse = torch.where(norm.isfinite() & (norm > 0), 1 / norm, 0.0)
        for params, scales, scaled, rho in terms:
            steps = torch._foreach_mul(scaled, (rho * inverse).to(params[0].device))
            if scales is not None:
                torch._foreach_mul_(steps, scales)
            # Zero times infinity, where the norm is not finite, is to be zero.
            torch._foreach_add_(params, [step.nan_to_num(0.0, 0.0, 0.0) for step in steps])

    def _warn_of_a_plain_step(self) -> None:
        if self._has_climbed or self._has_warned:
            return
        # Checkpoints of torch.distributed make a state by a step with a learning rate of zero.
        self._has_warned = any(
            group.get("lr") != 0 and any(param.grad is not None for param in group["params"])
            for group in self.base.param_groups
        )
        if not self._has_warned:
            return
        warnings.warn(
            "ASAM.step() without perturbed() since the last step is the base's plain step: call "
            "backward() again inside `with asam.perturbed(model):` before it, or asam.base.step() "
            "if a plain step is meant",
            UserWarning,
            # Behind torch's own wrapper of step.
            stacklevel=4,
        )

    def _follow_base(self) -> None:
        # Loading a state gives the base new groups and a new state.
        self._share(self.base)
        self.base.register_load_state_dict_post_hook(self._share)

    def _share(self, base: Optimizer) -> None:
        self.param_groups, self.state = base.param_groups, base.state
        # A state saved by the base alone, or a group added to it, knows nothing of these.
        for group in self.param_groups:
            group.setdefault("rho", self.defaults["rho"])
            group.setdefault("eta", self.defaults["eta"])

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "base": self.base,
            "_is_perturbed": False,
            "_has_climbed": self._has_climbed,
            "_has_warned": self._has_warned,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._follow_base()


def _alike(group: dict[str, Any]) -> Iterator[tuple[bool, list[Any]]]:
    """Parameters with a gradient that one foreach call can take, and whether they are weights."""
    names = group.get("param_names", [None] * len(group["params"]))
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for param, name in zip(group["params"], names, strict=True):
        if param.grad is not None:
            is_weight = param.dim() > 1 if name is None else "weight" in name
            mesh = param.device_mesh if is_sharded(param) else None
            alike[is_weight, param.device, param.grad.is_sparse, mesh].append(param)
    for (is_weight, *_), params in alike.items():
        yield is_weight, params


def _wide(tensor: Tensor) -> Tensor:
    """At least float32: products of three factors leave the range of half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


@torch.no_grad()
def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    # Weights and counters of batches apart: foreach is fast on one dtype.
    alike: dict[Any, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for source, target in zip(sources, targets, strict=True):
        alike[source.device, source.dtype][0].append(local_values(source))
        alike[source.device, source.dtype][1].append(local_values(target))
    for from_these, into_these in alike.values():
        torch._foreach_copy_(into_these, from_these)


def _statistics(model: nn.Module | None) -> list[Tensor]:
    """Running statistics of the normalisation layers."""
    modules = [] if model is None else list(model.modules())
    return [
        buffer
        for module in modules
        if isinstance(module, _NormBase)
        for buffer in module.buffers(recurse=False)
    ]


def _name_groups(base: Optimizer, entries: list[Any], call: str) -> None:
    """Give the base's groups the names in `entries`, once these are seen to be its parameters."""
    names: dict[Tensor, str | None] = {}
    for entry in entries:
        inside = entry["params"] if isinstance(entry, dict) else [entry]
        for item in [inside] if isinstance(inside, Tensor) else inside:
            name, param = item if isinstance(item, tuple) else (None, item)
            names[param] = name
    if set(names) != {param for group in base.param_groups for param in group["params"]}:
        raise ValueError(f"{call}: base, a {type(base).__name__}, has other parameters than params")
    if None not in names.values():
        for group in base.param_groups:
            group.setdefault("param_names", [names[param] for param in group["params"]])
