"""Many small models at once: every loss, learning rate and seed of one data set in one computation.

`train_many` trains them; `one_by_one.train_one` trains one of them as a plain loop of torch's, and
is what the other is tested against. Models are linear, or have one hidden layer. `linear` and
`linear_one` are such twins for EXACT's linear models, which have more parts.

Shape letters: S seeds, V copies of a seed (one per loss and learning rate), B rows of a batch, I
inputs, H hidden units, C classes.
"""

from hitrate_lab.training.batched.many import train_many
from hitrate_lab.training.batched.one_by_one import train_one
from hitrate_lab.training.batched.setting import ARCHITECTURES, History, Optimizer, Setting, Split
from hitrate_lab.training.batched.variants import Variant

__all__ = [
    "ARCHITECTURES",
    "History",
    "Optimizer",
    "Setting",
    "Split",
    "Variant",
    "train_many",
    "train_one",
]
