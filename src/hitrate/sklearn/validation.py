"""What estimators were given, with complaints that show the call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any


@dataclass(frozen=True)
class Validation:
    """An estimator's parameters, as from ``get_params``, and the call that complaints show."""

    call: str
    given: Mapping[str, Any]

    def complain(self, name: str, why: str) -> None:
        """Refuse a parameter, showing its value."""
        raise ValueError(f"{self.call}: {name}={self.given[name]!r} {why}")

    def number(
        self,
        name: str,
        *,
        low: float | None = None,
        above: float | None = None,
        below: float = math.inf,
    ) -> None:
        """Refuse what is no number within these limits."""
        value = self.given[name]
        if isinstance(value, Real) and not isinstance(value, bool):
            number = float(value)
            high_enough = number >= low if low is not None else above is None or number > above
            # An infinite sigma is the convex start of the path.
            if high_enough and (number < below or name == "sigma"):
                return
        limits = ((">=", low), (">", above), ("<", below if below < math.inf else None))
        bounds = [f"{word} {limit:g}" for word, limit in limits if limit is not None]
        self.complain(name, f"must be a number {' and '.join(bounds)}")

    def whole(self, name: str) -> None:
        """Refuse what is no whole number from 1 on."""
        value = self.given[name]
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            self.complain(name, "must be a whole number >= 1")
