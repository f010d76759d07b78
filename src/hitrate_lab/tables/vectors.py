"""Columns of free text as an encoder's vectors: a column of numbers for each part of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, quoted
from hitrate_lab.tables.cells import label_text

# "Review Text [minilm 3f2a91c0, 17]"
VECTOR = re.compile(r"(.+) \[(.+ [0-9a-f]{8}), ([0-9]+)\]", re.DOTALL)


class TextEncoder(Protocol):
    """What makes vectors (N, I) of N texts."""

    @property
    def name(self) -> str:
        """Such as "minilm 3f2a91c0": what it is called, and eight digits that say what it is."""

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts."""


def with_vectors(
    frame: Any,
    columns: Sequence[str],
    encoder: TextEncoder,
    progress: Callable[[str], None] | None = None,
    *,
    name: str | None = None,
) -> Any:
    """A frame with vectors in the place of columns of text; a missing text is an empty one.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of str
    encoder : TextEncoder
    progress : callable, optional
        Is told which column is read, before it is.
    name : str, optional
        The encoder's in the names of the columns; its own by default.
    """
    name = name or encoder.name
    for column in columns:
        if column not in frame.columns:
            raise BadInput(f"no column {quoted(column)}, whose text the model reads")
        texts = [label_text(value) or "" for value in frame[column].tolist()]
        if progress:
            progress(f"{quoted(column)}: {len(texts):,} texts, read by {encoder.name}")
        vectors = encoder(texts).astype(np.float64)
        names = [f"{column} [{name}, {k}]" for k in range(1, vectors.shape[1] + 1)]
        made = pd.DataFrame(vectors, columns=names, index=frame.index)
        frame = pd.concat([frame.drop(columns=column), made], axis=1)
    return frame


def same_encoder(one: str, other: str) -> bool:
    """Whether two names are those of one encoder, whatever its folder was called.

    >>> same_encoder("minilm 3f2a91c0", "all-MiniLM-L6-v2 3f2a91c0")
    True
    """
    return one.rpartition(" ")[2] == other.rpartition(" ")[2]


def read_by(names: Sequence[str]) -> tuple[list[str], str | None]:
    """Columns of text that are behind the names of features, and their encoder's name.

    Parameters
    ----------
    names : sequence of str
    """
    found = [match for name in names if (match := VECTOR.fullmatch(str(name)))]
    columns = list(dict.fromkeys(match[1] for match in found))
    return columns, found[0][2] if found else None
