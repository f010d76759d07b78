"""Losses with cross entropy's options: a Module each, and a function that is made from it."""

from hitrate.losses import (
    class_balance,
    exact,
    expected_cost,
    expected_f_beta,
    generalized_cross_entropy,
    linear,
    named,
    normalization,
)
from hitrate.losses.base import ClassificationLoss as ClassificationLoss
from hitrate.losses.base import function_name
from hitrate.losses.baselines import complement, hinge, max_mahalanobis, maximum_probability
from hitrate.losses.baselines.complement import *
from hitrate.losses.baselines.hinge import *
from hitrate.losses.baselines.max_mahalanobis import *
from hitrate.losses.baselines.maximum_probability import *
from hitrate.losses.class_balance import *
from hitrate.losses.exact import *
from hitrate.losses.expected_cost import *
from hitrate.losses.expected_f_beta import *
from hitrate.losses.generalized_cross_entropy import *
from hitrate.losses.linear import *
from hitrate.losses.link_loss import LinkLoss as LinkLoss
from hitrate.losses.named import *
from hitrate.losses.normalization import *

PARTS = (
    exact,
    named,
    generalized_cross_entropy,
    hinge,
    complement,
    maximum_probability,
    max_mahalanobis,
    expected_cost,
)

# Exported from here, and from `hitrate`; the registry and base classes are found here only. The
# registry is of losses that are a mean over rows, which an F-measure is not.
__all__: list[str] = []
__all__ += normalization.__all__
__all__ += class_balance.__all__
__all__ += linear.__all__
__all__ += exact.__all__
__all__ += named.__all__
__all__ += generalized_cross_entropy.__all__
__all__ += hinge.__all__
__all__ += complement.__all__
__all__ += maximum_probability.__all__
__all__ += max_mahalanobis.__all__
__all__ += expected_cost.__all__
__all__ += expected_f_beta.__all__


def _named(parts: tuple[object, ...]) -> dict[str, type[ClassificationLoss]]:
    """Every loss that a part exports, by the name of its function without the ending."""
    # In this order they are listed to people.
    found: dict[str, type[ClassificationLoss]] = {
        "cross_entropy": named.CrossEntropyLoss,
        "exact": exact.ExactLoss,
    }
    for part in parts:
        for member in (getattr(part, name) for name in part.__all__):  # type: ignore[attr-defined]
            if isinstance(member, type) and issubclass(member, ClassificationLoss):
                found[function_name(member).removesuffix("_loss")] = member
    return found


# Every loss by the name that the command line, studies and estimators use.
LOSSES: dict[str, type[ClassificationLoss]] = _named(PARTS)
