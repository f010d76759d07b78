"""Train classifiers for the number people report: accuracy, the hit rate.

The expected accuracy of a noisy classifier is smooth, so it can be trained directly.
"""

from hitrate import links, losses, optim, recipes, schedules
from hitrate.losses import (
    ComplementObjectiveLoss,
    CrossEntropyLoss,
    ExactLoss,
    ExpectationLoss,
    FocalLoss,
    GeneralizedCrossEntropyLoss,
    HingeLoss,
    MaximumProbabilityCrossEntropyLoss,
    MaxMahalanobisCenterLoss,
    MaxMahalanobisHead,
    MeanAbsoluteErrorLoss,
    MixedLoss,
    TamedCrossEntropyLoss,
    complement_entropy_loss,
    complement_objective_loss,
    complement_objective_step,
    cross_entropy_loss,
    exact_loss,
    expectation_loss,
    focal_loss,
    generalized_cross_entropy_loss,
    hinge_loss,
    max_mahalanobis_center_loss,
    max_mahalanobis_centers,
    maximum_probability_cross_entropy_loss,
    mean_absolute_error_loss,
    mixed_loss,
    normalize_logits,
    tamed_cross_entropy_loss,
)
from hitrate.probability import class_probabilities, expected_accuracy, log_expected_accuracy
from hitrate.recipes import recipe
from hitrate.schedules import Schedule

__version__ = "0.1.0"

__all__ = [
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
    "Schedule",
    "TamedCrossEntropyLoss",
    "class_probabilities",
    "complement_entropy_loss",
    "complement_objective_loss",
    "complement_objective_step",
    "cross_entropy_loss",
    "exact_loss",
    "expectation_loss",
    "expected_accuracy",
    "focal_loss",
    "generalized_cross_entropy_loss",
    "hinge_loss",
    "links",
    "log_expected_accuracy",
    "losses",
    "max_mahalanobis_center_loss",
    "max_mahalanobis_centers",
    "maximum_probability_cross_entropy_loss",
    "mean_absolute_error_loss",
    "mixed_loss",
    "normalize_logits",
    "optim",
    "recipe",
    "recipes",
    "schedules",
    "tamed_cross_entropy_loss",
]
