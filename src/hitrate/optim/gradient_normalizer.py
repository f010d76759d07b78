"""EXACT's gradient normalizer: gradients divided by a running mean of their norm."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hitrate.optim.asam import ASAM
from hitrate.optim.norms import local_values, total_norm

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.utils.hooks import RemovableHandle


# Where the mean is kept in a parameter group.
KEY = "mean_gradient_norm"


class GradientNormalizer:
    r"""Divides all gradients by a running mean of their norm, just before each optimizer step.

    .. math::

        v \leftarrow m v + (1 - m) \|g\|, \qquad g \leftarrow g / v

    The first norm that is not zero starts the mean v. EXACT's gradient grows as sigma falls; what
    is left after the division is of the order of one, so that one learning rate serves throughout.
    Where all is learned it vanishes: v is never taken as less than 1e-18 (in float32), below which
    a norm cannot be told from zero.

    It hangs on the optimizer's step, so gradients have been accumulated, averaged over processes,
    unscaled and clipped by then. A step that `torch.amp.GradScaler` skips, or whose norm is not
    finite, changes neither the mean nor the gradients. All parameter groups share one norm. In a
    step with a closure the division follows each call of the closure.

    The mean is kept in the optimizer's first parameter group, so it is in the optimizer's own
    `state_dict`: whoever saves and restores that one has the mean as well. An optimizer inside the
    wrapper of a host (accelerate, fastai, ...) is found by the wrapper's `optimizer` or `opt`.

    An optimizer has one normalizer at most: a second one on the same optimizer, or on an `ASAM` and
    its base, takes the place of the first, with a mean of its own. On an optimizer whose state was
    restored it goes on with the mean that is in there. A copied or unpickled normalizer hangs on
    the optimizer that came with it; an optimizer copied alone has none.

    Parameters
    ----------
    optimizer : Optimizer
        Whose gradients to divide. Of an `ASAM` only the second gradients are divided: the ascent
        does not depend on their length.
    momentum : float
        m, at least 0 and below 1.
    process_group : ProcessGroup, optional
        The processes that hold a part each of the gradients, where these are plain tensors, as in
        FSDP1: `torch.distributed.group.WORLD` for all. DTensors (FSDP2, tensor parallelism) and
        the whole gradients of DDP need none.

    Examples
    --------
    >>> import torch
    >>> from hitrate.optim import GradientNormalizer
    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = torch.optim.SGD([w], lr=1.0)
    >>> normalizer = GradientNormalizer(optimizer)
    >>> for gradient in [3.0, 4.0], [0.0, 10.0]:
    ...     w.grad = torch.tensor(gradient)
    ...     optimizer.step()
    ...     print(normalizer.mean_norm, w.grad)
    tensor(5.) tensor([0.6000, 0.8000])
    tensor(5.5000) tensor([0.0000, 1.8182])

    References
    ----------
    Karpukhin, Dereka, Kolesnikov. EXACT: How to Train Your Accuracy. Section 4.5.4.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        momentum: float = 0.9,
        *,
        process_group: ProcessGroup | None = None,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(
                f"GradientNormalizer(momentum={momentum!r}): momentum must be at least 0, below 1"
            )
        self.optimizer = unwrapped(optimizer)
        self.momentum = momentum
        self.process_group = process_group
        self._hook: RemovableHandle | None = None
        # The mean of one that was removed, and no longer is in the optimizer.
        self._last: Tensor | None = None
        self._hang()
        if KEY not in self.optimizer.param_groups[0]:
            # Zero until the first gradient that is not. One that is there already came with a
            # state: a host may restore the optimizer first.
            self._mean = torch.zeros(())

    @property
    def mean_norm(self) -> Tensor:
        """The running mean, shape (); 0 before the first gradient."""
        return self._mean.clone()

    @property
    def _mean(self) -> Tensor:
        if self._last is not None:
            return self._last
        # A state from before this normalizer has none.
        mean = self.optimizer.param_groups[0].get(KEY, 0.0)
        return mean if isinstance(mean, Tensor) else torch.tensor(float(mean))

    @_mean.setter
    def _mean(self, mean: Tensor) -> None:
        if self._last is None:
            self.optimizer.param_groups[0][KEY] = mean
        else:
            self._last = mean

    def remove(self) -> None:
        """Leave the optimizer's gradients alone from now on."""
        if self._hook is not None:
            self._hook.remove()
            self._last = self._mean
            self.optimizer.param_groups[0].pop(KEY, None)
        self._hook = None

    def state_dict(self) -> dict[str, Any]:
        """The running mean, as a number."""
        return {"mean_norm": float(self.mean_norm)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the running mean of `state_dict`."""
        self._mean = torch.tensor(state_dict["mean_norm"], dtype=torch.float64)

    def _hang(self) -> None:
        # The hooks themselves say who divides already, so there is no list to keep.
        for hook in list(self.optimizer._optimizer_step_pre_hooks.values()):
            earlier = getattr(hook, "__self__", None)
            if isinstance(earlier, GradientNormalizer):
                earlier.remove()
        self._hook = self.optimizer.register_step_pre_hook(self._before_step)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_hook": None, "hangs": self._hook is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        hangs = state.pop("hangs")
        vars(self).update(state)
        # Hooks stay behind when an optimizer is copied.
        if hangs:
            self._hang()

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        _, *rest = args
        closure: Callable[[], Any] | None = kwargs.get("closure", rest[0] if rest else None)
        if closure is None:
            self._divide(optimizer)
            return None

        def closure_then_divide() -> Any:
            loss = closure()
            self._divide(optimizer)
            return loss

        return (optimizer,), {**kwargs, "closure": closure_then_divide}

    @torch.no_grad()
    def _divide(self, optimizer: Optimizer) -> None:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        grads = [p.grad for p in params if p.grad is not None]
        parts = grads
        if self.process_group is not None:
            # A process without a gradient still takes part in the sum.
            nothing = [p for p in params if p.grad is None]
            parts = grads + [torch.zeros(0, dtype=p.dtype, device=p.device) for p in nothing]
        if not parts:
            return
        norm = total_norm(parts, process_group=self.process_group)

        # GradScaler leaves the unscaling to fused optimizers, and tells them so.
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None:
            norm = norm / scale.to(norm)
        usable = norm < torch.inf
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is not None:
            usable &= found_inf.to(norm.device) == 0

        # Updated in place, so that a captured step goes on from its own last value.
        self._mean = mean = self._mean.to(norm)
        blend = torch.where(mean > 0, torch.lerp(norm, mean, self.momentum), norm)
        torch.where(usable, blend, mean, out=mean)
        # Squares of shorter gradients underflow: their norm is 0, and a mean that falls towards it
        # would make them longer and longer.
        divisor = mean.clamp(min=shortest(norm.dtype))
        divide(grads, torch.where(usable & (mean > 0), divisor, 1.0))


def unwrapped(optimizer: Any) -> Optimizer:
    """The optimizer whose step counts: inside an `ASAM`, or inside a host's wrapper."""
    given = optimizer
    for _ in range(8):
        if isinstance(optimizer, ASAM):
            return optimizer.base
        if isinstance(optimizer, Optimizer) and hasattr(optimizer, "_optimizer_step_pre_hooks"):
            return optimizer
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "opt", None)
        if inner is None or inner is optimizer:
            break
        optimizer = inner
    kinds = dict.fromkeys(type(each).__qualname__ for each in (given, optimizer))
    raise TypeError(
        f"GradientNormalizer: {' with a '.join(kinds)} is no torch.optim.Optimizer, and has none "
        "as its attribute optimizer or opt"
    )


def shortest(dtype: torch.dtype) -> float:
    """The norm below which gradients count as zero: 1e-18 in float32."""
    return 10 * math.sqrt(torch.finfo(dtype).tiny)


def divide(grads: list[Tensor], divisor: Tensor) -> None:
    """Divide in place, wherever the gradients are."""
    by_device: dict[torch.device, list[Tensor]] = defaultdict(list)
    for values in map(local_values, grads):
        if values.dtype in (torch.float16, torch.bfloat16):
            # Rounded to half precision, the divisor itself could be zero or infinite.
            values.copy_(values.float() / divisor.to(values.device))
        else:
            by_device[values.device].append(values)
    for device, tensors in by_device.items():
        torch._foreach_div_(tensors, divisor.to(device))
