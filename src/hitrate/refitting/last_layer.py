"""The features that a network's last layer gets, from the network and batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LABELS = ("labels", "label", "target")


class LastLayer(NamedTuple):
    """Arguments of `headroom`.

    Parameters
    ----------
    features : Tensor, shape (N, F)
        On the CPU.
    target : Tensor, shape (N,)
    head : Linear
        The network's own.
    """

    features: Tensor
    target: Tensor
    head: nn.Linear


@torch.no_grad()
def last_layer(
    model: nn.Module, batches: Iterable[Any], *, layer: str | nn.Linear | None = None
) -> LastLayer:
    """What a network's last layer gets for every row, and its classes.

    The network is in evaluation mode meanwhile, and gets its batches where its parameters are.

    Parameters
    ----------
    model : Module
    batches : iterable
        Of (inputs, ..., target), or of mappings with "labels", "label" or "target", whose other
        items the network takes by name. Without augmentation: each row once, as in a validation.
    layer : str or Linear, optional
        The last layer or its name; by default the Linear that the network calls last.

    Returns
    -------
    LastLayer

    Examples
    --------
    >>> import torch, hitrate
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> rows, target = torch.randn(40, 3), torch.arange(40) % 2
    >>> found = hitrate.last_layer(model, [(rows[:20], target[:20]), (rows[20:], target[20:])])
    >>> found.features.shape, found.head
    (torch.Size([40, 8]), Linear(in_features=8, out_features=2, bias=True))
    >>> hitrate.headroom(*found).rows
    40
    """
    modules = _linear_layers(model, layer)
    seen: list[tuple[nn.Linear, Tensor]] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(module, nn.Linear)
        # Of many layers only the one that comes last is of use.
        seen[:] = [(module, inputs[0])]

    parameter = next(iter(model.parameters()), torch.zeros(()))
    hooks = [module.register_forward_pre_hook(keep) for module in modules]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    features, targets, head = [], [], None
    try:
        for batch in batches:
            seen.clear()
            target = _call(model, batch, parameter.device)
            if not seen:
                raise ValueError(f"last_layer: the network does not call its layer {layer!r}")
            head, rows = seen[0]
            if rows.dim() != 2 or target.shape != rows.shape[:1]:
                raise ValueError(
                    "last_layer: needs one row of features and one class for each example, got "
                    f"{tuple(rows.shape)} and {tuple(target.shape)}"
                )
            features.append(rows.cpu())
            targets.append(target.cpu())
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    if head is None:
        raise ValueError("last_layer: there are no batches")
    return LastLayer(torch.cat(features), torch.cat(targets), head)


def _linear_layers(model: nn.Module, layer: str | nn.Linear | None) -> list[nn.Linear]:
    """The layer that is asked for, or all that could be last."""
    named = {name: each for name, each in model.named_modules() if isinstance(each, nn.Linear)}
    if layer is None:
        found = list(named.values())
    elif isinstance(layer, str):
        found = [named[layer]] if layer in named else []
    else:
        found = [each for each in named.values() if each is layer]
    if not found:
        names = ", ".join(map(repr, list(named)[-4:])) or "none"
        raise ValueError(
            f"last_layer(layer={layer!r}): is no torch.nn.Linear of the network; its last are: "
            f"{names}"
        )
    return found


def _call(model: nn.Module, batch: Any, device: torch.device) -> Tensor:
    """Let the network see a batch; its classes."""
    if isinstance(batch, Mapping):
        name = next((name for name in LABELS if name in batch), None)
        if name is None:
            known = ", ".join(map(repr, LABELS))
            raise ValueError(f"last_layer: a batch has none of {known}: {list(batch)}")
        model(**{key: _there(each, device) for key, each in batch.items() if key != name})
        target = batch[name]
    elif isinstance(batch, tuple | list) and len(batch) > 1:
        *inputs, target = batch
        model(*(_there(each, device) for each in inputs))
    else:
        raise ValueError(
            "last_layer: a batch must be (inputs, target) or a mapping with its labels, got "
            f"{type(batch).__name__}"
        )
    return torch.as_tensor(target)


def _there(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
