"""One split of a published set, ready to learn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.datasets.files import bases
from hitrate_lab.datasets.table_sets import names_in

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PublishedSet:
    """Training and test rows of a published set.

    Parameters
    ----------
    name : str
        Such as "exact/car" or "uci121/iris".
    X_train, X_test : array, shape (rows, features)
    y_train, y_test : array of int64, shape (rows,)
        Places in `classes`.
    X_validation, y_validation : array or None
        Where rows for validation are published. They are not in the training rows.
    classes : tuple of str
    split : str
        What decided which rows are for testing.
    notes : tuple of str
        What is unusual, one line each.
    """

    name: str
    X_train: Floats
    y_train: Labels
    X_test: Floats
    y_test: Labels
    X_validation: Floats | None
    y_validation: Labels | None
    classes: tuple[str, ...]
    split: str
    notes: tuple[str, ...]


def names(collection: str, *, data_dir: Path | None = None) -> tuple[str, ...]:
    """Names of the sets of "exact" or "uci121", in alphabetical order, read or not.

    miniboone is left out unless its features are in the data folder: few copies have them.

    Parameters
    ----------
    collection : str
    data_dir : Path, optional
        Where to look for miniboone; as for `read_table`.

    Examples
    --------
    >>> from hitrate_lab.datasets import names
    >>> names("exact")[:3], len(names("exact"))
    (('adult', 'annealing', 'audit-risk'), 10)
    """
    every = names_in(collection)
    rare = "uci121/miniboone/miniboone_py.dat.gz"
    if collection == "uci121" and not any((base / rare).is_file() for base in bases(data_dir)):
        every.remove("miniboone")
    return tuple(every)


def standardised(x: Any, train: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Rows minus the mean over the standard deviation of those in `train`.

    The deviation is that of a sample (n - 1). A feature that is constant in `train` becomes 0; the
    second array (features,) says which are not.
    """
    learned = x[train]
    mean = learned.mean(0)
    spread = learned.std(0, ddof=1) if len(learned) > 1 else np.zeros(x.shape[1])
    # A constant feature's deviation is rounding error, relative to its size.
    varies = spread > 1e-12 * np.maximum(1.0, np.abs(mean))
    return np.where(varies, (x - mean) / np.where(varies, spread, 1.0), 0.0), varies
