"""Train classifiers for the number people report: accuracy, the hit rate.

The expected accuracy of a noisy classifier is smooth, so it can be trained directly.
"""

from hitrate import links, losses, optim, recipes, schedules
from hitrate.calibration import Calibration, calibrate
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
from hitrate.losses.named import *
from hitrate.losses.normalization import *
from hitrate.probability import (
    Noise,
    class_probabilities,
    expected_accuracy,
    log_expected_accuracy,
    register_noise,
)
from hitrate.recipes import recipe
from hitrate.refitting import Headroom, LastLayer, headroom, last_layer
from hitrate.schedules import Schedule

__version__ = "0.1.0"

__all__ = [
    "Calibration",
    "Headroom",
    "LastLayer",
    "Noise",
    "Schedule",
    "calibrate",
    "class_probabilities",
    "expected_accuracy",
    "headroom",
    "last_layer",
    "links",
    "log_expected_accuracy",
    "losses",
    "optim",
    "recipe",
    "recipes",
    "register_noise",
    "schedules",
]
__all__ += losses.__all__
