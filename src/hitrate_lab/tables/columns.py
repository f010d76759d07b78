"""From a table's columns to numbers, by what the training rows show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.tables.cells import label_text, numbers, plain
from hitrate_lab.tables.column_notes import NO_USE, is_free_text, is_id
from hitrate_lab.tables.columns_state import read_state
from hitrate_lab.tables.dates import EXAMPLES, order_of_dates
from hitrate_lab.tables.kinds import Categories, Dates, Scale, Words, as_json, factorized
from hitrate_lab.tables.prose import Prose
from hitrate_lab.tables.written import Form

Array = NDArray[Any]

# Features are sparse if fewer than one in ten is not zero, and they are many.
DENSE, LARGE = 0.1, 5_000_000
# So many values, none of which is a date, are no dates.
ENOUGH = 10


class Columns(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Numbers from a frame's columns: numbers, dates, categories and text.

    The kind of a column is learned from the rows that `fit` sees, and so is everything else.

    - Numbers are standardised. Missing and infinite ones become the mean; where `fit` saw some, a
      feature says so.
    - Columns of dates (datetime64, or text of which 95 % is like 2024-02-29, 2024-02-29 06:30 or
      29.02.2024) become year, month, day, weekday, hour and days passed, standardised. Those like
      29/02/2024 or 02/29/2024 do so if one of them shows which is the day.
    - Text that has spaces and hardly repeats becomes words and pairs of words, weighed by rarity,
      along the directions in which the rows differ most (`Prose`); where there are fewer than 100
      different texts, counts of hashed words, weighed by rarity.
    - All else is a category with one feature for each level. Missing is a level. Of more than
      `levels` the most frequent are kept, the rest is one more. A level that `fit` has not seen
      is that rest, or nowhere 1.
    - Columns that are constant, or text that differs in every row, are not used.

    Features come in this order: all numbers, dates, categories, hashed words, directions of text.

    Parameters
    ----------
    levels : int
        Most levels of a category.
    words : int
        Most features of a column of hashed words.
    forms : dict of Form, optional
        How columns of numbers were written where `fit`'s frame is from; where `transform` finds
        text, it is read in this way.

    Attributes
    ----------
    feature_names_in_ : array of str
    n_features_in_ : int
    notes_ : list of str
        Which columns are not used, and why.
    sparse_ : bool
        Whether `transform` gives a sparse matrix, which it does where that is much smaller.

    Examples
    --------
    >>> import pandas as pd
    >>> from hitrate_lab.tables import Columns
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "colour": ["red", "blue", "red"]})
    >>> columns = Columns().fit(frame)
    >>> columns.get_feature_names_out().tolist()
    ['size', 'size (missing)', 'colour=blue', 'colour=red']
    >>> columns.transform(frame)
    array([[-1.,  0.,  0.,  1.],
           [ 0.,  1.,  1.,  0.],
           [ 1.,  0.,  0.,  1.]])
    """

    def __init__(
        self, *, levels: int = 40, words: int = 512, forms: Mapping[str, Form] | None = None
    ) -> None:
        self.levels = levels
        self.words = words
        self.forms = forms

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a frame.

        Parameters
        ----------
        X : DataFrame, shape (N, columns)
        y
            Not looked at.
        """
        X = _frame(X)
        self.feature_names_in_ = np.array(X.columns, object)
        self.n_features_in_ = X.shape[1]
        self._number_names: list[str] = []
        self._dates: dict[str, Dates] = {}
        self._categories: dict[str, Categories] = {}
        self._texts: dict[str, Words] = {}
        self._prose: dict[str, Prose] = {}
        constant: list[str] = []
        ids: list[str] = []
        for name in X.columns:
            values = plain(X[name])
            kind = values.dtype.kind
            if kind in "iuf":
                self._number_names.append(name)
            elif kind == "M":
                self._add(name, Dates.fit(values), constant)
            else:
                self._add_text(name, values, constant, ids)
        self._forms: dict[str, Form] = {}
        self._fit_numbers(self._numbers_of(X), constant)
        self.notes_ = []
        if constant:
            self.notes_.append(f"not used, the same in every row: {listed(constant)}")
        if ids:
            self.notes_.append(f"not used, text that is different in every row: {listed(ids)}")
        if not self.width:
            raise BadInput(NO_USE)
        filled = self._scale.width + sum(
            each.width for kind in (self._dates, self._prose) for each in kind.values()
        )
        filled += len(self._categories) + sum(min(20, each.width) for each in self._texts.values())
        self.sparse_ = filled < DENSE * self.width and len(X) * self.width > LARGE
        return self

    def _fit_numbers(self, x: Array, constant: list[str]) -> None:
        """Learn from numbers (N, K), and drop those that say nothing."""
        scale = Scale.fit(x)
        # What is missing in every row says as little as what is the same in every row.
        gaps = np.array(scale.gaps, bool) & ~np.isnan(x).all(0)
        used = np.flatnonzero(np.array(scale.scale).astype(bool) | gaps)
        names = self._number_names
        constant += [names[k] for k in np.setdiff1d(np.arange(len(names)), used)]
        self._number_names = [names[k] for k in used]
        self._scale = scale.of(used)
        forms = self.forms or {}
        self._forms = {name: forms[name] for name in self._number_names if name in forms}

    def _add(
        self, name: str, kind: Dates | Categories | Words | Prose, constant: list[str]
    ) -> None:
        """Keep a column, or say that it is constant."""
        if isinstance(kind, Dates) and any(kind.scale.scale):
            self._dates[name] = kind
        elif isinstance(kind, Categories) and kind.width > 1:
            self._categories[name] = kind
        elif isinstance(kind, Words) and kind.width:
            self._texts[name] = kind
        elif isinstance(kind, Prose):
            self._prose[name] = kind
        else:
            constant.append(name)

    def _add_text(self, name: str, values: Any, constant: list[str], ids: list[str]) -> None:
        """Find out what a column of text or bools is."""
        codes, found = factorized(values)
        counts: dict[str, int] = {}
        for text, count in zip(
            map(label_text, found),
            np.bincount(codes[codes >= 0], minlength=len(found)).tolist(),
            strict=True,
        ):
            if text is not None:
                counts[text] = counts.get(text, 0) + count
        present = sum(counts.values())
        gaps = present < len(values)
        if present and values.dtype != bool:
            order = order_of_dates(counts)
            if order in EXAMPLES:
                return self._add(name, Dates.fit(values, order), constant)
            if is_id(counts, present):
                return ids.append(name)
        if len(counts) <= self.levels:
            return self._add(name, Categories(tuple(sorted(counts)), gaps, False), constant)
        if is_free_text(counts, present):
            prose = Prose.fit(values)
            return self._add(name, prose or Words.fit(values, self.words), constant)
        # The most frequent, and of those that are as frequent the first by name.
        ranked = sorted(counts, key=lambda text: (-counts[text], text))
        kept = sorted(text for text in ranked[: self.levels] if counts[text] > 1)
        if not kept:
            return ids.append(name)
        return self._add(name, Categories(tuple(kept), gaps, True), constant)

    @property
    def width(self) -> int:
        """Number of features."""
        kinds = (self._dates, self._categories, self._texts, self._prose)
        return self._scale.width + sum(each.width for kind in kinds for each in kind.values())

    @property
    def numbers(self) -> list[str]:
        """Columns of numbers that are used."""
        return list(self._number_names)

    @property
    def plain_numbers(self) -> list[str]:
        """Those among them that were written as Python writes numbers."""
        return [name for name in self._number_names if name not in self._forms]

    @property
    def used(self) -> list[str]:
        """Columns that rows must have to be transformed."""
        kinds = (self._dates, self._categories, self._texts, self._prose)
        return [*self._number_names, *(name for kind in kinds for name in kind)]

    def transform(self, X: Any) -> Any:
        """Features of the rows of a frame.

        Columns that `fit` has not seen or not used are ignored.

        Parameters
        ----------
        X : DataFrame

        Returns
        -------
        array or csr_matrix of float64, shape (n, self.width)

        Raises
        ------
        BadInput
            A column is missing, or has text where `fit` saw numbers.
        """
        check_is_fitted(self)
        X = _frame(X)
        lost = [name for name in self.used if name not in X.columns]
        if lost:
            has = f"there is {listed(X.columns)}" if X.shape[1] else "there are none"
            raise BadInput(f"columns {listed(lost)} are missing; {has}")
        blocks = [self._scale.transform(self._numbers_of(X))]
        for name, dates in self._dates.items():
            blocks.append(dates.transform(_still_dates(name, plain(X[name]), dates.order)))
        codes = [each.codes(plain(X[name])) for name, each in self._categories.items()]
        indicators = _indicators(codes, [each.width for each in self._categories.values()], len(X))
        texts = [each.transform(plain(X[name])) for name, each in self._texts.items()]
        prose = [each.transform(plain(X[name])) for name, each in self._prose.items()]
        if self.sparse_:
            parts = [*map(sparse.csr_matrix, blocks), indicators, *texts]
            return sparse.hstack([*parts, *map(sparse.csr_matrix, prose)], format="csr")
        dense = [*blocks, indicators.toarray(), *(each.toarray() for each in texts), *prose]
        return np.ascontiguousarray(np.hstack(dense))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """A name for each feature, such as 'size', 'size (missing)' or 'colour=red'."""
        check_is_fitted(self)
        names = self._scale.names(self._number_names)
        for kind in (self._dates, self._categories, self._texts, self._prose):
            for column, each in kind.items():
                names += each.names(column)
        return np.array(names, object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "sparse_")

    def to_json(self) -> dict[str, Any]:
        """The state as plain JSON: all of it but `arrays`."""
        check_is_fitted(self)
        kinds: dict[str, dict[str, Any]] = {
            "dates": self._dates,
            "categories": self._categories,
            "texts": self._texts,
        }
        forms = [{"name": name, **as_json(each)} for name, each in self._forms.items()]
        prose = [
            {"name": name, "words": list(each.words), "missing": each.missing}
            for name, each in self._prose.items()
        ]
        # As models had it before there were these, where there are none.
        more = {word: found for word, found in (("forms", forms), ("prose", prose)) if found}
        return {
            "levels": self.levels,
            "words": self.words,
            "columns": [str(name) for name in self.feature_names_in_],
            "numbers": {"names": list(self._number_names), **as_json(self._scale)},
            **{
                word: [{"name": name, **as_json(each)} for name, each in kind.items()]
                for word, kind in kinds.items()
            },
            **more,
            "sparse": bool(self.sparse_),
            "notes": list(self.notes_),
        }

    @property
    def arrays(self) -> dict[str, Array]:
        """The part of the state that is no JSON, such as "0 scale" of the first column of text."""
        check_is_fitted(self)
        return {
            f"{number} {part}": array
            for number, each in enumerate(self._prose.values())
            for part, array in each.arrays.items()
        }

    @classmethod
    def from_json(cls, state: Any, arrays: Mapping[str, Array] | None = None) -> Self:
        """The transformer whose state and arrays these are; `BadInput` if they are none."""
        found = read_state(state, arrays or {})
        self = cls(levels=found.levels, words=found.words, forms=found.forms)
        self.feature_names_in_ = np.array(found.columns, object)
        self.n_features_in_ = len(found.columns)
        self._number_names, self._scale = found.number_names, found.scale
        self._forms, self._prose = found.forms, found.prose
        self._dates, self._categories, self._texts = found.dates, found.categories, found.texts
        self.sparse_, self.notes_ = found.sparse, found.notes
        return self

    def _numbers_of(self, X: Any) -> Array:
        """The columns of numbers (n, K), NaN where they are missing or infinite."""
        x = np.empty((len(X), len(self._number_names)), order="F")
        for k, name in enumerate(self._number_names):
            values = X[name]
            fast = isinstance(values.dtype, np.dtype) and values.dtype.kind in "iuf"
            x[:, k] = values.to_numpy() if fast else self._parsed(name, plain(values))
        x[np.isinf(x)] = np.nan
        return x

    def _parsed(self, name: str, values: Any) -> Array:
        """A column that should be numbers and is text, as numbers."""
        if values.dtype.kind in "biuf":
            return np.asarray(values, np.float64)
        form = self._forms.get(name)

        def read(texts: Sequence[str | None]) -> Array | None:
            return numbers(texts, padded=True) if form is None else form.numbers(texts)

        texts = [label_text(cell) for cell in values.tolist()]
        found = read(texts)
        if found is not None:
            return found
        wrong = next(k for k, text in enumerate(texts) if read([text]) is None)
        row = values.index[wrong]
        place = row + 1 if isinstance(row, (int, np.integer)) else row
        like = f" like {quoted(form.example)}" if form is not None and form.example else ""
        raise BadInput(
            f"column {quoted(name)}, row {place}: {quoted(texts[wrong])} is not a number{like}"
        )


def _frame(X: Any) -> Any:
    """A frame whose columns have text for names."""
    X = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    if not all(isinstance(name, str) for name in X.columns):
        X = X.set_axis([str(name) for name in X.columns], axis=1)
    if not X.columns.is_unique:
        raise BadInput(f"two columns are called {quoted(X.columns[X.columns.duplicated()][0])}")
    return X


def _still_dates(name: str, values: Any, order: str) -> Any:
    """A column of dates, if it still is one."""
    if values.dtype.kind in "biuf" or values.dtype == object:
        texts = [text for text in map(label_text, values.tolist()) if text is not None]
        if len(texts) >= ENOUGH and np.isnan(Dates.parts(values, order)[:, 0]).all():
            raise BadInput(
                f"column {quoted(name)}: {quoted(texts[0])} is not a date like {EXAMPLES[order]}"
            )
    return values


def _indicators(codes: Sequence[Array], widths: Sequence[int], rows: int) -> Any:
    """Sparse ones (rows, sum of widths) where the codes say, nowhere for a code of -1."""
    every = np.array(codes, np.int64).reshape(len(widths), rows).T  # (n, categories)
    first = np.cumsum([0, *widths])[:-1]
    some = every >= 0
    ends = np.append(0, np.cumsum(some.sum(1)))
    columns = (every + first)[some]
    data = np.ones(len(columns))
    return sparse.csr_matrix((data, columns, ends), shape=(rows, sum(widths)))
