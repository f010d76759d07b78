"""Launchers: from tensors to kernels, no autograd, no checks of what the user said."""

from hitrate.kernels.launch.rows import (
    Found,
    Rule,
    backward,
    compiled,
    forward,
    is_at_once,
    log_probability,
    scaled,
    slope_in_sigma,
)

__all__ = [
    "Found",
    "Rule",
    "backward",
    "compiled",
    "forward",
    "is_at_once",
    "log_probability",
    "scaled",
    "slope_in_sigma",
]
