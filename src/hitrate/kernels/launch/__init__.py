"""Launchers: from tensors to kernels, no autograd, no checks of what the user said."""

from __future__ import annotations

from torch import Tensor

from hitrate.kernels.launch.all_classes import NOISES, ClassesCall
from hitrate.kernels.launch.operation import log_probability
from hitrate.kernels.launch.rows import RowsCall
from hitrate.kernels.launch.rule import Call, Found, Now, Numbers, Rule, on_device
from hitrate.kernels.launch.scaling import times
from hitrate.kernels.launch.softmax import SoftmaxCall
from hitrate.kernels.parts.link_code import compiled

__all__ = [
    "Call",
    "Found",
    "Now",
    "Numbers",
    "Rule",
    "call_of",
    "compiled",
    "log_probability",
    "on_device",
    "times",
]


def call_of(
    logits: Tensor,
    target: Tensor,
    sigma: float | Tensor,
    weight: Tensor | None,
    rule: Rule,
    *,
    wanted: bool,
    learned: bool,
) -> Call:
    """The kernels of a loss of logits (N, C), or (N, C, D) for Gumbel noise, like these.

    Logits are in float32 or half precision, tensors contiguous; one of sigma has one value, or N.
    `wanted` and `learned` say whether gradients in logits and sigma will be asked for. All
    arithmetic is in float32. The calls are made with the tensors' device the current one.
    """
    if rule.noise == "gumbel":
        return SoftmaxCall(logits, target, sigma, weight, rule)
    if rule.noise in NOISES:
        return ClassesCall(logits, target, sigma, weight, rule, wanted=wanted)
    return RowsCall(logits, target, sigma, weight, rule, wanted=wanted, learned=learned)
