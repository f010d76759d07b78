"""Repeated stratified folds, and the inner split that parameters are chosen on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput
from hitrate_lab.seeds import seed_of
from hitrate_lab.tables import Table

Array = NDArray[Any]

# Part of the training rows that is held out to choose parameters.
HELD_OUT = 0.2
# Of more training rows so many are drawn to choose parameters: what is chosen from more hardly
# differs, and each candidate takes a fit.
CHOSEN_ON = 100_000


def codes(table: Table) -> Array:
    """The number of each row's class."""
    number = {label: k for k, label in enumerate(table.classes)}
    return np.array([number[label] for label in table.target.tolist()], np.int64)


def possible_folds(target: Array, folds: int) -> tuple[int, str | None]:
    """The number of folds that leaves every class a row in each, and a note if it is smaller.

    Parameters
    ----------
    target : array of int, shape (N,)
        Numbers of classes.
    folds : int
        As many as were asked for.
    """
    if folds < 2:
        raise BadInput(f"folds={folds}: needs 2 or more")
    counts = np.bincount(target)
    counts = counts[counts > 0]
    if len(counts) < 2:
        raise BadInput("the target has one class only; there is nothing to tell apart")
    fewest = int(counts.min())
    if fewest < 2:
        raise BadInput("a class has one row only; add rows, merge classes or remove it")
    if fewest >= folds:
        return folds, None
    return fewest, f"{fewest} folds instead of {folds}: the smallest class has {fewest} rows"


def chosen_on(rows: int) -> int | None:
    """How many of so many training rows parameters are chosen on; None for all."""
    return CHOSEN_ON if rows > CHOSEN_ON else None


def fold_rows(target: Array, folds: int, repeat: int, seed: int) -> list[Array]:
    """Rows of each fold, in order; every class is spread over all of them.

    Parameters
    ----------
    target : array of int, shape (N,)
    folds : int
    repeat : int
        Each repeat deals the rows anew.
    seed : int
    """
    from sklearn.model_selection import StratifiedKFold

    deal = StratifiedKFold(folds, shuffle=True, random_state=seed_of(seed, repeat))
    return [rows for _, rows in deal.split(target, target)]


def inner_split(target: Array, seed: int, most: int | None = None) -> tuple[Array, Array]:
    """Rows to fit candidates to and rows to judge them by: about a fifth of each class.

    A class of one row stays among those that are fitted, any other has rows on both sides.

    Parameters
    ----------
    target : array of int, shape (N,)
    seed : int
    most : int, optional
        Of more rows about so many are drawn, of every class its share.
    """
    random = np.random.default_rng(seed)
    share = 1.0 if most is None else min(1.0, most / max(1, len(target)))
    inside, held_out = [np.arange(0)], [np.arange(0)]
    for each in np.unique(target):
        rows = random.permutation(np.flatnonzero(target == each))
        if share < 1:
            rows = rows[: max(2, round(share * len(rows)))]
        count = max(1, round(HELD_OUT * len(rows))) if len(rows) > 1 else 0
        held_out.append(rows[:count])
        inside.append(rows[count:])
    return np.sort(np.concatenate(inside)), np.sort(np.concatenate(held_out))
