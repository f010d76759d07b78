"""Fit one method to a whole table, and predict the rows of a file with it."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hitrate_lab.bad_input import BadInput, listed
from hitrate_lab.metrics import DEFAULT, metric_named
from hitrate_lab.models.folder import load_model
from hitrate_lab.models.saved import About, SavedModel
from hitrate_lab.tables import Columns, Table
from hitrate_lab.tables.labels import UNKNOWN
from hitrate_lab.tables.reading import read_rows, source_file
from hitrate_lab.tables.vectors import TextEncoder, read_by, same_encoder, with_vectors
from hitrate_lab.whole_file import whole_file

Array = NDArray[Any]

TRIALS = 4
# Rows that are predicted at one time, and features of all of them together.
MOST_ROWS, MOST_FEATURES = 20_000, 4_000_000
DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Predicted:
    """What came of a file.

    Parameters
    ----------
    rows : int
    counts : dict
        How often each class was predicted.
    accuracy : float or None
        Where the file has the target: the share of rows that are right, of those whose label is
        one of the model's classes; None if there are none.
    unknown : int
        Rows whose label is none of these.
    """

    rows: int
    counts: dict[Any, int]
    accuracy: float | None
    unknown: int = 0


def fit_table(
    table: Table,
    method_name: str,
    *,
    seed: int = 0,
    trials: int = TRIALS,
    metric: str = DEFAULT,
    costs: Any = None,
    accuracy: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> SavedModel:
    """Choose a method's parameters on held-out rows, as a comparison does, and fit it to all rows.

    Parameters
    ----------
    table : Table
    method_name : str
        "<model>/<loss>", such as "linear/exact".
    seed : int
    trials : int
        Candidates to choose from.
    metric : str
        Of `hitrate_lab.metrics.METRICS`: what the best of them has.
    costs : array, shape (C, C), optional
        As for `compare`.
    accuracy : float, optional
        What a comparison found for this method, to be kept with the model.
    progress : callable, optional
        Is told in a few words what is going on.

    Returns
    -------
    SavedModel
        To predict with, or for `save_model`.

    Examples
    --------
    >>> from hitrate_lab.tables import read_table
    >>> from hitrate_lab.compare.fit import fit_table
    >>> table = read_table("iris")
    >>> model = fit_table(table, "linear/cross_entropy", trials=1)
    >>> float((model.predict(table.features) == table.target).mean()) > 0.9
    True
    """
    import hitrate
    from hitrate_lab.compare.folds import chosen_on, codes
    from hitrate_lab.compare.one_run import best_candidate, fitted
    from hitrate_lab.models.methods import methods
    from hitrate_lab.seeds import seed_of

    say = progress or (lambda _: None)
    if seed < 0:
        raise BadInput(f"seed={seed}: needs 0 or more")
    # Estimators take no larger one.
    own = seed if seed < 2**31 else seed_of(seed)
    model, slash, loss = method_name.partition("/")
    if not slash:
        raise BadInput(f"method {method_name!r}: is not <model>/<loss>, such as linear/exact")
    (method,) = methods([model], [loss])
    judge = metric_named(metric, len(table.classes), costs)
    y = codes(table)
    columns = Columns(forms=table.forms).fit(table.features)
    x = columns.transform(table.features)
    candidates = method.candidates(trials, len(y))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        most = chosen_on(len(y))
        if len(candidates) > 1:
            of = "" if most is None else f" on {most:,} of {len(y):,} rows"
            say(f"{method.label}: choosing between {len(candidates)} candidates{of}")
        parameters, _ = best_candidate(
            x, y, method, candidates, own, len(table.classes), judge, most
        )
        say(f"{method.label}: fitting {len(y)} rows, {x.shape[1]} features")
        estimator = fitted(method, parameters, own, x, y)
    for each in sorted({f"{each.category.__name__}: {each.message}" for each in said}):
        say(each)
    about = About(
        method=method.name,
        parameters=parameters,
        seed=seed,
        table=table.name,
        target=table.target_name,
        classes=tuple(table.classes),
        rows=len(y),
        accuracy=accuracy,
        hitrate=hitrate.__version__,
    )
    return SavedModel(columns, estimator, about)


def predict_file(
    model_folder: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    data_dir: Path | None = None,
    overwrite: bool = False,
    verify_key: str | Path | None = None,
    encoder: TextEncoder | None = None,
) -> Predicted:
    """Predict every row of a file, in order, into another file.

    Its columns are "prediction" and, for each class, "p(<class>)". Labels are written as they are:
    one that begins with = + - or @ is a formula to a spreadsheet.

    Parameters
    ----------
    model_folder : str or Path
        As from `save_model`.
    source : str or Path
        As for `read_table`; its rows are read part by part.
    out : str or Path
        .csv, .tsv or .parquet; it is complete or not there.
    data_dir : Path, optional
    overwrite : bool
        Whether `out` may be there already.
    verify_key : str or Path, optional
        As for `load_model`.
    encoder : TextEncoder, optional
        What read the texts that the model was fitted to, if something did.

    Returns
    -------
    Predicted
    """
    out = Path(out)
    file = source_file(source, data_dir)
    _may_be_written(out, file, overwrite)
    model = load_model(model_folder, verify_key=verify_key)
    names = ["prediction", *(f"p({label})" for label in model.classes)]
    rows = min(MOST_ROWS, max(1, MOST_FEATURES // model.columns.width))
    counts = np.zeros(len(model.classes), np.int64)
    right = judged = unknown = 0
    target = model.about.target
    texts, name = read_by(model.columns.used)
    _check_encoder(texts, name, encoder)
    frames = read_rows(
        source,
        rows,
        data_dir=data_dir,
        as_text=[target, *texts],
        as_numbers=model.columns.plain_numbers,
    )
    with _complete(out, names) as write, closing(frames):
        for frame in frames:
            try:
                if encoder is not None:
                    frame = with_vectors(frame, texts, encoder, name=name)
                number, p = model.numbers_and_probabilities(frame)
            except BadInput as error:
                raise BadInput(f"{file or source}: {error}") from None
            write(model.labels(number), p)
            counts += np.bincount(number, minlength=len(counts))
            if target in frame.columns:
                truth = model.class_numbers(frame[target])
                judged += int((truth >= 0).sum())
                right += int((truth == number).sum())
                unknown += int((truth == UNKNOWN).sum())
    return Predicted(
        rows=int(counts.sum()),
        counts=dict(zip(model.classes, counts.tolist(), strict=True)),
        accuracy=right / judged if judged else None,
        unknown=unknown,
    )


def _check_encoder(texts: list[str], name: str | None, encoder: TextEncoder | None) -> None:
    """Refuse another encoder than the model's, or none; its folder may have another name."""
    given = None if encoder is None else encoder.name
    if name is None and given is not None:
        raise BadInput(f"the model reads no text by an encoder; leave {given} out")
    if name is not None and given is None:
        raise BadInput(f"the model reads {listed(texts)} by the encoder {name}; say --encoder DIR")
    if name is not None and given is not None and not same_encoder(name, given):
        raise BadInput(f"the model reads {listed(texts)} by the encoder {name}, this is {given}")


def _may_be_written(out: Path, source: Path | None, overwrite: bool) -> None:
    """Refuse what is not to be written to."""
    if out.suffix.lower() not in (*DELIMITERS, ".parquet"):
        raise BadInput(f"{out}: predictions are written as .csv, .tsv or .parquet")
    if out.is_dir():
        raise BadInput(f"{out} is a folder; name a file")
    if out.exists() and source is not None and source.exists() and out.samefile(source):
        raise BadInput(f"{out} is the file to predict; name another one")
    if out.exists() and not overwrite:
        raise BadInput(f"{out} is there already; say that it may be overwritten (--overwrite)")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"{out}: there is no folder {out.parent}")


@contextmanager
def _complete(out: Path, names: list[str]) -> Iterator[Callable[[Array, Array], None]]:
    """A way to write rows of labels (n,) and probabilities (n, C); the file is there at the end."""
    opened = _delimited if out.suffix.lower() in DELIMITERS else _parquet
    with (
        whole_file(out) as new,
        opened(new, names, DELIMITERS.get(out.suffix.lower(), "")) as write,
    ):
        yield write


@contextmanager
def _delimited(
    path: Path, names: list[str], delimiter: str
) -> Iterator[Callable[[Array, Array], None]]:
    """Rows of text, probabilities with six digits."""
    with path.open("x", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        rows.writerow(names)

        def write(label: Array, p: Array) -> None:
            for each, numbers in zip(label.tolist(), p.tolist(), strict=True):
                rows.writerow([each, *(f"{number:.6g}" for number in numbers)])

        yield write


@contextmanager
def _parquet(path: Path, names: list[str], _: str) -> Iterator[Callable[[Array, Array], None]]:
    """Columns of Parquet, one group of rows at a time."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput("writing Parquet needs pyarrow: pip install pyarrow") from None
    writers: list[Any] = []

    def write(label: Array, p: Array) -> None:
        columns = [pyarrow.array(label.tolist()), *map(pyarrow.array, p.T)]
        part = pyarrow.Table.from_arrays(columns, names=names)
        if not writers:
            writers.append(parquet.ParquetWriter(path, part.schema))
        writers[0].write_table(part)

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()
