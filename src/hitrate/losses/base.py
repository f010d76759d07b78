"""The shell of all losses: stores arguments, calls a function, shows itself."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn


class ClassificationLoss(nn.CrossEntropyLoss):
    """A loss with the options of `nn.CrossEntropyLoss`, and one in the eyes of other libraries.

    Being a subclass tells them that it takes logits: skorch, for one, applies the softmax in
    `predict_proba` when it sees one.
    """

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )

    @property
    def options(self) -> dict[str, Any]:
        """Cross entropy's options as they stand now, for the function's call."""
        return {
            "weight": self.weight,
            "ignore_index": self.ignore_index,
            "reduction": self.reduction,
            "label_smoothing": self.label_smoothing,
        }

    def extra_repr(self) -> str:
        """Positional arguments, and those that differ from their default."""
        shown = []
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            if name == "self" or not hasattr(self, name):
                continue
            value = getattr(self, name)
            always = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            if isinstance(value, Tensor):
                shown.append(f"{name}=Tensor{tuple(value.shape)}")
            elif always or value != parameter.default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)
