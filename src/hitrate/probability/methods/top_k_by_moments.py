"""log p of being among the k highest: the hardest rivals one by one, others as moments.

The few rivals that are the hardest to beat are counted one after the other, docs/math.md (41). All
others, the crowd, enter through power sums of their odds (56), sums of smooth functions of one
margin: two dozen moments of a row stand for thousands of rivals (59). Their slopes are one function
of the margin (57). All in float64, in numpy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hitrate.probability.execution import MOST_KEPT, NUMPY_BLOCK, ROOM
from hitrate.probability.methods.even_nodes import EvenNodes
from hitrate.probability.methods.fading_moments import (
    ARRAYS,
    TERMS,
    FadingMoments,
    fading_interpolation,
)
from hitrate.probability.methods.poisson_binomial import log_odds

Array = npt.NDArray[Any]

# The hardest rivals are k and so many more: so many would have to lose before the crowd counts.
MORE = 5
# Up to this k powers of odds are numbers.
MOST = 64
# The crowd's margins are measured from here behind the k-th closest at the most.
FARTHEST = 30.0
# Tables have a multiple of so many nodes.
STRIDE = 64


class Rows(NamedTuple):
    """What the integrals of N rows are made of.

    Attributes
    ----------
    hard : array, shape (N, M)
        Margins of the hardest rivals.
    closest : array, shape (N,)
        The k-th closest margin.
    first : array, shape (N,)
        Where margins of the crowd are measured from.
    low, high : array, shape (N,)
        Ends of the integral over t.
    moments : array, shape (N, TERMS) or (N, 0)
        The crowd's, if there is one.
    """

    hard: Array
    closest: Array
    first: Array
    low: Array
    high: Array
    moments: Array

    def of(self, some: Array) -> Rows:
        """Some of them."""
        return Rows(*(field[some] for field in self))


class Found(NamedTuple):
    """log p (N,), the slopes of the hardest rivals (N, M), and coefficients of the crowd's."""

    log_p: Array
    slopes: Array
    coefficients: Array


def by_moments(a: Tensor, k: int, near: EvenNodes) -> tuple[Tensor, Tensor]:
    """Value and slopes of log p of rows that even nodes serve.

    Parameters
    ----------
    a : Tensor of float64, shape (N, C)
        Scaled margins, on a CPU.
    k : int
        From 2 to `MOST`.
    near : EvenNodes

    Returns
    -------
    log_p : Tensor, shape (N,)
    slope : Tensor, shape (N, C)
    """
    count, classes = a.shape
    hardest = min(k + MORE, classes - 1)
    has_crowd = hardest < classes - 1
    margins, who = (found.numpy() for found in a.topk(hardest + has_crowd, 1, largest=False))
    low, high = (
        end.numpy()[:, 0] for end in near.ends(torch.from_numpy(margins[:, k - 1 : k]), classes, k)
    )
    closest = margins[:, k - 1]
    first = np.minimum(margins[:, -1], closest + FARTHEST) if has_crowd else closest
    # Places of the hardest in the flat array.
    places = who[:, :hardest] + classes * np.arange(count)[:, None]
    slope = np.zeros((count, classes))
    found = Found(np.empty(count), np.empty((count, hardest)), np.empty((count, TERMS * has_crowd)))
    rows = Rows(margins[:, :hardest], closest, first, low, high, np.empty_like(found.coefficients))
    if has_crowd:
        for some, factors in _factors(a.numpy(), first, places, near.fading):
            factors.moments(rows.moments[some])
    for block in _blocks(rows, k, near, classes):
        of_block = _at_nodes(rows.of(block), k, near, classes)
        for whole, part in zip(found, of_block, strict=True):
            whole[block] = part
    if has_crowd:
        for some, factors in _factors(a.numpy(), first, places, near.fading):
            factors.read(found.coefficients[some], slope[some])
        # What rounds to less than nothing is nothing.
        np.maximum(slope, 0.0, out=slope)
    slope.reshape(-1)[places] = found.slopes
    return torch.from_numpy(found.log_p), torch.from_numpy(slope)


def _factors(
    a: Array, first: Array, places: Array, fading: float
) -> Iterator[tuple[slice, FadingMoments]]:
    """Some rows at a time, and the factors of their crowds."""
    count, classes = a.shape
    size = max(1, NUMPY_BLOCK // classes)
    for start in range(0, count, size):
        some = slice(start, start + size)
        left_out = places[some] - start * classes
        factors = ROOM.of(FadingMoments, ((ARRAYS, len(left_out), classes),))
        factors.write(a[some], first[some], fading, left_out)
        yield some, factors


def _blocks(rows: Rows, k: int, near: EvenNodes, classes: int) -> Iterator[Array]:
    """Rows whose nodes lie together, as many as buffers have room for."""
    hardest = rows.hard.shape[1]
    nodes = (rows.high - rows.low).max() / _step(rows, k, near, classes)
    most = max(1, int(MOST_KEPT / (nodes * ((hardest + 5) * (k + 1)))))
    order = np.argsort(rows.low + rows.high + 2.0 * rows.first)
    yield from np.array_split(order, -(-len(order) // most))


def _step(rows: Rows, k: int, near: EvenNodes, classes: int) -> float:
    """Distance of the nodes: that of the rows that are the furthest behind."""
    lowest = rows.closest.min()
    known = (band[0] for band in near.bands if band[0] <= lowest)
    return near.spacing(classes, k, next(known, near.reach[0]))


class Space(NamedTuple):
    """Memory for n rows at K nodes.

    Attributes
    ----------
    states : array, shape (M + 1, k, n, K)
        Of the crowd, and of it and the hardest up to each: the probabilities that exactly
        0, 1, ..., k - 1 are ahead.
    x : array, shape (M, n, K)
        Margins of the hardest, plus t.
    sums : array, shape (2 k, n, K)
        Over the crowd, of what the tables are of.
    after : array, shape (k, n, K)
        Of the hardest that come after one: exactly k - 1, ..., 0 ahead.
    density : array, shape (n, K)
        The slope in t of P(fewer than k ahead).
    """

    states: Array
    x: Array
    sums: Array
    after: Array
    density: Array
    work: Array  # (k, n, K)
    others: Array  # (n, K)

    @classmethod
    def of(cls, hardest: int, k: int, shape: tuple[int, ...]) -> Space:
        """Uninitialised."""
        of_k = (k, *shape)
        shapes = (hardest + 1, *of_k), (hardest, *shape), (2 * k, *shape), of_k, shape, of_k, shape
        return ROOM.of(cls, shapes)


def _at_nodes(rows: Rows, k: int, near: EvenNodes, classes: int) -> Found:
    """log p and slopes of rows whose nodes lie together."""
    hardest, has_crowd = rows.hard.shape[1], rows.moments.shape[1] > 0
    step = _step(rows, k, near, classes)
    left, right = (rows.low + rows.first).min(), (rows.high + rows.first).max()
    if has_crowd:
        left = max(left, near.lowest)
    # All rows have the same nodes, measured from `first`.
    begin, end = (math.floor((left - near.lowest) / step), math.ceil((right - near.lowest) / step))
    nodes = slice(begin, end + 1)
    t = near.lowest + step * np.arange(begin, end + 1) - rows.first[:, None]  # (n, K)
    space, tables = Space.of(hardest, k, t.shape), None
    if has_crowd:
        tables = _tables(near, k, step, STRIDE * -(-nodes.stop // STRIDE))[:, :, nodes]
        np.matmul(rows.moments, tables, out=space.sums)
        _count_crowd(space)
    else:
        space.states[0] = 0.0
        space.states[0, 0] = 1.0

    log_weight = near.log_density(torch.from_numpy(t)).numpy() + math.log(step)
    scale = log_weight.max(1)
    weight = np.exp(log_weight - scale[:, None])
    slopes = _count_hard(space, rows.hard, t, weight, near)
    fewer = space.states[-1]
    log_p = np.log(np.einsum("rk,rk->r", weight, fewer.sum(0))) + scale
    coefficients = rows.moments
    if tables is not None:
        # (57): terms of both signs, small beside what the hardest add.
        turned, density = fewer[::-1], space.density
        density += np.einsum("jrk,jrk->rk", turned, space.sums[k:])
        np.multiply(turned, weight, out=space.work)
        coefficients = np.matmul(space.work, tables[k:].swapaxes(1, 2)).sum(0)
    # By parts (58): 1 - p is a sum of positive terms.
    likely = rows.closest > 0
    if likely.any():
        cdf = near.tails(torch.from_numpy(t[likely]))[0].numpy()
        missed = step * np.einsum("rk,rk->r", cdf, space.density[likely])
        behind = log_p[likely]
        log_p[likely] = np.where(missed < 0.5, np.log1p(-np.minimum(missed, 0.5)), behind)
    factor = np.exp(scale - log_p)[:, None]
    return Found(log_p, slopes * factor, coefficients * factor)


def _count_crowd(space: Space) -> None:
    """The first state, of the crowd alone, from its power sums by Newton's identities (56).

    Where hardly any number of the crowd is as likely as roundings, these have both signs; they go
    together, and none may be left out.
    """
    exactly, term = space.states[0], space.others
    k = len(exactly)
    powers = space.sums[:k]  # But for the first, which is log F.
    np.exp(np.minimum(powers[0], 0.0, out=term), out=exactly[0])
    for j in range(1, k):
        np.multiply(powers[1], exactly[j - 1], out=exactly[j])
        for i in range(2, j + 1):
            np.multiply(powers[i], exactly[j - i], out=term)
            (np.add if i % 2 else np.subtract)(exactly[j], term, out=exactly[j])
        exactly[j] /= j


def _count_hard(space: Space, hard: Array, t: Array, weight: Array, near: EvenNodes) -> Array:
    """The other states, and the hardest rivals' part of `density`; returns their slopes (n, M)."""
    states, x, _, after, density, work, others = space
    k, hardest = len(after), hard.shape[1]
    np.add(hard.T[:, :, None], t, out=x)
    lose, ahead, f = (tail.numpy() for tail in near.tails(torch.from_numpy(x)))
    for i in range(hardest):
        np.multiply(states[i], lose[i], out=states[i + 1])
        np.multiply(states[i, :-1], ahead[i], out=work[1:])
        states[i + 1, 1:] += work[1:]
    after[:-1], after[-1], density[...] = 0.0, 1.0, 0.0
    slopes = np.empty((len(t), hardest))
    for i in reversed(range(hardest)):
        start = max(k - (hardest - i), 0)
        np.multiply(states[i, start:], after[start:], out=work[start:])
        np.add.reduce(work[start:], 0, out=others)
        others *= f[i]
        density += others
        np.einsum("rk,rk->r", others, weight, out=slopes[:, i])
        np.multiply(after[start:], ahead[i], out=work[start:])
        after[start:] *= lose[i]
        lower = max(start - 1, 0)
        after[lower:-1] += work[lower + 1 :]
    return slopes


@functools.lru_cache(maxsize=16)
def _tables(near: EvenNodes, k: int, step: float, count: int) -> Array:
    """Coefficients (2 k, TERMS, count) of functions of the crowd's margins, at nodes.

    Of log F and the odds' powers r, ..., r^(k - 1); then of h, -h r, ..., (-r)^(k - 1) h.
    """
    from hitrate.probability.noises import NOISES

    s, to_coefficients = fading_interpolation()
    behind = -np.log(s) / near.fading
    x = torch.from_numpy(behind[:, None] + near.lowest + step * np.arange(count))
    log_cdf, log_hazard = NOISES[near.noise].log_cdf_and_log_hazard(x)
    log_r, power = log_odds(log_cdf), torch.arange(k, dtype=x.dtype)[:, None, None]
    sign = 1.0 - 2.0 * (power % 2)
    values = torch.cat([(power * log_r).exp(), sign * (log_hazard + power * log_r).exp()])
    values[0] = log_cdf
    found: Array = np.matmul(to_coefficients, values.numpy())
    return found
