"""Arrays that describe a tree, held to what a tree is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

# Of a host's own file of trees, which takes ten times as much at worst to read: a hundred trees for
# each of fifty classes have half of it.
LARGEST = 2**26
# Some of the hosts' own functions call themselves at every level.
DEEPEST = 10_000
# A row's scores, added up over all trees, so that they and their differences stay in float32.
LARGEST_SCORE = 1e30


def whole(numbers: Floats, lowest: int, below: int, name: str) -> NDArray[np.int64]:
    """Whole numbers from `lowest` to `below` - 1.

    Parameters
    ----------
    numbers : array of float64, shape (n,)
    lowest, below : int
    name : str
        For the error.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> whole(np.array([0.0, 2.0]), 0, 3, "tree_info")
    array([0, 2])
    """
    # NaN fails, too.
    good = (numbers >= lowest) & (numbers < below) & (numbers == np.floor(numbers))
    if not good.all():
        strange = numbers[~good][0]
        raise ValueError(f"{name} has {strange:g}, which is no whole number {lowest}..{below - 1}")
    return numbers.astype(np.int64)


def finite(numbers: Floats, largest: float, name: str) -> Floats:
    """Numbers that are at most so large, either way; `ValueError` for others.

    Parameters
    ----------
    numbers : array of float64, shape (n,)
    largest : float
    name : str
        For the error.
    """
    good = np.abs(numbers) <= largest
    if not good.all():
        raise ValueError(f"{name} has {numbers[~good][0]:g}")
    return numbers


def parents_of(left: Array, right: Array, nodes: int) -> NDArray[np.int64]:
    """The parent (n,) of every node, that of the root 0 being itself.

    Every node can be reached from the root in one way; for n nodes that means n - 1 children, each
    of them once, and no node that is its own ancestor.

    Parameters
    ----------
    left, right : arrays of int64, shape (k,)
        Children of nodes 0, ..., k - 1, or -1 for both; the other nodes are leaves.
    nodes : int
        n.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> parents_of(np.array([1, -1, -1]), np.array([2, -1, -1]), 3)
    array([0, 0, 0])
    """
    inner = left >= 0
    if not np.array_equal(inner, right >= 0):
        raise ValueError("a node has one child")
    children = np.concatenate([left[inner], right[inner]])
    times = np.bincount(children, minlength=nodes)
    if len(times) > nodes or times[0] or (times[1:] != 1).any():
        raise ValueError("nodes are not each the child of one other")
    parents = np.zeros(nodes, np.int64)
    parents[children] = np.tile(np.flatnonzero(inner), 2)
    depth, ancestor = (np.arange(nodes) > 0).astype(np.int64), parents
    # Twice as far up with every step; whoever is not at the root at last is in a ring.
    for _ in range(nodes.bit_length()):
        depth = depth + depth[ancestor]
        ancestor = ancestor[ancestor]
    if ancestor.any():
        raise ValueError("nodes form a ring")
    if depth.max() > DEEPEST:
        raise ValueError(f"a tree is {depth.max()} deep")
    return parents
