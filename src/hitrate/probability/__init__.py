"""log p, p = P(the target's noisy score is the highest), and its gradient.

A noise says what it is and what it can do (`noises`); `dispatch` asks it, and decides; each method
is one file in methods/, from scaled margins to value and slope; `autograd` turns them into one
differentiable function; `margins` is the chain rule between logits and margins. Equation numbers
are those of docs/math.md.
"""

from hitrate.probability.accuracy import expected_accuracy, log_expected_accuracy
from hitrate.probability.all_classes import class_probabilities, log_class_probabilities
from hitrate.probability.noises import NOISES, Noise, register_noise

__all__ = [
    "NOISES",
    "Noise",
    "class_probabilities",
    "expected_accuracy",
    "log_class_probabilities",
    "log_expected_accuracy",
    "register_noise",
]
