"""Columns of free text: words and pairs of words, weighed by rarity, along a few directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.tables.cells import label_text

Array = NDArray[Any]

# With fewer texts that differ, or fewer words that recur, there is too little to find directions.
FEWEST_TEXTS, FEWEST_WORDS = 100, 20
# Words and pairs that are known, and texts that have each of them.
MOST_WORDS, IN_TEXTS = 20_000, 3
# Features, and texts for each of them.
DIRECTIONS, TEXTS_OF_EACH = 256, 10
# Texts that are learned from, spread over all of them, and characters of each.
MOST_TEXTS, LONGEST_TEXT = 50_000, 20_000
POWER_STEPS = 4
# Rows that are turned at one time.
BLOCK = 4096
# No part of a text's state is larger, and no rarity: 1 + log(rows) of more rows than there can be.
LARGEST, LARGEST_RARITY = 1e12, 100
PARTS = ("rarity", "directions", "centre", "scale")


@dataclass(frozen=True, eq=False)
class Prose:
    r"""Texts along the directions in which those of training differ most.

    .. math:: z = (V t - c) / s, \qquad t_w = (1 + \log n_w) \, r_w / \lVert \cdot \rVert

    where n counts words and pairs of neighbours, r is their rarity, and V has the leading right
    singular vectors of the training rows' t: latent semantic analysis, standardised.

    Parameters
    ----------
    words : tuple of str
        Words and pairs, in the order of the columns of V.
    rarity : array of float, shape (W,)
        log((1 + N) / (1 + texts with it)) + 1.
    directions : array of float32, shape (K, W)
        V.
    centre, scale : arrays of float, shape (K,)
        Mean and standard deviation over the training rows.
    missing : bool
        Whether texts were missing in training; then one more feature says where they are.
    """

    words: tuple[str, ...]
    rarity: Array
    directions: Array
    centre: Array
    scale: Array
    missing: bool

    @classmethod
    def fit(cls, values: Any) -> Self | None:
        """Learn from a column of text; None if there is too little of it."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import CountVectorizer

        texts = _texts(values)
        every = sorted({text for text in texts if text is not None})
        if len(every) < FEWEST_TEXTS:
            return None
        # Evenly spread over the rows, so that the same rows give the same.
        present = [text for text in texts if text is not None]
        some = np.linspace(0, len(present) - 1, min(len(present), MOST_TEXTS)).astype(np.int64)
        chosen = [present[k] for k in some]
        try:
            counter = CountVectorizer(
                ngram_range=(1, 2), min_df=IN_TEXTS, max_features=MOST_WORDS, dtype=np.float64
            )
            counts = counter.fit_transform(chosen)
        except ValueError:
            # No word recurs.
            return None
        if counts.shape[1] < FEWEST_WORDS:
            return None
        words = tuple(map(str, counter.get_feature_names_out()))
        occurs = np.bincount(counts.indices, minlength=len(words))
        rarity = np.log((1 + counts.shape[0]) / (1 + occurs)) + 1
        weighed = _weighed(counts, rarity)
        number = min(DIRECTIONS, len(words) - 1, max(1, len(every) // TEXTS_OF_EACH))
        found = TruncatedSVD(number, n_iter=POWER_STEPS, random_state=0).fit(weighed)
        # As they are kept, so that a model that was saved predicts the same to the last bit.
        directions = found.components_.astype(np.float32)
        z = weighed @ directions.T.astype(np.float64)
        scale = z.std(axis=0)
        used = scale > 1e-9
        if not used.any():
            return None
        return cls(
            words,
            rarity,
            np.ascontiguousarray(directions[used]),
            z.mean(axis=0)[used],
            scale[used],
            any(text is None for text in texts),
        )

    def transform(self, values: Any) -> Array:
        """Features (n, self.width)."""
        from sklearn.feature_extraction.text import CountVectorizer

        texts = _texts(values)
        counter = CountVectorizer(
            ngram_range=(1, 2), vocabulary={word: k for k, word in enumerate(self.words)}
        )
        turned = np.ascontiguousarray(self.directions.T.astype(np.float64))
        blocks = []
        for start in range(0, len(texts), BLOCK):
            counts = counter.transform([text or "" for text in texts[start : start + BLOCK]])
            blocks.append(_weighed(counts.astype(np.float64), self.rarity) @ turned)
        z = np.vstack([*blocks, np.empty((0, len(self.scale)))])
        z = (z - self.centre) / self.scale
        if not self.missing:
            return z
        gaps = np.array([text is None for text in texts], bool)
        # What is missing is the mean, as it is of numbers.
        z[gaps] = 0.0
        return np.column_stack([z, gaps])

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.scale) + self.missing

    def names(self, column: str) -> list[str]:
        """A name for each feature."""
        names = [f"{column} (direction {k})" for k in range(1, len(self.scale) + 1)]
        return names + [f"{column} (missing)"] * self.missing

    @property
    def arrays(self) -> dict[str, Array]:
        """All that is no text, by the names in `PARTS`."""
        return {part: np.asarray(getattr(self, part)) for part in PARTS}

    @classmethod
    def of(cls, words: Sequence[str], arrays: Mapping[str, Array], missing: bool) -> Self:
        """The same again, from parts that nobody vouches for; ValueError if they are none."""
        count, width = len(words), len(arrays["scale"]) if arrays["scale"].ndim == 1 else 0
        shapes = {
            "rarity": (count,),
            "directions": (width, count),
            "centre": (width,),
            "scale": (width,),
        }
        for part, shape in shapes.items():
            dtype = np.float32 if part == "directions" else np.float64
            array = arrays[part]
            if array.shape != shape or array.dtype != dtype or not np.isfinite(array).all():
                raise ValueError(f"{part} of a text's words does not fit them")
        if not width or width > DIRECTIONS or not 0 < count <= MOST_WORDS:
            raise ValueError("a text without words or directions")
        if len(set(words)) != count or not (arrays["scale"] > 0).all():
            raise ValueError("words of a text twice, or a scale that is none")
        rarity = arrays["rarity"]
        if not ((rarity >= 1) & (rarity < LARGEST_RARITY)).all():
            raise ValueError("a rarity is none")
        # Whatever is finite must stay so.
        if max(np.abs(arrays[part]).max() for part in PARTS) > LARGEST:
            raise ValueError("numbers of a text that are too large")
        if arrays["scale"].min() < 1 / LARGEST:
            raise ValueError("a scale of a text that is too small")
        directions, centre, scale = (arrays[part] for part in PARTS[1:])
        return cls(tuple(words), rarity, directions, centre, scale, missing)


def _texts(values: Any) -> list[str | None]:
    """A column's texts, None where missing, cut where they are too long."""
    found = (label_text(value) for value in values.tolist())
    return [None if text is None else text[:LONGEST_TEXT] for text in found]


def _weighed(counts: Any, rarity: Array) -> Any:
    """Weights of words (n, W), of length 1 in each row that has some."""
    x = counts.tocsr()
    x.sort_indices()
    x.data = (1 + np.log(x.data)) * rarity[x.indices]
    length = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel())
    # Rows without words have no data.
    x.data /= np.repeat(length, np.diff(x.indptr))
    return x
