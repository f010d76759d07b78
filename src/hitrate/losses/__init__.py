"""Losses with cross entropy's manners: a function each, and a Module that calls it."""

from hitrate.losses.base import ClassificationLoss
from hitrate.losses.baselines.complement import (
    ComplementObjectiveLoss,
    complement_entropy_loss,
    complement_objective_loss,
    complement_objective_step,
)
from hitrate.losses.baselines.hinge import HingeLoss, hinge_loss
from hitrate.losses.baselines.max_mahalanobis import (
    MaxMahalanobisCenterLoss,
    MaxMahalanobisHead,
    max_mahalanobis_center_loss,
    max_mahalanobis_centers,
)
from hitrate.losses.baselines.maximum_probability import (
    MaximumProbabilityCrossEntropyLoss,
    maximum_probability_cross_entropy_loss,
)
from hitrate.losses.cross_entropy import CrossEntropyLoss, cross_entropy_loss
from hitrate.losses.exact import ExactLoss, exact_loss
from hitrate.losses.expectation import ExpectationLoss, expectation_loss
from hitrate.losses.focal import FocalLoss, focal_loss
from hitrate.losses.generalized_cross_entropy import (
    GeneralizedCrossEntropyLoss,
    generalized_cross_entropy_loss,
)
from hitrate.losses.mean_absolute_error import MeanAbsoluteErrorLoss, mean_absolute_error_loss
from hitrate.losses.mixed import MixedLoss, mixed_loss
from hitrate.losses.normalization import normalize_logits
from hitrate.losses.tamed import TamedCrossEntropyLoss, tamed_cross_entropy_loss

# Every loss by the name that the command line, studies and estimators use.
LOSSES: dict[str, type[ClassificationLoss]] = {
    "cross_entropy": CrossEntropyLoss,
    "exact": ExactLoss,
    "expectation": ExpectationLoss,
    "mixed": MixedLoss,
    "focal": FocalLoss,
    "mean_absolute_error": MeanAbsoluteErrorLoss,
    "generalized_cross_entropy": GeneralizedCrossEntropyLoss,
    "tamed_cross_entropy": TamedCrossEntropyLoss,
    "hinge": HingeLoss,
    "complement_objective": ComplementObjectiveLoss,
    "maximum_probability_cross_entropy": MaximumProbabilityCrossEntropyLoss,
    "max_mahalanobis_center": MaxMahalanobisCenterLoss,
}

__all__ = [
    "LOSSES",
    "ClassificationLoss",
    "ComplementObjectiveLoss",
    "CrossEntropyLoss",
    "ExactLoss",
    "ExpectationLoss",
    "FocalLoss",
    "GeneralizedCrossEntropyLoss",
    "HingeLoss",
    "MaxMahalanobisCenterLoss",
    "MaxMahalanobisHead",
    "MaximumProbabilityCrossEntropyLoss",
    "MeanAbsoluteErrorLoss",
    "MixedLoss",
    "TamedCrossEntropyLoss",
    "complement_entropy_loss",
    "complement_objective_loss",
    "complement_objective_step",
    "cross_entropy_loss",
    "exact_loss",
    "expectation_loss",
    "focal_loss",
    "generalized_cross_entropy_loss",
    "hinge_loss",
    "max_mahalanobis_center_loss",
    "max_mahalanobis_centers",
    "maximum_probability_cross_entropy_loss",
    "mean_absolute_error_loss",
    "mixed_loss",
    "normalize_logits",
    "tamed_cross_entropy_loss",
]
