"""What helps an optimizer with losses that train for accuracy.

`GradientNormalizer` takes out the growth of EXACT's gradient; `ASAM` looks for flat minima. Both
work with mixed precision, accumulation and sharded parameters, and neither waits for the device.
"""

from hitrate.optim.asam import ASAM
from hitrate.optim.gradient_normalizer import GradientNormalizer

__all__ = ["ASAM", "GradientNormalizer"]
