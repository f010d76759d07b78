"""log p, p = P(the target's noisy score is the highest), and its gradient.

`accuracy` holds the public functions and the table of methods; each method is one file and
returns value and slope; `autograd` turns them into one differentiable function; `rays` is the
chain rule between logits and scaled margins. Equation numbers are those of docs/math.md.
"""

from hitrate.probability.accuracy import expected_accuracy, log_expected_accuracy
from hitrate.probability.all_classes import class_probabilities, log_class_probabilities

__all__ = [
    "class_probabilities",
    "expected_accuracy",
    "log_class_probabilities",
    "log_expected_accuracy",
]
