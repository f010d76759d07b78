"""A table to classify, checked, and what is worth knowing about it."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from hitrate_lab.bad_input import BadInput, listed, quoted
from hitrate_lab.tables.column_notes import NO_USE, about_columns, free_texts
from hitrate_lab.tables.labels import labels, refuse_classes, refuse_quantities, unlabelled
from hitrate_lab.tables.vectors import TextEncoder, with_vectors
from hitrate_lab.tables.written import Form


@dataclass(frozen=True, eq=False)
class Table:
    """Rows to classify.

    Parameters
    ----------
    name : str
        "car", or the file's stem.
    features : DataFrame
        Columns are int64, float64, bool, datetime64 or object; objects are str or None.
    target : Series
        Labels: str, int or bool.
    notes : tuple of str
        What a user should know, one line each.
    fingerprint : str
        SHA-256 of the content.
    target_name : str
    row_numbers : array of int, shape (N,)
        Which row of the file each is, the first below the header is 1; by default all of them.
    forms : dict of Form
        How numbers were written in some columns, which a model has to know of new rows.
    """

    name: str
    features: Any
    target: Any
    notes: tuple[str, ...]
    fingerprint: str
    target_name: str
    row_numbers: Any = None
    forms: Mapping[str, Form] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.row_numbers is None:
            object.__setattr__(self, "row_numbers", np.arange(1, len(self.target) + 1))

    @property
    def classes(self) -> list[Any]:
        """Labels in their order, as Python's own str, int or bool."""
        return sorted(pd.unique(self.target).tolist())


def make_table(
    frame: Any,
    target: str,
    name: str,
    *,
    notes: Sequence[str] = (),
    forms: Mapping[str, Form] | None = None,
    text: bool = True,
    encoder: TextEncoder | None = None,
    fewest: int = 2,
    progress: Callable[[str], None] | None = None,
) -> Table:
    """Divide a frame into features and target, after checking both.

    Parameters
    ----------
    frame : DataFrame
        As from `read_frame`, with its target as text or of any plain dtype.
    target : str
        Name of a column.
    name : str
        For messages.
    notes : sequence of str
        From reading.
    forms : dict of Form, optional
        From reading, too.
    text : bool
        Whether columns of free text are features.
    encoder : TextEncoder, optional
        What reads them then, in the place of words.
    fewest : int
        Rows that a class needs.
    progress : callable, optional
        As for `read_table`.
    """
    found = list(notes)
    if target not in frame.columns:
        raise BadInput(no_such_column(target, list(frame.columns), name))
    label = frame[target]
    features = frame.drop(columns=target)
    if not features.shape[1]:
        raise BadInput(
            f"{name}: {quoted(target)} is the only column; there is nothing to learn from"
        )
    missing, about_target = unlabelled(label, target)
    if missing.all():
        raise BadInput(f"{name}: the target {quoted(target)} is empty in every row")
    label = label[~missing].reset_index(drop=True)
    features = features[~missing].reset_index(drop=True)
    refuse_quantities(label, target, name)
    label = labels(label)
    refuse_classes(label, target, name, fewest, about_target)
    features = without_infinities(features, found)
    if not text and (left_out := free_texts(features)):
        found.append(f"not used, free text: {listed(left_out)}")
        features = features.drop(columns=left_out)
        if not features.shape[1]:
            raise BadInput(f"{name}: without free text no column is left")
    if encoder is not None and (columns := free_texts(features)):
        features = with_vectors(features, columns, encoder, progress)
        found.append(f"free text, read by the encoder {encoder.name}: {listed(columns)}")
    elif encoder is not None:
        found.append(f"no column is free text, which the encoder {encoder.name} would read")
    about_features, unused = about_columns(features, label, target)
    if len(unused) == features.shape[1]:
        # What is text and could have been numbers or dates is worth more than that.
        why = [note for note in about_features if not note.startswith("not used")]
        raise BadInput("; ".join([f"{name}: {NO_USE}", *why]))
    return Table(
        name,
        features,
        label,
        (*found, *about_target, *about_features),
        fingerprint(features, label),
        target,
        np.flatnonzero(~missing) + 1,
        {column: form for column, form in (forms or {}).items() if column in features},
    )


def no_such_column(target: str, columns: Sequence[str], name: str) -> str:
    """The complaint that a column is not there, with the name that was perhaps meant."""
    lower = {column.lower(): column for column in reversed(columns)}
    near = difflib.get_close_matches(target.lower(), list(lower), 1, 0.6)
    if near:
        return f"{name}: no column {quoted(target)}; did you mean {quoted(lower[near[0]])}?"
    return f"{name}: no column {quoted(target)}; it has {listed(columns)}"


def without_infinities(features: Any, notes: list[str]) -> Any:
    """The same features with infinite numbers missing; a note says in which columns."""
    floats = features.select_dtypes("floating")
    infinite = np.isinf(floats.to_numpy(np.float64)).any(axis=0)
    if not infinite.any():
        return features
    columns = list(floats.columns[infinite])
    notes.append(f"infinite numbers are taken as missing in {listed(columns)}")
    return features.assign(
        **{column: features[column].where(np.isfinite(features[column])) for column in columns}
    )


def fingerprint(features: Any, label: Any) -> str:
    """SHA-256 (hex) of names, kinds and values."""
    digest = hashlib.sha256()
    for name, values in (*features.items(), (label.name, label)):
        digest.update(repr(str(name)).encode("utf-8", "backslashreplace"))
        digest.update(values.dtype.kind.encode())
        if values.dtype.kind in "iufb":
            # -0 is 0, and there is one NaN.
            number = values.to_numpy(np.float64) + 0.0
            digest.update(np.where(np.isnan(number), np.nan, number).tobytes())
        else:
            text = "\x1f".join("\x00" if value is None else str(value) for value in values.tolist())
            digest.update(text.encode("utf-8", "backslashreplace"))
        digest.update(b"\x1e")
    return digest.hexdigest()
