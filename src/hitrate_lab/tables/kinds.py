"""What each kind of column becomes: its state, learned from training rows, is plain JSON."""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from hitrate_lab.tables.cells import label_text
from hitrate_lab.tables.dates import CLEAR, PARTS, date_parts

Array = NDArray[Any]

# Standardised numbers end here, so that a wild value at prediction stays a number.
FARTHEST = 1e9
# A column whose spread is smaller than this part of its numbers varies by rounding only.
ROUNDING = 1e-12
# Smaller numbers cannot be divided by.
SMALLEST = 1e-290
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Scale:
    """Standardised numbers of some columns, then ones where those with gaps are missing.

    Parameters
    ----------
    mean, scale : tuples of float
        Of each column; scale is 0 for one that does not vary, which is left out.
    gaps : tuple of bool
        Whether a column had missing values in training.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    gaps: tuple[bool, ...]

    @classmethod
    def fit(cls, x: Array) -> Self:
        """Learn from numbers (N, K), NaN where missing."""
        present = ~np.isnan(x)
        count = np.maximum(present.sum(0), 1)
        # Divided by a power of two, which is exact, squares cannot overflow.
        largest = np.abs(np.where(present, x, 0.0)).max(axis=0, initial=0.0)
        unit = np.exp2(np.floor(np.log2(np.maximum(largest, SMALLEST))))
        scaled = np.where(present, x, 0.0) / unit
        mean = scaled.sum(0) / count
        spread = np.sqrt((np.where(present, scaled - mean, 0.0) ** 2).sum(0) / count)
        scale = np.where((spread > ROUNDING) & (largest > SMALLEST), spread * unit, 0.0)
        return cls(
            tuple((mean * unit).tolist()),
            tuple(scale.tolist()),
            tuple(map(bool, np.any(~present, axis=0))),
        )

    def of(self, columns: Array) -> Self:
        """The same of some of the columns."""
        parts = (self.mean, self.scale, self.gaps)
        return type(self)(*(tuple(part[k] for k in columns) for part in parts))

    def transform(self, x: Array) -> Array:
        """Features (n, self.width) of numbers (n, K)."""
        use = np.flatnonzero(self.scale)
        missing = np.isnan(x)
        with np.errstate(over="ignore", invalid="ignore"):
            z = (x[:, use] - np.array(self.mean)[use]) / np.array(self.scale)[use]
        z = np.where(missing[:, use], 0.0, np.clip(z, -FARTHEST, FARTHEST))
        return np.hstack([z, missing[:, np.flatnonzero(self.gaps)]])

    @property
    def width(self) -> int:
        """Number of features."""
        return int(np.count_nonzero(self.scale)) + sum(self.gaps)

    def names(self, columns: Sequence[str]) -> list[str]:
        """A name for each feature."""
        values = [name for name, scale in zip(columns, self.scale, strict=True) if scale]
        gaps = [f"{name} (missing)" for name, gap in zip(columns, self.gaps, strict=True) if gap]
        return values + gaps


@dataclass(frozen=True)
class Categories:
    """One feature per level; missing is a level, and so are all rare ones together.

    Parameters
    ----------
    levels : tuple of str
    missing : bool
        Whether values were missing in training.
    other : bool
        Whether there were more levels than these.
    """

    levels: tuple[str, ...]
    missing: bool
    other: bool

    def codes(self, values: Any) -> Array:
        """Which feature is 1 in each row (n,), -1 for none."""
        own = {level: code for code, level in enumerate(self.levels)}
        gap = len(own) if self.missing else -1
        rest = len(own) + self.missing if self.other else -1
        return of_each_value(
            values, lambda text: gap if text is None else own.get(text, rest), np.int64
        )

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.levels) + self.missing + self.other

    def names(self, column: str) -> list[str]:
        """A name for each feature."""
        extra = ["(missing)"] * self.missing + ["(other)"] * self.other
        return [f"{column}={level}" for level in (*self.levels, *extra)]


@dataclass(frozen=True)
class Dates:
    """Year, month, day, weekday, hour and days passed, those of them that vary, standardised.

    Parameters
    ----------
    scale : Scale
    order : str
        What 01/02/2024 means, as for `date_parts`.
    """

    scale: Scale
    order: str = CLEAR

    @classmethod
    def fit(cls, values: Any, order: str = CLEAR) -> Self:
        """Learn from a column."""
        parts = cls.parts(values, order)
        found = Scale.fit(parts)
        # All parts are missing together, so one says it.
        gaps = (found.gaps[0],) + (False,) * (len(PARTS) - 1)
        return cls(Scale(found.mean, found.scale, gaps), order)

    @staticmethod
    def parts(values: Any, order: str) -> Array:
        """The numbers (n, 6) behind dates; NaN where there is none."""
        if values.dtype.kind == "M":
            when = values.dt
            seconds = values.to_numpy().astype("datetime64[s]")
            day = np.where(np.isnat(seconds), math.nan, seconds.astype(np.int64) / 86_400)
            columns = (
                when.year,
                when.month,
                when.day,
                when.day_of_week,
                when.hour + when.minute / 60,
                day,
            )
            return np.column_stack([np.asarray(each, np.float64) for each in columns])
        nothing = (math.nan,) * len(PARTS)
        return of_each_value(
            values,
            lambda text: (text and date_parts(text, order)) or nothing,
            np.float64,
            len(PARTS),
        )

    def transform(self, values: Any) -> Array:
        """Features (n, self.width)."""
        return self.scale.transform(self.parts(values, self.order))

    @property
    def width(self) -> int:
        """Number of features."""
        return self.scale.width

    def names(self, column: str) -> list[str]:
        """A name for each feature."""
        names = self.scale.names([f"{column} ({part})" for part in PARTS])
        return [name.replace(f" ({PARTS[0]}) (missing)", " (missing)") for name in names]


@dataclass(frozen=True)
class Words:
    """Words by their hash, counted, weighed by how rare they are; each row has length 1.

    Parameters
    ----------
    buckets : tuple of int
        The hashes that training rows had.
    rarity : tuple of float
        log((1 + N) / (1 + rows with it)) + 1.
    size : int
        Number of hashes that there are.
    """

    buckets: tuple[int, ...]
    rarity: tuple[float, ...]
    size: int

    @classmethod
    def fit(cls, values: Any, size: int) -> Self:
        """Learn from a column of text."""
        counts = np.zeros(size, np.int64)
        for text in values.tolist():
            counts[list(hashed(label_text(text), size))] += 1
        buckets = np.flatnonzero(counts)
        rarity = np.log((1 + len(values)) / (1 + counts[buckets])) + 1
        return cls(tuple(buckets.tolist()), tuple(rarity.tolist()), size)

    def transform(self, values: Any) -> Any:
        """Sparse features (n, self.width)."""
        place = {bucket: k for k, bucket in enumerate(self.buckets)}
        ends, columns, counts = [0], [], []
        for text in values.tolist():
            for bucket, count in hashed(label_text(text), self.size).items():
                if bucket in place:
                    columns.append(place[bucket])
                    counts.append(count)
            ends.append(len(columns))
        data = np.array(counts, np.float64) * np.array(self.rarity)[np.array(columns, np.int64)]
        x = sparse.csr_matrix((data, columns, ends), shape=(len(values), self.width))
        x.sort_indices()
        length = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel())
        x.data /= np.repeat(length, np.diff(x.indptr))
        return x

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.buckets)

    def names(self, column: str) -> list[str]:
        """A name for each feature."""
        return [f"{column} (words {bucket})" for bucket in self.buckets]


def hashed(text: str | None, size: int) -> Counter[int]:
    """How often each hash occurs among the words of a text."""
    words = WORD.findall(text.lower()) if text else []
    return Counter(zlib.crc32(word.encode("utf-8", "replace")) % size for word in words)


def of_each_value(
    values: Any, meaning: Callable[[str | None], Any], dtype: Any, width: int | None = None
) -> Array:
    """What a function makes of each row's text, asked once for each different value."""
    codes, levels = factorized(values)
    shape: tuple[int, ...] = (len(levels) + 1,) if width is None else (len(levels) + 1, width)
    table = np.empty(shape, dtype)
    for row, level in enumerate((*levels, None)):
        table[row] = meaning(label_text(level))
    return np.asarray(table[codes])


def factorized(values: Any) -> tuple[Array, list[Any]]:
    """Codes (n,) of a column's values, -1 where missing, and the values that they stand for."""
    try:
        codes, levels = pd.factorize(values)
    except TypeError:
        # Lists and the like cannot be looked up; their text can.
        codes, levels = pd.factorize(values.map(label_text))
    return np.asarray(codes), list(levels)


def as_json(kind: Any) -> dict[str, Any]:
    """A state as plain JSON."""
    return {key: _plain(value) for key, value in asdict(kind).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
