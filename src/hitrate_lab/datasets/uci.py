"""The 121 UCI sets of Fernández-Delgado et al. in the form and splits of Klambauer et al."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from hitrate_lab.bad_input import BadInput
from hitrate_lab.datasets.files import find_set, read_verified
from hitrate_lab.datasets.sets import Floats, PublishedSet, standardised
from hitrate_lab.datasets.table_sets import table_set

FOLDS = 4


def read_uci(
    name: str, *, split: int = 0, standardise: bool = False, data_dir: Path | None = None
) -> PublishedSet:
    """One published split of one of the 121 sets.

    Parameters
    ----------
    name : str
        One of ``names("uci121")``.
    split : int
        0 to 3. Where there is an official test part, the four differ in the validation rows only.
        Elsewhere each tests a quarter of the rows, and the quarters overlap: they are four random
        splits rather than four folds.
    standardise : bool
        The numbers in the files were standardised before they were split, so training rows carry
        a little of the test rows. True standardises again, by training rows alone, which undoes
        that. Where there is an official test part, training and test rows were standardised each
        by themselves; there the test rows are standardised by themselves again.
    data_dir : Path, optional
        As for `read_table`.

    Returns
    -------
    PublishedSet
        With validation rows.
    """
    whole = f"uci121/{name}"
    known = table_set(whole)
    if split not in range(FOLDS):
        raise BadInput(f"read_uci(split={split!r}): needs 0, 1, 2 or 3")
    folder = find_set(whole, data_dir)
    file = f"{name}_py.dat.gz"
    if name == "miniboone" and not (folder / file).is_file():
        raise BadInput(
            f"{folder} has no features of miniboone, only labels and splits: leave it out, or get "
            f"them with hitrate_lab.datasets.fetch({whole!r}, folder)"
        )
    x = numbers_of(read_verified(folder, file))
    y, tests, validations = (
        numbers_of(read_verified(folder, f"{part}_py.dat.gz")).astype(np.int64)
        for part in ("labels", "folds", "validation_folds")
    )
    found = (len(x), x.shape[1], int(y.max()) + 1)
    if found != (known.rows, known.features, known.classes):
        raise BadInput(
            f"{folder}: {found[0]} rows, {found[1]} features and {found[2]} classes; should have "
            f"{known.rows}, {known.features} and {known.classes}; fetch it again"
        )
    test = tests[:, split] == 1
    validation = validations[:, split] == 1
    train = ~test & ~validation
    notes = list(known.notes)
    if known.test_rows:
        kind = f"official test part, validation {split} of {FOLDS}"
    else:
        kind = f"random split {split} of {FOLDS}"
        notes.append("the test rows of the four splits overlap")
    if standardise:
        scaled, _ = standardised(x, train)
        if known.test_rows:
            scaled[test] = standardised(x, test)[0][test]
        x = scaled
    y = y[:, 0]
    return PublishedSet(
        whole,
        x[train],
        y[train],
        x[test],
        y[test],
        x[validation],
        y[validation],
        tuple(str(each) for each in range(known.classes)),
        kind,
        tuple(notes),
    )


def numbers_of(content: bytes) -> Floats:
    """The numbers (rows, columns) of a file that has nothing else; ValueError if it has."""
    if not content.strip():
        raise ValueError("no numbers")
    return np.loadtxt(io.BytesIO(content), delimiter=",", ndmin=2)
