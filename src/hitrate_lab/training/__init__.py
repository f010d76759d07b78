"""Networks in training.

`Trainer` takes a network, its rows and `Options`; it keeps its state in a folder, where a training
that was killed goes on, and shares its batches with the processes that torchrun starts. `batched`
trains many small models in one computation.
"""

from hitrate_lab.training import processes
from hitrate_lab.training.options import Options
from hitrate_lab.training.rows import Ragged, Rows, Source
from hitrate_lab.training.trainer import Epoch, Trainer

__all__ = ["Epoch", "Options", "Ragged", "Rows", "Source", "Trainer", "processes"]
