"""Train classifiers for the number people report: accuracy, the hit rate.

The expected accuracy of a noisy classifier is smooth, so it can be trained directly.
"""

from hitrate.probability import class_probabilities, expected_accuracy, log_expected_accuracy

__version__ = "0.1.0"

__all__ = ["class_probabilities", "expected_accuracy", "log_expected_accuracy"]
